"""Accounts that cannot spend: they rest, and one call now and then finds out whether they can again.

    SPEND ──> rests for SPEND_REST ──> one call leaves ─┬─ SPEND: rests again
                    ^                                   ├─ OK: known no more
                    └── others wait meanwhile ──────────┘

For accounts behind one key of their own; of several credentials ``credential_pool.py`` knows the same of each.
"""

from __future__ import annotations

from collections.abc import Hashable

from .cooldown import SPEND_REST
from .decision import NEVER

MOST_ACCOUNTS = 10_000


class SpendRests:
    """Which accounts cannot spend, and until when each is not asked."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}

    def __bool__(self) -> bool:
        """Whether any account is known to rest."""
        return bool(self._until)

    @property
    def accounts(self) -> tuple[Hashable, ...]:
        return tuple(self._until)

    def until(self, account: Hashable) -> float:
        """NEVER if the account can spend, as far as is known."""
        return self._until.get(account, NEVER)

    def stopped(self, account: Hashable, now: float) -> bool:
        """A call was told that the account may not spend. Returns whether that is new."""
        is_new = account not in self._until
        if is_new and len(self._until) >= MOST_ACCOUNTS:
            self._until.pop(next(iter(self._until)))
        self._until[account] = now + SPEND_REST
        return is_new

    def on_send(self, account: Hashable, now: float) -> None:
        """A call leaves. If it is to find out, no other does before its answer, or before the next is due."""
        if account in self._until:
            self._until[account] = now + SPEND_REST

    def begin(self, account: Hashable, now: float) -> float:
        """Seconds until a call may leave; 0: it does now."""
        wait = self.until(account) - now
        if wait > 0.0:
            return wait
        self.on_send(account, now)
        return 0.0

    def worked(self, account: Hashable) -> None:
        """A call has succeeded."""
        self._until.pop(account, None)
