"""Measure a quota instead of guessing it.

Between two refusals a rate quota admits exactly what it allows:

              accepted calls sent after the first, up to the second
    quota  =  -----------------------------------------------------
                      seconds between the two sends

Time in which nothing was sent on purpose (a hold) is the doubtful part: a bucket that was
empty fills during a hold, one that is full gains nothing. How much of a hold is lost is
learned: a measurement without holds tells what the last one with holds should have been.
"""

from __future__ import annotations

from .room import Room

FEWEST = 4.0
"""Accepted calls below which a measurement says nothing."""

SHORTEST = 1e-6
"""A span that divides: two calls of one instant."""

CLEAN = 0.1
"""A measurement is clean if less than this share of its time was held."""

LEAST_HELD = 0.15
"""Seconds of hold below which a measurement teaches nothing about holds."""

LEARNING = 0.3
"""How far one comparison moves the learned share."""


class Meter(Room):
    __slots__ = ("doubtful", "held", "lost_share", "since_at", "since_seq")

    def __init__(self) -> None:
        self.since_seq = -1
        """The refused call the measurement starts at; -1 before the first."""
        self.since_at = 0.0
        self.held = 0.0
        """Seconds held since then."""
        self.lost_share = 0.5
        self.doubtful: tuple[float, float, float] | None = None
        """Accepted, span and held time of the last measurement that was not clean."""

    def restart(self, seq: int, sent_at: float) -> None:
        """Measure from the refused call ``seq`` on."""
        self.since_seq, self.since_at, self.held = seq, sent_at, 0.0

    def forget(self) -> None:
        """What was counted so far is of no use: the next refusal starts anew."""
        self.since_seq, self.held = -1, 0.0

    def interrupt(self, slot: float) -> None:
        """A call went nowhere: what is counted so far is void, and its ``slot`` of the quota was not used."""
        self.since_seq = -1
        self.held += slot

    @property
    def started(self) -> bool:
        return self.since_seq >= 0

    def span(self, sent_at: float) -> float:
        return max(sent_at - self.since_at, SHORTEST)

    def quota(self, accepted: float, sent_at: float, *, steady: bool) -> float | None:
        """Calls a second, if there is enough to go by. ``steady`` says that the pace stood still meanwhile."""
        if accepted < FEWEST:
            return None
        span = self.span(sent_at)
        held = min(self.held, span)
        measured = (accepted + 0.5) / max(span - self.lost_share * held, SHORTEST)
        if self.held < CLEAN * span:
            if self.doubtful is not None:
                was_accepted, was_span, was_held = self.doubtful
                share = (was_span - was_accepted / measured) / was_held
                self.lost_share += LEARNING * (min(1.0, max(0.0, share)) - self.lost_share)
                self.doubtful = None
        elif self.held > LEAST_HELD and steady:
            self.doubtful = (accepted, span, held)
        return measured
