"""``--store URL`` and ``--run NAME``: the runs that workers on several machines report to a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from rich.console import Group, RenderableType
from rich.text import Text

from ...distributed.store import StoreDown
from ...errors import ConfigError
from ...fleet.state_store import RunStateStore, open_run_state
from ...observe.sources.fleet import FleetRuns
from ...wire.redact import redact
from .display import Frame
from .run_page import RunsFrame
from .run_sampler import RunsSampler
from .shared_state import is_redis
from .store_page import PATIENCE, RAY, StoreContent, StoreUnreachable, store_frame
from .terminal import CommandFailed

F = TypeVar("F", bound=Callable[..., Any])

fleet_run_option = click.option(
    "--run", "fleet_run", metavar="NAME", help="With --store: one run that workers report there, in full."
)


def open_fleet(store: str) -> RunStateStore:
    try:
        return open_run_state(store, timeout=PATIENCE)
    except ConfigError as error:
        raise click.UsageError(f"{error}.") from None


def fleet_runs(store: str, *, all_ended: bool = False) -> FleetRuns:
    return FleetRuns(open_fleet(store), all_ended=all_ended)


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

    def sample(self) -> Frame:
        runs: RunsFrame | None = None
        if self._sampler is not None:
            try:
                runs = self._sampler.sample()
            except StoreDown as down:
                return StoreUnreachable(redact(f"{down}."))
            if self._is_one:
                return runs
        content = store_frame(self._store, self._keys)
        if isinstance(content, StoreUnreachable) or runs is None or not (runs.views or runs.ended):
            return content
        return FleetFrame(runs, content)


@dataclass(frozen=True, slots=True)
class FleetFrame:
    """A ``Frame`` of a store with fleet runs: the runs first, then what is shared."""

    runs: RunsFrame
    store: StoreContent

    def lines(self) -> list[str]:
        return [*self.runs.lines(), *self.store.lines()]

    def render(self, width: int, height: int) -> RenderableType:
        parts = [self.runs.render(width, height)]
        if self.store.gates or self.store.records:
            parts += [Text(), self.store.render(width, height)]
        return Group(*parts)

    def fields(self) -> list[dict[str, Any]]:
        return [*self.runs.fields(), *self.store.fields()]
