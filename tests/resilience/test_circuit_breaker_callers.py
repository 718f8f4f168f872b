"""CircuitBreaker among many callers: threads that are really there, and tasks in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from headgate import CircuitBreaker, CircuitOpenError, CircuitState
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN
SAFETY = 10.0
"""Seconds after which a thread that should have been let go counts as stuck. Never waited for in a passing test."""


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start=1000.0)


@pytest.fixture
def breaker(clock: VirtualClock) -> CircuitBreaker:
    return CircuitBreaker("search", clock=clock)


def failing() -> None:
    raise ConnectionError


def trip(breaker: CircuitBreaker) -> None:
    for _ in range(5):
        with pytest.raises(ConnectionError):
            breaker.call(failing)
    assert breaker.state is OPEN


def in_threads(functions: list[Callable[[], object]]) -> None:
    """Run them all at once; whatever one raises is raised here."""
    raised: list[BaseException] = []

    def guarded(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SAFETY)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


class TestManyThreads:
    @pytest.mark.parametrize("callers", [6, 100])
    def test_half_open_lets_exactly_one_through(self, breaker: CircuitBreaker, clock: VirtualClock, callers) -> None:
        trip(breaker)
        clock.advance(30.0)
        ready, others_refused = threading.Barrier(callers), threading.Semaphore(0)
        calls, refused = [], []

        def probe() -> None:
            calls.append(1)
            for _ in range(callers - 1):
                assert others_refused.acquire(timeout=SAFETY)

        def caller() -> None:
            ready.wait(SAFETY)
            try:
                breaker.call(probe)
            except CircuitOpenError as refusal:
                refused.append(refusal.key)
                others_refused.release()

        in_threads([caller] * callers)
        assert (len(calls), refused) == (1, ["search"] * (callers - 1))
        assert breaker.state is CLOSED

    @pytest.mark.parametrize("settings", [{}, {"error_rate_threshold": 0.5}], ids=["in a row", "by rate"])
    def test_eight_calls_run_side_by_side(self, clock: VirtualClock, settings: dict[str, float]) -> None:
        breaker, all_inside = CircuitBreaker(clock=clock, **settings), threading.Barrier(8)
        in_threads([lambda: breaker.call(all_inside.wait, SAFETY)] * 8)
        assert not all_inside.broken

    def test_eight_failures_side_by_side_leave_no_lock_behind(self, breaker: CircuitBreaker) -> None:
        all_inside = threading.Barrier(8)

        def failing_together() -> None:
            all_inside.wait(SAFETY)
            raise ConnectionError

        def caller() -> None:
            with pytest.raises(ConnectionError):
                breaker.call(failing_together)

        in_threads([caller] * 8)
        assert breaker.state is OPEN

    def test_eight_probes_run_side_by_side_if_that_many_are_allowed(self, clock: VirtualClock) -> None:
        breaker, all_inside = CircuitBreaker(half_open_probes=8, clock=clock), threading.Barrier(8)
        trip(breaker)
        clock.advance(30.0)
        in_threads([lambda: breaker.call(all_inside.wait, SAFETY)] * 8)
        assert not all_inside.broken

    def test_the_function_may_ask_its_own_breaker(self, breaker: CircuitBreaker) -> None:
        seen = breaker.call(lambda: (breaker.state, breaker.is_available(), breaker.call(len, "four")))
        assert seen == (CLOSED, True, 4)


class TestManyTasks:
    def tripped(self, clock: LoopClock, **settings: float) -> CircuitBreaker:
        breaker = CircuitBreaker("search", clock=clock, **settings)
        trip(breaker)
        return breaker

    @pytest.mark.parametrize("callers", [6, 100])
    def test_half_open_lets_exactly_one_through(self, callers: int) -> None:
        async def main(clock: LoopClock) -> None:
            breaker = self.tripped(clock)
            await asyncio.sleep(30.0)
            called_at = []

            async def probe() -> str:
                called_at.append(clock.now())
                await asyncio.sleep(1.0)
                return "fine"

            answers = await asyncio.gather(*(breaker.call_async(probe) for _ in range(callers)), return_exceptions=True)
            assert called_at == [30.0]
            assert [type(answer) for answer in answers] == [str] + [CircuitOpenError] * (callers - 1)
            assert breaker.state is CLOSED

        run(main)

    def test_being_polled_does_not_keep_it_open(self) -> None:
        async def main(clock: LoopClock) -> float:
            breaker = self.tripped(clock, recovery_timeout=0.3)

            async def fine() -> float:
                return clock.now()

            while True:
                try:
                    return await breaker.call_async(fine)
                except CircuitOpenError:
                    await asyncio.sleep(0.05)

        assert run(main) == pytest.approx(0.3)

    def test_cancelling_the_probe_gives_its_slot_back_at_once(self) -> None:
        async def main(clock: LoopClock) -> None:
            breaker = self.tripped(clock)
            await asyncio.sleep(30.0)
            probe = asyncio.create_task(breaker.call_async(asyncio.sleep, 1000.0))
            await asyncio.sleep(1.0)
            assert breaker.is_available() is False
            probe.cancel()
            with pytest.raises(asyncio.CancelledError):
                await probe
            assert (breaker.state, breaker.is_available(), clock.now()) == (HALF_OPEN, True, 31.0)
            assert await breaker.call_async(asyncio.sleep, 0.0, "fine") == "fine"
            assert breaker.state is CLOSED

        run(main)

    def test_cancelling_healthy_calls_opens_nothing(self) -> None:
        async def main(clock: LoopClock) -> CircuitState:
            breaker = CircuitBreaker(failure_threshold=1, clock=clock)
            calls = [asyncio.create_task(breaker.call_async(asyncio.sleep, 1000.0)) for _ in range(20)]
            await asyncio.sleep(1.0)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            return breaker.state

        assert run(main) is CLOSED
