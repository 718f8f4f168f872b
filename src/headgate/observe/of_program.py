"""A program of somebody's own, looked at by its limiter and its credentials alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..clock import Clock, SystemClock
from ..credentials import CredentialCoordinator
from ..limiter import AdaptiveRateLimiter
from .attaching import Telling
from .snapshot import ProgressLine, WaitLine
from .source import ActionRefusedError
from .subject import States

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
        return ProgressLine() if self._progress is None else self._progress()

    def waits(self, credentials: States) -> list[WaitLine]:
        return []

    def dead(self) -> Mapping[str, int]:
        return {}

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
