"""A store that freezes, or whose network stalls, and comes back: what it was sent meanwhile changes nothing."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from bench.redis_server import RedisServer

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.distributed.backends.redis import RedisStore
from headgate.distributed.protocol import QuotaTerms, SyncReply, SyncRequest
from headgate.distributed.store import StoreDown

TERMS = QuotaTerms(rate=1000.0, burst=10.0, most=1e6)
FREEZE = 1.0
RATE = 100.0
ASKED = 2


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class Member:
    """A member of the store, which states truly how long ago it was last answered."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.number = 0
        self.synced_at = time.monotonic()

    def ask(self) -> SyncReply:
        self.number += 1
        return self._send()

    def ask_until_answered(self) -> SyncReply:
        self.number += 1
        until = time.monotonic() + 20.0
        while True:
            try:
                return self._send()
            except StoreDown:
                assert time.monotonic() < until

    def _send(self) -> SyncReply:
        sent_at = time.monotonic()
        request = SyncRequest(
            member="m", number=self.number, elapsed=sent_at - self.synced_at, terms=TERMS, asks=((ASKED, {}),)
        )
        (reply,) = self.store.sync([("key", request)])
        self.synced_at = sent_at
        return reply


def test_requests_that_timed_out_take_nothing_when_they_are_carried_out_late(server: RedisServer) -> None:
    store = RedisStore(server.url, timeout=0.25)
    member = Member(store)
    for _ in range(5):  # the fastest of these tells the server's clock
        before = member.ask_until_answered()
    server.stall()
    for _ in range(3):
        with pytest.raises(StoreDown):
            member.ask()
    time.sleep(0.5)  # by how much a busy machine may misjudge the server's clock
    server.go_on()
    after = member.ask_until_answered()
    store.close()
    assert after.first == before.first + before.granted
    assert after.now - before.now > 0.5, "the late ones were not taken for a clock that was set forward"


def test_one_slow_exchange_does_not_let_late_requests_live_on(server: RedisServer) -> None:
    store = RedisStore(server.url)
    Member(store).ask_until_answered()
    known = store._clock_ahead
    assert known is not None
    store._read_clock(1000.0 + known, 999.0, 1001.0)  # a second on the way, and a second back
    assert store._clock_ahead == known
    store._read_clock(1000.0 + known, 1000.0 + 1e-3, 1001.0)
    assert store._clock_ahead == pytest.approx(known - 1e-3, abs=1e-6)
    store._read_clock(1060.0 + known, 1000.0, 1001.0)  # it was set forward
    store.close()
    assert store._clock_ahead == pytest.approx(known + 60.0, abs=1e-6)


def test_a_clock_that_was_set_forward_costs_a_repetition_and_no_answer(server: RedisServer) -> None:
    store = RedisStore(server.url, timeout=5.0)
    member = Member(store)
    before = member.ask()
    assert store._clock_ahead is not None
    store._clock_ahead -= 3600.0  # as it is after the server's clock was set
    after = member.ask()
    store.close()
    assert (after.first, after.granted) == (before.first + before.granted, ASKED)


@pytest.mark.usefixtures("patient")
def test_calls_go_on_at_full_pace_when_a_frozen_store_is_back(server: RedisServer) -> None:
    async def turns(count: int) -> None:
        """Hundredths of a second in which this process runs; while it stalls none passes."""
        for _ in range(count):
            await asyncio.sleep(0.01)

    async def main() -> int:
        limiters = [
            AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=RATE), store=server.url) for _ in range(4)
        ]
        starts: list[float] = []

        def lost() -> list[bool]:
            return [sharing.is_lost for one in limiters if (sharing := one.snapshot().sharing) is not None]

        async def call(limiter: AdaptiveRateLimiter) -> None:
            while True:
                permit = await limiter.acquire_async("api.example.com")
                starts.append(time.monotonic())
                permit.report(status_code=200)

        tasks = [asyncio.create_task(call(limiter)) for limiter in limiters for _ in range(4)]
        await asyncio.sleep(0.5)
        server.stall()
        async with asyncio.timeout(20.0):  # an exchange has up to 2 s where the machine is busy
            while not all(lost()):
                await asyncio.sleep(0.01)
        await asyncio.sleep(FREEZE)
        server.go_on()
        async with asyncio.timeout(20.0):
            while any(lost()):
                await asyncio.sleep(0.01)
        await turns(50)
        before = len(starts)
        await turns(80)
        started = len(starts) - before
        for task in tasks:
            task.cancel()
        for limiter in limiters:
            limiter.close()
        return started

    started = asyncio.run(main())
    assert started > 0.3 * RATE * 0.8  # they were silent for as long as the freeze had lasted
