"""The input on its way in: read in blocks, claimed in the ledger, and only as much as there is room for.

Rows that an earlier run has finished are passed over in larger blocks, without a claim.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from .bell import Bell
from .ledger import Claim, Row

if TYPE_CHECKING:
    from .run import Run

BLOCK = 256
"""Rows that are claimed at once ..."""
LARGEST_BLOCK = 8192
"""... and that are looked up at once where an earlier run has been."""
MOST_ABANDONED = 100_000
"""Rows of dead processes that are looked for in one more reading of the input."""

Items = Iterable[Any] | AsyncIterable[Any]


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

    async def read(self) -> None:
        """The whole input once, and again as long as it holds rows that others have left behind."""
        await self._read_through(None)
        tried: set[int] = set()
        while _can_be_read_again(self._items):
            left = set(await self._run.ledger.abandoned(MOST_ABANDONED)) - tried
            if not left:
                return
            tried |= left
            await self._read_through(left)

    async def _read_through(self, only: set[int] | None) -> None:
        self._read = 0
        async for block in self._blocks():
            first = self._read
            self._read += len(block)
            numbered = list(enumerate(block, first))
            if only is not None:
                numbered = [(number, value) for number, value in numbered if number in only]
                await self._claim([self._run.row_of(*one) for one in numbered], numbered, again=True)
                continue
            self._run.report.seen += len(block)
            rows = [self._run.row_of(number, value) for number, value in numbered]
            if first < self.known:
                kept = await self._run.ledger.unfinished(first, [row.digest for row in rows])
                self._run.report.skipped += len(rows) - len(kept)
                rows = [rows[index - first] for index in kept]
                numbered = [numbered[index - first] for index in kept]
            await self._claim(rows, numbered)

    async def _claim(self, rows: list[Row], numbered: list[tuple[int, Any]], again: bool = False) -> None:
        if not rows:
            return
        run = self._run
        answers = await run.ledger.claim(rows)
        now = run.clock.now()
        for row, (_, value), answer in zip(rows, numbered, answers, strict=True):
            if isinstance(answer, Claim):
                run.report.elsewhere -= again
                run.take_up(row, answer, value, now)
            elif not again:
                run.pass_over(answer)

    def _room(self) -> int:
        """How many rows may be read now: all that there is room for."""
        return min(LARGEST_BLOCK if self._read < self.known else BLOCK, self._run.config.window - self._run.held)

    async def _blocks(self) -> AsyncIterator[list[Any]]:
        if isinstance(self._items, AsyncIterable):
            async for block in self._blocks_as_they_come(self._items):
                yield block
            return
        iterator = iter(self._items)
        while True:
            while (room := self._room()) <= 0:
                await self.room.wait()
            block = list(islice(iterator, room))
            if not block:
                return
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
                while (room := self._room()) <= 0:
                    await self.room.wait()
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


def _can_be_read_again(items: Items) -> bool:
    """Whether it starts over when asked again, as a list or a file's reader does and a generator does not."""
    if isinstance(items, AsyncIterable):
        return not isinstance(items, AsyncIterator)
    return iter(items) is not items
