"""Rows on their way into a job: looked at before they are written down, and read again where that can be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..limiter.checks import Cost
from .addresses import UnfitPathError
from .formats import BrokenRowError, InputError, InputRow, rows_for_loop
from .formats.problems import same_name
from .formats.skimming import Skimming
from .ledger import Claim, Counts, Row, RowState
from .sqlite_book import Book
from .sqlite_file import storable
from .sqlite_ledger import SqliteLedger
from .sqlite_reading import read_note

if TYPE_CHECKING:
    from .job import Job
    from .prices import Prices
    from .target import Target


MOST_MODELS = 100
"""Models with a gate key of their own; those beyond share one."""
ROWS_AT_ONCE = 1000
ROWS_CALLED = "SELECT idx, key FROM rows WHERE key IN (SELECT value FROM json_each(?))"


class CheckedLedger(SqliteLedger):
    """Begun by the job, which sees to its output before anything is sent. It takes no row that should stop the run.

    Nor one whose name another row has already: whoever looks for an answer by its name would find either. The ledger
    knows all names before a row, for rows are claimed in their order.
    """

    def __init__(self, path: str, job: Job) -> None:
        super().__init__(path, durability=job.config.durability)
        self._job = job
        self._begun = False
        self._in_order = asyncio.Lock()

    async def begin(self, identity: Any) -> Counts:
        if self._begun:
            return await self.counts()
        counts = await super().begin(identity)
        if self._job.rows.have_names:
            sql = "CREATE INDEX IF NOT EXISTS names ON rows (key)"
            await self._write().submit(lambda book: book.connection.execute(sql), lasting=False, step="note")
        self._begun = True
        return counts

    async def settle(self, name: str, text: str) -> str:
        """Keep a text unless there is one under this name; what is kept is the same for all processes."""

        def write(book: Book) -> str:
            book.connection.execute("INSERT OR IGNORE INTO notes VALUES (?, ?)", (name, text))
            return read_note(book.connection, name)

        return await self._write().submit(write, lasting=False, step="note")

    async def claim(self, rows: Sequence[Row]) -> list[Claim | RowState]:
        async with self._in_order:
            await self._refuse_twins(rows)
            good = self._until_broken(rows)
            claims = await super().claim(rows[:good]) if good else []
        return [*claims, *[RowState.PENDING] * (len(rows) - good)]

    async def _refuse_twins(self, rows: Sequence[Any]) -> None:
        """Of rows with the same name the first is it, and the others are broken."""
        if not self._job.rows.have_names:
            return
        names = [storable(row.key) for row in rows]
        called = json.dumps(names)
        known = await self._read(lambda connection: connection.execute(ROWS_CALLED, (called,)).fetchall())
        ours = {row.index for row in rows}
        first: dict[str, int] = {}
        for index, key in sorted(known):
            if index not in ours:  # of ours, what the input says now is what counts
                first.setdefault(key, index)
        for row, name in zip(rows, names, strict=True):
            before = first.setdefault(name, row.index)
            if before < row.index:
                line = self._job.rows.line_of(before)
                where = f"row {before + 1:,}" if line is None else f"line {line:,}"
                row.refuse(same_name(row.key, where))

    def _until_broken(self, rows: Sequence[Any]) -> int:
        if self._job.report.stopped:
            return 0
        for place, row in enumerate(rows):
            try:
                self._job.judge.check(row)
            except BrokenRowError as error:
                if error.stops:
                    self._job.stop(f"broken: {error}")
                    return place
        return len(rows)


class RowJudge:
    """Whether a row can be sent, under which key and for how much."""

    def __init__(self, target: Target, *, prices: Prices, has_cap: bool, counts: Callable[[str], bool]) -> None:
        """``has_cap``: on money, which takes prices. ``counts`` says whether a key's tokens must fit anything."""
        self._target, self._prices, self._has_cap, self._counts = target, prices, has_cap, counts
        self._keys: dict[str, tuple[str, bool]] = {}
        """By model."""
        self._good_path: str | None = None

    def check(self, row: InputRow) -> None:
        """Raises ``BrokenRowError`` for a row that cannot be sent."""
        request = row.request()
        if request.path != self._good_path:  # most rows ask for the same
            try:
                self._target.address.url(request.path or self._target.config.path)
            except UnfitPathError as error:
                raise row.broken(str(error)) from None
            self._good_path = request.path
        if self._has_cap and self._prices.price_of(request.model) is None:
            what = f"the price of its model {request.model[:80]!r} is not known, and max_cost needs it"
            raise row.broken(f"{what} (a price for '*' is that of all)")

    def cost(self, row: InputRow) -> Cost:
        """Tokens are guessed only where they must fit something: it takes longer than all else about a row."""
        self.check(row)
        return self._target.cost(row) if self._key(row)[1] else 1

    def key(self, row: InputRow) -> str:
        """Vendors count for each model by itself. The key is shown to people: a name of control characters is none."""
        return self._key(row)[0]

    def _key(self, row: InputRow) -> tuple[str, bool]:
        """... and whether its tokens are counted."""
        model = row.request().model[:80]
        known = self._keys.get(model)
        if known is None:
            name = self._target.address.name
            if not model.isprintable() or not model or len(self._keys) >= MOST_MODELS:
                return name, self._counts(name)
            key = f"{name}/{model}"
            known = self._keys[model] = key, self._counts(key)
        return known


class RowsOfFile:
    """The rows of a file, each time from the first, and where it is damaged, those before the damage."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._reading: Skimming | None = None

    def __iter__(self) -> Iterator[InputRow]:
        self.begin()
        while some := self.take(ROWS_AT_ONCE):
            yield from some

    def begin(self) -> None:
        """Read from the first row on."""
        self.close()
        self._reading = Skimming(self._job.rows)

    def take(self, most: int) -> Sequence[InputRow]:
        """The next rows, at most so many; none at the end."""
        assert self._reading is not None
        try:
            return self._reading.take(most)
        except InputError as error:
            self._job.cut_off = f"input: {error}"
            return ()

    def close(self) -> None:
        if self._reading is not None:
            self._reading.close()


async def rows_of_pipe(job: Job) -> AsyncIterator[InputRow]:
    """The same of what can be read only once."""
    try:
        async for row in rows_for_loop(job.rows):
            yield row
    except InputError as error:
        job.cut_off = f"input: {error}"
