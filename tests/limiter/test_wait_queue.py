"""The wait queue of a key: what joining it and serving it again cost, and stalled event loops."""

from __future__ import annotations

import asyncio

import pytest

from headgate import AdaptiveRateLimiter, Controller, RateLimitConfig, Signal
from headgate.core.decision import Wait, WaitReason
from headgate.core.policy import Ticket
from headgate.lab.virtual_time import LoopClock, VirtualClock, run
from headgate.limiter.wait_queue import STALLED_AFTER, QueuedCall, WaitQueue
from headgate.waiters import TaskWaiter, Waiter

SLOW = RateLimitConfig(strategy="fixed", initial_rps=1.0, token_bucket_capacity=1)


class StillClock(VirtualClock):
    """Loops set their own timers and do not move it."""

    runs_loop_timers = True


def enqueue(limiter: AdaptiveRateLimiter, loop: asyncio.AbstractEventLoop, callers: int) -> list[asyncio.Task]:
    """So many tasks wait; their loop runs no further than that."""
    tasks = [loop.create_task(limiter.acquire_async("api")) for _ in range(callers)]
    loop.run_until_complete(asyncio.sleep(0))
    return tasks


def end(loop: asyncio.AbstractEventLoop, tasks: list[asyncio.Task]) -> None:
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


def test_a_turn_that_has_not_moved_keeps_its_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[float] = []
    set_timer = TaskWaiter.set_timer
    monkeypatch.setattr(TaskWaiter, "set_timer", lambda self: (timers.append(self.wake_at), set_timer(self)))

    async def main(clock: LoopClock) -> float:
        limiter = AdaptiveRateLimiter(
            RateLimitConfig(strategy="fixed", initial_rps=1.0, token_bucket_capacity=3), clock=clock
        )
        out = [await limiter.acquire_async("api") for _ in range(3)]
        head = asyncio.create_task(limiter.acquire_async("api"))
        for permit in out:
            await asyncio.sleep(0.1)
            permit.report(status_code=200)
        return (await head).sent_at

    assert run(main) == pytest.approx(1.0)
    assert timers == pytest.approx([1.0])


def test_a_timer_that_fires_too_early_is_set_again() -> None:
    class Hasty(LoopClock):
        """Event loops keep this clock's time, but it goes half as fast as they believe."""

        def now(self) -> float:
            return self.time / 2

    async def main(clock: LoopClock) -> float:
        hasty = Hasty()
        limiter = AdaptiveRateLimiter(SLOW, clock=hasty)
        await limiter.acquire_async("api")
        head = asyncio.create_task(limiter.acquire_async("api"))
        while not head.done():
            hasty.time = clock.time
            await asyncio.sleep(0.01)
        return clock.time

    assert run(main) == pytest.approx(2.0, abs=0.05)


def test_a_controller_hears_of_every_call_that_waits_for_its_pace() -> None:
    heard: list[float] = []

    class Listening(Controller):
        watches_sends = True

        def __init__(self, config: RateLimitConfig) -> None:
            self.rate = 1.0

        def on_wait(self, now: float) -> None:
            heard.append(now)

        def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
            return 0.0

    async def main(clock: LoopClock) -> None:
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=Listening, token_bucket_capacity=1), clock=clock)
        await limiter.acquire_async("api")
        callers = []
        for _ in range(5):
            await asyncio.sleep(0.125)
            callers.append(asyncio.create_task(limiter.acquire_async("api")))
        await asyncio.gather(*callers)

    run(main)
    assert {0.125, 0.25, 0.375, 0.5, 0.625} <= set(heard)


def test_a_call_that_joins_passes_those_of_a_stalled_loop() -> None:
    clock = StillClock()
    limiter = AdaptiveRateLimiter(SLOW, clock=clock)
    limiter.acquire("api")
    hanging, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    stuck = enqueue(limiter, hanging, 2)
    clock.advance(1.0)
    joined = enqueue(limiter, other, 1)
    try:
        assert limiter.snapshot().total == 1  # the head was notified, and takes nothing until it runs
        clock.advance(STALLED_AFTER)
        assert other.run_until_complete(asyncio.wait_for(joined[0], 10)).seq == 2
        clock.advance(1.0)
        assert hanging.run_until_complete(asyncio.wait_for(stuck[0], 10)).seq == 3
    finally:
        end(hanging, stuck)
        end(other, joined)


def test_a_closed_loop_with_several_waiters_blocks_no_call() -> None:
    limiter = AdaptiveRateLimiter(SLOW, clock=StillClock())
    limiter.acquire("api")
    loop = asyncio.new_event_loop()
    dead = enqueue(limiter, loop, 3)
    loop._ready.clear()  # type: ignore[attr-defined]
    loop.close()
    assert limiter.acquire("api").waited == 1.0
    for task in dead:
        task.get_coro().close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]


