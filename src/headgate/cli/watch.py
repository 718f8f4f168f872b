"""``headgate watch``: what the runs of this machine do and why they wait, live; or who shares a store's quotas."""

from __future__ import annotations

import signal
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from headgate.errors import ConfigError
from headgate.observe.runs import MachineRuns, RunOfFile, machine_runs
from headgate.observe.snapshot import RunSnapshot, plain
from headgate.observe.wording import is_routine
from headgate.sim.notation import read_duration
from headgate.wire.redaction import redact

from . import DONE, CommandFailed
from .notation import Notation
from .seeing import SeenCommand, page, web_option
from .watch_page import MOST_EVENTS, NOBODY, Look, ended_line, line_of, page_of
from .watch_views import Frame, follow

SHORTEST = 0.1
"""Seconds between two looks, at least."""
MOST_NAMED = 5
LAST_WORDS = ("run", "title", "kind", "at", "ending", "progress")
"""What ``--json`` tells of a run that has ended."""


def read_every(text: str) -> float:
    seconds = read_duration(text)
    if seconds < SHORTEST:
        raise ValueError(f"{text!r} is too short; write {SHORTEST:g}s or more")
    return seconds


@click.command(
    cls=SeenCommand,
    examples=[
        ("headgate watch", "the runs of this machine, live; the only one there is whole"),
        ("headgate watch run-4711", "one of them: by the beginning of its name, its process, or words of its title"),
        ("headgate watch --store redis://cache:6379", "who shares which quota there, live"),
        ("headgate watch --json | jq -c '[.run, .progress.done]'", "for programs: a JSON line a second for each run"),
        ("headgate watch --web", "in a browser too"),
    ],
)
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--store", metavar="machine|URL", help="Watch who shares which quota instead: machine, or redis://host:6379."
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME",
    help="With --store: a key whose name to show; the store knows hashes alone. Repeatable.",
)
@click.option(
    "--every",
    type=Notation("TIME", read_every),
    help="Between two looks.  [default: 1s, in a pipe 5s]",
)
@web_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines: the whole of each run, and its new events.")
def command(
    run: str | None, store: str | None, keys: tuple[str, ...], every: float | None, web: int | None, as_json: bool
) -> int:
    """See live what runs do, what they learn and why they wait. q or Ctrl-C ends it, not the runs.

    Every headgate run, crawl and demo of yours on this machine is seen unless it was started with --unseen. With RUN it
    ends when that run ends.
    """
    if store is not None and (run is not None or web is not None):
        raise click.UsageError("a store and a run are two things; --store goes with --key, --every and --json.")
    if keys and store is None:
        raise click.UsageError("--key goes with --store: headgate watch --store machine --key NAME.")
    with suppress(KeyboardInterrupt), polite_end(), ExitStack() as stack:
        if store is not None:
            where, named = store, keys
            follow(lambda: store_frame(where, named), as_json=as_json, every=every)
            return DONE
        runs = machine_runs()
        looker = Looker(runs, run)
        if web is not None:
            stack.enter_context(page(runs, web))
        follow(looker.look, as_json=as_json, every=every)
    return DONE


