"""``Crawler``: visit a site's pages as fast as it really takes them, once each, and go on where it stopped.

    crawler = Crawler(["https://example.org/"], output="pages.jsonl")
    async for page in crawler:
        print(page.url, page.title)

Here is what callers call. One crawl is ``crawling.py``; the way of one address through the gate is ``visit.py``; who
may start when is ``lanes.py``; what is on disk is ``frontier.py``.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..batch.formats.writing import STDOUT
from ..clock import Clock, SystemClock
from ..errors import ConfigError
from ..limiter import AdaptiveRateLimiter
from .config import CrawlConfig
from .crawling import Crawl
from .frontier import Bounds, Frontier, LostAddress
from .frontier_file import SUFFIX
from .frontier_reading import look, read_hosts, read_lost
from .given import headers_by_origin, identity_of, scope_of, seeds_of
from .keys import Given, keys_by_origin
from .output import JsonlOutput, Output, Page
from .output_warc import WarcOutput
from .processing import Extract, Follow
from .report import CrawlEvent, CrawlReport
from .visit import Fetch

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

NOT_TAKEN = 64
"""Pages that are written and wait for whoever iterates; then the crawl waits."""
PARTS = ("protego", "selectolax")
"""Packages that read robots.txt and pages; who does not crawl does without."""
STOCK = 2
"""For each fetch that a host may have at once, so many of its addresses are in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLook:
    """One host at one moment."""

    host: str
    rate: float | None
    """Calls a second, as learned so far."""
    in_flight: int
    waiting: int
    """Its addresses in memory."""
    opens_in: float | None
    """Seconds for which nothing starts here, where that is known."""
    reason: str
    """Why nothing leaves at this moment; empty if something does."""
    waits_for: str = ""
    """... in a word: shut, paused, pace, crawl_delay, answers, workers, robots or retry_budget."""


