"""A program of somebody's own, looked at by its limiter and its credentials alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from ..clock import Clock, SystemClock
from ..credentials import CredentialCoordinator
from ..limiter import AdaptiveRateLimiter
from .attaching import Telling
from .snapshot import DeadLine, ProgressLine
from .source import ActionRefusedError
from .subject import States
from .waiting import Waits

if TYPE_CHECKING:
    from .hub import AnyEvent


class OfProgram:
    kind = "program"
    title = ""

    def __init__(
        self,
        limiter: AdaptiveRateLimiter | None,
        coordinators: Mapping[str, CredentialCoordinator],
        progress: Callable[[], ProgressLine] | None,
        clock: Clock | None,
        tellers: Sequence[Telling] = (),
    ) -> None:
        clocks = [limiter.clock] if limiter is not None else [one.clock for one in coordinators.values()]
        self.clock: Clock = clock or (clocks[0] if clocks else SystemClock())
        self.limiter, self.coordinators, self.tellers = limiter, coordinators, tellers
        self._progress = progress

    def progress(self) -> ProgressLine:
        told = ProgressLine() if self._progress is None else _finite(self._progress())
        return replace(told, rate=0.0, eta=None) if self.state() == "paused" else told

    def waits(self, credentials: States) -> Waits:
        return Waits([], 0)

    def dead(self) -> list[DeadLine]:
        return []

    def counters(self) -> Mapping[str, float]:
        return {}

    def waited(self) -> Mapping[str, float]:
        return {}

    def state(self) -> str:
        return "paused" if self.limiter is not None and self.limiter.is_paused else "running"

    def example(self, event: AnyEvent) -> tuple[str, str] | None:
        return None

    def pause(self) -> None:
        if self.limiter is None:
            raise ActionRefusedError("there is no limiter here that could be paused")
        self.limiter.pause_all()

    def resume(self) -> None:
        if self.limiter is not None:
            self.limiter.resume_all()


def _finite(told: ProgressLine) -> ProgressLine:
    """A program divides by what may be nothing; no JSON has a word for what comes of that."""
    eta = told.eta if told.eta is not None and isfinite(told.eta) else None
    return replace(
        told, eta=eta, rate=told.rate if isfinite(told.rate) else 0.0, cost=told.cost if isfinite(told.cost) else 0.0
    )
