"""Every address of a crawl, on disk: what is known, what waits, what became of each, and what comes next.

Memory holds what is taken and little more, so a million addresses of a hundred thousand hosts cost no more than ten.
All work goes through one writing thread (``sqlite_writer``): what is asked for at the same time is committed together.

What ``finish`` has returned from survives a power cut: the page in the output, the addresses it led to, and that
it is done, all three or none of them. A process that dies leaves behind at most a piece of output that the frontier
knows nothing of; the next cuts it off and visits those pages again. So a page is in the output exactly once.

    begin ─> add ─> [ take ─> finish | put_off | fail | refuse | give_back ] ... ─> close

Errors are ``LedgerError`` where the frontier's own file is the matter, and ``OutputError`` where it is the output.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Self, TypeVar

from ..batch.ledger import LedgerError
from ..batch.sqlite_writer import Writer
from ..batch.steps import Pass, chosen_end
from ..checks import check_whole
from ..clock import Clock, SystemClock
from .frontier_book import FrontierBook
from .frontier_file import in_words
from .frontier_holding import Hold
from .frontier_reading import look, read_counts, read_hosts, read_lost
from .frontier_records import Bounds, Found, FrontierCounts, HostStanding, KeptRobots, LostAddress, Visit, VisitState
from .frontier_tallies import digest_of
from .output import Output, Result

__all__ = [
    "Bounds",
    "Found",
    "Frontier",
    "FrontierCounts",
    "HostStanding",
    "KeptRobots",
    "LostAddress",
    "Visit",
    "VisitState",
]

T = TypeVar("T")

ADDRESSES_AT_ONCE = 5_000
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
        left_out: Callable[[Found, str], None] | None = None,
        clock: Clock | None = None,
        passing: Pass | None = None,
    ) -> None:
        """``identity`` says what is crawled (seeds, scope): another crawl's file is not taken up. ``per_host``
        is how many visits of one host may be taken at a time. ``bounds`` are for what visits lead to; ``left_out``
        hears of what is beyond them, and why."""
        check_whole("per_host", per_host)
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self._identity = dict(identity)
        self._outputs = tuple(outputs)
        self._per_host = per_host
        self._bounds, self._left_out = bounds, left_out
        self._clock = clock or SystemClock()
        self._passing = passing or chosen_end()
        self._wall_ahead = 0.0
        """Of the clock's own time: asked for once, so that a wall clock that is set while we run moves nothing."""
        self._taken: dict[int, int] = {}
        """Each visit that is out, with its host's number."""
        self._writer: Writer[FrontierBook] | None = None

    async def begin(self) -> FrontierCounts:
        """Make the file, or take up where it was left; the outputs are cut back to what is known to be done."""
        if self._writer is not None:
            raise LedgerError(f"{self.path} has been begun already")
        self._wall_ahead = self._clock.wall() - self._clock.now()
        hold = self._hold = await asyncio.to_thread(Hold, self.path, self._identity, self._outputs, self.now())
        self._book = FrontierBook(
            hold.connection,
            self.path,
            wall=self.now,
            pages=hold.pages,
            per_host=self._per_host,
            passing=self._passing,
        )
        self._writer = Writer(self._book, fully=True, passing=self._passing, in_words=in_words)
        return await self.counts()

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """What is taken waits again. May be called again, and after a ``begin`` that failed."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            leaving = writer.submit(lambda _: self._book.leave())
            await writer.close()
            await leaving
        finally:
            self._taken.clear()
            self._hold.let_go()

    def now(self) -> float:
        """Unix time as the frontier sees it: it never goes back while it is open."""
        return self._clock.now() + self._wall_ahead

    # ------------------------------------------------------------------ addresses come in and go out

    async def add(self, found: Iterable[Found]) -> int:
        """How many of these were not known yet. They must be canonical: each spelling is an address of its own."""
        added, left = 0, iter(found)
        while part := _with_digests(islice(left, ADDRESSES_AT_ONCE)):
            added += await self._submit(partial(self._book.add, part), about=part)
        return added

    async def take(self, limit: int) -> list[Visit]:
        """Up to ``limit`` visits that may begin now: of the hosts that have waited longest, one each, then another
        each, up to ``per_host``; of each host the ones nearest to a seed, then the oldest.

        An empty list means that nothing may begin before ``next_at``, unless a visit ends or something is added.
        """
        if limit < 1:
            return []
        taking = self._submit(lambda: self._book.take(limit), step="claim", lasting=False)
        try:
            visits = await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._untake)  # who asked is gone
            raise
        self._taken.update((visit.number, host) for host, visit in visits)
        return [visit for _, visit in visits]

    async def next_at(self) -> float | None:
        """Unix time from which ``take`` has something to give if nothing else happens; None if never."""
        return await self._submit(lambda: self._book.next_at(), lasting=False)

    async def finish(self, visit: Visit, result: Result | None, found: Iterable[Found] = (), reason: str = "") -> int:
        """The visit is done: its page is written and what it led to is added, or neither; how many are new.

        A visit may be done without a page (a redirect), then ``reason`` says why. If the task that waits for this is
        cancelled, it is done all the same.
        """
        part = _with_digests(found)
        records = None if result is None else await self._packed(result)
        host = self._end(visit)

        left_out: list[tuple[Found, str]] = []

        def finish() -> int:
            self._book.finish(visit.number, host, reason, records)
            return self._book.add(part, self._bounds, left_out)

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
            lambda: self._book.put_off(visit.number, host, until, reason, attempts, rate_limited), lasting=False
        )
        await self._ended(visit, host, putting)

    async def fail(self, visit: Visit, reason: str, *, attempts: int = 1) -> None:
        """It will not be tried again. ``attempts`` are added to the visit's own."""
        await self._lose(visit, VisitState.FAILED, reason, attempts)

    async def refuse(self, visit: Visit, reason: str) -> None:
        """It may not be visited: robots.txt forbids it, its address is private, ..."""
        await self._lose(visit, VisitState.REFUSED, reason, 0)

    async def give_back(self, visits: Iterable[Visit]) -> None:
        """Nothing was done about these; they wait as before."""
        back = [(visit.number, self._end(visit)) for visit in visits]
        await self._submit(lambda: self._book.give_back(back), lasting=False)

    async def rest(self, host: str, until: float, reason: str) -> None:
        """Nothing is taken from this host before then (Unix time). A rest that ends earlier shortens nothing."""
        await self._submit(lambda: self._book.rest(host, until, reason), lasting=False)

    # ------------------------------------------------------------------ what is known

    async def robots(self, host: str) -> KeptRobots | None:
        return await self._submit(lambda: self._book.robots(host), lasting=False)

    async def keep_robots(self, host: str, robots: KeptRobots) -> None:
        await self._submit(lambda: self._book.keep_robots(host, robots), lasting=False)

    async def counts(self) -> FrontierCounts:
        return await asyncio.to_thread(look, self.path, read_counts)

    async def hosts(self, top: int) -> list[HostStanding]:
        """Those with the most that is still to be done."""
        return await asyncio.to_thread(look, self.path, lambda connection: read_hosts(connection, top))

    async def lost(self, after: int = 0, limit: int = 1_000) -> list[LostAddress]:
        """Failed and refused addresses with their reasons; go on behind the last one's number."""
        return await asyncio.to_thread(look, self.path, lambda connection: read_lost(connection, after, limit))

    # ------------------------------------------------------------------ inside

    async def _packed(self, result: Result) -> tuple[bytes, ...]:
        def pack() -> tuple[bytes, ...]:
            return tuple(output.record(result) for output in self._outputs)

        return await asyncio.to_thread(pack) if result.size > PACKED_ASIDE else pack()

    async def _lose(self, visit: Visit, state: VisitState, reason: str, attempts: int) -> None:
        host = self._end(visit)
        losing = self._submit(lambda: self._book.lose(visit.number, host, state, reason, attempts))
        await self._ended(visit, host, losing)

    def _end(self, visit: Visit) -> int:
        """Its host's number; from now on nobody else can end it."""
        host = self._taken.pop(visit.number, None)
        if host is None:
            raise LedgerError(f"{visit.url} is not taken: its visit has ended already, or belongs to another crawl")
        return host

    async def _ended(self, visit: Visit, host: int, ending: asyncio.Future[T]) -> T:
        """... unless it could not be written down: then it is still out."""
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
        self._submit(lambda: self._book.give_back(back), lasting=False)

    def _submit(
        self,
        work: Callable[[], T],
        *,
        about: Iterable[tuple[int, Found]] = (),
        lasting: bool = True,
        step: str = "commit",
    ) -> asyncio.Future[T]:
        if self._writer is None:
            raise LedgerError(f"{self.path} is not open: begin comes first, and nothing comes after close")
        digests = [digest for digest, _ in about]
        return self._writer.submit(lambda _: work(), about=digests, lasting=lasting, step=step)

    def __repr__(self) -> str:
        return f"Frontier({self.path!r})"


def _with_digests(found: Iterable[Found]) -> list[tuple[int, Found]]:
    return [(digest_of(one.url), one) for one in found]
