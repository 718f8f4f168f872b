"""A row in memory, from its claim until its result is handed out.

    claim ──> Item: what it asks for, what has happened to it ──> Result, once it is on disk ──> Delivery ──> the caller

``Backlog`` counts the rows in memory. A result that was not taken yet keeps its place there, so a slow consumer slows
the run down instead of filling the memory.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ..clock import Clock
from ..core.decision import UNKNOWN
from ..core.fallback import PRIMARY, MoveReason
from ..core.row_state import FailureReason
from ..engine.lane import Notifier
from ..engine.scheduler import Place
from ..formatting import for_display
from ..limiter.permit import Cost
from .ledger import Change, Claim, Row, RowState

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
        "attempts_elsewhere",
        "capacity_refusals",
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
        "moved",
        "name",
        "path",
        "place",
        "priority",
        "rate_limited",
        "ready_at",
        "refused",
        "size",
        "spared",
        "stored_totals",
        "target",
        "times_passed",
        "tokens",
        "value",
        "waited",
        "waits_for",
        "waits_since",
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
        self.target, self.why = PRIMARY, ""
        """Where it goes, and why not to an earlier target."""
        self.refused: dict[int, MoveReason] = {}
        """Targets that will not take this row, however often they are asked."""
        self.path = ""
        """``refused`` as the ledger keeps it, by the targets' names."""
        self.moved = ""
        """Target and reason, where it is not the primary."""
        self.attempts_elsewhere = 0
        """Of its attempts, those at other targets."""
        self.capacity_refusals = 0
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
        if waited <= 0.0:
            return
        if permit_waited > 0.0:
            pace = min(permit_waited, waited)
            self.waited["pace"] = self.waited.get("pace", 0.0) + pace
            waited -= pace
        if waited > 0.0:
            self.waited[self.waits_for] = self.waited.get(self.waits_for, 0.0) + waited

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
            path=self.path,
            moved=self.moved,
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

    def move(self, target: int, why: str, key: str) -> None:
        """It goes to another target, where it begins with all its attempts."""
        self.target, self.why, self.key = target, why, key
        self.attempts_elsewhere = self.attempts
        self.capacity_refusals = self.spared = self.times_passed = 0
        self.is_retry = self.is_parked = self.is_gone = False

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
        self.awaits_room = False
        """Whether reading goes on only when rows have left the memory, or their keys are open again."""
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


# ---------------------------------------------------------------------- results


@dataclass(slots=True, kw_only=True)
class Result:
    """The outcome of one row, once it is on disk."""

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
    target: int = PRIMARY
    """Which target it was sent to last, and why not to an earlier one; empty for the first."""
    why: str = ""

    @property
    def ok(self) -> bool:
        return self.state is RowState.DONE

    @property
    def category(self) -> str:
        """The first word of the reason."""
        return FailureReason.parse(self.reason).category if self.reason else ""


Encode = Callable[[Result], bytes]


def result_of(
    item: Item, state: RowState, reason: FailureReason | None, value: Any, error: BaseException | None
) -> Result:
    tokens, money, waited = item.totals()
    return Result(
        index=item.index,
        name=item.name,
        item=item.value,
        state=state,
        value=value,
        error=error if state is RowState.DEAD else None,
        reason="" if reason is None else str(reason),
        attempts=item.attempts,
        rate_limited=item.rate_limited,
        tokens=round(tokens),
        cost=money,
        waited=waited,
        target=item.target,
        why=item.why,
    )


def as_line(result: Result) -> bytes:
    """A result as one line for the ledger: bytes and text as they are, everything else as JSON."""
    value = {"error": result.reason} if result.value is None and not result.ok else result.value
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=repr, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


class Delivery:
    """Results on their way to the caller."""

    def __init__(self, clock: Clock, in_order: bool, on_taken: Callable[[], None]) -> None:
        self.in_order = in_order
        self._notifier = Notifier(clock)
        self._ready: deque[Result] = deque()
        self._turns: deque[int] | None = deque() if in_order else None
        """Rows in the order of the input, from the first that was not handed out."""
        self._early: dict[int, Result | None] = {}
        self._on_taken = on_taken
        self._closed = False

    def expect(self, index: int) -> None:
        """A row was taken up; its result will come, or ``skip``."""
        if self._turns is not None:
            self._turns.append(index)

    def put(self, result: Result) -> None:
        if self._turns is None:
            self._ready.append(result)
        else:
            self._early[result.index] = result
            self._line_up()
        self._notifier.notify()

    def skip(self, index: int) -> None:
        """There will be no result of this row here."""
        if self._turns is not None:
            self._early[index] = None
            self._line_up()
            self._notifier.notify()

    def close(self) -> None:
        """Nothing comes any more. What could not be handed out in order, because of gaps, follows as it is."""
        self._closed = True
        self._ready.extend(self._early[index] for index in sorted(self._early) if self._early[index])  # type: ignore[misc]
        self._early.clear()
        self._notifier.notify()

    async def results(self) -> AsyncIterator[Result]:
        while True:
            while self._ready:
                result = self._ready.popleft()
                self._on_taken()
                yield result
            if self._closed:
                return
            await self._notifier.wait()

    def _line_up(self) -> None:
        turns = self._turns
        while turns and turns[0] in self._early:
            result = self._early.pop(turns.popleft())
            if result is not None:
                self._ready.append(result)
