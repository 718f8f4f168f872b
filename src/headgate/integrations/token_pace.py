"""What calls take of a budget of tokens, so that what a server says about tokens can be told as a number of calls.

    "12,000 of 30,000 tokens are left, whole again in 36 s"  ──at 60 tokens a call──>  "200 of 500 calls are left ..."

The pace is learned in calls. A limit on tokens that nobody has set, but that the server announces, is followed
as the limit on calls that it amounts to, and the narrowest decides. Where calls differ much in size that is right on
average, and the room that is kept for bursts takes the rest.
"""

from __future__ import annotations

from dataclasses import replace

from ..batch.tokens import Usage
from ..core.signal import Limit, Signal

SLOWEST_LEARNING = 0.05
"""How much the newest call counts at least; the first ones count in full."""
LARGER = 1.03
"""A little more than the average, since the next call may be a larger one."""


class TokenPace:
    __slots__ = ("_calls", "_input", "_output")

    def __init__(self) -> None:
        self._calls = 0
        self._input = self._output = 0.0

    def note(self, usage: Usage) -> None:
        """A call has taken this."""
        self._calls += 1
        share = max(1.0 / self._calls, SLOWEST_LEARNING)
        self._input += share * (usage.input - self._input)
        self._output += share * (usage.output - self._output)

    def in_calls(self, signal: Signal) -> Signal:
        """The signal with its limits on tokens also told in calls, as soon as it is known what a call takes."""
        if not signal.limits or not self._calls:
            return signal
        takes = {"tokens": self._input + self._output, "input-tokens": self._input, "output-tokens": self._output}
        told = [_in_calls(limit, LARGER * takes.get(limit.dimension, 0.0)) for limit in signal.limits]
        return replace(signal, limits=(*signal.limits, *(limit for limit in told if limit is not None)))


def _in_calls(limit: Limit, takes: float) -> Limit | None:
    if takes < 1.0 or limit.limit is None or limit.remaining is None:
        return None
    return replace(limit, dimension="requests", limit=limit.limit / takes, remaining=limit.remaining / takes)
