"""What a monitor reads: a batch, a crawl, or any program with a limiter, each behind the same protocol.

``Waits`` are what blocks a run, as lines: one for each blocked scope, what is really shut before what is merely paced.
A lane that others get round blocks nothing, and comes last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from ...clock import Clock
from ...core.decision import WaitReason
from ...events import EventRecord
from ...limiter import AdaptiveRateLimiter
from ...limiter.key_lines import PACED, Cause, cause_of, paced
from ...reason_text import PAUSED
from ..hub import EventEmitter
from ..snapshot import MOST_WAITS, DeadLine, ProgressLine, WaitLine

if TYPE_CHECKING:
    from ...batch.lanes import LaneStanding
    from ...crawl.status import HostStatus
    from ...credentials import CredentialCoordinator
    from ...credentials.credential import CredentialState

RECENTLY = 20.0
"""Seconds that are remembered for the rate by which the time to go is estimated."""
MOST_MARKS = 200

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
    on_event: Callable[[EventRecord], None] | None
    """Called with each event that is kept, where there is something to learn from it."""

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

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stop(self) -> None:
        """Start nothing any more, and finish what is under way."""
        ...


class RecentRate:
    """How many are finished a second, recently.

    Measured over the later half of the time that is remembered, so that a burst at the start, which a full bucket let
    through, soon counts no more; over all of it while nothing was finished in that half.
    """

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
        middle = (marks[0][0] + now) / 2
        halfway = next((mark for mark in reversed(marks) if mark[0] <= middle), marks[0])
        since, before = halfway if finished > halfway[1] else marks[0]
        return max(0, finished - before) / (now - since) if now > since else 0.0


# ---------------------------------------------------------------------- what blocks a run

ORDINARY = frozenset((*PACED, WaitReason.QUOTA, WaitReason.DEPTH, "workers", "answers"))
"""How it goes while all is well: rows wait because everything is in use."""
_RECURRING = ("pace", "workers", "answers", "crawl_delay")
"""What a lane waits for again as soon as a row has started."""
_OF_LIMITER = ("pace", "limiter")
"""Lanes that wait for a permit; why is the limiter's to explain."""


class Waits(NamedTuple):
    lines: list[WaitLine]
    behind: int
    """All that wait, each counted once: a row that waits for two credentials is one row."""


def pause_wait(kind: str, progress: ProgressLine, callers: int) -> Waits:
    """An operator has paused the run: everything open waits for that, whatever else it would wait for."""
    known = max(progress.open, (progress.total or 0) - progress.done - progress.dead) - progress.in_flight
    behind = max(0, known, callers)
    line = WaitLine(scope="run", sentence=f"the {kind} is {PAUSED}", behind=behind, code=WaitReason.PAUSED)
    return Waits([line], behind)


Lane = TypeVar("Lane", "LaneStanding", "HostStatus")


class LastCauses(Generic[Lane]):
    """What each lane waits for. One whose row starts at this moment has no cause of its own, but the rows behind it
    wait all the same: for what the lane waited for last."""

    def __init__(self, name_of: Callable[[Lane], str]) -> None:
        self._name_of: Callable[[Lane], str] = name_of
        self._last: dict[str, Cause] = {}

    def of(self, lanes: Sequence[Lane]) -> list[tuple[Lane, Cause]]:
        found = [(lane, self._cause(lane)) for lane in lanes]
        self._last = {self._name_of(lane): cause for lane, cause in found if cause.waits_for in _RECURRING}
        return found

    def _cause(self, lane: Lane) -> Cause:
        if lane.explanation is not None and lane.waits_for in _OF_LIMITER:
            return cause_of(lane.explanation, lane.waits_for)
        if lane.reason or lane.waits_for not in ("", "pace") or lane.rate is None:
            return Cause(lane.waits_for, lane.waits_for, lane.reason)
        return self._last.get(self._name_of(lane)) or cause_of(paced(lane.rate))


def in_order(lines: Sequence[WaitLine]) -> tuple[WaitLine, ...]:
    """The most serious first; those that do not fit are counted in the last."""
    ranked = sorted(lines, key=lambda line: (not line.behind, is_ordinary(line), -line.behind, -(line.seconds or 0.0)))
    if len(ranked) <= MOST_WAITS:
        return tuple(ranked)
    shown, rest = ranked[: MOST_WAITS - 1], ranked[MOST_WAITS - 1 :]
    others = WaitLine(scope="others", sentence=f"{len(rest):,} other causes", behind=sum(one.behind for one in rest))
    return (*shown, others)


def is_ordinary(line: WaitLine) -> bool:
    return line.code in ORDINARY
