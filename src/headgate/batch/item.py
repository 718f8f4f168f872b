"""A row on its way: what it is, what happened to it so far, and what its owner gets in the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ..core.decision import UNKNOWN
from ..limiter.checks import Cost
from ..wire.redaction import for_display
from .ledger import Change, Claim, Row, RowState

DIGEST_BYTES = 16
LONGEST_NAME = 100
"""Characters of a name that are shown to people."""
UNREADABLE = bytes(DIGEST_BYTES)
"""The digest of what cannot be told apart by its content; such a row is known by its position alone."""

_NO_REPR: object = object.__repr__
RowOf = Callable[[int, Any], Row]


class Item:
    """A row in memory, from its claim until its owner has the result."""

    __slots__ = (
        "asks",
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
        "put_aside",
        "rate_limited",
        "ready_at",
        "since",
        "size",
        "spared",
        "tokens",
        "total",
        "value",
        "waited",
        "why",
    )

    def __init__(self, row: Row, claim: Claim, value: Any, now: float) -> None:
        self.index, self.name, self.fence, self.value = row.index, row.key, claim.fence, value
        self.key, self.priority = "", 0.0
        self.cost: Cost = 1
        """What it will use up, as far as can be told."""
        self.asks: Cost = 1
        """What the limiter is asked for: all of that where limits are known, else only the number of requests."""
        self.size = 1.0
        """One number to compare that by."""
        self.attempts, self.rate_limited = claim.attempts, claim.rate_limited
        self.failed = claim.attempts > 0
        """Its next call is the retry of a failure."""
        self.spared = 0
        """Failures that used up no attempt: its target was down."""
        self.parked = False
        """It was rate limited and waits to be sent again."""
        self.gone = False
        """No longer waiting: whoever finds it in a queue drops it."""
        self.place = ""
        """Where it waits: on its shelf, or for later; empty while it does not."""
        self.put_aside = False
        """The ledger knows that it waits, and until when."""
        self.passed = 0
        """How many smaller rows have gone before it out of turn."""
        self.deadline_at = UNKNOWN
        self.ready_at = now
        self.since = now
        """When its present wait began, and what for."""
        self.why = "turn"
        self.tokens, self.money = 0.0, 0.0
        self.waited: dict[str, float] = {}
        """Spent and waited since the ledger was last told."""
        self.total: tuple[float, float, dict[str, float]] | None = None
        """... and before that, in this run."""

    @property
    def called(self) -> str:
        """By its name, where it has one of its own; else by its place as people count."""
        return called(self.index, self.name)

    def describe(self, key: str, cost: Cost, priority: float) -> None:
        """Where it goes, what it takes, and how urgent it is."""
        self.key, self.cost, self.priority = key, cost, priority

    def ask(self, has_limits: bool) -> None:
        """Settle what the limiter is asked for."""
        cost = self.cost
        if not isinstance(cost, Mapping):
            self.asks = self.size = cost
        elif has_limits or not cost.get("requests", 1):
            self.asks, self.size = cost, sum(cost.values())
        else:
            self.asks = self.size = cost.get("requests", 1)

    def note_wait(self, why: str, seconds: float) -> None:
        if seconds > 0.0:
            self.waited[why] = self.waited.get(why, 0.0) + seconds

    def change(self, state: RowState, reason: str = "", ready_at: float = 0.0, result: bytes = b"") -> Change:
        """What to tell the ledger. Each second and each token is told once."""
        return Change(
            index=self.index,
            fence=self.fence,
            state=state,
            attempts=self.attempts,
            rate_limited=self.rate_limited,
            ready_at=ready_at,
            reason=reason,
            result=result,
            tokens=round(self.tokens),
            cost=self.money,
            waited=self.waited,
        )

    def told(self) -> None:
        """The ledger knows, and the row goes on."""
        self.total = self.totals()
        self.tokens, self.money, self.waited = 0.0, 0.0, {}

    def totals(self) -> tuple[float, float, dict[str, float]]:
        """Tokens, money and waits of this run."""
        if self.total is None:
            return self.tokens, self.money, self.waited
        tokens, money, waited = self.total
        both = {why: waited.get(why, 0.0) + self.waited.get(why, 0.0) for why in {**waited, **self.waited}}
        return tokens + self.tokens, money + self.money, both


def called(index: int, name: str) -> str:
    """A row for people: by its name, where it has one of its own; else by its place as people count."""
    named = name not in (str(index), str(index + 1))
    return for_display(name)[:LONGEST_NAME] if named else f"row {index + 1:,}"


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


Encode = Callable[[Result], bytes]


def row_of(index: int, item: Any) -> Row:
    """A row by its position and its content. What has no content of its own to show is known by its position."""
    return Row(index, str(index), digest_of(item))


def digest_of(item: Any) -> bytes:
    if isinstance(item, bytes):
        content = item
    elif type(item).__repr__ is _NO_REPR:
        return UNREADABLE
    else:
        content = repr(item).encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


def as_line(result: Result) -> bytes:
    """A result as one line for the ledger: bytes and text as they are, everything else as JSON."""
    value = {"error": result.reason} if result.value is None and not result.ok else result.value
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=repr, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")
