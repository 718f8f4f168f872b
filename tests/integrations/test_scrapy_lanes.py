"""The lanes of a Scrapy crawl, in virtual time, without Scrapy: who may go, who waits, and what is held meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from headgate.config import RateLimitConfig
from headgate.core.decision import Outcome
from headgate.core.signal import SILENT, Signal
from headgate.errors import CircuitOpenError, WaitTooLongError
from headgate.integrations import scrapy_lanes
from headgate.integrations.scrapy_lanes import PERMIT_KEPT, Lanes
from headgate.lab.virtual_time import LoopClock, VirtualLoop
from headgate.limiter import AdaptiveRateLimiter

OK, FAILED = SILENT[Outcome.OK], SILENT[Outcome.TRANSIENT]
PAUSE = Signal(outcome=Outcome.RATE_LIMITED, retry_after=10.0)
SETTINGS = {"strategy": "fixed", "initial_rps": 10.0, "token_bucket_capacity": 1.0}


class Engine:
    """Asks for requests as Scrapy's does: when it is woken, and while it has places."""

    def __init__(self, max_wait=3600.0, **settings):
        self.clock = LoopClock()
        limiter = AdaptiveRateLimiter(RateLimitConfig(**{**SETTINGS, **settings}), clock=self.clock)
        self.under_way = set()
        self.woken = 0
        self.lanes = Lanes(limiter, max_wait=max_wait, wake=self.wake, is_under_way=self.under_way.__contains__)

    def wake(self):
        self.woken += 1

    def next(self, *slots):
        """The request that may go now."""
        slot = self.lanes.choose([(0, slot) for slot in slots])
        if slot is None:
            return None
        request = (slot, self.clock.now())
        self.under_way.add(request)
        self.lanes.dispatched(slot, request)
        return request

    def send(self, request):
        return self.lanes.take(request[0], request)

    def end(self, request, permit, signal=OK):
        self.under_way.discard(request)
        self.lanes.report(request[0], permit, signal, 0.01, 200)

    def cycle(self, slot, signal=OK):
        request = self.next(slot)
        self.end(request, self.send(request), signal)


@pytest.fixture
def run():
    """``run(work, **settings)``: ``await work(engine)`` in virtual time."""

    def go(work, **settings):
        engine = Engine(**settings)
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(engine.clock)) as runner:
            return runner.run(work(engine))

    return go


def test_request_goes_at_once_or_when_its_lane_has_leave(run):
    async def work(engine):
        engine.cycle("a")
        assert engine.next("a") is None
        await asyncio.sleep(0.099)
        assert (engine.next("a"), engine.woken) == (None, 1)
        await asyncio.sleep(0.002)
        assert engine.woken == 2
        engine.cycle("a")

    run(work)


def test_waiting_slot_does_not_stand_in_the_way_of_others(run):
    async def work(engine):
        engine.cycle("sick", PAUSE)
        assert engine.next("sick") is None
        for _ in range(20):
            assert engine.next("sick", "well")[0] == "well"
            engine.under_way.clear()
            engine.lanes.lane("well").give_back()
            await asyncio.sleep(0.11)

    run(work)


def test_slots_take_turns(run):
    async def work(engine):
        order = []
        for _ in range(6):
            request = engine.next("a", "b", "c")
            order.append(request[0])
            engine.end(request, engine.send(request))
            await asyncio.sleep(0.2)
        assert sorted(order[:3]) == sorted(order[3:]) == ["a", "b", "c"]

    run(work)


def test_one_request_at_a_time_is_on_its_way_to_the_gate(run):
    async def work(engine):
        first = engine.next("a")
        await asyncio.sleep(0.5)
        assert engine.next("a") is None, "the first has not taken its leave"
        engine.send(first)
        assert engine.next("a") is not None

    run(work, token_bucket_capacity=5.0)


