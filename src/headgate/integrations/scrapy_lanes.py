"""The lanes of a Scrapy crawl: leave first, then a request; so a host that must wait holds none of Scrapy's places.

    scheduler asks ─> leave at once? ──yes──> a request of this slot goes ─> the middleware takes the leave ─> network
                          │ no                                                       ^
                          └─> the lane waits, with empty hands ─> leave ─> wakes ────┘

A lane is a download slot's way through the gate. It has one leave in hand at most, for a moment, and one request on its
way with it: pages that are answered from a cache, or that robots.txt forbids, never get there and take nothing.
An open circuit is waited out. A host that gives no leave for longer than ``max_wait`` is refused, aloud.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..core.budget import RetryBudget
from ..core.decision import NEVER, Outcome
from ..core.signal import Signal
from ..errors import CircuitOpenError, Refused
from ..limiter import AdaptiveRateLimiter, Permit

FRESH = 1.0
"""Seconds that leave is kept for a request; then it goes back."""
AGAIN = 1.0
"""Seconds until one looks again, where nothing says when."""
MOST_LANES = 10_000
"""Those without anything in hand are forgotten when there are more."""


class Lane:
    __slots__ = ("_expiry", "budget", "on_way", "permit", "refusal", "served_at", "shut_since", "task")

    def __init__(self) -> None:
        self.budget = RetryBudget()
        self.on_way: object | None = None
        """The request that was let go last, until it has taken its leave."""
        self.permit: Permit | None = None
        self.refusal: Refused | None = None
        """What the next request is told, since there will be no leave in time."""
        self.served_at = NEVER
        self.shut_since: float | None = None
        """When the circuit was first found open; forgotten with the first good answer."""
        self.task: asyncio.Task[None] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        in_hand = (self.on_way, self.permit, self.refusal, self.shut_since, self.task)
        return not self.budget.in_flight and all(one is None for one in in_hand)

    def hold(self, permit: Permit) -> None:
        self.permit = permit
        self._expiry = asyncio.get_running_loop().call_later(FRESH, self.let_go)

    def take(self) -> Permit | None:
        """The leave in hand, for a request that is sent now."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        permit, self.permit = self.permit, None
        return permit

    def let_go(self) -> None:
        """It is not used in time, or what it was given on no longer holds."""
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

    def sends(self, slot: str, request: object) -> None:
        """This request goes with the leave in hand."""
        lane = self.lane(slot)
        lane.on_way, lane.served_at = request, self.limiter.clock.now()

    def _may_ask(self, slot: str) -> bool:
        lane = self.lane(slot)
        if lane.on_way is not None and not self._is_under_way(lane.on_way):
            lane.on_way = None  # answered or dropped before it came to the gate
        return lane.task is None and lane.on_way is None

    def _opens(self, slot: str) -> bool:
        lane = self.lane(slot)
        if lane.permit is not None or lane.refusal is not None:
            return True
        permit = self.limiter.try_acquire(slot)
        if permit is None:
            lane.task = asyncio.get_running_loop().create_task(self._line_up(slot, lane))
            return False
        lane.hold(permit)
        return True

    async def _line_up(self, slot: str, lane: Lane) -> None:
        try:
            lane.hold(await self.leave(slot))
        except Refused as refusal:
            lane.refusal = refusal
        finally:
            lane.task = None
        self._wake()

    # ------------------------------------------------------------------ for the middleware

    def take(self, slot: str, request: object) -> Permit | None:
        """The leave in hand, or None. Raises a ``Refused`` if there will be none in time."""
        lane = self.lane(slot)
        if lane.on_way is request:
            lane.on_way = None
            self._wake()
        refusal, lane.refusal = lane.refusal, None
        if refusal is not None:
            raise refusal
        return lane.take()

    async def leave(self, slot: str) -> Permit:
        """Wait until a request may go, also past an open circuit."""
        lane = self.lane(slot)
        while True:
            try:
                return await self.limiter.acquire_async(slot, max_wait=self.max_wait)
            except CircuitOpenError as refusal:
                now = self.limiter.clock.now()
                lane.shut_since = now if lane.shut_since is None else lane.shut_since
                wait = refusal.retry_after or AGAIN
                if now + wait - lane.shut_since > self.max_wait:
                    raise
                await asyncio.sleep(wait)

    def ended(self, slot: str, permit: Permit, signal: Signal, latency: float | None, answer: object) -> None:
        """How it went. Leave that is in hand while a server complains was given too early."""
        lane = self.lane(slot)
        if not signal.outcome.counts_against_target:
            lane.shut_since = None
        self.limiter.end(permit, signal, latency, None, answer)
        if signal.retry_after is not None or signal.outcome is not Outcome.OK:
            lane.let_go()

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.let_go()
            if lane.task is not None:
                lane.task.cancel()
        self.limiter.close()
