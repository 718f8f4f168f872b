"""Runs of this machine or of a store, sampled again and again; and which of them a name means."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import click

from ...distributed.store import StoreDown
from ...errors import ConfigError
from ...fleet.state_store import RunStateStore, open_run_state
from ...formatting import nearest_name, redact
from ...observe.event_buffer import is_routine
from ...observe.snapshot import EventLine, MonitoredRun, RunSnapshot
from ...observe.sources.fleet import FleetRuns
from ...stores import is_redis
from .run_page import HERE, MOST_EVENTS, RunsFrame, RunView
from .store_page import PATIENCE, RAY, StoreContent, StoreUnreachable, store_frame
from .terminal import CommandFailed

MOST_NAMES = 5


class ShownRun(MonitoredRun, Protocol):
    @property
    def name(self) -> str: ...


class ShownRuns(Protocol):
    def runs(self) -> Sequence[ShownRun]: ...


class RunsSampler:
    """Samples the runs of this machine or of a store, or one of them; remembers which events were shown."""

    def __init__(self, runs: ShownRuns, wanted: str | None = None, where: str = HERE) -> None:
        """Raises ``CommandFailed`` if ``wanted`` fits no run or several."""
        self._runs, self._where = runs, where
        self._chosen: str | None = None
        self._shown: dict[str, int] = {}
        self._running: dict[str, ShownRun] = {}
        """Those that ran at the last sample."""
        if wanted is not None:
            run = choose_run(runs.runs(), wanted, where)
            self._chosen = run.name
            self._running[run.name] = run

    def sample(self) -> RunsFrame:
        found = [run for run in self._runs.runs() if self._chosen in (None, run.name)]
        seen = [one for one in map(self._view_of, found) if one is not None]
        running = {view.snapshot.run for view, _ in seen if view.snapshot.state != "ended"}
        ended = self._ended(found, running)
        is_over = self._chosen is not None and not self._running
        return RunsFrame([view for view, _ in seen], [new for _, new in seen], ended, is_over, self._where)

    def _ended(self, found: Sequence[ShownRun], running: Container[str]) -> list[RunSnapshot]:
        """The last snapshots of the runs that ran at the last sample and do no more."""
        ended = [run.snapshot() for name, run in self._running.items() if name not in running]
        self._running = {run.name: run for run in found if run.name in running}
        return ended

    def _view_of(self, run: ShownRun) -> tuple[RunView, Sequence[EventLine]] | None:
        try:
            snapshot = run.snapshot()
        except LookupError:  # it has only just begun
            return None
        new = run.events(self._shown.get(run.name, 0))
        if new:
            self._shown[run.name] = new[-1].number
        notable = [line for line in run.events(0) if not is_routine(line)]
        return RunView(snapshot, notable[-MOST_EVENTS:]), new


R = TypeVar("R", bound=ShownRun)


def fitting_runs(runs: Sequence[R], wanted: str) -> list[R]:
    """By the beginning of the name, by the process, or by words of the title."""
    return [
        run
        for run in runs
        if run.name.startswith(wanted) or wanted == str(run.snapshot().pid) or wanted in run.snapshot().title
    ]


def choose_run(runs: Sequence[R], wanted: str, where: str = HERE) -> R:
    fits = fitting_runs(runs, wanted)
    exact = [run for run in fits if run.name == wanted]
    if len(fits) == 1 or exact:
        return (exact or fits)[0]
    names = ", ".join(run.name for run in (fits or runs)[:MOST_NAMES])
    if fits:
        raise CommandFailed(f"{wanted!r} matches several runs: {names}; give more of the name.")
    near = nearest_name(wanted, [run.name for run in runs])
    running = f"the runs are {names}" if names else f"no run is active {where}"
    raise CommandFailed(f"unknown run {wanted!r}; {f'did you mean {near!r}?' if near else f'{running}.'}")


# ---------------------------------------------------------------------- runs of a store

fleet_run_option = click.option(
    "--run", "fleet_run", metavar="NAME", help="With --store: one run that workers report there, in full."
)


def open_fleet(store: str) -> RunStateStore:
    try:
        return open_run_state(store, timeout=PATIENCE)
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None


def fleet_runs(store: str) -> FleetRuns:
    return FleetRuns(open_fleet(store))


class StoreSampler:
    """Samples a store: its fleet runs, and the quotas that processes share there; or one run alone."""

    def __init__(self, store: str, keys: Iterable[str], run: str | None, *, all_ended: bool = False) -> None:
        """Raises ``CommandFailed`` for a run that is not there, and where the store cannot be reached to look."""
        self._store, self._keys, self._is_one = store, tuple(keys), run is not None
        self._sampler: RunsSampler | None = None
        if run is None and store != RAY and not is_redis(store):
            return
        state = open_fleet(store)
        where = f"in {state.where}"
        try:
            self._sampler = RunsSampler(FleetRuns(state, all_ended=all_ended or self._is_one), run, where)
        except StoreDown as down:
            raise CommandFailed(redact(f"{down}.")) from None

    def sample(self) -> RunsFrame | StoreContent | StoreUnreachable:
        runs: RunsFrame | None = None
        if self._sampler is not None:
            try:
                runs = self._sampler.sample()
            except StoreDown as down:
                return StoreUnreachable(redact(f"{down}."))
            if self._is_one:
                return runs
        content = store_frame(self._store, self._keys)
        has_runs = runs is not None and bool(runs.views or runs.ended)
        return replace(content, runs=runs) if isinstance(content, StoreContent) and has_runs else content
