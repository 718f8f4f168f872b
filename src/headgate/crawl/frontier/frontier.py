"""Every URL of a crawl, on disk: what is known, what waits, what became of each, and what comes next.

Memory holds what is taken and little more, so a million URLs of a hundred thousand hosts cost no more than ten.
All work goes through one writing thread (``GroupCommitWriter``): what is submitted together is committed together.

What ``finish`` has returned from survives a power cut: the page in the output, the URLs it led to, and that
it is done, all three or none of them. A process that dies leaves behind at most a piece of output that the frontier
knows nothing of; the next cuts it off and visits those pages again. So a page is in the output exactly once.

    begin ─> add ─> [ take ─> finish | put_off | fail | refuse | give_back ] ... ─> close

Errors are ``LedgerError`` where the frontier's own file is the matter, and ``OutputError`` where it is the output.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import Self, TypeVar

from ...checks import check_whole
from ...clock import Clock, SystemClock
from ...engine.database import GroupCommitWriter
from ...errors import LedgerError
from ..output import Output, Result
from . import FoundUrl, FrontierCounts, LostUrl, Reason, StoredRobots, Visit, VisitState
from .bounds import Bounds, digest_of
from .schema import STATES, ledger_error, open_to_read
from .session import FrontierSession
from .transaction import FrontierTransaction

T = TypeVar("T")

URLS_AT_ONCE = 5_000
"""Of those that are added, in one transaction."""
PACKED_ASIDE = 1 << 16
"""Bytes of a result above which it is packed in another thread, to keep the event loop free."""


class Frontier:
    """One crawl's file, from ``begin`` to ``close``; of one event loop."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        identity: Mapping[str, str],
        outputs: Sequence[Output] = (),
        per_host: int = 8,
        bounds: Bounds | None = None,
        left_out: Callable[[FoundUrl, str], None] | None = None,
        clock: Clock | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> None:
        """``identity`` says what is crawled (seeds, scope): another crawl's file is refused. ``per_host``
        is how many visits of one host may be taken at a time. ``bounds`` are for what visits lead to; ``left_out``
        is called with what is beyond them, and why; ``on_step`` with the name of each step that a crash could split."""
        check_whole("per_host", per_host)
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self._identity = dict(identity)
        self._outputs = tuple(outputs)
        self._per_host = per_host
        self._bounds, self._left_out = bounds, left_out
        self._clock = clock or SystemClock()
        self._on_step = on_step
        self._wall_ahead = 0.0
        """Of the clock's own time: read once, so that a wall clock that is set meanwhile moves nothing."""
        self._taken: dict[int, int] = {}
        """Each visit that is out, with its host's number."""
        self._writer: GroupCommitWriter[FrontierTransaction] | None = None

    async def begin(self) -> FrontierCounts:
        """Create the file, or resume where it stopped; the outputs are cut back to what is known to be done."""
        if self._writer is not None:
            raise LedgerError(f"{self.path} is already open")
        self._wall_ahead = self._clock.wall() - self._clock.now()
        session = self._session = await asyncio.to_thread(
            FrontierSession, self.path, self._identity, self._outputs, self.now()
        )
        transaction = FrontierTransaction(
            session.connection,
            self.path,
            wall=self.now,
            pages=session.pages,
            per_host=self._per_host,
            on_step=self._on_step,
        )
        self._writer = GroupCommitWriter(transaction, full_sync=True, on_step=self._on_step, error_of=ledger_error)
        return await self.counts()

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Return what was taken, and close the file. May be called again, and after a ``begin`` that failed."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            leaving = writer.submit(lambda transaction: transaction.sign_off())
            await writer.close()
            await leaving
        finally:
            self._taken.clear()
            self._session.let_go()

    def now(self) -> float:
        """Unix time as the frontier sees it: it never goes back while it is open."""
        return self._clock.now() + self._wall_ahead

    # ------------------------------------------------------------------ URLs come in and go out

    async def add(self, found: Iterable[FoundUrl]) -> int:
        """How many of these were not known yet. They must be canonical: each spelling is a URL of its own."""
        added, left = 0, iter(found)
        while part := _with_digests(islice(left, URLS_AT_ONCE)):
            added += await self._submit(partial(FrontierTransaction.add, found=part), about=part)
        return added

    async def take(self, limit: int) -> list[Visit]:
        """Up to ``limit`` visits that may begin now: of the hosts that have waited longest, one each, then another
        each, up to ``per_host``; of each host the ones nearest to a seed, then the oldest.

        An empty list means that nothing may begin before ``next_at``, unless a visit ends or something is added.
        """
        if limit < 1:
            return []
        taking = self._submit(lambda transaction: transaction.take(limit), step="claim", durable=False)
        try:
            visits = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._untake)  # the caller is gone
            raise
        self._taken.update((visit.number, host) for host, visit in visits)
        return [visit for _, visit in visits]

    async def next_at(self) -> float | None:
        """Unix time from which ``take`` has something to give if nothing else happens; None if never."""
        return await self._submit(lambda transaction: transaction.next_at(), durable=False)

    async def finish(
        self, visit: Visit, result: Result | None, found: Iterable[FoundUrl] = (), reason: str = ""
    ) -> int:
        """The visit is done: its page is written and what it led to is added, or neither; how many are new.

        A visit may be done without a page (a redirect), then ``reason`` says why. If the task that waits for this is
        cancelled, it is done all the same.
        """
        part = _with_digests(found)
        records = None if result is None else await self._packed(result)
        host = self._end(visit)

        left_out: list[tuple[FoundUrl, str]] = []

        def finish(transaction: FrontierTransaction) -> int:
            transaction.finish(visit.number, host, reason, records)
            return transaction.add(part, self._bounds, left_out)

        added = await self._ended(visit, host, self._submit(finish, about=part))
        if self._left_out is not None:
            for one, why in left_out:
                self._left_out(one, why)
        return added

    async def put_off(
        self, visit: Visit, until: float, reason: str, *, attempts: int = 0, rate_limited: int = 0
    ) -> None:
        """Not before this (Unix time). ``attempts`` and ``rate_limited`` are added to the visit's own."""
        host = self._end(visit)
        putting = self._submit(
            lambda transaction: transaction.put_off(visit.number, host, until, reason, attempts, rate_limited),
            durable=False,
        )
        await self._ended(visit, host, putting)

    async def fail(self, visit: Visit, reason: Reason, *, attempts: int = 1) -> None:
        """It will not be tried again. ``attempts`` are added to the visit's own."""
        await self._lose(visit, VisitState.FAILED, reason, attempts)

    async def refuse(self, visit: Visit, reason: Reason) -> None:
        """It may not be visited: robots.txt forbids it, its address is private, ..."""
        await self._lose(visit, VisitState.REFUSED, reason, 0)

    async def give_back(self, visits: Iterable[Visit]) -> None:
        """Nothing was done about these; they wait as before."""
        back = [(visit.number, self._end(visit)) for visit in visits]
        await self._submit(lambda transaction: transaction.give_back(back), durable=False)

    async def rest(self, host: str, until: float, reason: str) -> None:
        """Nothing is taken from this host before then (Unix time). A rest that ends earlier shortens nothing."""
        await self._submit(lambda transaction: transaction.rest(host, until, reason), durable=False)

    # ------------------------------------------------------------------ what is known

    async def robots(self, host: str) -> StoredRobots | None:
        return await self._submit(lambda transaction: transaction.robots(host), durable=False)

    async def keep_robots(self, host: str, robots: StoredRobots) -> None:
        await self._submit(lambda transaction: transaction.keep_robots(host, robots), durable=False)

    async def counts(self) -> FrontierCounts:
        return await asyncio.to_thread(read_counts, self.path)

    # ------------------------------------------------------------------ inside

    async def _packed(self, result: Result) -> tuple[bytes, ...]:
        def pack() -> tuple[bytes, ...]:
            return tuple(output.record(result) for output in self._outputs)

        return await asyncio.to_thread(pack) if result.size > PACKED_ASIDE else pack()

    async def _lose(self, visit: Visit, state: VisitState, reason: Reason, attempts: int) -> None:
        host = self._end(visit)
        losing = self._submit(lambda transaction: transaction.lose(visit.number, host, state, reason, attempts))
        await self._ended(visit, host, losing)

    def _end(self, visit: Visit) -> int:
        """Mark the visit as ended, so that no other call can end it. Returns its host's number."""
        host = self._taken.pop(visit.number, None)
        if host is None:
            raise LedgerError(f"{visit.url} is not taken: its visit has already ended or belongs to another crawl")
        return host

    async def _ended(self, visit: Visit, host: int, ending: asyncio.Future[T]) -> T:
        """Wait until its end is on disk. If it cannot be written, the visit is open again."""
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._taken[visit.number] = host
            raise

    def _untake(self, taking: asyncio.Future[list[tuple[int, Visit]]]) -> None:
        if taking.cancelled() or taking.exception() or self._writer is None:
            return
        back = [(visit.number, host) for host, visit in taking.result()]
        self._submit(lambda transaction: transaction.give_back(back), durable=False)

    def _submit(
        self,
        work: Callable[[FrontierTransaction], T],
        *,
        about: Iterable[tuple[int, FoundUrl]] = (),
        durable: bool = True,
        step: str = "commit",
    ) -> asyncio.Future[T]:
        if self._writer is None:
            raise LedgerError(f"{self.path} is not open: call begin() first; it cannot be used after close()")
        return self._writer.submit(work, about=[digest for digest, _ in about], durable=durable, step=step)

    def __repr__(self) -> str:
        return f"Frontier({self.path!r})"


