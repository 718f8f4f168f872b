"""One pause for everybody who shares a limit, however many 429s announce it.

When twenty workers are refused in one burst, that is one event: the first 429 starts
an *era* with its pause, and the rest, which were sent before anyone could know, join.

    429, sent after the era's pause     429, sent before its end
    --------------------------------    ------------------------
    a new era, a new pause,             joins: no new era, no escalation;
    one step of escalation              a longer floor extends the pause

A success that was sent after the pause proves it long enough and ends the escalation;
one that was sent earlier proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from .backoff import above
from .decision import LONGEST_WAIT, NEVER

MOST_ESCALATIONS = 64
"""Refused eras in a row are counted up to here; every growing pause has met its maximum by then."""


@dataclass(frozen=True, slots=True)
class FixedCooldown:
    """Pause for the same time after each event, longer only if the server asks."""

    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not 0.0 < self.seconds <= LONGEST_WAIT:
            raise ValueError(f"seconds={self.seconds!r} must be within (0, {LONGEST_WAIT:.0f}]")

    def pause(self, eras_in_a_row: int) -> float:
        return self.seconds


@dataclass(frozen=True, slots=True)
class ExponentialCooldown:
    """Pause longer after each event in a row, up to a maximum; a success starts over."""

    base: float = 5.0
    factor: float = 2.0
    max: float = 300.0

    def __post_init__(self) -> None:
        if not 0.0 < self.base <= LONGEST_WAIT:
            raise ValueError(f"base={self.base!r} must be within (0, {LONGEST_WAIT:.0f}]")
        if not 1.0 <= self.factor <= 100.0:
            raise ValueError(f"factor={self.factor!r} must be within [1, 100]")
        if not self.base <= self.max <= LONGEST_WAIT:
            raise ValueError(f"max={self.max!r} must be within [base={self.base!r}, {LONGEST_WAIT:.0f}]")

    def pause(self, eras_in_a_row: int) -> float:
        return min(self.max, self.base * self.factor ** (eras_in_a_row - 1))


@dataclass(slots=True, eq=False)
class Cooldown:
    """The pause of one scope: a credential, a key or a provider.

    Without a policy it lasts as long as the server says, which may be no time at all.
    """

    policy: FixedCooldown | ExponentialCooldown | None = None
    until: float = NEVER
    """Nothing starts before this instant."""
    era: int = 0
    """How many pauses there have been; the present one's number."""
    era_started_at: float = NEVER
    eras_in_a_row: int = 0
    """Eras since the last success; what a growing pause grows by."""
    participants: int = 0
    """429s that started or joined a pause, over all eras."""

    def holds(self, now: float) -> bool:
        return now < self.until

    def report(self, sent_at: float, now: float, floor: float, draw: float) -> bool:
        """Take one 429; true if it starts an era. ``floor`` is what the server asked for, 0 if it was silent."""
        self.participants += 1
        pause = above(floor, draw)
        if self._before_the_end(sent_at):
            self.until = max(self.until, now + pause)
            return False
        self.era += 1
        self.era_started_at = now
        self.eras_in_a_row = min(self.eras_in_a_row + 1, MOST_ESCALATIONS)
        if self.policy is not None:
            pause = max(pause, min(self.policy.pause(self.eras_in_a_row), LONGEST_WAIT))
        self.until = max(self.until, now + pause)
        return True

    def cleared(self, sent_at: float) -> None:
        """Take one success: if it was sent after the pause, the next event escalates from the start."""
        if not self._before_the_end(sent_at):
            self.eras_in_a_row = 0

    def to_state(self, now: float, wall: float) -> tuple[float, ...]:
        """For a store: when this was written (wall time), how long the pause still is, and the counts."""
        return (wall, max(0.0, self.until - now), self.era, self.eras_in_a_row, self.participants)

    @classmethod
    def from_state(
        cls,
        state: tuple[float, ...],
        now: float,
        wall: float,
        policy: FixedCooldown | ExponentialCooldown | None = None,
    ) -> Cooldown:
        """Go on after a restart. The time in between counts; a wall clock that went back lengthens nothing."""
        if len(state) != 5 or not all(isfinite(number) for number in state):
            raise ValueError(f"{state!r} must be the five numbers of a cooldown")
        written_at, pause, *counts = state
        era, eras_in_a_row, participants = (max(0, int(count)) for count in counts)
        remaining = min(pause, LONGEST_WAIT) - max(0.0, wall - written_at)
        return cls(
            policy=policy,
            until=now + remaining if remaining > 0.0 else NEVER,
            era=era,
            eras_in_a_row=min(eras_in_a_row, MOST_ESCALATIONS),
            participants=participants,
        )

    def _before_the_end(self, sent_at: float) -> bool:
        """Sent before this era's pause was over (or known), so it says nothing about what comes after."""
        return sent_at < self.until or sent_at <= self.era_started_at
