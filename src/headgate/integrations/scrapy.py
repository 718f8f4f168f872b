# mypy: allow-subclassing-any, disable-error-code="import-not-found"
"""Scrapy behind the gate, by one line of its settings: ``ADDONS = {"headgate.integrations.scrapy.Addon": 100}``.

    spider ─> scheduler: PriorityQueue ─────────> DownloaderMiddleware ─> network      each download slot has a lane
                ^  waits here, on disk if JOBDIR   takes a permit, reports     │
                └────────── RetryMiddleware: again, after a while <────────────┘

A request waits for its host in the scheduler's queue, where it holds none of ``CONCURRENT_REQUESTS``: a host that is
slow, limited or down takes no place from the others. What never comes through the scheduler (robots.txt, files and
images) waits in the middleware. The add-on turns AutoThrottle off and puts these three in their places.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from dataclasses import replace
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from scrapy import signals
from scrapy.downloadermiddlewares import retry
from scrapy.exceptions import CannotResolveHostError, DownloadConnectionRefusedError, NotConfigured
from scrapy.http import Request
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.misc import load_object

from .. import wire
from ..config import RateLimitConfig
from ..core.decision import Outcome
from ..core.retry import delay
from ..core.signal import SILENT, Signal
from ..errors import Refused
from ..limiter import AdaptiveRateLimiter, Permit
from ..resilience.config import REMEMBERED
from .client_gate import LONGEST_WAIT
from .request import OutgoingRequest, is_idempotent
from .response_reader import LARGEST_ERROR, unpacked
from .scrapy_lanes import ASK_AGAIN, TURNED_AWAY, WAIT, Lanes, leave_slot_of_other_host, secrets_to_drop

__all__ = ["Addon", "DownloaderMiddleware", "PriorityQueue", "RetryMiddleware"]

NEAR_THE_NETWORK = 950
"""The middleware's place: after caches and middlewares that drop requests, and the first to see an answer."""
IN_PLACE = 1.0
"""Seconds that a request whose permit was used by another (its robots.txt) waits before it goes back into the queue."""
MOST_TURNED_AWAY = 20
"""Answers of 429 that do not count as attempts of a request."""
MOST_PUT_OFF = 10_000
"""Requests that wait for their own second attempt; beyond, they go at once."""
_UNSENT = (CannotResolveHostError, DownloadConnectionRefusedError)


class Addon:
    """Puts the queue and the middlewares into a project's settings."""

    def update_settings(self, settings: Any) -> None:
        settings.set("AUTOTHROTTLE_ENABLED", False, settings.getpriority("AUTOTHROTTLE_ENABLED"))
        settings.set("SCHEDULER_PRIORITY_QUEUE", PriorityQueue, "addon")
        name = "DOWNLOADER_MIDDLEWARES"
        settings.setdefault_in_component_priority_dict(name, DownloaderMiddleware, NEAR_THE_NETWORK)
        given = settings.get_component_priority_dict_with_base(name)
        places = {load_object(one): place for one, place in given.items()}
        if (place := places.get(retry.RetryMiddleware)) is not None:
            settings.set_in_component_priority_dict(name, retry.RetryMiddleware, None)
            settings.set_in_component_priority_dict(name, RetryMiddleware, place)


