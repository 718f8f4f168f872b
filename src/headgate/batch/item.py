"""A row on its way: what it is, what happened to it so far, and what its owner gets in the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ..core.decision import UNKNOWN
from ..limiter.checks import Cost
from .ledger import Claim, Row, RowState

DIGEST_BYTES = 16
UNREADABLE = bytes(DIGEST_BYTES)
"""The digest of what cannot be told apart by its content; such a row is known by its position alone."""

RowOf = Callable[[int, Any], Row]
Encode = Callable[[Any], bytes]


class Item:
    """A row in memory, from its claim until its owner has the result."""

    __slots__ = (
        "attempts",
        "cost",
        "deadline_at",
        "failed",
        "fence",
        "gone",
        "index",
        "key",
        "money",
        "name",
        "parked",
        "passed",
        "place",
        "priority",
        "rate_limited",
        "ready_at",
        "since",
        "size",
        "tokens",
        "value",
        "waited",
        "why",
    )

    def __init__(self, row: Row, claim: Claim, value: Any, key: str, cost: Cost, priority: float, now: float) -> None:
        self.index, self.name, self.fence = row.index, row.key, claim.fence
        self.value, self.key, self.cost, self.priority = value, key, cost, priority
        self.size = sum(cost.values()) if isinstance(cost, Mapping) else cost
        self.attempts, self.rate_limited = claim.attempts, claim.rate_limited
        self.failed = claim.attempts > 0
        """Its next call is the retry of a failure."""
        self.parked = False
        """It was rate limited and waits to be sent again."""
        self.gone = False
        """No longer waiting: whoever finds it in a queue drops it."""
        self.place = ""
        """Where it waits: on its shelf, or for later; empty while it does not."""
        self.passed = 0
        """How many smaller rows have gone before it out of turn."""
        self.deadline_at = UNKNOWN
        self.ready_at = now
        self.since = now
        """When its present wait began, and what for."""
        self.why = "turn"
        self.waited: dict[str, float] | None = None
        self.tokens = 0
        self.money = 0.0

    def note_wait(self, why: str, seconds: float) -> None:
        if seconds > 0.0:
            if self.waited is None:
                self.waited = {}
            self.waited[why] = self.waited.get(why, 0.0) + seconds


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of one row, once that is written down."""

    index: int
    name: str
    """A ``custom_id``, or the row's position."""
    item: Any
    state: RowState
    value: Any = None
    """What the worker returned last."""
    error: BaseException | None = None
    """What it raised last, for a dead row."""
    reason: str = ""
    """Why it is dead: a category, and a sentence after it."""
    attempts: int = 0
    """Calls that ended in anything but a rate limit."""
    rate_limited: int = 0
    tokens: int = 0
    cost: float = 0.0
    waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what was waited for."""

    @property
    def ok(self) -> bool:
        return self.state is RowState.DONE

    @property
    def category(self) -> str:
        """The first word of the reason."""
        return self.reason.partition(":")[0]


def row_of(index: int, item: Any) -> Row:
    """A row by its position and its content. What has no content of its own to show is known by its position."""
    return Row(index, str(index), digest_of(item))


def digest_of(item: Any) -> bytes:
    if isinstance(item, bytes):
        content = item
    elif type(item).__repr__ is object.__repr__:
        return UNREADABLE
    else:
        content = repr(item).encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


def as_line(value: Any) -> bytes:
    """A result as one line for the ledger: bytes and text as they are, everything else as JSON."""
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=repr, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")