class Crawler:
    """One crawl of some seeds. The same one again, with the same output, goes on where it stopped."""

    def __init__(
        self,
        seeds: str | Iterable[str],
        *,
        output: str | os.PathLike[str] | None = None,
        warc: str | os.PathLike[str] | None = None,
        frontier: str | os.PathLike[str] | None = None,
        config: CrawlConfig | None = None,
        limiter: AdaptiveRateLimiter | None = None,
        follow: Follow | None = None,
        extract: Extract | None = None,
        headers: Mapping[str, Mapping[str, str]] | None = None,
        credentials: Mapping[str, Given] | None = None,
        on_event: Callable[[CrawlEvent], None] | None = None,
        resolver: AbstractResolver | None = None,
        fetch: Fetch | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """``output`` is a file of JSON lines, or "-"; ``warc`` a web archive; without either, pages go to whoever
        iterates. ``frontier`` is where the addresses are kept: by default beside the output, without one nowhere.

        ``follow(page, link)`` says which links to follow, ``extract(page, fetched)`` what else to keep of a page.
        ``headers`` are sent to their origin (``https://host``) alone. So are ``credentials``, which are handed out as
        everywhere: a ``CredentialCoordinator`` for each origin, or a pair of one and another header than
        ``Authorization: Bearer {secret}``. ``resolver`` and ``fetch`` take the place of the system's own.
        """
        _check_parts()
        self.config = CrawlConfig() if config is None else config
        self.seeds = seeds_of((seeds,) if isinstance(seeds, str) else seeds)
        self.scope = scope_of(self.config, self.seeds)
        self.clock: Clock = clock or (limiter.clock if limiter is not None else SystemClock())
        self.rng = random.Random() if rng is None else rng
        if limiter is None:
            limiter = AdaptiveRateLimiter(self.config.pace(), clock=self.clock, rng=self.rng)
        self.limiter = limiter
        self.limiter.warns_of_silence = False  # every permit is reported; a few slow hosts at first are no silence
        self.outputs: tuple[Output, ...] = (
            *(() if output is None else (JsonlOutput(output),)),
            *(() if warc is None else (WarcOutput(warc, description=f"crawl of {self.seeds[0]}"),)),
        )
        if len({one.path for one in self.outputs}) < len(self.outputs):
            raise ConfigError("warc: it is the same file as the output; each needs one of its own")
        self.follow, self.extract = follow, extract
        self.credentials = keys_by_origin(credentials or {})
        self.headers = headers_by_origin(headers or {}, self.credentials)
        self.on_event, self.resolver, self.fetch = on_event, resolver, fetch
        self._frontier = None if frontier is None else os.fspath(frontier)
        self._crawl: Crawl | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last = CrawlReport()
        self.is_paused = False
        """Whether an operator lets no fetch start."""

    # ------------------------------------------------------------------ crawling

    async def run(self) -> CrawlReport:
        """Crawl to the end and say how it went. Cancelling it stops at once; nothing is lost."""
        return await self._go(None)

    async def __aiter__(self) -> AsyncIterator[Page]:
        """Pages as they are done, each once it is written down. Pages that an earlier crawl has written do not come
        again."""
        queue: asyncio.Queue[Page | None] = asyncio.Queue(NOT_TAKEN)
        going = asyncio.create_task(self._go(queue))
        ending: list[asyncio.Task[None]] = []
        going.add_done_callback(lambda _: ending.append(asyncio.create_task(queue.put(None))))
        try:
            while (page := await queue.get()) is not None:
                yield page
            await going
        finally:
            going.cancel()
            await asyncio.wait([going])
            await asyncio.sleep(0)
            for task in ending:
                task.cancel()

    def run_sync(self) -> CrawlReport:
        """The same as ``run`` for a program without an event loop."""
        return asyncio.run(self.run())

    def stop(self, reason: str = "stopped", *, now: bool = False) -> None:
        """Start nothing any more and finish what is under way, or leave that too (``now``). Addresses stay.

        May be called from any thread, and from a signal handler.
        """
        crawl, loop = self._crawl, self._loop
        if crawl is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(partial(crawl.stop, reason, now=now))

    def pause(self) -> None:
        """Start no fetch until ``resume``; what is under way is finished. May be called from any thread."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on after ``pause``. May be called from any thread."""
        self.is_paused = False
        crawl, loop = self._crawl, self._loop
        if crawl is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(crawl.discovery.ring)

    # ------------------------------------------------------------------ looking

    @property
    def frontier(self) -> str | None:
        """Where the addresses are kept; None if nowhere."""
        if self._frontier is not None:
            return self._frontier
        paths = [output.path for output in self.outputs if output.path != STDOUT]
        return paths[0] + SUFFIX if paths else None

    def report(self) -> CrawlReport:
        """The present crawl so far, or the last one."""
        crawl = self._crawl  # whoever asks may live in another thread
        if crawl is not None:
            report = crawl.report
            report.elapsed = self.clock.now() - crawl.began_at
            report.hosts = max(report.hosts, len(crawl.discovery.lanes))
            return report
        return self._last

    def hosts(self, most: int = 100) -> list[HostLook]:
        """How the busiest hosts stand at this moment, and some that are shut, and why they wait."""
        crawl = self._crawl
        if crawl is None:
            return []
        now, lanes = self.clock.now(), list(crawl.discovery.lanes.values())
        shut = [lane for lane in lanes if lane.opens_at > now and lane.is_idle][: most // 3]
        busy = sorted(
            (lane for lane in lanes if not lane.is_idle), key=lambda lane: -(lane.in_flight + len(lane.stock))
        )
        lanes = busy[: most - len(shut)] + shut
        return [
            HostLook(
                host=lane.host,
                rate=sum(seen.rate for seen in looks) if (looks := crawl.visiting.looks(lane.host)) else None,
                in_flight=lane.in_flight,
                waiting=len(lane.stock),
                opens_in=lane.opens_at - now if lane.opens_at > now else None,
                reason=lane.why(now),
                waits_for="shut" if lane.opens_at > now else lane.waits_for,
            )
            for lane in lanes
        ]

    @property
    def in_flight(self) -> int:
        """Fetches under way."""
        crawl = self._crawl
        return 0 if crawl is None else crawl.crew.working

    def open_by_host(self, most: int = 100) -> dict[str, int]:
        """How many addresses are still to be visited of the hosts with the most of them. Reads the frontier; blocks."""
        crawl = self._crawl
        if crawl is None:
            return {}
        found = look(crawl.frontier.path, lambda connection: read_hosts(connection, most))
        return {one.host: one.waiting + one.taken + one.put_off for one in found}

    def waits(self) -> dict[str, int]:
        """Hosts by what they wait for."""
        crawl = self._crawl
        return {} if crawl is None else crawl.discovery.waits()

    def lost(self, after: int = 0, limit: int = 1_000) -> list[LostAddress]:
        """Addresses that failed or were refused, with their reasons; go on behind the last one's number."""
        path = self.frontier
        return [] if path is None else look(path, lambda connection: read_lost(connection, after, limit))

    # ------------------------------------------------------------------ inside

    async def _go(self, delivery: asyncio.Queue[Page | None] | None) -> CrawlReport:
        if self._crawl is not None:
            raise ConfigError("this crawler is under way already; a second one needs an output of its own")
        with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
            frontier = Frontier(
                self.frontier or os.path.join(folder, "frontier"),
                identity=identity_of(self.config, self.seeds, {*self.headers, *self.credentials}),
                outputs=self.outputs,
                per_host=STOCK * self.config.per_host,
                bounds=Bounds(per_host=self.config.max_per_host, per_shape=self.config.max_per_shape),
                left_out=lambda found, why: crawl.leave_out(found, why),
                clock=self.clock,
            )
            self._crawl = crawl = Crawl(self, frontier, delivery)
            self._loop = asyncio.get_running_loop()
            try:
                await crawl.go()
            finally:
                self._crawl, self._last = None, crawl.report
        return crawl.report


def _check_parts() -> None:
    missing = [name for name in PARTS if find_spec(name) is None]
    if missing:
        raise ConfigError(f"a crawl needs {' and '.join(missing)}: pip install 'headgate[crawl]'")
