# mypy: allow-subclassing-any, disable-error-code="import-not-found"
"""Where the requests of a Scrapy crawl wait: in the scheduler's queue, by download slot, until their lane has leave.

There they hold none of ``CONCURRENT_REQUESTS``, which counts whatever is with the downloader and its middlewares; and
with ``JOBDIR`` they lie on disk. A request that goes again after a failure is kept apart until its wait is over.
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
from scrapy.exceptions import NotConfigured
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.utils.asyncio import is_asyncio_available

from ..config import RateLimitConfig
from ..core.signal import Signal
from ..limiter import AdaptiveRateLimiter
from ..resilience.config import REMEMBERED
from .passing import LONGEST_WAIT
from .scrapy_lanes import Lanes
from .scrapy_meta import WAIT, leave_slot_of_other_host

MOST_PUT_OFF = 10_000
"""Requests that wait for their own second try; beyond, they go at once."""


class Gate:
    """One crawler's: what the queue and the middlewares have in common."""

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
        self.told: WeakKeyDictionary[Any, Signal] = WeakKeyDictionary()
        """What the answers said, for who decides about trying again."""
        self.lanes = Lanes(
            AdaptiveRateLimiter(config, store=settings.get("HEADGATE_STORE")),
            max_wait=settings.getfloat("HEADGATE_MAX_WAIT", LONGEST_WAIT),
            wake=self.wake,
            is_under_way=lambda request: request in self.crawler.engine.downloader.active,
        )
        self.lanes.limiter.warns_of_silence = False
        crawler.signals.connect(self._closed, signal=signals.spider_closed)

    @classmethod
    def of(cls, crawler: Any) -> Gate:
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


_GATES: WeakKeyDictionary[Any, Gate] = WeakKeyDictionary()


class PriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's own queue, that lets a request go when its host's lane has leave for it."""

    pqueues: dict[str, Any]

    def __init__(self, crawler: Any, *given: Any, **named: Any) -> None:
        super().__init__(crawler, *given, **named)
        self._gate = Gate.of(crawler)
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
        self._gate.lanes.sends(chosen, request)
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
