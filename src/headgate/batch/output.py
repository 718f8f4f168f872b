"""The output of a batch, written by one process at a time: the one that holds the output role in the ledger.

    take the role ─> cut the file back to the checkpoint ─> [ final rows ─> file ─> disk ─> checkpoint ] ...

What is in the ledger and not yet in the file is written again by whoever comes next, so a process may end at any
moment. A file that is gone is written anew from its first line.
"""

from __future__ import annotations

import asyncio
import os

from .formats import OutputFile
from .formats.compression import Compression
from .formats.writing import STDOUT
from .ledger import Ledger, Written
from .steps import Pass

ROWS_AT_ONCE = 5_000
WRITE_EVERY = 0.5
"""Seconds between two writes ..."""
PACK_EVERY = 5.0
"""... and where each is a member of a packed file, which should not be too small."""
ASK_EVERY = 1.0
"""Seconds after which one without the role asks whether it is free."""


class Scribe:
    def __init__(self, ledger: Ledger, path: str, passing: Pass | None) -> None:
        self.path = path
        self.written = 0
        """Rows that are in the output, as far as this process knows."""
        self._ledger = ledger
        self._passing = passing
        self.has_role = False
        self._file: OutputFile | None = None
        self._ended = asyncio.Event()
        self._every = WRITE_EVERY if Compression.of_name(path) is Compression.NONE else PACK_EVERY

    async def take(self) -> bool:
        """Take the role and open the file. False while another living process has it. Raises ``OutputError``."""
        place = await self._ledger.output()
        if place is None:
            return False
        ours = bool(place[0] or (await self._ledger.counts()).seen)
        self.has_role = True
        self._file, self.written = await asyncio.to_thread(_opened, self.path, *place, ours)
        return True

    async def go(self) -> None:
        """Write until ``end`` is called, and then what is left. Raises ``OutputError`` and ``LedgerError``."""
        try:
            while not self._ended.is_set():
                if self._file is None and not await self.take():
                    await self._pause(ASK_EVERY)
                elif await self._write() < ROWS_AT_ONCE:
                    await self._pause(self._every)
            if self._file is not None or await self.take():
                while await self._write():
                    pass
        finally:
            self.close()

    def end(self) -> None:
        self._ended.set()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            pass

    async def _write(self) -> int:
        """How many rows were written."""
        rows = await self._ledger.final(self.written, ROWS_AT_ONCE)
        if not rows or self._file is None:
            return 0
        offset = await asyncio.to_thread(_put, self._file, rows)
        if self._passing is not None:
            self._passing("write")
        if not await self._ledger.checkpoint(rows[-1].number, offset):  # somebody took us for dead
            self.has_role = False
            self.close()
            return 0
        self.written = rows[-1].number
        return len(rows)


def _opened(path: str, number: int, offset: int, ours: bool) -> tuple[OutputFile, int]:
    """The file, and how many rows are in it."""
    if offset and path != STDOUT and not os.path.exists(path):
        number = offset = 0
    return OutputFile(path, offset, ours=ours), number


def _put(file: OutputFile, rows: list[Written]) -> int:
    for row in rows:
        file.append(row.result)
    return file.sync()
