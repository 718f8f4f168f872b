"""The calls of a key that are in flight, and the bound on how many there may be at once.

A call is in flight from being let through until it ends. Some never end: a permit that was dropped, a task
that died. Each of them is lost after ``LOST_AFTER`` seconds. A caller that never ends any permit would still fill the
memory long before, so calls are kept in two lots, and while nothing ends, the older lot makes room for the younger.

A wait for depth ends with an answer, so nothing is known of when; it counts only where nothing else objects.
"""

from __future__ import annotations

from itertools import chain, takewhile

from .decision import NEVER, UNKNOWN, Wait, WaitReason
from .policy import Demand, Limits

LOST_AFTER = 900.0
"""A permit that has not ended after so many seconds no longer counts as a call in flight."""
MOST_OUT = 1_000_000
"""Calls of one key that may be in flight; beyond it the oldest are given up, however young they are."""
A_LOT = 20_000
"""Fewer calls than this without an end prove nothing: they may all still be on their way."""
_NONE: dict[int, float] = {}


class InFlight:
    __slots__ = ("_out_before", "_sent_before", "pending", "stale")

    def __init__(self) -> None:
        self.pending: dict[int, float] = {}
        """Ordinals of calls and when they were sent, oldest first."""
        self.stale = _NONE
        """The older lot."""
        self._out_before = self._sent_before = 0
        """How many were out, and had been sent at all, when it was last looked after."""

    def __len__(self) -> int:
        return len(self.pending) + len(self.stale)

    def complete(self, seq: int) -> bool:
        """The call has ended; False if it had before, or was given up."""
        return self.pending.pop(seq, None) is not None or self.stale.pop(seq, None) is not None

    def clear(self) -> None:
        """Forget all of them."""
        self.pending, self.stale = {}, _NONE

    def oldest(self) -> tuple[int, float] | None:
        """The call that has been out for longest, and since when."""
        return next(iter((self.stale or self.pending).items()), None)

    def pending_since(self, instant: float) -> int:
        """How many are still out that were sent at that instant or before."""
        return sum(1 for _ in takewhile(lambda at: at <= instant, chain(self.stale.values(), self.pending.values())))

    def drop_lost(self, now: float) -> None:
        """Give up those that have been out for too long."""
        while (oldest := self.oldest()) is not None and (oldest[1] + LOST_AFTER <= now or len(self) > MOST_OUT):
            self.complete(oldest[0])

    def let_go(self, now: float, sent: int) -> None:
        """After thousands of calls, ``sent`` in all: if not one of them has ended, none is going to."""
        if len(self) - self._out_before == sent - self._sent_before and len(self.pending) > A_LOT:
            self.stale, self.pending = self.pending, {}
        self.drop_lost(now)
        self._out_before, self._sent_before = len(self), sent


class ConcurrencyPolicy:
    __slots__ = ("in_flight", "limits")

    def __init__(self, limits: Limits, in_flight: InFlight) -> None:
        self.limits = limits
        self.in_flight = in_flight

    def check(self, now: float, demand: Demand) -> Wait | None:
        cap = max(1.0, self.limits.cap)
        if len(self.in_flight) < cap:
            return None
        self.in_flight.drop_lost(now)
        oldest = self.in_flight.oldest()
        if oldest is None or len(self.in_flight) < cap:
            return None
        return Wait(WaitReason.DEPTH, oldest[1] + LOST_AFTER)

    def idle_from(self, now: float) -> float:
        return UNKNOWN if len(self.in_flight) else NEVER
