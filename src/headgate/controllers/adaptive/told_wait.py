"""The waits that a server asks for with its refusals: one for each volley, and rounded up to whole seconds."""

from __future__ import annotations

from dataclasses import dataclass

LONG_FLOOR, ROUNDED, FEW_CALLS = 2.0, 1.0, 4.0
"""A Retry-After from here on is a block; it is rounded up by so many seconds; the time of so many calls explains it."""

MANY_WAITED, SLOWLY_FROM, SLOWLY = 16.0, 0.4, 1.0
"""Calls that would be sent in the time that the first refusal asks to wait, from which on the search goes on from this
share of what was let in lately, and doubles in so many seconds."""


@dataclass(slots=True, eq=False)
class ToldWait:
    asked: float = 0.0
    """Seconds that the last refusal asked for, or 0."""
    blocked_for: float = 0.0
    """Seconds that the last block was told to last."""
    held_seq: int = 0
    """The last call sent before the last short wait began."""

    def is_under_way(self, seq: int) -> bool:
        """Whether the refusal of call ``seq`` asks for the short wait that has begun already."""
        return 0.0 < self.asked < LONG_FLOOR and seq <= self.held_seq

    def silence_of_block(self, seconds: float, silence: float, quota: float, window: float) -> float:
        """Seconds of a block, told to last ``seconds``, that are our own ``silence``: few where such waits vary."""
        explained = max(FEW_CALLS / quota, window) + ROUNDED
        varies = abs(seconds - self.blocked_for) >= 0.5 * ROUNDED
        self.blocked_for = seconds
        return min(silence, ROUNDED) if varies or seconds <= explained else silence

    def search_on(self, let_in: float) -> tuple[float, float] | None:
        """The pace to search on at after the first refusal, and the seconds to double in, where each refusal costs a
        wait that is long for a server that ``let_in`` so many calls a second: so the next one tells the quota."""
        is_costly = let_in * self.asked > MANY_WAITED and self.asked < LONG_FLOOR
        return (SLOWLY_FROM * let_in, SLOWLY) if is_costly else None
