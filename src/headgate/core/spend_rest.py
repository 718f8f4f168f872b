"""Accounts that cannot spend: they rest, and one call now and then finds out whether they can again.

    SPEND ──> rests for SPEND_REST ──> one call leaves ─┬─ SPEND: rests again
                    ^                                   ├─ OK: known no more
                    └── others wait meanwhile ──────────┘

An account is a key of a client, a target of a batch, or a group of credentials (``credential_pool.py``).
"""

from __future__ import annotations

from collections.abc import Hashable

from .cooldown import SPEND_REST
from .decision import NEVER

MOST_ACCOUNTS = 10_000


class SpendRests:
    """Which accounts cannot spend, since when, and until when each is not asked."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[float, float]] = {}

    def __bool__(self) -> bool:
        """Whether any account is known to rest."""
        return bool(self._known)

    def __contains__(self, account: Hashable) -> bool:
        return account in self._known

    @property
    def accounts(self) -> tuple[Hashable, ...]:
        return tuple(self._known)

    def until(self, account: Hashable) -> float:
        """NEVER if the account can spend, as far as is known."""
        known = self._known.get(account)
        return NEVER if known is None else known[1]

    def stopped(self, account: Hashable, sent_at: float, now: float) -> bool:
        """A call was told that the account may not spend. False if it left before that was known: nothing changes."""
        known = self._known.get(account)
        if known is not None and sent_at < known[0]:
            return False
        if known is None and len(self._known) >= MOST_ACCOUNTS:
            self._known.pop(next(iter(self._known)))
        self._known[account] = now, now + SPEND_REST
        return True

    def on_send(self, account: Hashable, now: float) -> None:
        """A call leaves. If it is to find out, no other does before its answer, or before the next is due."""
        if account in self._known:
            self.rests(account, now, now + SPEND_REST)

    def begin(self, account: Hashable, now: float) -> float:
        """Seconds until a call may leave; 0: it does now."""
        wait = self.until(account) - now
        if wait > 0.0:
            return wait
        self.on_send(account, now)
        return 0.0

    def worked(self, account: Hashable, sent_at: float) -> bool:
        """A call has succeeded. Returns whether that frees the account: it does if it was sent after the last stop."""
        known = self._known.get(account)
        if known is None or sent_at < known[0]:
            return False
        del self._known[account]
        return True

    def forget(self, account: Hashable) -> None:
        """The account is free, by an operator or another process."""
        self._known.pop(account, None)

    def rests(self, account: Hashable, now: float, until: float) -> None:
        """The account is not asked before ``until``: others know so, or a call leaves to find out."""
        since, known_until = self._known.get(account, (now, NEVER))
        self._known[account] = since, max(until, known_until)

    def join(self, account: Hashable, other: Hashable) -> None:
        """``other`` turns out to be the same account."""
        known = self._known.pop(other, None)
        if known is not None:
            self.rests(account, *known)
