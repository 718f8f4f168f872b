"""A row in memory: what it is, what it asks for, and what happened to it so far; and how many of them there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from ..clock import Clock
from ..core.decision import UNKNOWN
from ..core.row_state import FailureReason
from ..engine.notifier import Notifier
from ..engine.scheduler import Place
from ..limiter.arguments import Cost
from ..wire.redact import for_display
from .ledger.protocol import Change, Claim, Row, RowState

DIGEST_BYTES = 16
LONGEST_NAME = 100
"""Characters of a name that are shown to people."""
UNREADABLE = bytes(DIGEST_BYTES)
"""The digest of what cannot be told apart by its content; such a row is known by its position alone."""

_NO_REPR: object = object.__repr__
RowOf = Callable[[int, Any], Row]


class Item:
    """A row in memory, from its claim until its result has been handed out. The scheduler knows it as ``Queued``."""

    __slots__ = (
        "asks",
        "attempts",
        "cost",
        "deadline_at",
        "fence",
        "index",
        "is_gone",
        "is_parked",
        "is_retry",
        "is_stored",
        "key",
        "money",
        "name",
        "place",
        "priority",
        "rate_limited",
        "ready_at",
        "size",
        "spared",
        "stored_totals",
        "times_passed",
        "tokens",
        "value",
        "waited",
        "waits_for",
        "waits_since",
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
        self.spared = 0
        """Failures that used up no attempt: its target was down."""
        self.is_retry = claim.attempts > 0
        self.is_parked = False
        """It was rate limited and waits to be sent again."""
        self.is_stored = False
        self.is_gone = False
        self.place = Place.NOWHERE
        self.times_passed = 0
        self.deadline_at = UNKNOWN
        self.ready_at = now
        self.waits_since = now
        """When its present wait began, and what for."""
        self.waits_for = "turn"
        self.tokens, self.money = 0.0, 0.0
        self.waited: dict[str, float] = {}
        """Spent and waited since the ledger was last told."""
        self.stored_totals: tuple[float, float, dict[str, float]] | None = None
        """... and before that, in this run."""

    @property
    def display_name(self) -> str:
        return display_name(self.index, self.name)

    def ask(self, has_limits: bool) -> None:
        """Settle what the limiter is asked for."""
        cost = self.cost
        if not isinstance(cost, Mapping):
            self.asks = self.size = cost
        elif has_limits or not cost.get("requests", 1):
            self.asks, self.size = cost, sum(cost.values())
        else:
            self.asks = self.size = cost.get("requests", 1)

    def leave_queue(self, permit_waited: float, now: float) -> None:
        """It is sent. What its lane waited for the permit is the pace's share of its wait; the rest is what it waited
        for before."""
        self.place, self.is_stored = Place.NOWHERE, False
        waited = now - self.waits_since
        if waited > 0.0:
            if permit_waited:
                pace = min(permit_waited, waited)
                self._note_wait("pace", pace)
                waited -= pace
            self._note_wait(self.waits_for, waited)

    def _note_wait(self, why: str, seconds: float) -> None:
        if seconds > 0.0:
            self.waited[why] = self.waited.get(why, 0.0) + seconds

    def change(
        self, state: RowState, reason: FailureReason | None = None, ready_at: float = 0.0, result: bytes = b""
    ) -> Change:
        """What the ledger is to record. Each second and each token is recorded once."""
        return Change(
            index=self.index,
            fence=self.fence,
            state=state,
            attempts=self.attempts,
            rate_limited=self.rate_limited,
            ready_at=ready_at,
            reason="" if reason is None else str(reason),
            result=result,
            tokens=round(self.tokens),
            cost=self.money,
            waited=self.waited,
        )

    def mark_stored(self) -> None:
        """The ledger has the change, and the row goes on."""
        self.stored_totals = self.totals()
        self.tokens, self.money, self.waited = 0.0, 0.0, {}
        self.is_stored = True

    def totals(self) -> tuple[float, float, dict[str, float]]:
        """Tokens, money and waits of this run."""
        if self.stored_totals is None:
            return self.tokens, self.money, self.waited
        tokens, money, waited = self.stored_totals
        both = {why: waited.get(why, 0.0) + self.waited.get(why, 0.0) for why in {**waited, **self.waited}}
        return tokens + self.tokens, money + self.money, both

    def event_fields(self) -> dict[str, Any]:
        """What an event about this row says of it."""
        tokens, money, waited = self.totals()
        return {
            "index": self.index,
            "attempts": self.attempts,
            "rate_limited": self.rate_limited,
            "tokens": round(tokens),
            "cost": money,
            "waited": dict(waited),
        }


class Backlog:
    """How many rows are in memory, and how many of them are unfinished: what bounds a run, and what ends it."""

    def __init__(self, clock: Clock) -> None:
        self.held = 0
        """Rows in memory: waiting, in flight, or with a result that was not handed out yet."""
        self.unfinished = 0
        """... that are not final."""
        self.returning = 0
        """... that are being given back to the ledger, to be read again later."""
        self.is_read = False
        """Whether the input was read to its end."""
        self.room = Notifier(clock)
        """Notified when a row has left the memory."""
        self.progress = Notifier(clock)
        """Notified when the run may be over."""

    @property
    def is_done(self) -> bool:
        return self.is_read and not self.unfinished

    def add(self) -> None:
        self.held += 1
        self.unfinished += 1

    def finish(self) -> None:
        """A row is final, given back, or another process's."""
        self.unfinished -= 1
        if not self.unfinished and self.is_read:
            self.progress.notify()

    def free(self) -> None:
        """A row has left the memory."""
        self.held -= 1
        self.room.notify()

    def end_of_input(self) -> None:
        self.is_read = True
        self.progress.notify()


def display_name(index: int, name: str) -> str:
    """A row for people: by its name, where it has one of its own; else by its place as people count."""
    named = name not in (str(index), str(index + 1))
    return for_display(name)[:LONGEST_NAME] if named else f"row {index + 1:,}"


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
