"""A member's part of what a fleet may spend: leased from the store, given back where it is of no use.

    a row ──allows? reserve──> LeasedBudget ──free, charge──     collect ──> request ──store──> reply ──> on_reply

A row starts only if its expected cost fits into what is held. So the members together never exceed a cap by more than
the rows in flight cost beyond what was expected of them, also while the store cannot be reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .. import fork_safety
from ..batch.pricing import ROUNDING
from .protocol import NO_CAP, NOTHING, Amount, Caps, MemberReply

LEASE_FOR = 2.0
"""Seconds of its own spending that a member would like to hold."""
FIRST_ROWS = 16
"""... and rows, as long as it has spent nothing."""
IDLE_FOR = 3.0
"""Seconds without a row after which everything unspent is given back."""
LOOK_AGAIN = 0.1
"""Seconds after which a row that did not fit looks again."""
FADING = 0.7


class Wish(NamedTuple):
    """What a request says of the budget."""

    spent: Amount
    held: Amount
    need: Amount
    want: Amount


class LeasedBudget:
    """A ``Budget`` of ``headgate.batch``. Safe for threads: one for all runs of a process."""

    look_again = LOOK_AGAIN

    def __init__(self, caps: Caps, on_short: Callable[[], None]) -> None:
        """``on_short`` is called when a new lease is wanted soon; from any thread, and without a lock held."""
        self._caps = caps.as_amount()
        self.is_capped = bool(caps)
        self._on_short = on_short
        self._lock = fork_safety.lock()
        self.start_over()

    def start_over(self) -> None:
        """Nothing is held, nothing was spent."""
        self._spent = self._reserved = self._held = NOTHING
        self._need = self._last_row = self._pace = NOTHING
        self._spent_before, self._asked_at, self._used_at = NOTHING, 0.0, 0.0
        self._is_used = False
        self._elsewhere: Amount | None = None
        """What the pool and other members could still give, as of the last reply; None before the first."""

    # ------------------------------------------------------------------ for rows

    def allows(self, tokens: float, money: float) -> bool:
        """Whether a row of this cost fits into what is held; if not, more of it is asked for."""
        with self._lock:
            row = Amount(tokens, money)
            left = self._left()
            self._is_used, self._last_row = True, row
            fits = self._fits(row, left)
            if not fits:
                self._need = row
            is_low = not fits or not self._fits(Amount(*(2.0 * one for one in row)), left)
        if is_low:
            self._on_short()
        return fits

    def reserve(self, tokens: float, money: float) -> None:
        with self._lock:
            self._reserved = self._reserved.plus(Amount(tokens, money))

    def free(self, tokens: float, money: float) -> None:
        with self._lock:
            self._reserved = self._reserved.plus(Amount(tokens, money), -1.0)

    def charge(self, tokens: float, money: float) -> None:
        with self._lock:
            self._spent = self._spent.plus(Amount(tokens, money))

    def is_spent(self, tokens: float, money: float) -> bool:
        """Whether no lease can make this row fit: neither the pool nor what other members may give back."""
        with self._lock:
            if self._elsewhere is None:
                return False
            own = self._held.plus(self._spent, -1.0)
            return not self._fits(Amount(tokens, money), own.plus(self._elsewhere))

    def _left(self) -> Amount:
        return self._held.plus(self._spent, -1.0).plus(self._reserved, -1.0)

    def _fits(self, row: Amount, left: Amount) -> bool:
        limits = zip(row, left, self._held, self._caps, strict=True)
        return all(cap == NO_CAP or one <= rest + (ROUNDING - 1.0) * held for one, rest, held, cap in limits)

    # ------------------------------------------------------------------ for the member

    def collect(self, now: float, *, leaves: bool = False) -> Wish:
        """What to ask for. What is given back is not spent from this moment on, whether the request arrives or not."""
        with self._lock:
            if not self.is_capped:
                return Wish(self._spent, NOTHING, NOTHING, NOTHING)
            if self._is_used:
                self._used_at, self._is_used = now, False
            out = self._spent.plus(self._reserved)
            is_idle = now - self._used_at > IDLE_FOR and not any(self._reserved)
            if leaves or is_idle:
                self._held = self._spent
                self._need = self._last_row = self._pace = NOTHING
                return Wish(self._spent, self._held, NOTHING, NOTHING)
            self._note_pace(now)
            if any(self._need) and not self._fits(self._need, self._left()):
                self._held = out
            else:
                self._need = NOTHING
            wish = Amount(
                *(
                    max(0.0, max(FIRST_ROWS * row, LEASE_FOR * pace) - left)
                    for row, pace, left in zip(self._last_row, self._pace, self._left(), strict=True)
                )
            )
            return Wish(self._spent, self._held, self._need, wish.most(self._need))

    def on_reply(self, reply: MemberReply) -> None:
        with self._lock:
            self._held = reply.held
            self._elsewhere = reply.pool.plus(reply.others)
            self._need = NOTHING

    def _note_pace(self, now: float) -> None:
        """How fast this member spends: as fast as of the last request, or a bit less than before."""
        seconds = now - self._asked_at
        if seconds <= 0.0:
            return
        used = self._spent.plus(self._reserved)
        fresh = [max(0.0, one - before) / seconds for one, before in zip(used, self._spent_before, strict=True)]
        self._pace = Amount(*(FADING * one for one in self._pace)).most(Amount(*fresh))
        self._asked_at, self._spent_before = now, used
