"""The input on its way in: read in blocks, claimed in the ledger, and only as much as there is room for.

Rows that an earlier run has finished are passed over in larger blocks, without a claim.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .bell import Bell
from .ledger import Claim

if TYPE_CHECKING:
    from .run import Run

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

Items = Iterable[Any] | AsyncIterable[Any]


@runtime_checkable
class InStretches(Protocol):
    """Items that are best taken many at a time, each time from the first."""

    def begin(self) -> None: ...
    def take(self, most: int) -> Sequence[Any]: ...


@runtime_checkable
class Digested(Protocol):
    """Rows whose digests are known before they are made."""

    digests: Sequence[bytes]


class Intake:
    def __init__(self, run: Run, items: Items) -> None:
        self._run = run
        self._items = items
        self.known = 0
        """Rows that the ledger has seen before: of those, most are done."""
        self._read = 0
        """Rows of the input that were read in this reading."""
        self.room = Bell(run.clock)
        """Rings when a row has left the window."""
        self._again = _can_be_read_again(items) and (run.delivery is None or not run.delivery.in_order)
        """Whether rows may be left for another reading: out of their order, and if there can be one."""
        self._left: set[str] = set()
        """Keys of which rows were left for another reading, because they paused."""
        self._tried: set[int] = set()
        """Rows that were looked for again, and are not left behind any more or are not in the input."""

    async def read(self) -> None:
        """The whole input once, and again as long as it holds rows that others have left behind."""
        await self._read_through(None)
        while _can_be_read_again(self._items):
            while self._run.leaving or (self._left and all(map(self._is_shut, self._left))):
                await self.room.wait(LOOK_AGAIN)
            if self._left:
                self._left.clear()
                self._tried.clear()
            left = set(await self._run.ledger.abandoned(MOST_ABANDONED)) - self._tried
            if not left:
                return
            self._tried |= left
            await self._read_through(left)

    async def _read_through(self, only: set[int] | None) -> None:
        self._read = 0
        report = self._run.report
        async for block in self._blocks():
            first = self._read
            indexes: Sequence[int] = range(first, first + len(block))
            self._read = indexes[-1] + 1
            if only is not None:
                indexes = [index for index in indexes if index in only]
            else:
                report.seen += len(block)
                if first < self.known:
                    indexes = await self._run.ledger.unfinished(first, self._digests(first, block))
                    report.skipped += len(block) - len(indexes)
            if indexes:
                await self._claim([(index, block[index - first]) for index in indexes], again=only is not None)

    def _digests(self, first: int, block: Sequence[Any]) -> Sequence[bytes]:
        if isinstance(block, Digested):
            return block.digests
        return [self._run.row_of(index, value).digest for index, value in enumerate(block, first)]

    async def _claim(self, numbered: list[tuple[int, Any]], again: bool) -> None:
        run = self._run
        rows = [run.row_of(index, value) for index, value in numbered]
        answers = await run.ledger.claim(rows)
        now = run.clock.now()
        for row, (_, value), answer in zip(rows, numbered, answers, strict=True):
            if isinstance(answer, Claim):
                run.report.elsewhere -= again
                run.take_up(row, answer, value, now)
            elif not again:
                run.pass_over(answer)

    async def _find_room(self) -> int:
        """How many rows may be read now, as soon as some may."""
        window = self._run.config.window
        block = max(1, min(BLOCK, window // SHARE_OF_BLOCK))
        worthwhile = max(1, min(block, window // SHARE_AT_ONCE))
        while (room := window - self._run.held) < worthwhile or self._is_far_ahead():
            if room >= worthwhile or not self._again or not self._make_room():
                await self.room.wait(LOOK_AGAIN)
        return min(LARGEST_BLOCK if self._read < self.known else block, room)

    def _make_room(self) -> bool:
        """The window is full: rows that wait for a key that pauses make room for others. Returns whether any do."""
        run, makes_room = self._run, False
        shut = [key for key in run.lanes if self._is_shut(key)]
        for key in shut:
            for item in run.window.shelf(key).cut_back(run.config.window // SHARE_OF_PAUSED // len(shut)):
                run.fates.leave(item)
                self._left.add(key)
                makes_room = True
        return makes_room

    def _is_shut(self, key: str) -> bool:
        """Whether nothing of this key can start for a while."""
        soon, lanes = self._run.clock.now() + SHORT_PAUSE, self._run.lanes.get(key, [])
        return bool(lanes) and all(max(lane.opens_at, lane.pause.until) > soon for lane in lanes)

    def _is_far_ahead(self) -> bool:
        """Whether more rows wait than the workers, all of them busy, will need soon."""
        run = self._run
        return not run.crew.is_free and run.held > run.crew.most_open + AHEAD and not run.runner.has_priorities

    async def _blocks(self) -> AsyncIterator[Sequence[Any]]:
        if isinstance(self._items, AsyncIterable):
            async for lot in self._blocks_as_they_come(self._items):
                yield lot
            return
        take = _taking(self._items)
        while block := take(await self._find_room()):
            yield block
            await asyncio.sleep(0)  # others have work too

    async def _blocks_as_they_come(self, items: AsyncIterable[Any]) -> AsyncIterator[list[Any]]:
        """A slow input is not waited for until a block is full."""
        buffer: deque[Any] = deque()
        came, taken = Bell(self._run.clock), Bell(self._run.clock)
        reading = asyncio.ensure_future(_read_ahead(items, buffer, came, taken))
        reading.add_done_callback(lambda _: came.ring())
        try:
            while True:
                room = await self._find_room()
                block = [buffer.popleft() for _ in range(min(room, len(buffer)))]
                if block:
                    taken.ring()
                    yield block
                elif reading.done():
                    reading.result()  # raises what the input raised
                    return
                else:
                    await came.wait()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def _read_ahead(items: AsyncIterable[Any], buffer: deque[Any], came: Bell, taken: Bell) -> None:
    async for item in items:
        buffer.append(item)
        came.ring()
        while len(buffer) >= BLOCK:
            await taken.wait()


def _taking(items: Iterable[Any]) -> Callable[[int], Sequence[Any]]:
    """What gives the next items, at most so many."""
    if isinstance(items, InStretches):
        items.begin()
        return items.take
    iterator = iter(items)
    return lambda most: list(islice(iterator, most))


def _can_be_read_again(items: Items) -> bool:
    """Whether it starts over when asked again, as a list or a file's reader does and a generator does not."""
    if isinstance(items, AsyncIterable):
        return not isinstance(items, AsyncIterator)
    return isinstance(items, InStretches) or iter(items) is not items