class CrawlerGate:
    """What the queue and the middlewares of one crawler have in common."""

    def __init__(self, crawler: Any) -> None:
        if not is_asyncio_available():
            raise NotConfigured("headgate needs Scrapy's asyncio reactor, which is its default")
        settings = crawler.settings
        config = settings.get("HEADGATE_CONFIG") or RateLimitConfig(domain_state_ttl=REMEMBERED)
        if limits := settings.getdict("HEADGATE_LIMITS"):
            config = replace(config, limits=limits)
        self.config = config
        self.crawler = crawler
        self.rng = random.Random()
        self.signals: WeakKeyDictionary[Any, Signal] = WeakKeyDictionary()
        """What the answers said, for the retry middleware."""
        self.lanes = Lanes(
            AdaptiveRateLimiter(config, store=settings.get("HEADGATE_STORE")),
            max_wait=settings.getfloat("HEADGATE_MAX_WAIT", LONGEST_WAIT),
            wake=self.wake,
            is_under_way=lambda request: request in self.crawler.engine.downloader.active,
        )
        self.lanes.limiter.allow_unreported()
        crawler.signals.connect(self._closed, signal=signals.spider_closed)

    @classmethod
    def of(cls, crawler: Any) -> CrawlerGate:
        gate = _GATES.get(crawler)
        if gate is None:
            gate = _GATES[crawler] = cls(crawler)
        return gate

    def wake(self) -> None:
        """Have the engine ask the scheduler again; without this it would, but only every five seconds."""
        slot = self.crawler.engine._slot
        if slot is not None and slot.closing is None:
            slot.nextcall.schedule()

    def slot_of(self, request: Any) -> str:
        leave_slot_of_other_host(request.meta, request.url)
        return str(self.crawler.engine.downloader.get_slot_key(request))

    def _closed(self) -> None:
        self.lanes.close()


_GATES: WeakKeyDictionary[Any, CrawlerGate] = WeakKeyDictionary()


class PriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's own queue, that lets a request go when its host's lane has a permit for it.

    Requests that wait here hold none of ``CONCURRENT_REQUESTS``, which counts those with the downloader and its
    middlewares; with ``JOBDIR`` they lie on disk. One that goes again after a failure is kept apart until its wait is
    over.
    """

    pqueues: dict[str, Any]

    def __init__(self, crawler: Any, *given: Any, **named: Any) -> None:
        super().__init__(crawler, *given, **named)
        self._gate = CrawlerGate.of(crawler)
        self._put_off: list[tuple[float, int, Any]] = []
        self._numbers = count()

    def push(self, request: Any) -> None:
        self._gate.slot_of(request)
        wait = request.meta.pop(WAIT, 0.0)
        if wait > 0.0 and len(self._put_off) < MOST_PUT_OFF:
            heapq.heappush(self._put_off, (self._now() + wait, next(self._numbers), request))
            asyncio.get_running_loop().call_later(wait, self._gate.wake)
        else:
            super().push(request)

    def pop(self) -> Any:
        while self._put_off and self._put_off[0][0] <= self._now():
            super().push(heapq.heappop(self._put_off)[2])
        slots = self.crawler.engine.downloader.slots
        places = [(0 if slot not in slots else len(slots[slot].active), slot) for slot in self.pqueues]
        free = [(active, slot) for active, slot in places if not active or active < slots[slot].concurrency]
        chosen = self._gate.lanes.choose(free)
        if chosen is None:
            return None
        every, self.pqueues = self.pqueues, {chosen: self.pqueues[chosen]}
        try:
            request = super().pop()
        finally:
            if chosen not in self.pqueues:
                del every[chosen]
            self.pqueues = every
        self._gate.lanes.dispatched(chosen, request)
        return request

    def close(self) -> Any:
        for _, _, request in self._put_off:
            super().push(request)
        self._put_off.clear()
        return super().close()

    def __len__(self) -> int:
        return int(super().__len__()) + len(self._put_off)

    def _now(self) -> float:
        return self._gate.lanes.limiter.clock.now()


class DownloaderMiddleware:
    """Takes a permit for each request that really goes to the network, and reports how it went."""

    def __init__(self, gate: CrawlerGate) -> None:
        self.gate = gate
        self._in_progress: WeakKeyDictionary[Any, tuple[str, Permit, bool]] = WeakKeyDictionary()
        self._failures = tuple(load_object(one) for one in gate.crawler.settings.getlist("RETRY_EXCEPTIONS"))

    @classmethod
    def from_crawler(cls, crawler: Any) -> DownloaderMiddleware:
        return cls(CrawlerGate.of(crawler))

    async def process_request(self, request: Any) -> Any:
        if not request.url.startswith(("http:", "https:")):
            return None
        for name in secrets_to_drop(request.meta, request.url, [name.decode("latin-1") for name in request.headers]):
            del request.headers[name]
        lanes, slot = self.gate.lanes, self.gate.slot_of(request)
        lane = lanes.lane(slot)
        is_scheduled = lane.request is request
        if wait := request.meta.pop(WAIT, 0.0):  # the queue has taken it out, where there is one
            await asyncio.sleep(wait)
        permit = lanes.take(slot, request)
        if permit is None and is_scheduled:
            try:
                permit = await lanes.limiter.acquire_async(slot, max_wait=IN_PLACE)
            except Refused:
                return request.replace(dont_filter=True)
        elif permit is None:
            permit = await lanes.acquire(slot)
        is_retry = is_scheduled and request.meta.get("retry_times", 0) > 0
        if is_retry and not lane.budget.take(lanes.limiter.clock.now()):
            permit.abandon()
            return again(request, ASK_AGAIN)
        if not is_retry:
            lane.budget.called(lanes.limiter.clock.now())
        self._in_progress[request] = slot, permit, is_retry
        return None

    def process_response(self, request: Any, response: Any) -> Any:
        if request in self._in_progress:
            named = [(name, value) for name, values in response.headers.items() for value in values]
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in named]
            body = None
            if response.status >= 400:
                encoding = (response.headers.get("Content-Encoding") or b"").decode("latin-1")
                body = unpacked(response.body[:LARGEST_ERROR], encoding)
            clock = self.gate.lanes.limiter.clock
            self._ended(request, wire.read(response.status, headers, body, wall=clock.wall()), response.status)
        return response

    def process_exception(self, request: Any, exception: Exception) -> None:
        if request in self._in_progress:
            is_failure = isinstance(exception, self._failures)
            self._ended(request, SILENT[Outcome.TRANSIENT] if is_failure else None, exception)

    def _ended(self, request: Any, signal: Signal | None, answer: object) -> None:
        slot, permit, is_retry = self._in_progress.pop(request)
        if is_retry:
            self.gate.lanes.lane(slot).budget.ended()
        if signal is None:
            permit.release()
            return
        self.gate.signals[request] = signal
        self.gate.lanes.report(slot, permit, signal, request.meta.get("download_latency"), answer)


class RetryMiddleware(retry.RetryMiddleware):
    """Scrapy's own, by the same settings; but 429 uses up no attempt, failures back off, and no POST is sent twice."""

    gate: CrawlerGate

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        middleware = super().from_crawler(crawler)
        middleware.gate = CrawlerGate.of(crawler)
        return middleware

    def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:
        signal = self.gate.signals.pop(request, None)
        if signal is None or request.meta.get("dont_retry"):  # not from the network, or not to be repeated
            return response
        if (signal.retry_after or 0.0) > self.gate.lanes.max_wait:
            return response
        if signal.outcome is Outcome.RATE_LIMITED and response.status in self.retry_http_codes:
            times = request.meta.get(TURNED_AWAY, 0)
            if times < MOST_TURNED_AWAY:
                self.crawler.stats.inc_value("headgate/turned_away")
                request.meta[TURNED_AWAY] = times + 1
                return again(request)
        elif not _may_repeat(request):
            return response
        return self._after_a_while(super().process_response(request, response))

    def process_exception(self, request: Any, exception: Exception, spider: Any = None) -> Any:
        self.gate.signals.pop(request, None)
        if not (_may_repeat(request) or isinstance(exception, _UNSENT)):
            return None
        return self._after_a_while(super().process_exception(request, exception))

    def _after_a_while(self, result: Any) -> Any:
        if isinstance(result, Request):
            base, most = self.gate.config.retry_base_delay, self.gate.config.retry_max_delay
            result.meta[WAIT] = delay(result.meta["retry_times"], self.gate.rng.random(), base=base, max_delay=most)
        return result


def again(request: Any, wait: float = 0.0) -> Any:
    """The same once more, past the filter of what was seen."""
    meta = {**request.meta, WAIT: wait} if wait else request.meta
    return request.replace(dont_filter=True, meta=meta)


def _may_repeat(request: Any) -> bool:
    named = {name.decode("latin-1").lower(): "" for name in request.headers}
    return bool(request.meta.get("headgate_may_repeat")) or is_idempotent(
        OutgoingRequest(request.method, request.url, named)
    )
