"""The lanes of a Scrapy crawl: a permit first, then a request; so a host that must wait holds none of Scrapy's places.

    scheduler asks ─> a permit at once? ──yes──> a request of this slot goes ─> the middleware takes it ─> network
                          │ no                                                        ^
                          └─> the lane waits, without a request ─> a permit ─> wakes ─┘

A lane is the way of a download slot through the gate. It holds one permit at most, for a moment, and has one request on
its way with it: pages that are answered from a cache, or that robots.txt forbids, never get there and take nothing.
An open circuit is waited out. A host that gives no permit for longer than ``max_wait`` is refused with an error.

A redirect is a copy of the request before it, with another URL. Scrapy takes ``Authorization`` and cookies off it
itself; it keeps ``X-Api-Key``, and the download slot of the host it came from: what goes on is decided at the end.

All of this is decisions alone, on names and ``meta``, without Scrapy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from ..core.decision import NEVER, Outcome
from ..core.retry import RetryBudget
from ..core.signal import Signal
from ..errors import CircuitOpenError, Refused
from ..limiter import AdaptiveRateLimiter, Permit
from .origins import FirstHop, is_secret, origin_of, strip_secrets

PERMIT_KEPT = 1.0
"""Seconds that a permit is kept for a request; then it goes back."""
ASK_AGAIN = 1.0
"""Seconds until a lane asks again, where nothing says when."""
MOST_LANES = 10_000
"""Idle ones are forgotten when there are more."""
HOP = "headgate_hop"
"""In ``meta``: the URL of this hop, and the origin that its headers belong to."""
WAIT = "headgate_wait"
"""In ``meta``: seconds for which a request that goes again is put off."""
TURNED_AWAY = "headgate_turned_away"
"""In ``meta``: how often it was answered with 429."""
_SLOT = "download_slot"
_KEPT_BY_SCRAPY = frozenset(("authorization", "cookie", "proxy-authorization"))
"""Scrapy attaches and removes these itself, by rules of its own that are as strict."""


class Lane:
    """The permit of one download slot, and what it waits for."""

    __slots__ = ("_expiry", "budget", "open_since", "permit", "refusal", "request", "served_at", "task")

    def __init__(self) -> None:
        self.budget = RetryBudget()
        self.request: object | None = None
        """The request that was sent to the downloader last, until it has taken its permit."""
        self.permit: Permit | None = None
        self.refusal: Refused | None = None
        """For the next request, since there will be no permit in time."""
        self.served_at = NEVER
        self.open_since: float | None = None
        """When the circuit was first found open; reset by the first good answer."""
        self.task: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        held = (self.request, self.permit, self.refusal, self.open_since, self.task)
        return not self.budget.in_flight and all(one is None for one in held)

    def hold(self, permit: Permit) -> None:
        self.permit = permit
        self._expiry = asyncio.get_running_loop().call_later(PERMIT_KEPT, self.give_back)

    def take(self) -> Permit | None:
        """The permit, for a request that is sent now."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        permit, self.permit = self.permit, None
        return permit

    def give_back(self) -> None:
        """The permit was not used in time, or was given on what no longer holds."""
        if (permit := self.take()) is not None:
            permit.abandon()