def _with_digests(found: Iterable[FoundUrl]) -> list[tuple[int, FoundUrl]]:
    return [(digest_of(one.url), one) for one in found]


# ---------------------------------------------------------------------- reading a file, also while a crawl runs
# Nothing is held up by it. Each blocks, and raises ``LedgerError``.

_REASON = "reason."
"""Before the names of totals that count URLs by the category of their reason."""


@contextmanager
def reading(path: str) -> Iterator[sqlite3.Connection]:
    """The file as it is at one moment."""
    try:
        with closing(open_to_read(path)) as connection:
            connection.execute("BEGIN")
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise ledger_error(error, path) from None


def read_counts(path: str) -> FrontierCounts:
    with reading(path) as connection:
        totals = {name: int(amount) for name, amount in connection.execute("SELECT name, amount FROM totals")}
        (hosts,) = connection.execute("SELECT coalesce(max(id), 0) FROM hosts").fetchone()
    return FrontierCounts(
        hosts=hosts,
        pages=totals.get("pages", 0),
        reasons={name.removeprefix(_REASON): n for name, n in totals.items() if name.startswith(_REASON)},
        **{state.value: totals.get(state.value, 0) for state in STATES},
    )


def read_open_by_host(path: str, top: int) -> dict[str, int]:
    """How many URLs are still to be visited, of the hosts with the most of them, the most first."""
    with reading(path) as connection:
        return dict(
            connection.execute(
                "SELECT name, waiting + taken + put_off AS open FROM hosts ORDER BY open DESC, id LIMIT ?", (top,)
            )
        )


def read_lost(path: str, after: int = 0, limit: int = 1_000) -> list[LostUrl]:
    """Failed and refused URLs with their reasons, in the order of their numbers, beginning behind ``after``."""
    with reading(path) as connection:
        found = connection.execute(
            "SELECT id, url, state, reason, attempts, found_on FROM urls WHERE state > 3 AND id > ? "
            "ORDER BY id LIMIT ?",
            (after, limit),
        ).fetchall()
    return [LostUrl(number, url, STATES[state], *others) for number, url, state, *others in found]
