"""One thread that writes for everybody: what is asked for at the same time is committed together.

A commit costs milliseconds, because the disk must say that it has it. While one is under way, more is
asked for; the next takes all of that. So a commit's cost is shared by as many as wait for it, and each still
waits for its own to be on disk.

    tasks --submit--> gathered during a turn of the loop --> queue --> thread: BEGIN, all of it, COMMIT --> tasks

A lot that is so plain that it makes one statement goes by itself, if it is alone: the statement is the transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from .ledger import LedgerError
from .sqlite_file import in_words
from .steps import Pass


class Written(Protocol):
    """What the thread works on: nothing is written before ``flush``, and ``forget`` drops it all."""

    @property
    def connection(self) -> sqlite3.Connection: ...
    @property
    def path(self) -> str: ...
    def load(self, numbers: Iterable[int], /) -> None: ...
    def flush(self) -> None: ...
    def forget(self) -> None: ...


T = TypeVar("T")
B = TypeVar("B", bound=Written)

FEW = 16
"""Rows that are not worth a statement of their own in a transaction with others."""
MOST_PER_COMMIT = 1024
"""Jobs in one transaction; as many may wait as there are tasks that wait."""


@dataclass(slots=True, eq=False)
class Job(Generic[B]):
    work: Callable[[B], Any]
    """Does it all or raises ``LedgerError`` before it has done anything."""
    plainly: Callable[[B], Any] | None
    """Does the same in one statement, which may be all of a transaction; None if it cannot, and nothing is done."""
    about: Collection[int]
    """The rows it is about."""
    lasting: bool
    """Whether it must survive a power cut; if not, it survives the death of the process."""
    step: str
    future: asyncio.Future[Any]
    outcome: Any = None
    has_passed: bool = False


class Writer(Generic[B]):
    def __init__(
        self,
        book: B,
        *,
        fully: bool,
        passing: Pass | None,
        in_words: Callable[[Exception, str], LedgerError] = in_words,
    ) -> None:
        self._book = book
        self._in_words = in_words
        self._fully = fully
        self._passing = passing
        self._synchronous = ""
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Job[B]] = []
        self._queue: SimpleQueue[list[Job[B]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headgate-ledger", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[B], T],
        *,
        plainly: Callable[[B], T | None] | None = None,
        about: Collection[int] = (),
        lasting: bool = True,
        step: str = "commit",
    ) -> asyncio.Future[T]:
        """Do this in the next transaction; the future is done once that is committed."""
        future: asyncio.Future[T] = self._loop.create_future()
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(Job(work, plainly, about, lasting, step, future))
        return future

    async def close(self) -> None:
        """Write what is left, and end the thread."""
        self._hand_over()
        self._queue.put(None)
        try:
            await self._loop.run_in_executor(None, self._thread.join)
        except asyncio.CancelledError:
            self._thread.join()  # the files are closed next; it takes as long as a commit
            raise

    def _hand_over(self) -> None:
        if self._gathered:
            self._queue.put(self._gathered)
            self._gathered = []

    def _run(self) -> None:
        while (jobs := self._queue.get()) is not None:
            last = False
            while len(jobs) < MOST_PER_COMMIT and not self._queue.empty():
                more = self._queue.get()
                if more is None:
                    last = True
                    break
                jobs += more
            self._commit(jobs)
            with contextlib.suppress(RuntimeError):  # the loop may have been closed under us: then nobody waits
                self._loop.call_soon_threadsafe(_tell, jobs)
            if last:
                return

    def _commit(self, jobs: list[Job[B]]) -> None:
        """A lot that is alone of its kind goes plainly, if it can; many share the price of one transaction.

        None of these jobs has been answered yet, so none stands on another, and their order is ours to choose.
        """
        book, connection, undone = self._book, self._book.connection, list(jobs)
        lots = Counter(job.step for job in jobs if job.plainly is not None)
        try:
            for job in jobs:
                if lots[job.step] == 1 and self._did_plainly(job):
                    undone.remove(job)
            if undone:
                self._do_together(undone)
        except Exception as error:
            book.forget()
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error | OSError):
                error = self._in_words(error, book.path)
            for job in undone:
                job.outcome = LedgerError(*error.args) if isinstance(error, LedgerError) else error

    def _did_plainly(self, job: Job[B]) -> bool:
        if job.plainly is None or self._book.connection.in_transaction:
            return False
        self._be_lasting(self._fully and job.lasting)
        self._pass([job])
        job.outcome = job.plainly(self._book)
        if job.outcome is None:
            return False
        if self._passing:
            self._passing("committed")
        return True

    def _do_together(self, jobs: list[Job[B]]) -> None:
        book, connection = self._book, self._book.connection
        self._be_lasting(self._fully and any(job.lasting for job in jobs))
        connection.execute("BEGIN IMMEDIATE")
        book.load({index for job in jobs for index in job.about})
        for job in jobs:
            try:
                if job.plainly is not None and len(job.about) > FEW and len(jobs) > 1:
                    job.outcome = job.plainly(book)
                if job.outcome is None:
                    job.outcome = job.work(book)
            except LedgerError as error:
                job.outcome = error
        book.flush()
        self._pass(jobs)
        connection.execute("COMMIT")
        if self._passing:
            self._passing("committed")

    def _be_lasting(self, lasting: bool) -> None:
        wanted = "FULL" if lasting else "NORMAL"
        if wanted != self._synchronous:
            self._book.connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

    def _pass(self, jobs: list[Job[B]]) -> None:
        if self._passing:
            for step in {job.step for job in jobs if not job.has_passed}:
                self._passing(step)
            for job in jobs:
                job.has_passed = True


def _tell(jobs: list[Job[Any]]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if isinstance(job.outcome, Exception):
            job.future.set_exception(job.outcome)
        else:
            job.future.set_result(job.outcome)
