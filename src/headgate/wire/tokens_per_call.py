"""What calls take in tokens on average, and limits on tokens as the limits on calls that they amount to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..core.signal import CALLS_BY_TOKENS, Limit, Signal

SLOWEST_LEARNING = 0.05
"""How much the newest call counts at least; the first ones count in full."""
LARGER = 1.03
"""A little more than the average, since the next call may be a larger one."""


class TokensPerCall:
    """What the calls under a key take in tokens, on average.

        "12,000 of 30,000 tokens are left, whole again in 36 s"  ──at 60 tokens a call──>  "200 of 500 calls are left"

    The pace is learned in calls. A limit on tokens that is not configured, but that the server announces, is followed
    as the limit on calls that it amounts to, beside the limit on calls; the slower pace decides. Where calls differ
    much in size that is right on average, and the room that is kept for bursts takes the rest.
    """

    __slots__ = ("_calls", "_takes")

    def __init__(self) -> None:
        self._calls = 0
        self._takes: dict[str, float] = {}

    def note(self, counted: Mapping[str, float]) -> None:
        """A call has taken this, by the dimension, as its vendor counts."""
        self._calls += 1
        share = max(1.0 / self._calls, SLOWEST_LEARNING)
        for dimension, amount in counted.items():
            average = self._takes.get(dimension, 0.0)
            self._takes[dimension] = average + share * (amount - average)

    def in_calls(self, signal: Signal) -> Signal:
        """The signal with its limits on tokens also given in calls, as soon as it is known what a call takes."""
        if not signal.limits or not self._calls:
            return signal
        converted = [_in_calls(limit, LARGER * self._takes.get(limit.dimension, 0.0)) for limit in signal.limits]
        return replace(signal, limits=(*signal.limits, *(limit for limit in converted if limit is not None)))


def _in_calls(limit: Limit, takes: float) -> Limit | None:
    if takes < 1.0 or limit.limit is None or limit.remaining is None:
        return None
    return replace(limit, dimension=CALLS_BY_TOKENS, limit=limit.limit / takes, remaining=limit.remaining / takes)


MOST_KEYS = 10_000


class TokenCounts:
    """What the calls of each key take. Safe for threads."""

    def __init__(self) -> None:
        self._by_key: dict[str, TokensPerCall] = {}

    def of(self, key: str) -> TokensPerCall:
        known = self._by_key.get(key)
        if known is None:
            if len(self._by_key) >= MOST_KEYS:
                self._by_key.clear()
            known = self._by_key.setdefault(key, TokensPerCall())
        return known