class StillWaiter(Waiter):
    """A waiter that does nothing."""

    may_stall = dead = False
    set_timer = wake = on_wake = watch_deadline = lambda self: None

    def is_dead(self) -> bool:
        return self.dead


def queued(kind: type[StillWaiter] = StillWaiter) -> QueuedCall:
    return QueuedCall(kind(VirtualClock()), 1)


@pytest.mark.parametrize(
    ("is_scheduled", "change"),
    [
        (True, {}),
        (False, {"now": 5.0}),
        (False, {"rate": 2.5}),
        (True, {"rate": 1.99}),
        (False, {"elsewhere": True}),
        (False, {"keys": 2}),
        (False, {"dead": True}),
        (False, {"settled": True}),
        (True, {"notified": True, "now": 4.0 + STALLED_AFTER - 0.001}),
        (False, {"notified": True, "now": 4.0 + STALLED_AFTER}),
    ],
    ids=[
        "as it was",
        "overdue",
        "faster",
        "hardly slower",
        "deputy",
        "several keys",
        "closed loop",
        "settled",
        "about to run",
        "stalled",
    ],
)
def test_a_queue_is_left_alone_only_if_its_head_is_looked_after(is_scheduled: bool, change: dict) -> None:
    case = {"now": 4.0, "rate": 2.0} | change
    queue = WaitQueue()
    head, second, third = calls = [queued() for _ in range(3)]
    for call in calls[:2]:
        call.entries = [None] * case.get("keys", 1)
        queue.join(call)
    queue.update_forecast(head, Wait(WaitReason.PACE, 5.0), 2.0, 0.0)
    if "notified" in case:
        queue.notify(head, 4.0)
    queue.schedule(second if "notified" in case else head, 5.0, 4.0)
    head.waiter.dead, head.waiter.settled = "dead" in case, "settled" in case
    if "elsewhere" in case:
        third.waiter.home = "elsewhere"
    queue.join(third)
    assert queue.is_scheduled(case["rate"], case["now"]) is is_scheduled


def test_a_queue_is_looked_after_from_a_loop_that_still_runs() -> None:
    queue = WaitQueue()
    head, second, third = calls = [queued() for _ in range(3)]
    head.waiter.may_stall = True
    for place, call in enumerate(calls):
        call.waiter.home = place
        queue.join(call)
    queue.schedule(head, 5.0, 4.0)
    assert queue.deputy is second
    second.waiter.dead = True
    queue.schedule(head, 5.0, 4.0)
    assert queue.deputy is third
    assert third.waiter.armed


def test_many_are_notified_at_once_without_a_look_at_all_of_them_for_each() -> None:
    reads: list[Waiter] = []

    class Counted(StillWaiter):
        @property
        def may_stall(self) -> bool:  # type: ignore[override]
            reads.append(self)
            return True

    queue = WaitQueue()
    calls = [queued(Counted) for _ in range(300)]
    elsewhere = queued()
    elsewhere.waiter.home = "elsewhere"
    for call in (*calls, elsewhere):
        queue.join(call)
    for call in calls:
        assert queue.next(4.0) is call
        queue.notify(call, 4.0)
    assert len(reads) <= 2 * len(calls)
    assert queue.stalled(4.0 + STALLED_AFTER) == {calls[0].waiter.home}
    for call in calls:
        queue.put_back(call)
    assert not queue.stalled(4.0 + STALLED_AFTER)


def test_calls_keep_their_order_however_they_are_notified_and_put_back() -> None:
    queue = WaitQueue()
    calls = [queued() for _ in range(6)]
    for call in calls:
        queue.join(call)
    for call in (calls[4], calls[1], calls[3]):
        queue.notify(call, 1.0)
    assert queue.in_order() == calls
    assert (queue.head(), queue.next(1.0)) == (calls[0], calls[0])
    assert list(queue.notified) == [calls[1], calls[3], calls[4]]
    for call in (calls[4], calls[1]):
        queue.put_back(call)
    assert list(queue.waiting) == [calls[0], calls[1], calls[2], calls[4], calls[5]]
    queue.leave(calls[3])
    assert queue.in_order() == [*calls[:3], *calls[4:]]
    assert (len(queue), queue.requests, queue.waiting_costs()) == (5, 5.0, [1] * 5)


def test_a_call_sees_the_demand_of_those_notified_before_it() -> None:
    queue = WaitQueue()
    first, second, third = calls = [QueuedCall(StillWaiter(VirtualClock()), {"tokens": 10.0 * n}) for n in (1, 2, 3)]
    for call in calls:
        queue.join(call)
    queue.notify(first, 1.0)
    queue.notify(third, 1.0)
    assert queue.ahead_of(second, 1.0).costs == {"requests": 1, "tokens": 10.0}
    assert queue.total.costs == {"requests": 3, "tokens": 60.0}