@contextmanager
def polite_end() -> Iterator[None]:
    """A request to end leaves the terminal as it was."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ---------------------------------------------------------------------- runs


class Looker:
    """Looks at all runs again and again, or at the one that is meant; remembers which events it has told."""

    def __init__(self, runs: MachineRuns, wanted: str | None = None) -> None:
        """Raises ``CommandFailed`` where it is not clear which one is meant."""
        self._runs, self._chosen, self._told = runs, None, dict[str, int]()
        self._going: dict[str, RunOfFile] = {}
        """Those that went when we last looked."""
        if wanted is not None:
            run = chosen(runs.runs(), wanted)
            self._chosen = run.name
            self._going[run.name] = run

    def look(self) -> Frame:
        found = [run for run in self._runs.runs() if self._chosen in (None, run.name)]
        looks = [look for look in map(self._look_at, found) if look is not None]
        fields = [{"event": "run", **plain(look.snapshot), "events": plain(list(new))} for look, new in looks]
        seen = [look for look, _ in looks]
        ended = self._ended(found, {look.snapshot.run for look in seen if look.snapshot.state != "ended"})
        fields += [{"event": "ended", **{name: plain(getattr(one, name)) for name in LAST_WORDS}} for one in ended]
        lines = [line_of(look.snapshot) for look in seen]
        is_over = self._chosen is not None and not self._going
        return Frame(
            lambda width, height: page_of(seen, width, height),
            lines or ([] if is_over else [NOBODY]),
            fields,
            [ended_line(one) for one in ended],
            is_over=is_over,
        )

    def _ended(self, found: Sequence[RunOfFile], going: Container[str]) -> list[RunSnapshot]:
        """The last word of those that went when we last looked and do no more."""
        gone = [run.snapshot() for name, run in self._going.items() if name not in going]
        self._going = {run.name: run for run in found if run.name in going}
        return gone

    def _look_at(self, run: RunOfFile) -> tuple[Look, Sequence[Any]] | None:
        try:
            snapshot = run.snapshot()
        except LookupError:  # it has only just begun
            return None
        new = run.events(self._told.get(run.name, 0))
        if new:
            self._told[run.name] = new[-1].number
        worth = [line for line in run.events(0) if not is_routine(line)]
        return Look(snapshot, worth[-MOST_EVENTS:]), new


def fitting(runs: Sequence[RunOfFile], wanted: str) -> list[RunOfFile]:
    """By the beginning of its name, its process, or words of its title."""
    return [
        run
        for run in runs
        if run.name.startswith(wanted) or wanted == str(run.snapshot().pid) or wanted in run.snapshot().title
    ]


def chosen(runs: Sequence[RunOfFile], wanted: str) -> RunOfFile:
    fits = fitting(runs, wanted)
    exact = [run for run in fits if run.name == wanted]
    if len(fits) == 1 or exact:
        return (exact or fits)[0]
    names = ", ".join(run.name for run in (fits or runs)[:MOST_NAMED])
    if fits:
        raise CommandFailed(f"{wanted!r} may be {names}; write more of the name.")
    there = f"there are {names}" if names else "none is under way on this machine"
    raise CommandFailed(f"there is no run {wanted!r}; {there}.")


# ---------------------------------------------------------------------- a store


def store_frame(where: str, keys: tuple[str, ...]) -> Frame:
    from headgate.credentials.store import StoreError
    from headgate.stores import StoreDown

    from .keys import as_sentence, state_of
    from .status_store import as_fields, look, pace, process_of, state, table_of

    now = time.time()
    try:
        seen = look(where, keys)
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None
    except (StoreDown, StoreError) as error:  # it may come back
        said = redact(f"{error}.")
        return Frame(lambda *_: Text(said, "red"), [said], [{"event": "unreachable", "reason": said}])
    members = {process_of(one.name) for desk in seen.desks for one in desk.members}
    head = f"{seen.where}: {len(seen.desks):,} keys, {len(members):,} processes at work"
    away = [as_sentence(record, now) for record in seen.records if state_of(record, now) != "free"]

    def drawn(width: int, height: int) -> RenderableType:
        table: list[RenderableType] = [Text(), table_of(seen)] if seen.desks else []
        return Group(Text(head, "bold"), *table, Text("\n".join(["", *away]), "yellow"))

    lines = [head]
    for desk in seen.desks:
        standing = ", ".join(filter(None, (pace(desk), state(desk))))
        lines.append(f"  {seen.names.get(desk.name) or desk.name}: {standing}")
    return Frame(drawn, [*lines, *away], [{"event": "store", **as_fields(seen, now)}])


# ---------------------------------------------------------------------- once


def runs_now(wanted: str | None = None) -> Frame | None:
    """For ``headgate status``: all runs, or the one that is meant; None if there is none."""
    runs = machine_runs()
    if wanted is not None and not fitting(runs.runs(), wanted):
        return None
    frame = Looker(runs, wanted).look()
    return frame if frame.fields else None