class Lanes:
    """``wake`` makes the engine ask for requests again; ``is_under_way`` says whether one is with the downloader."""

    def __init__(
        self,
        limiter: AdaptiveRateLimiter,
        *,
        max_wait: float,
        wake: Callable[[], None],
        is_under_way: Callable[[object], bool],
    ) -> None:
        self.limiter, self.max_wait = limiter, max_wait
        self._wake, self._is_under_way = wake, is_under_way
        self._lanes: dict[str, Lane] = {}

    def lane(self, slot: str) -> Lane:
        lane = self._lanes.get(slot)
        if lane is None:
            if len(self._lanes) >= MOST_LANES:
                self._lanes = {name: one for name, one in self._lanes.items() if not one.is_idle}
            lane = self._lanes[slot] = Lane()
        return lane

    # ------------------------------------------------------------------ for the queue

    def choose(self, places: list[tuple[int, str]]) -> str | None:
        """A slot of which a request may go now: of those with the fewest under way, the one served longest ago."""
        waiting = {slot: (active, self.lane(slot).served_at) for active, slot in places if self._may_ask(slot)}
        while waiting:
            slot = min(waiting, key=waiting.__getitem__)
            if self._opens(slot):
                return slot
            del waiting[slot]
        return None

    def dispatched(self, slot: str, request: object) -> None:
        """This request goes to the downloader, with the permit of its lane."""
        lane = self.lane(slot)
        lane.request, lane.served_at = request, self.limiter.clock.now()

    def _may_ask(self, slot: str) -> bool:
        lane = self.lane(slot)
        if lane.request is not None and not self._is_under_way(lane.request):
            lane.request = None  # answered or dropped before it came to the gate
        return lane.task is None and lane.request is None

    def _opens(self, slot: str) -> bool:
        lane = self.lane(slot)
        if lane.permit is not None or lane.refusal is not None:
            return True
        permit = self.limiter.try_acquire(slot)
        if permit is None:
            lane.task = asyncio.get_running_loop().create_task(self._wait_for_permit(slot, lane))
            return False
        lane.hold(permit)
        return True

    async def _wait_for_permit(self, slot: str, lane: Lane) -> None:
        try:
            lane.hold(await self.acquire(slot))
        except Refused as refusal:
            lane.refusal = refusal
        finally:
            lane.task = None
        self._wake()

    # ------------------------------------------------------------------ for the middleware

    def take(self, slot: str, request: object) -> Permit | None:
        """The permit of the lane, or None. Raises a ``Refused`` if there will be none in time."""
        lane = self.lane(slot)
        if lane.request is request:
            lane.request = None
            self._wake()
        refusal, lane.refusal = lane.refusal, None
        if refusal is not None:
            raise refusal
        return lane.take()

    async def acquire(self, slot: str) -> Permit:
        """Wait until a request may go, also past an open circuit."""
        lane = self.lane(slot)
        while True:
            try:
                return await self.limiter.acquire_async(slot, max_wait=self.max_wait)
            except CircuitOpenError as refusal:
                now = self.limiter.clock.now()
                lane.open_since = now if lane.open_since is None else lane.open_since
                wait = refusal.retry_after or ASK_AGAIN
                if now + wait - lane.open_since > self.max_wait:
                    raise
                await asyncio.sleep(wait)

    def report(self, slot: str, permit: Permit, signal: Signal, latency: float | None, answer: object) -> None:
        """Report how a request ended. A permit that is held while a server complains was given too early."""
        lane = self.lane(slot)
        if not signal.outcome.counts_against_target:
            lane.open_since = None
        permit.report_signal(signal, latency=latency, answer=answer)
        if signal.retry_after is not None or signal.outcome is not Outcome.OK:
            lane.give_back()

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.give_back()
            if lane.task is not None:
                lane.task.cancel()
        self.limiter.close()


# ---------------------------------------------------------------------- redirects


def secrets_to_drop(meta: MutableMapping[str, Any], url: str, headers: Iterable[str]) -> list[str]:
    """Names of headers that hold a credential of another origin; notes in ``meta`` what the next hop must know."""
    known = meta.get(HOP)
    first = FirstHop(origin_of(url), frozenset())
    carried = {name: "" for name in headers if is_secret(name) and name.lower() not in _KEPT_BY_SCRAPY}
    names = list(carried)
    if known is not None and known[0] in (url, came_from(meta)):
        first = strip_secrets(FirstHop(known[1], frozenset()), url, carried)
    meta[HOP] = (url, first.origin)
    return [name for name in names if name not in carried]


def leave_slot_of_other_host(meta: MutableMapping[str, Any], url: str) -> None:
    """A redirect to another host waits in that host's queue. A slot that the spider chose itself stays."""
    before = urlsplit(came_from(meta)).hostname
    if before and meta.get(_SLOT) == before != urlsplit(url).hostname:
        del meta[_SLOT]


def came_from(meta: MutableMapping[str, Any]) -> str:
    """The URL that led to this one; empty if none did."""
    before = meta.get("redirect_urls")
    return str(before[-1]) if before else ""
