"""What a caller gets of a batch: each row's result, once it is on disk, as it finishes or in the order of the input.

A result that was not taken yet keeps its place in memory, so a slow consumer slows the run down instead of filling
the memory.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..clock import Clock
from ..core.row_state import FailureReason
from ..engine.notifier import Notifier
from .item import Item
from .ledger.protocol import RowState


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of one row, once that is on disk."""

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
