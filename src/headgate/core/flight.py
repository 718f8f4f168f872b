"""The calls of a key that are in the air: let through, and not yet heard of again.

Some never are: a permit that was dropped, a task that died. Each of them is lost after
``LOST_AFTER`` seconds. A caller that never ends any permit would still fill the memory long before, so
calls are kept in two lots, and while nothing at all ends, the older lot makes room for the younger.
"""

from __future__ import annotations

from itertools import chain, takewhile

LOST_AFTER = 900.0
"""A permit that has not ended after so many seconds no longer counts as a call in flight."""
MOST_OUT = 1_000_000
"""Calls of one key that may be in the air; beyond it the oldest are given up, whatever their age."""
A_LOT = 20_000
"""Fewer calls than this without an end prove nothing: they may all still be on their way."""
_NONE: dict[int, float] = {}


class Flight:
    __slots__ = ("_out_before", "_sent_before", "longer", "out")

    def __init__(self) -> None:
        self.out: dict[int, float] = {}
        """Ordinals of calls and when they were sent, oldest first."""
        self.longer = _NONE
        """The older lot."""
        self._out_before = self._sent_before = 0
        """How many were out, and had been sent at all, when it was last looked after."""

    def __len__(self) -> int:
        return len(self.out) + len(self.longer)

    def land(self, seq: int) -> bool:
        """The call has ended; False if it had before, or was given up."""
        return self.out.pop(seq, None) is not None or self.longer.pop(seq, None) is not None

    def oldest(self) -> tuple[int, float] | None:
        """The call that has been out for longest, and since when."""
        return next(iter((self.longer or self.out).items()), None)

    def out_since(self, instant: float) -> int:
        """How many are still out that were sent at that instant or before."""
        return sum(1 for _ in takewhile(lambda at: at <= instant, chain(self.longer.values(), self.out.values())))

    def forget_lost(self, now: float) -> None:
        """Give up those that have been out for too long."""
        while (oldest := self.oldest()) is not None and (oldest[1] + LOST_AFTER <= now or len(self) > MOST_OUT):
            self.land(oldest[0])

    def let_go(self, now: float, sent: int) -> None:
        """After thousands of calls, ``sent`` in all: if not one of them has ended, none is going to."""
        if len(self) - self._out_before == sent - self._sent_before and len(self.out) > A_LOT:
            self.longer, self.out = self.out, {}
        self.forget_lost(now)
        self._out_before, self._sent_before = len(self), sent
