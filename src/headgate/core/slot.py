"""A credential's place in a pool, and its family: those who share one limit.

What the credential itself is, nobody here knows. What a family has in common (one budget, one
rest after a refusal) is kept once; what concerns one alone (a quota that is used up, an
operator's word) is its own.
"""

from __future__ import annotations

from .decision import NEVER, UNKNOWN
from .pace import INSTANT


class Family:
    """Those who share one rate limit. A credential without a group is a family of its own."""

    __slots__ = ("budget", "budget_until", "members", "refusals", "until")

    def __init__(self) -> None:
        self.members: list[Slot] = []
        self.refusals = 0
        """Refusals in a row that did not say for how long; what the silent rest grows by."""
        self.until = NEVER
        self.budget, self.budget_until = UNKNOWN, UNKNOWN
        """Calls that are left to all of them together, and until when that holds."""


class Slot:
    """One credential's place in the pool."""

    __slots__ = (
        "era",
        "exclusive",
        "family",
        "freed_after",
        "group",
        "holders",
        "label",
        "reason",
        "retired",
        "until",
        "used",
    )

    def __init__(self, label: str, group: str | None = None) -> None:
        self.label, self.group = label, group
        self.family = Family()
        self.holders = 0
        self.exclusive = False
        """Whether its one holder has it alone."""
        self.until = NEVER
        self.retired = False
        self.reason = ""
        """Why it rests or is retired, in a word of ours; never in the server's."""
        self.era = 0
        """How often an operator has brought it back; what was known in an older era is void."""
        self.freed_after = -1
        """The pool's use after which this era began: what is heard of earlier ones is of an older era."""
        self.used = 0
        """The pool's use that was its last."""

    @property
    def budget(self) -> float:
        """Calls that are left to its family."""
        return self.family.budget

    def state(self, now: float) -> str:
        if self.retired:
            return "retired"
        if self.until > now + INSTANT:
            return "resting"
        return "held" if self.holders else "free"
