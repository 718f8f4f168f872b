"""Rows on their way into a job: looked at before they are written down, and read again where that can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .formats import BrokenRowError, InputError, InputRow
from .ledger import Claim, Counts, Row, RowState
from .sqlite_book import Book
from .sqlite_ledger import SqliteLedger
from .sqlite_reading import read_note

if TYPE_CHECKING:
    from .job import Job


class CheckedLedger(SqliteLedger):
    """Begun by the job, which sees to its output before anything is sent. It takes no row that should stop the run."""

    def __init__(self, path: str, job: Job) -> None:
        super().__init__(path, durability=job.config.durability)
        self._job = job
        self._begun = False

    async def begin(self, identity: Any) -> Counts:
        if self._begun:
            return await self.counts()
        counts = await super().begin(identity)
        self._begun = True
        return counts

    async def settle(self, name: str, text: str) -> str:
        """Keep a text unless there is one under this name; what is kept is the same for all processes."""

        def write(book: Book) -> str:
            book.connection.execute("INSERT OR IGNORE INTO notes VALUES (?, ?)", (name, text))
            return read_note(book.connection, name)

        return await self._write().submit(write, lasting=False, step="note")

    async def claim(self, rows: Sequence[Row]) -> list[Claim | RowState]:
        good = self._until_broken(rows)
        claims = await super().claim(rows[:good]) if good else []
        return [*claims, *[RowState.PENDING] * (len(rows) - good)]

    def _until_broken(self, rows: Sequence[Any]) -> int:
        if self._job.report.stopped:
            return 0
        for place, row in enumerate(rows):
            try:
                self._job.check(row)
            except BrokenRowError as error:
                if error.stops:
                    self._job.stop(f"broken: {error}")
                    return place
        return len(rows)


class RowsOfFile:
    """The rows of a file, each time from the first; damage in it stops the run as politely as a user would."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __iter__(self) -> Iterator[InputRow]:
        try:
            yield from self._job.rows
        except InputError as error:
            self._job.stop(f"input: {error}")
