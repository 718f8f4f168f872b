"""One thread that writes: what is asked for at the same time is committed together.

A commit costs milliseconds, because the disk must say that it has it. While one is under way, more is
asked for; the next takes all of that. So a commit's cost is shared by as many as wait for it, and each still
waits for its own to be on disk.

    tasks --submit--> gathered during a turn of the loop --> queue --> thread: BEGIN, all of it, COMMIT --> tasks

Work that can be done in one statement goes by itself, if it is alone: the statement is the transaction.
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

from ..errors import LedgerError


class Transaction(Protocol):
    """What the thread works on: nothing is written before ``flush``, and ``forget`` discards it all."""

    @property
    def connection(self) -> sqlite3.Connection: ...
    @property
    def path(self) -> str: ...
    def load(self, numbers: Iterable[int], /) -> None: ...
    def flush(self) -> None: ...
    def forget(self) -> None: ...


T = TypeVar("T")
W = TypeVar("W", bound=Transaction)

FEW = 16
"""Rows that are not worth a statement of their own in a transaction with others."""
MOST_PER_COMMIT = 1024
"""Jobs in one transaction; as many may wait as there are tasks that wait."""


@dataclass(slots=True, eq=False)
class WriteJob(Generic[W]):
    work: Callable[[W], Any]
    """Does it all or raises ``LedgerError`` before it has done anything."""
    fast: Callable[[W], Any] | None
    """Does the same in one statement, which may be all of a transaction; None if it cannot, and nothing is done."""
    about: Collection[int]
    """The rows it is about."""
    durable: bool
    """Whether it must survive a power cut; if not, it survives the death of the process."""
    step: str
    future: asyncio.Future[Any]
    outcome: Any = None
    is_reported: bool = False


class GroupCommitWriter(Generic[W]):
    def __init__(
        self,
        transaction: W,
        *,
        full_sync: bool,
        on_step: Callable[[str], None] | None,
        error_of: Callable[[Exception, str], LedgerError],
    ) -> None:
        self._transaction = transaction
        self._error_of = error_of
        self._full_sync = full_sync
        self._on_step = on_step
        self._synchronous = ""
        self._loop = asyncio.get_running_loop()
        self._gathered: list[WriteJob[W]] = []
        self._queue: SimpleQueue[list[WriteJob[W]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headgate-ledger", daemon=True)
        self._thread.start()

    def submit(
        self,
        work: Callable[[W], T],
        *,
        fast: Callable[[W], T | None] | None = None,
        about: Collection[int] = (),
        durable: bool = True,
        step: str = "commit",
    ) -> asyncio.Future[T]:
        """Do this in the next transaction; the future is done once that is committed."""
        future: asyncio.Future[T] = self._loop.create_future()
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(WriteJob(work, fast, about, durable, step, future))
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
            with contextlib.suppress(RuntimeError):  # the loop may be closed: then no task waits
                self._loop.call_soon_threadsafe(_resolve, jobs)
            if last:
                return

    def _commit(self, jobs: list[WriteJob[W]]) -> None:
        """A lot that is alone of its kind goes fast, if it can; many share the price of one transaction.

        None of these jobs has been answered yet, so none stands on another, and their order is ours to choose.
        """
        transaction, connection, undone = self._transaction, self._transaction.connection, list(jobs)
        lots = Counter(job.step for job in jobs if job.fast is not None)
        try:
            for job in jobs:
                if lots[job.step] == 1 and self._did_fast(job):
                    undone.remove(job)
            if undone:
                self._do_together(undone)
        except Exception as error:
            transaction.forget()
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error | OSError):
                error = self._error_of(error, transaction.path)
            for job in undone:
                job.outcome = LedgerError(*error.args) if isinstance(error, LedgerError) else error

    def _did_fast(self, job: WriteJob[W]) -> bool:
        if job.fast is None or self._transaction.connection.in_transaction:
            return False
        self._set_durability(self._full_sync and job.durable)
        self._report_step([job])
        job.outcome = job.fast(self._transaction)
        if job.outcome is None:
            return False
        if self._on_step:
            self._on_step("committed")
        return True

    def _do_together(self, jobs: list[WriteJob[W]]) -> None:
        transaction, connection = self._transaction, self._transaction.connection
        self._set_durability(self._full_sync and any(job.durable for job in jobs))
        connection.execute("BEGIN IMMEDIATE")
        transaction.load({index for job in jobs for index in job.about})
        for job in jobs:
            try:
                if job.fast is not None and len(job.about) > FEW and len(jobs) > 1:
                    job.outcome = job.fast(transaction)
                if job.outcome is None:
                    job.outcome = job.work(transaction)
            except LedgerError as error:
                job.outcome = error
        transaction.flush()
        self._report_step(jobs)
        connection.execute("COMMIT")
        if self._on_step:
            self._on_step("committed")

    def _set_durability(self, durable: bool) -> None:
        wanted = "FULL" if durable else "NORMAL"
        if wanted != self._synchronous:
            self._transaction.connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

    def _report_step(self, jobs: list[WriteJob[W]]) -> None:
        if self._on_step:
            for step in {job.step for job in jobs if not job.is_reported}:
                self._on_step(step)
            for job in jobs:
                job.is_reported = True


def _resolve(jobs: list[WriteJob[Any]]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if isinstance(job.outcome, Exception):
            job.future.set_exception(job.outcome)
        else:
            job.future.set_result(job.outcome)
