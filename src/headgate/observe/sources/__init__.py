"""What a monitor reads: a batch, a crawl, or any program with a limiter, each behind the same protocol."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ...clock import Clock
from ...events import EventRecord
from ...limiter import AdaptiveRateLimiter
from ..hub import EventEmitter
from ..snapshot import DeadLine, ProgressLine
from ..waits import Waits

if TYPE_CHECKING:
    from ...credentials import CredentialCoordinator
    from ...credentials.credential import CredentialState

RECENTLY = 20.0
"""Seconds by whose pace the time to go is told."""
MOST_MARKS = 200
MOST_EXAMPLES = 100

States = Mapping[str, "CredentialState"]
"""Credentials by their labels."""


class RunSource(Protocol):
    kind: str
    title: str
    clock: Clock
    limiter: AdaptiveRateLimiter | None
    coordinators: Mapping[str, CredentialCoordinator]
    """By what they are for; the name may be empty."""
    emitters: Sequence[EventEmitter]
    """Parts with events, besides the limiter and the coordinators."""

    def progress(self) -> ProgressLine: ...

    def waits(self, credentials: States) -> Waits:
        """What holds rows back, besides what callers of the limiter itself wait for."""
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

    def example(self, event: EventRecord) -> tuple[str, str] | None:
        """If the event says that something has failed for good: its reason, and what it is called."""
        ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class RecentRate:
    """How many are finished a second, recently."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque(maxlen=MOST_MARKS)

    def rate(self, now: float, finished: int, *, is_paused: bool = False) -> float:
        """0 while it is paused; what was before a pause does not count after it."""
        marks = self._marks
        if is_paused:
            marks.clear()
        if not marks or now >= marks[-1][0] + RECENTLY / MOST_MARKS:
            marks.append((now, finished))
        while len(marks) > 2 and marks[0][0] < now - RECENTLY:
            marks.popleft()
        since, before = marks[0]
        return max(0, finished - before) / (now - since) if now > since else 0.0
