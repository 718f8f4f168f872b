"""``Crawler``: visit a site's pages as fast as it really takes them, once each, and go on where it stopped.

    crawler = Crawler(["https://example.org/"], output="pages.jsonl")
    async for page in crawler:
        print(page.url, page.title)

The public face. One run is ``run.py``; the way of one call through the gate is ``fetch/gated_fetcher.py``; which fetch
may start when is ``host_driver.py``; what is on disk is ``frontier/``.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..clock import Clock, SystemClock
from ..engine.output_file import STDOUT
from ..engine.supervisor import PauseSwitch, StopReason
from ..errors import ConfigError
from ..events import CrawlEvent
from ..limiter import AdaptiveRateLimiter
from .config import CrawlConfig
from .fetch.credentials import Given, OriginCredentials, keys_by_origin, origin_named
from .fetch.gated_fetcher import Fetch
from .frontier import LostUrl
from .frontier.frontier import read_lost, read_open_by_host
from .frontier.schema import SUFFIX
from .output import JsonlOutput, Output, Page, WarcOutput
from .page.processor import Extract, Follow
from .report import CrawlReport
from .run import CrawlRun, CrawlSetup
from .status import HostStatus
from .url import Scope, canonical, host_of, unfit

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

NOT_TAKEN = 64
"""Pages that are written and wait to be iterated over; then the crawl waits."""
MOST_SEEDS = 1_000_000
EVERYWHERE = "*"
"""Among the hosts of a crawl: no host is outside."""
REQUIRED_PACKAGES = ("protego", "selectolax", "trafilatura", "lxml_html_clean")
"""Packages that read robots.txt and pages; only a crawl needs them. trafilatura does not name the last one itself."""


class Crawler:
    """One crawl from some start URLs. Run again with the same output, it resumes where it stopped."""

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
        """``output`` is a file of JSON lines, or "-"; ``warc`` a web archive; without either, pages are only
        iterated over. ``frontier`` is where the URLs are kept: by default beside the output, without one nowhere.

        ``follow(page, link)`` says which links to follow, ``extract(page, fetched)`` what else to keep of a page.
        ``headers`` are sent to their origin (``https://host``) alone. So are ``credentials``, which are handed out as
        everywhere: a ``CredentialCoordinator`` for each origin, or a pair of one and another header than
        ``Authorization: Bearer {secret}``. ``resolver`` and ``fetch`` take the place of the system's own.
        """
        _check_packages()
        config = CrawlConfig() if config is None else config
        urls = seeds_of((seeds,) if isinstance(seeds, str) else seeds)
        clock = clock or (limiter.clock if limiter is not None else SystemClock())
        rng = random.Random() if rng is None else rng
        if limiter is None:
            limiter = AdaptiveRateLimiter(config.pace(), clock=clock, rng=rng)
        limiter.allow_unreported()  # every permit is reported; a few slow hosts at first are no silence
        outputs: tuple[Output, ...] = (
            *(() if output is None else (JsonlOutput(output),)),
            *(() if warc is None else (WarcOutput(warc, description=f"crawl of {urls[0]}", agent=config.agent),)),
        )
        if len({one.path for one in outputs}) < len(outputs):
            raise ConfigError("warc and output are the same file; each needs its own")
        by_origin = keys_by_origin(credentials or {})
        self._setup = CrawlSetup(
            config=config,
            seeds=urls,
            scope=scope_of(config, urls),
            limiter=limiter,
            clock=clock,
            rng=rng,
            outputs=outputs,
            follow=follow,
            extract=extract,
            headers=headers_by_origin(headers or {}, by_origin),
            credentials=by_origin,
            resolver=resolver,
            fetch=fetch,
        )
        self.config, self.seeds, self.limiter, self.clock = config, urls, limiter, clock
        self.outputs, self.credentials = outputs, by_origin
        self.on_event = on_event
        self._frontier = None if frontier is None else os.fspath(frontier)
        self._run: CrawlRun | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last = CrawlReport()
        self._pause = PauseSwitch()

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
        """Start nothing any more and finish what is under way, or leave that too (``now``). URLs stay.

        May be called from any thread, and from a signal handler.
        """
        run = self._run
        if run is not None:
            detail = "" if reason == StopReason.STOPPED.value else reason
            self._call_soon(partial(run.stop, StopReason.STOPPED, detail, now=now))

    def pause(self) -> None:
        """Start no fetch until ``resume``; what is under way is finished. May be called from any thread."""
        self._pause.is_on = True

    def resume(self) -> None:
        """Continue after ``pause``. May be called from any thread."""
        self._pause.is_on = False
        run = self._run
        if run is not None:
            self._call_soon(run.scheduler.wake)

    @property
    def is_paused(self) -> bool:
        """Whether an operator lets no fetch start."""
        return self._pause.is_on

    def _call_soon(self, work: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(work)

    # ------------------------------------------------------------------ status

    @property
    def frontier(self) -> str | None:
        """Where the URLs are kept; None if nowhere."""
        if self._frontier is not None:
            return self._frontier
        paths = [output.path for output in self.outputs if output.path != STDOUT]
        return paths[0] + SUFFIX if paths else None

    def report(self) -> CrawlReport:
        """The present crawl so far, or the last one."""
        run = self._run  # the caller may live in another thread
        if run is None:
            return self._last
        report = run.report
        report.elapsed = self.clock.now() - run.began_at
        report.hosts = max(report.hosts, len(run.scheduler.lanes))
        return report

    def hosts(self, most: int = 100) -> list[HostStatus]:
        """The busiest hosts now, and some that are shut, with why each waits."""
        run = self._run
        return [] if run is None else run.status.hosts(most)

    @property
    def in_flight(self) -> int:
        """Fetches under way."""
        run = self._run
        return 0 if run is None else run.in_flight

    def open_by_host(self, most: int = 100) -> dict[str, int]:
        """How many URLs are still to be visited of the hosts with the most of them. Reads the frontier; blocks."""
        run = self._run
        return {} if run is None else read_open_by_host(run.frontier.path, most)

    def waits(self) -> dict[str, int]:
        """Hosts by what they wait for."""
        run = self._run
        return {} if run is None else run.status.waits()

    def lost(self, after: int = 0, limit: int = 1_000) -> list[LostUrl]:
        """URLs that failed or were refused, with their reasons; ``after`` is the number of the last one read."""
        path = self.frontier
        return [] if path is None else read_lost(path, after, limit)

    # ------------------------------------------------------------------ inside

    async def _go(self, delivery: asyncio.Queue[Page | None] | None) -> CrawlReport:
        if self._run is not None:
            raise ConfigError("this crawler is already running; create another one with its own output")
        with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
            self._run = run = CrawlRun(
                self._setup,
                self.frontier or os.path.join(folder, "frontier"),
                listener=lambda: self.on_event,
                is_paused=lambda: self._pause.is_on,
                deliver=delivery,
            )
            self._loop = asyncio.get_running_loop()
            try:
                await run.run()
            finally:
                self._run, self._last = None, run.report
        return run.report


def _check_packages() -> None:
    missing = [name for name in REQUIRED_PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"a crawl needs {' and '.join(missing)}: pip install 'headgate[crawl]'")


# ---------------------------------------------------------------------- what is given, checked and in one spelling


def seeds_of(given: Iterable[str]) -> tuple[str, ...]:
    seeds: dict[str, None] = {}
    for number, text in enumerate(given, 1):
        written = text if "://" in text else f"https://{text}"
        url = canonical(written)
        if url is None:
            raise ConfigError(f"seeds: URL {number} {unfit(written)}")
        seeds[url] = None
    if not seeds:
        raise ConfigError("give at least one URL")
    if len(seeds) > MOST_SEEDS:
        raise ConfigError(f"seeds: got {len(seeds):,} URLs; the limit is {MOST_SEEDS:,}")
    return tuple(seeds)


def headers_by_origin(
    given: Mapping[str, Mapping[str, str]], credentials: Mapping[str, OriginCredentials]
) -> dict[str, Mapping[str, str]]:
    found: dict[str, Mapping[str, str]] = {}
    for number, (text, headers) in enumerate(given.items(), 1):
        origin = origin_named("headers", number, text)
        if origin in credentials and credentials[origin].header.lower() in map(str.lower, headers):
            raise ConfigError(
                f"headers: number {number} sets {credentials[origin].header}, which its credentials set too"
            )
        found[origin] = headers
    return found


def scope_of(config: CrawlConfig, seeds: tuple[str, ...]) -> Scope:
    hosts = frozenset(config.hosts) or frozenset(map(host_of, seeds))
    return Scope(
        hosts=None if EVERYWHERE in hosts else hosts,
        subdomains=config.subdomains,
        include=config.include,
        exclude=config.exclude,
        max_depth=config.max_depth,
    )
