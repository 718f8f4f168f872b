"""Keep step with a window that turns at fixed times.

Each block that ends shows one turn, to within the time between two probes. Turns of a fixed window lie
on a lattice; once two distances have agreed, the next turn is known, and one waits for it instead of
probing for it.

        turn           turn                          turn
    -----|--------------|--------------|--------------|------>
                 known spacing     not seen: nothing was refused
"""

from __future__ import annotations

from .room import Room

LEAST_DOUBT = 0.03
"""The share of the spacing by which a turn may always come early or late."""

LONGEST_BLIND = 8.0
"""Seconds to wait without a probe; if the turn is further away, a good half of the way."""


class Turns(Room):
    __slots__ = ("last_at", "last_error", "seen", "spacing", "spacing_error", "sure")

    def __init__(self) -> None:
        self.last_at = self.last_error = 0.0
        """When the last turn that was seen happened, and by how much that may be wrong."""
        self.spacing = self.spacing_error = 0.0
        self.seen = 0
        self.sure = 0
        """Distances in a row that fitted."""

    def saw(self, at: float, error: float) -> None:
        """A turn was seen."""
        distance, doubt = at - self.last_at, error + self.last_error
        self.last_at, self.last_error = at, error
        self.seen += 1
        if self.seen < 2:
            return
        steps = max(1, round(distance / self.spacing)) if self.spacing else 1
        spacing, spacing_error = distance / steps, doubt / steps
        if self.spacing and abs(spacing - self.spacing) <= spacing_error + self.spacing_error and steps < 50:
            self.sure += 1
            if spacing_error < self.spacing_error:
                self.spacing, self.spacing_error = spacing, spacing_error
        elif distance > 0.0:
            self.spacing, self.spacing_error, self.sure = distance, doubt, 0

    def hold(self, now: float, shortest: float) -> float:
        """Seconds to wait for the next turn, or for a probe when it is due at any moment."""
        steps = int((now - self.last_at) / self.spacing)
        doubt = max(self.last_error + (steps + 1) * self.spacing_error, LEAST_DOUBT * self.spacing)
        late = now - self.last_at - steps * self.spacing
        if steps and late <= doubt:
            return max(shortest, 0.35 * late)
        early = self.spacing - late - doubt
        return max(shortest, min(early, max(LONGEST_BLIND, 0.6 * early)))
