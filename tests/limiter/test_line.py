"""What joining a line and looking at it again costs: nothing that was arranged before is arranged anew."""

from __future__ import annotations

import asyncio

import pytest

from headgate import AdaptiveRateLimiter, Controller, RateLimitConfig, Signal
from headgate.core.decision import Wait
from headgate.core.ticket import Ticket
from headgate.limiter.line import HUNG_AFTER, Line, TaskWaiter, ThreadWaiter, Waiter
from headgate.sim.virtual import LoopClock, VirtualClock, run

SLOW = RateLimitConfig(strategy="fixed", initial_rps=1.0, token_bucket_capacity=1)


class StillClock(VirtualClock):
    """Loops set their own timers and do not move it."""

    runs_loop_timers = True


def line_up(limiter: AdaptiveRateLimiter, loop: asyncio.AbstractEventLoop, callers: int) -> list[asyncio.Task]:
    """So many tasks stand in line; their loop runs no further than that."""
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


def test_a_thread_is_not_woken_for_a_turn_that_has_not_moved() -> None:
    waiter = ThreadWaiter(AdaptiveRateLimiter(SLOW, clock=VirtualClock()), 1)
    waiter.thread = -1  # as if armed from another thread
    waiter.arm(5.0)
    assert waiter.rung
    waiter.rung = not waiter.bell.acquire(blocking=False)  # it heard the bell
    waiter.arm(5.0 + 1e-9)
    assert not waiter.rung
    waiter.is_up()
    waiter.arm(5.0)
    assert waiter.rung


def test_a_strategy_hears_of_everybody_who_joins_a_line_that_waits_for_its_pace() -> None:
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


def test_a_waiter_that_joins_passes_those_of_a_loop_that_hangs() -> None:
    clock = StillClock()
    limiter = AdaptiveRateLimiter(SLOW, clock=clock)
    limiter.acquire("api")
    hanging, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    stuck = line_up(limiter, hanging, 2)
    clock.advance(1.0)
    joined = line_up(limiter, other, 1)
    try:
        assert limiter.snapshot().total == 1  # the head was notified, and takes nothing until it runs
        clock.advance(HUNG_AFTER)
        assert other.run_until_complete(asyncio.wait_for(joined[0], 10)).seq == 2
        clock.advance(1.0)
        assert hanging.run_until_complete(asyncio.wait_for(stuck[0], 10)).seq == 3
    finally:
        end(hanging, stuck)
        end(other, joined)


def test_a_closed_loop_with_several_in_line_blocks_nobody() -> None:
    limiter = AdaptiveRateLimiter(SLOW, clock=StillClock())
    limiter.acquire("api")
    loop = asyncio.new_event_loop()
    dead = line_up(limiter, loop, 3)
    loop._ready.clear()  # type: ignore[attr-defined]
    loop.close()
    assert limiter.acquire("api").waited == 1.0
    for task in dead:
        task.get_coro().close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]


class Lined(Waiter):
    """A waiter that only stands there."""

    dead = False
    set_timer = wake = is_up = lambda self: None

    def is_dead(self) -> bool:
        return self.dead


@pytest.mark.parametrize(
    ("arranged", "change"),
    [
        (True, {}),
        (False, {"now": 5.0}),
        (False, {"rate": 2.5}),
        (True, {"rate": 1.99}),
        (False, {"elsewhere": True}),
        (False, {"keys": 2}),
        (False, {"dead": True}),
        (False, {"settled": True}),
        (True, {"notified": True, "now": 4.0 + HUNG_AFTER - 0.001}),
        (False, {"notified": True, "now": 4.0 + HUNG_AFTER}),
    ],
    ids=[
        "as it was",
        "overdue",
        "faster",
        "hardly slower",
        "deputy",
        "several keys",
        "closed loop",
        "new head",
        "about to run",
        "hangs",
    ],
)
def test_a_line_is_left_alone_only_if_its_head_is_looked_after(arranged: bool, change: dict) -> None:
    case = {"now": 4.0, "rate": 2.0} | change
    line, limiter = Line(), AdaptiveRateLimiter(SLOW, clock=VirtualClock())
    head, second, third = waiters = [Lined(limiter, 1) for _ in range(3)]
    for waiter in waiters[:2]:
        waiter.gates = [None] * case.get("keys", 1)
        line.join(waiter)
    line.take_forecast(head, Wait(5.0, "pace"), 2.0, 0.0)
    if "notified" in case:
        line.notify(head, 4.0)
    line.arm(second if "notified" in case else head, 5.0, 4.0)
    head.dead, head.settled = "dead" in case, "settled" in case
    if "elsewhere" in case:
        third.runs_on = "elsewhere"
    line.join(third)
    assert line.is_arranged(case["rate"], case["now"]) is arranged


def test_a_line_is_looked_after_from_a_loop_that_still_runs() -> None:
    line, limiter = Line(), AdaptiveRateLimiter(SLOW, clock=VirtualClock())
    head, second, third = (Lined(limiter, 1) for _ in range(3))
    head.may_hang = True
    for place, waiter in enumerate((head, second, third)):
        waiter.runs_on = place
        line.join(waiter)
    line.arm(head, 5.0, 4.0)
    assert line.deputy is second
    second.dead = True
    line.arm(head, 5.0, 4.0)
    assert line.deputy is third
    assert third.armed


def test_many_are_notified_at_once_without_a_look_at_all_of_them_for_each() -> None:
    reads: list[Waiter] = []

    class Counted(Lined):
        @property
        def may_hang(self) -> bool:  # type: ignore[override]
            reads.append(self)
            return True

    line, limiter = Line(), AdaptiveRateLimiter(SLOW, clock=VirtualClock())
    waiters = [Counted(limiter, 1) for _ in range(300)]
    elsewhere = Lined(limiter, 1)
    elsewhere.runs_on = "elsewhere"
    for waiter in (*waiters, elsewhere):
        line.join(waiter)
    for waiter in waiters:
        assert line.next(4.0) is waiter
        line.notify(waiter, 4.0)
    assert len(reads) <= 2 * len(waiters)
    assert line.hung(4.0 + HUNG_AFTER) == {waiters[0].runs_on}
    for waiter in waiters:
        line.put_back(waiter)
    assert not line.hung(4.0 + HUNG_AFTER)
