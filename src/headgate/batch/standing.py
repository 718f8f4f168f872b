"""How a run stands at one moment, lane by lane: what is learned, what waits, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.decision import NEVER, UNKNOWN

if TYPE_CHECKING:
    from .run import Run


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


def lanes_of(run: Run, most: int) -> list[LaneStanding]:
    """The busiest lanes first."""
    now = run.clock.now()
    lanes = [lane for lanes in run.lanes.values() for lane in lanes]
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
            )
        )
    return shown
