"""The input on its way in: read in blocks, claimed in the ledger, and only as much as there is room for.

    items ──block──> ledger.claim ──claims──> described: key, cost, priority ──> scheduler

Rows that an earlier run has finished are passed over in larger blocks, without a claim.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..core.decision import Outcome
from ..core.fallback import MoveReason
from ..core.row_state import FailureReason
from ..engine.lane import LaneWait, Notifier
from ..engine.scheduler import Scheduler
from ..engine.worker_pool import WorkerPool
from ..errors import CostTooLargeError, Failed
from ..formatting import for_display
from ..limiter.permit import Cost
from .config import RunContext
from .item import Delivery, Item, RowOf, row_of
from .lanes import LaneSet
from .ledger import Claim, Ledger, Row
from .outcomes import Outcomes

if TYPE_CHECKING:
    from .row_mover import RowMover

BLOCK = 512
"""Rows that are claimed at once, at most; ..."""
SHARE_OF_BLOCK = 4
"""... of a small window this part, so that it has room for the rows of several keys ..."""
LARGEST_BLOCK = 8192
"""... and that are looked up at once where an earlier run has been."""
SHARE_AT_ONCE = 8
"""Rows are not claimed one by one: room is waited for until it is this part of the window, or a block."""
AHEAD = 512
"""Rows that wait while all workers are busy; more would only grow cold."""
SHORT_PAUSE = 1.0
"""Seconds that are waited for with a full window, rather than reading on."""
SHARE_OF_PAUSED = 4
"""In a full window, keys that pause keep this part of it."""
LOOK_AGAIN = 1.0
"""Seconds after which to look again whether a key pauses or pauses no longer, or workers are free."""
MOST_ABANDONED = 100_000
"""Rows of dead processes that are looked for in one more reading of the input."""


@runtime_checkable
class BatchedItems(Protocol):
    """Items that are best taken many at a time, each time from the first."""

    def begin(self) -> None: ...
    def take(self, most: int) -> Sequence[Any]: ...


Items = Iterable[Any] | AsyncIterable[Any] | BatchedItems


@runtime_checkable
class Digested(Protocol):
    """Rows whose digests are known before they are made."""

    digests: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFunctions:
    """What a caller says of rows: how the ledger knows them, whose limits they take, how much, how urgent they are."""

    row_of: RowOf = row_of
    key: Callable[[Any], str]
    cost: Callable[[Any], Cost]
    priority: Callable[[Any], float] | None = None


class Intake:
    def __init__(
        self,
        items: Items,
        functions: RowFunctions,
        context: RunContext,
        *,
        ledger: Ledger,
        pool: WorkerPool[Any],
        scheduler: Scheduler[Item],
        lanes: LaneSet,
        requeue: Callable[[Item, float], None],
        outcomes: Outcomes,
        delivery: Delivery | None,
        mover: RowMover | None = None,
    ) -> None:
        self._items, self._functions = items, functions
        self._config, self._clock = context.config, context.clock
        self._backlog, self._report = context.backlog, context.report
        self._ledger, self._pool, self._scheduler, self._mover = ledger, pool, scheduler, mover
        self._lanes, self._requeue, self._outcomes = lanes, requeue, outcomes
        self._delivery = delivery
        self._rows_known = 0
        """Rows that the ledger has seen before: of those, most are done."""
        self._rows_read = 0
        """Rows of the input that were read in this reading."""
        self._may_make_room = _can_be_read_again(items) and (delivery is None or not delivery.in_order)
        """Whether rows may be left for another reading: out of their order, and if there can be one."""
        self._left_keys: set[str] = set()
        """Keys of which rows were left for another reading, because they paused."""
        self._searched: set[int] = set()
        """Rows that were looked for again, and are not left behind any more or are not in the input."""

    async def read(self, rows_known: int) -> None:
        """The whole input once, and again as long as it holds rows that other processes have left behind."""
        self._rows_known = rows_known
        await self._read_through(None)
        while _can_be_read_again(self._items):
            while self._backlog.returning or (self._left_keys and all(map(self._is_shut, self._left_keys))):
                await self._wait_for_room()
            if self._left_keys:
                self._left_keys.clear()
                self._searched.clear()
            abandoned = set(await self._ledger.abandoned(MOST_ABANDONED)) - self._searched
            if not abandoned:
                return
            self._searched |= abandoned
            await self._read_through(abandoned)

    # ------------------------------------------------------------------ claim

    async def _read_through(self, only: set[int] | None) -> None:
        self._rows_read = 0
        report = self._report
        async for block in self._blocks():
            first = self._rows_read
            indexes: Sequence[int] = range(first, first + len(block))
            self._rows_read = indexes[-1] + 1
            if only is not None:
                indexes = [index for index in indexes if index in only]
            else:
                report.seen += len(block)
                if first < self._rows_known:
                    indexes = await self._ledger.unfinished(first, self._digests(first, block))
                    report.skipped += len(block) - len(indexes)
            if indexes:
                await self._claim([(index, block[index - first]) for index in indexes], again=only is not None)

    def _digests(self, first: int, block: Sequence[Any]) -> Sequence[bytes]:
        if isinstance(block, Digested):
            return block.digests
        return [self._functions.row_of(index, value).digest for index, value in enumerate(block, first)]

    async def _claim(self, numbered: list[tuple[int, Any]], again: bool) -> None:
        report, row_of = self._report, self._functions.row_of
        rows = [row_of(index, value) for index, value in numbered]
        answers = await self._ledger.claim(rows)
        now = self._clock.now()
        for row, (_, value), answer in zip(rows, numbered, answers, strict=True):
            if isinstance(answer, Claim):
                report.elsewhere -= again
                self._take_up(row, answer, value, now)
            elif not again:
                if answer.final:
                    report.skipped += 1
                else:
                    report.elsewhere += 1

    # ------------------------------------------------------------------ describe

    def _take_up(self, row: Row, claim: Claim, value: Any, now: float) -> None:
        """A row is this run's to do."""
        item = Item(row, claim, value, now)
        self._backlog.add()
        if self._delivery is not None:
            self._delivery.expect(item.index)
        if self._config.item_deadline is not None:
            self._scheduler.set_deadline(item, now + self._config.item_deadline)
        try:
            self._describe(item)
        except CostTooLargeError as error:
            if self._mover is not None and self._mover.move(item, MoveReason.TOO_LONG):
                return self._requeue(item, now)
            return self._outcomes.mark_dead(item, FailureReason("too_large", error.reason), error)
        except Failed as error:  # it knows what it counts as, and says why
            category = (error.outcome or Outcome.INVALID).value
            return self._outcomes.mark_dead(item, FailureReason(category, for_display(str(error))), error)
        except Exception as error:
            what = f"the key, cost or priority function raised {type(error).__name__}"
            return self._outcomes.mark_dead(item, FailureReason(Outcome.INVALID.value, what), error)
        if self._mover is not None and claim.path:
            self._mover.take_up(item, claim.path)
        if claim.ready_at:
            item.ready_at = now + max(0.0, claim.ready_at - self._clock.wall())
        return self._requeue(item, now)

    def _describe(self, item: Item) -> None:
        """Raises what the caller's functions raise, and ``CostTooLargeError`` if it fits no lane of its key."""
        functions, value = self._functions, item.value
        item.key, item.cost = functions.key(value), functions.cost(value)
        if functions.priority is not None:
            item.priority = functions.priority(value)
        self._lanes.fit(item)

    # ------------------------------------------------------------------ room

    async def _find_room(self) -> int:
        """How many rows may be read now, as soon as some may."""
        window = self._config.window
        block = max(1, min(BLOCK, window // SHARE_OF_BLOCK))
        worthwhile = max(1, min(block, window // SHARE_AT_ONCE))
        while (room := window - self._backlog.held) < worthwhile or self._is_far_ahead():
            if room >= worthwhile or not self._may_make_room or not self._make_room():
                await self._wait_for_room()
        return min(LARGEST_BLOCK if self._rows_read < self._rows_known else block, room)

    async def _wait_for_room(self) -> None:
        self._backlog.awaits_room = not self._backlog.returning
        if self._backlog.awaits_room:
            self._lanes.notify(self._lanes.all(), (LaneWait.MODEL,))
        await self._backlog.room.wait(LOOK_AGAIN)
        self._backlog.awaits_room = False

    def _make_room(self) -> bool:
        """The window is full: rows that wait for a key that pauses make room for others. Returns whether any do."""
        makes_room = False
        shut = [key for key in self._lanes.groups if self._is_shut(key)]
        for key in shut:
            keep = self._config.window // SHARE_OF_PAUSED // len(shut)
            for item in self._lanes.groups[key].queue.cut_back(keep):
                self._outcomes.make_room(item)
                self._left_keys.add(key)
                makes_room = True
        return makes_room

    def _is_shut(self, key: str) -> bool:
        """Whether nothing of this key can start for a while."""
        group = self._lanes.groups.get(key)
        return group is not None and not group.feeds and group.is_shut(self._clock.now() + SHORT_PAUSE)

    def _is_far_ahead(self) -> bool:
        """Whether more rows wait than the workers, all of them busy, will need soon."""
        if self._functions.priority is not None:
            return False
        return self._backlog.held > self._pool.max_open + AHEAD and not self._pool.is_free

    # ------------------------------------------------------------------ read

    async def _blocks(self) -> AsyncIterator[Sequence[Any]]:
        if isinstance(self._items, AsyncIterable):
            async for block in self._blocks_as_they_come(self._items):
                yield block
            return
        take = _taking(self._items)
        while rows := take(await self._find_room()):
            yield rows
            await asyncio.sleep(0)  # others have work too

    async def _blocks_as_they_come(self, items: AsyncIterable[Any]) -> AsyncIterator[list[Any]]:
        """A slow input is not waited for until a block is full."""
        buffer: deque[Any] = deque()
        came, taken = Notifier(self._clock), Notifier(self._clock)
        reading = asyncio.ensure_future(_read_ahead(items, buffer, came, taken))
        reading.add_done_callback(lambda _: came.notify())
        try:
            while True:
                room = await self._find_room()
                block = [buffer.popleft() for _ in range(min(room, len(buffer)))]
                if block:
                    taken.notify()
                    yield block
                elif reading.done():
                    reading.result()  # raises what the input raised
                    return
                else:
                    await came.wait()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _read_ahead(items: AsyncIterable[Any], buffer: deque[Any], came: Notifier, taken: Notifier) -> None:
    async for item in items:
        buffer.append(item)
        came.notify()
        while len(buffer) >= BLOCK:
            await taken.wait()


def _taking(items: Iterable[Any] | BatchedItems) -> Callable[[int], Sequence[Any]]:
    """What gives the next items, at most so many."""
    if isinstance(items, BatchedItems):
        items.begin()
        return items.take
    iterator = iter(items)
    return lambda most: list(islice(iterator, most))


def _can_be_read_again(items: Items) -> bool:
    """Whether it starts over when asked again, as a list or a file's reader does and a generator does not."""
    if isinstance(items, AsyncIterable):
        return not isinstance(items, AsyncIterator)
    return isinstance(items, BatchedItems) or iter(items) is not items
