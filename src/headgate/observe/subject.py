"""What is looked at: a batch, a crawl, or any program with a limiter; each tells its progress in the same words."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..clock import Clock
from ..credentials import CredentialCoordinator
from ..credentials.credential import CredentialState
from ..limiter import AdaptiveRateLimiter
from .attaching import Telling
from .snapshot import DeadLine, ProgressLine
from .waiting import Waits

if TYPE_CHECKING:
    from .hub import AnyEvent

LATELY = 20.0
"""Seconds by whose pace the time to go is told."""
MOST_MARKS = 200
MOST_EXAMPLES = 100

States = Mapping[str, CredentialState]
"""Credentials by their labels."""


class Subject(Protocol):
    kind: str
    title: str
    clock: Clock
    limiter: AdaptiveRateLimiter | None
    coordinators: Mapping[str, CredentialCoordinator]
    """By what they are for; the name may be empty."""
    tellers: Sequence[Telling]
    """Who tells what happens, besides the limiter and the coordinators."""

    def progress(self) -> ProgressLine: ...

    def waits(self, credentials: States) -> Waits:
        """What holds rows back, besides what the limiter's own callers wait for."""
        ...

    def dead(self) -> list[DeadLine]:
        """What will never be done, by reason; bounded."""
        ...

    def counters(self) -> Mapping[str, float]: ...

    def waited(self) -> Mapping[str, float]:
        """Seconds that rows have waited so far, by what for."""
        ...

    def state(self) -> str:
        """running, paused, stopping or ended."""
        ...

    def example(self, event: AnyEvent) -> tuple[str, str] | None:
        """If something has died of which this event tells: its reason, and what it is called."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Lately:
    """How many are finished a second, of late."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque(maxlen=MOST_MARKS)

    def rate(self, now: float, finished: int, *, is_paused: bool = False) -> float:
        """Nothing is promised while an operator has paused it, and what was before says nothing of what comes then."""
        marks = self._marks
        if is_paused:
            marks.clear()
        if not marks or now >= marks[-1][0] + LATELY / MOST_MARKS:
            marks.append((now, finished))
        while len(marks) > 2 and marks[0][0] < now - LATELY:
            marks.popleft()
        since, before = marks[0]
        return max(0, finished - before) / (now - since) if now > since else 0.0