def test_request_that_never_reached_the_gate_takes_nothing(run):
    async def work(engine):
        engine.next("a")
        engine.under_way.clear()  # answered from a cache
        second = engine.next("a")
        assert second is not None, "with the leave that the first did not use"
        assert engine.send(second) is not None

    run(work)


def test_leave_that_is_not_used_goes_back(run):
    async def work(engine):
        request = engine.next("a")
        await asyncio.sleep(PERMIT_KEPT + 0.01)
        assert engine.send(request) is None
        assert engine.lanes.limiter.snapshot().keys[0].in_flight == 0

    run(work)


def test_what_the_server_asks_for_holds_for_leave_in_hand(run):
    async def work(engine):
        first = engine.next("a")
        permit = engine.send(first)
        second = engine.next("a")
        engine.end(first, permit, PAUSE)
        assert engine.send(second) is None
        assert engine.next("a") is None
        await asyncio.sleep(9.9)
        assert engine.next("a") is None

    run(work, token_bucket_capacity=5.0)


def test_open_circuit_is_waited_out(run):
    async def work(engine):
        for _ in range(5):
            while (request := engine.next("a")) is None:
                await asyncio.sleep(0.1)
            engine.end(request, engine.send(request), FAILED)
        assert engine.next("a") is None
        shut_at = engine.clock.now()
        while (request := engine.next("a")) is None:
            await asyncio.sleep(0.1)
        assert engine.clock.now() - shut_at >= 14.9
        engine.end(request, engine.send(request))
        assert engine.lanes.lane("a").open_since is None

    run(work)


async def shut(engine):
    for _ in range(2):
        while (request := engine.next("a")) is None:
            await asyncio.sleep(0.05)
        engine.end(request, engine.send(request), FAILED)


def test_host_that_stays_shut_for_too_long_is_refused(run):
    """Each request is told so, and in between one is let through to look."""

    async def work(engine):
        await shut(engine)
        refused = sent = 0
        while engine.clock.now() < 60.0:
            request = engine.next("a")
            if request is None:
                await asyncio.sleep(0.05)
                continue
            try:
                engine.end(request, engine.send(request), FAILED)
                sent += 1
                assert not refused or engine.clock.now() > 29.0
            except CircuitOpenError:
                engine.under_way.discard(request)
                refused += 1
        assert refused > 100
        assert 3 <= sent <= 8

    run(work, max_wait=30.0, consecutive_fail_threshold=2, open_state_duration=10.0)


def test_pause_that_is_too_long_is_refused_at_once(run):
    async def work(engine):
        engine.cycle("a", PAUSE)
        assert engine.next("a") is None
        await asyncio.sleep(0.0)
        with pytest.raises(WaitTooLongError):
            engine.send(engine.next("a"))

    run(work, max_wait=5.0)


def test_what_does_not_come_through_the_queue_waits_for_itself(run):
    async def work(engine):
        await shut(engine)
        permit = await engine.lanes.acquire("a")
        assert engine.clock.now() >= 10.0
        engine.lanes.report("a", permit, OK, None, 200)

    run(work, consecutive_fail_threshold=2, open_state_duration=10.0)


def test_number_of_lanes_is_bounded(run, monkeypatch):
    monkeypatch.setattr(scrapy_lanes, "MOST_LANES", 3)

    async def work(engine):
        kept = engine.next("kept")
        for number in range(10):
            engine.cycle(f"host-{number}")
        assert len(engine.lanes._lanes) <= 4
        assert engine.lanes.lane("kept").request == kept

    run(work)


def test_closing_leaves_nothing_behind(run):
    async def work(engine):
        engine.cycle("a", PAUSE)
        engine.next("a")
        engine.next("b")
        task = engine.lanes.lane("a").task
        engine.lanes.close()
        await asyncio.sleep(0.0)
        assert task.cancelled()
        assert all(key.in_flight == 0 for key in engine.lanes.limiter.snapshot().keys)

    run(work)
