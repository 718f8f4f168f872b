# mypy: allow-subclassing-any, disable-error-code="import-not-found"
"""Scrapy behind the gate, by one line of its settings: ``ADDONS = {"headgate.integrations.scrapy.Addon": 100}``.

    spider ─> scheduler: PriorityQueue ─────────> DownloaderMiddleware ─> network      each download slot has a lane
                ^  waits here, on disk if JOBDIR   takes leave, reports        │
                └────────── RetryMiddleware: again, after a while <────────────┘

A request waits for its host in the scheduler's queue, where it holds none of ``CONCURRENT_REQUESTS``: a host that is
slow, limited or down takes no place from the others. What never comes through the scheduler (robots.txt, files and
images) waits in the middleware. The add-on turns AutoThrottle off and puts these three in their places.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from scrapy.downloadermiddlewares import retry
from scrapy.exceptions import CannotResolveHostError, DownloadConnectionRefusedError
from scrapy.http import Request
from scrapy.utils.misc import load_object

from .. import wire
from ..core.backoff import delay
from ..core.decision import Outcome
from ..core.signal import SILENT, Signal
from ..errors import Refused
from ..limiter import Permit
from .outgoing import Outgoing, is_idempotent
from .reading import LARGEST_ERROR, unpacked
from .scrapy_lanes import AGAIN
from .scrapy_meta import TURNED_AWAY, WAIT, secrets_to_drop
from .scrapy_queue import Gate, PriorityQueue

__all__ = ["Addon", "DownloaderMiddleware", "PriorityQueue", "RetryMiddleware"]

NEAR_THE_NETWORK = 950
"""The middleware's place: after caches and whatever drops requests, and the first to see an answer."""
IN_PLACE = 1.0
"""Seconds that a request whose leave was used by another (its robots.txt) waits before it goes back into the queue."""
MOST_TURNED_AWAY = 20
"""Answers of 429 that do not count as attempts of a request."""
_UNSENT = (CannotResolveHostError, DownloadConnectionRefusedError)


class Addon:
    """Everything in its place."""

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


class DownloaderMiddleware:
    """Takes leave for each request that really goes to the network, and reports how it went."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._under_way: WeakKeyDictionary[Any, tuple[str, Permit, bool]] = WeakKeyDictionary()
        self._failures = tuple(load_object(one) for one in gate.crawler.settings.getlist("RETRY_EXCEPTIONS"))

    @classmethod
    def from_crawler(cls, crawler: Any) -> DownloaderMiddleware:
        return cls(Gate.of(crawler))

    async def process_request(self, request: Any) -> Any:
        if not request.url.startswith(("http:", "https:")):
            return None
        for name in secrets_to_drop(request.meta, request.url, [name.decode("latin-1") for name in request.headers]):
            del request.headers[name]
        lanes, slot = self.gate.lanes, self.gate.slot_of(request)
        lane = lanes.lane(slot)
        is_scheduled = lane.on_way is request
        if wait := request.meta.pop(WAIT, 0.0):  # the queue has taken it out, where there is one
            await asyncio.sleep(wait)
        permit = lanes.take(slot, request)
        if permit is None and is_scheduled:
            try:
                permit = await lanes.limiter.acquire_async(slot, max_wait=IN_PLACE)
            except Refused:
                return request.replace(dont_filter=True)
        elif permit is None:
            permit = await lanes.leave(slot)
        is_retry = is_scheduled and request.meta.get("retry_times", 0) > 0
        if is_retry and not lane.budget.take(lanes.limiter.clock.now()):
            permit.abandon()
            return again(request, AGAIN)
        if not is_retry:
            lane.budget.called(lanes.limiter.clock.now())
        self._under_way[request] = slot, permit, is_retry
        return None

    def process_response(self, request: Any, response: Any) -> Any:
        if request in self._under_way:
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
        if request in self._under_way:
            is_theirs = isinstance(exception, self._failures)
            self._ended(request, SILENT[Outcome.TRANSIENT] if is_theirs else None, exception)

    def _ended(self, request: Any, signal: Signal | None, answer: object) -> None:
        slot, permit, is_retry = self._under_way.pop(request)
        if is_retry:
            self.gate.lanes.lane(slot).budget.ended()
        if signal is None:
            permit.release()
            return
        self.gate.told[request] = signal
        self.gate.lanes.ended(slot, permit, signal, request.meta.get("download_latency"), answer)


class RetryMiddleware(retry.RetryMiddleware):
    """Scrapy's own, by the same settings; but 429 uses up no attempt, failures back off, and no POST is sent twice."""

    gate: Gate

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        middleware = super().from_crawler(crawler)
        middleware.gate = Gate.of(crawler)
        return middleware

    def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:
        told = self.gate.told.pop(request, None)
        if told is None or request.meta.get("dont_retry"):  # not from the network, or not to be repeated
            return response
        if (told.retry_after or 0.0) > self.gate.lanes.max_wait:
            return response
        if told.outcome is Outcome.RATE_LIMITED and response.status in self.retry_http_codes:
            times = request.meta.get(TURNED_AWAY, 0)
            if times < MOST_TURNED_AWAY:
                self.crawler.stats.inc_value("headgate/turned_away")
                request.meta[TURNED_AWAY] = times + 1
                return again(request)
        elif not _may_repeat(request):
            return response
        return self._after_a_while(super().process_response(request, response))

    def process_exception(self, request: Any, exception: Exception, spider: Any = None) -> Any:
        self.gate.told.pop(request, None)
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
    return bool(request.meta.get("headgate_may_repeat")) or is_idempotent(Outgoing(request.method, request.url, named))
