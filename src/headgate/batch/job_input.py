"""Rows on their way into a job: validated once before they are claimed, and read again where that can be."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Literal

from ..engine.database import storable
from ..engine.output_file import Compression
from ..errors import InputError
from .input.readers import BatchReader, read_in_thread
from .input.rows import BrokenRowError, InputRow, Rows, same_name
from .input.shapes import CsvRecords
from .ledger import Claim, Counts, Row, RowState
from .ledger.sqlite import SqliteLedger
from .row_targets import RowValidator

CHUNK = 1 << 20


class JobLedger(SqliteLedger):
    """A ledger that takes no invalid row. The job opens it, to see to its output before anything is sent.

    Nor does it take a row whose name another row has already: a reader that looks for an answer by its name would find
    either. The ledger knows all names before a row, for rows are claimed in their order.
    """

    def __init__(
        self,
        path: str,
        rows: Rows,
        validator: RowValidator,
        *,
        on_invalid: Callable[[BrokenRowError], None],
        is_stopped: Callable[[], bool],
        durability: Literal["full", "normal"] = "full",
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        """``on_invalid`` is called with the first invalid row of an input that is to stop there."""
        super().__init__(path, durability=durability, on_step=on_step)
        self._rows, self._validator = rows, validator
        self._on_invalid, self._is_stopped = on_invalid, is_stopped
        self._is_begun = False
        self._in_order = asyncio.Lock()

    async def begin(self, identity: Mapping[str, str]) -> Counts:
        if self._is_begun:
            return await self.counts()
        counts = await super().begin(identity)
        if self._rows.have_names:
            await self.index_names()
        self._is_begun = True
        return counts

    async def claim(self, rows: Sequence[Row]) -> list[Claim | RowState]:
        async with self._in_order:
            if self._rows.have_names:
                await self._reject_duplicate_ids(rows)
            valid = self._count_valid(rows)
            claims = await super().claim(rows[:valid]) if valid else []
        return [*claims, *[RowState.PENDING] * (len(rows) - valid)]

    async def _reject_duplicate_ids(self, rows: Sequence[Any]) -> None:
        """Reject rows whose name an earlier row has."""
        names = [storable(row.key) for row in rows]
        ours = {row.index for row in rows}
        first: dict[str, int] = {}
        for index, key in await self.rows_named(names):
            if index not in ours:  # of these, what the input says now is what counts
                first.setdefault(key, index)
        for row, name in zip(rows, names, strict=True):
            before = first.setdefault(name, row.index)
            if before < row.index:
                line = self._rows.line_of(before)
                where = f"row {before + 1:,}" if line is None else f"line {line:,}"
                row.reject(same_name(row.key, where), keeps_name=False)

    def _count_valid(self, rows: Sequence[Any]) -> int:
        """How many may be claimed: all up to one that is to stop the run. Others that are invalid are claimed to be
        recorded as dead."""
        if self._is_stopped():
            return 0
        for place, row in enumerate(rows):
            try:
                self._validator.check(row)
            except BrokenRowError as error:
                if error.stops:
                    self._on_invalid(error)
                    return place
        return len(rows)


class FileRows:
    """The rows of a file, as ``BatchedItems``, and where it is damaged, those before the damage."""

    def __init__(self, rows: Rows, on_error: Callable[[InputError], None]) -> None:
        self._rows, self._on_error = rows, on_error
        self._reader: BatchReader | None = None

    def begin(self) -> None:
        """Read from the first row on."""
        self.close()
        self._reader = BatchReader(self._rows)

    def take(self, most: int) -> Sequence[InputRow]:
        """The next rows, at most so many; none at the end."""
        assert self._reader is not None
        try:
            return self._reader.take(most)
        except InputError as error:
            self._on_error(error)
            return ()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


async def pipe_rows(rows: Rows, on_error: Callable[[InputError], None]) -> AsyncIterator[InputRow]:
    """The same for an input that can be read only once."""
    try:
        async for row in read_in_thread(rows):
            yield row
    except InputError as error:
        on_error(error)


class RowCount:
    """How many rows a plain file has, counted in a thread beside the run by its line ends, blank lines included."""

    def __init__(self, rows: Rows) -> None:
        self.rows: int | None = None
        """Once it is known."""
        self._has_header = isinstance(rows.shape, CsvRecords)
        if rows.can_be_read_again and os.path.isfile(rows.name):
            threading.Thread(target=self._count, args=(rows.name,), name="headgate-count", daemon=True).start()

    def _count(self, path: str) -> None:
        ends, last = 0, b"\n"
        try:
            with open(path, "rb") as file:
                if Compression.of_start(file.read(4)) is not Compression.NONE:
                    return
                file.seek(0)
                while chunk := file.read(CHUNK):
                    ends += chunk.count(b"\n")
                    last = chunk[-1:]
        except OSError:
            return
        self.rows = max(0, ends + (last != b"\n") - self._has_header)
