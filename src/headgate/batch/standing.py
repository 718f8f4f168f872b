"""How a run stands at one moment, lane by lane: what is learned, what waits, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.decision import NEVER, UNKNOWN

if TYPE_CHECKING:
    from .run import Run

AFTER_FAILURES = ("circuit", "cooldown", "credential", "retry_budget")
"""What a lane waits for because a call has failed."""
LONGEST_SAID = 160
"""Characters of a server's words that are shown of a lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStanding:
    key: str
    credential: str | None
    """The label."""
    rate: float | None
    """Calls a second, as learned so far."""
    in_flight: int
    waiting: int
    """Rows of the key that wait, for whichever of its lanes."""
    opens_in: float | None
    """Seconds for which nothing can start here, where that is known."""
    reason: str
    """Why nothing leaves at this moment; empty if something does."""
    said: str = ""
    """What the last call here that failed was told, in the server's own words; empty after a success."""
    gate_key: str = ""
    """What the limiter knows it by."""
    waits_for: str = ""
    """... in a word: rows, workers, paused, cooldown, credential, circuit, ramp, retry_budget, caps, limiter, pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStanding:
    in_flight: int = 0
    later: int = 0
    """Rows that failed and wait for the time to be tried again ..."""
    next_in: float | None = None
    """... the first of them in so many seconds."""
    is_stopping: bool = False


def standing_of(run: Run) -> RunStanding:
    later, next_at = run.window.later()
    return RunStanding(
        in_flight=len(run.crew.working),
        later=later,
        next_in=None if next_at == UNKNOWN else max(0.0, next_at - run.clock.now()),
        is_stopping=bool(run.stopping),
    )


def lanes_of(run: Run, most: int) -> list[LaneStanding]:
    """The busiest lanes first."""
    now = run.clock.now()
    lanes = [lane for lanes in list(run.lanes.values()) for lane in lanes]  # who looks may live in another thread
    lanes.sort(key=lambda lane: -(lane.in_flight + len(lane.shelf)))
    shown = []
    for lane in lanes[:most]:
        seen = run.limiter.look(lane.gate_key)
        known = lane.opens_at not in (NEVER, UNKNOWN) and lane.opens_at > now
        shown.append(
            LaneStanding(
                key=lane.shelf.key,
                credential=lane.label,
                rate=None if seen is None else seen.rate,
                in_flight=lane.in_flight,
                waiting=len(lane.shelf),
                opens_in=lane.opens_at - now if known else None,
                reason=lane.why(now),
                said=lane.last_failure[:LONGEST_SAID] if lane.waits_for in AFTER_FAILURES else "",
                gate_key=lane.gate_key,
                waits_for=lane.waits_for,
            )
        )
    return shown
