"""Time budgets of retries: final for the caller, innocent for the target, exact in virtual time."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import CircuitBreaker, CircuitState, TimeBudgetExceededError, async_retry_with_backoff, retry_with_backoff
from headgate.lab.virtual_time import LoopClock, VirtualClock, run
from headgate.resilience.retry import RetryState

ROUNDING = 1e-6
modest = settings(max_examples=60, deadline=None, derandomize=True)


class HttpError(Exception):
    def __init__(self, status: int, retry_after: str | None = None) -> None:
        super().__init__(f"HTTP {status}")
        headers = {} if retry_after is None else {"retry-after": retry_after}
        self.response = type("Response", (), {"status_code": status, "headers": headers})()


class RecordingClock(VirtualClock):
    """Remembers how long it was slept on; ``late_by`` is how much later than asked it wakes up."""

    def __init__(self, late_by: float = 0.0) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.late_by = late_by

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        super().sleep(seconds + self.late_by)

    async def sleep_async(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep_async(seconds + self.late_by)


class LateClock:
    """The clock of a busy loop: sleepers wake up a second late."""

    def __init__(self, clock: LoopClock) -> None:
        self.now, self.wall, self.sleep = clock.now, clock.wall, clock.sleep

    async def sleep_async(self, seconds: float) -> None:
        await asyncio.sleep(seconds + 1.0)


class TestSync:
    def test_a_wait_that_does_not_fit_is_not_begun(self) -> None:
        clock = RecordingClock()

        def func() -> None:
            clock.advance(4.0)
            raise failure

        failure = HttpError(503, "7")
        with pytest.raises(TimeBudgetExceededError) as caught:
            retry_with_backoff(func, name="search", time_budget=10.0, clock=clock, rng=random.Random(1))
        assert (clock.slept, clock.now()) == ([], 4.0)
        error = caught.value
        assert (error.key, error.elapsed, error.attempts, error.__cause__) == ("search", 4.0, 1, failure)

    def test_a_floor_beyond_the_budget_is_refused_at_once_with_the_time_to_come_back(self) -> None:
        clock = RecordingClock()

        def func() -> None:
            raise HttpError(429, "120")

        with pytest.raises(TimeBudgetExceededError) as caught:
            retry_with_backoff(func, name="search", time_budget=60.0, clock=clock, rng=random.Random(1))
        assert (clock.slept, caught.value.elapsed) == ([], 0.0)
        assert caught.value.retry_after is not None
        assert 120.0 <= caught.value.retry_after <= 125.0
        assert str(caught.value).startswith("search: ")
        assert "; try again in " in str(caught.value)

    def test_attempts_and_waits_both_come_out_of_the_budget(self) -> None:
        clock = RecordingClock()

        def func() -> None:
            clock.advance(2.0)
            raise HttpError(503, "2")

        with pytest.raises(TimeBudgetExceededError) as caught:
            retry_with_backoff(func, max_attempts=99, time_budget=10.0, clock=clock, rng=random.Random(1))
        assert (len(clock.slept), caught.value.attempts) == (2, 3)
        assert caught.value.elapsed == clock.now() == 6.0 + sum(clock.slept)

    def test_when_attempts_run_out_first_the_error_itself_is_raised(self) -> None:
        clock = RecordingClock()

        def func() -> None:
            raise HttpError(500)

        with pytest.raises(HttpError):
            retry_with_backoff(func, time_budget=60.0, clock=clock, rng=random.Random(1))
        assert len(clock.slept) == 2

    def test_an_error_that_is_not_retried_is_raised_even_when_time_is_up(self) -> None:
        clock = RecordingClock()

        def func() -> None:
            clock.advance(99.0)
            raise HttpError(404)

        with pytest.raises(HttpError):
            retry_with_backoff(func, time_budget=10.0, clock=clock, rng=random.Random(1))

    def test_no_attempt_starts_past_the_budget_when_the_sleep_took_longer(self) -> None:
        clock, called_at = RecordingClock(late_by=1.0), []

        def func() -> None:
            called_at.append(clock.now())
            raise HttpError(429, "9")

        with pytest.raises(TimeBudgetExceededError):
            retry_with_backoff(func, time_budget=10.0, clock=clock, rng=random.Random(0))
        assert called_at == [0.0]

    @modest
    @given(
        st.lists(st.tuples(st.floats(0.0, 5.0), st.sampled_from([429, 500, 503])), min_size=1, max_size=20),
        st.floats(0.1, 20.0),
        st.integers(0, 2**32),
    )
    def test_no_attempt_starts_and_no_wait_ends_past_it(self, course, budget: float, seed: int) -> None:
        clock, called_at, steps = RecordingClock(), [], iter(course)

        def func() -> str:
            called_at.append(clock.now())
            takes, status = next(steps, (0.0, 200))
            clock.advance(takes)
            if status == 200:
                return "fine"
            raise HttpError(status)

        error = None
        try:
            retry_with_backoff(func, max_attempts=30, time_budget=budget, clock=clock, rng=random.Random(seed))
        except TimeBudgetExceededError as out_of_time:
            error = out_of_time
        assert error is None or (error.elapsed, error.attempts) == (clock.now(), len(called_at))
        assert (error is None) is (len(called_at) > len(course))
        assert all(instant < budget for instant in called_at)
        assert len(clock.slept) == len(called_at) - 1


class TestAsync:
    def test_an_attempt_still_running_at_the_deadline_is_cancelled(self) -> None:
        async def main(clock: LoopClock) -> None:
            cancelled_at = []

            async def func() -> None:
                try:
                    await asyncio.sleep(1000.0)
                except asyncio.CancelledError:
                    cancelled_at.append(clock.now())
                    raise

            with pytest.raises(TimeBudgetExceededError) as caught:
                await async_retry_with_backoff(func, name="search", time_budget=10.0, clock=clock, rng=random.Random(1))
            assert (clock.now(), cancelled_at) == (10.0, [10.0])
            assert (caught.value.key, caught.value.elapsed, caught.value.attempts) == ("search", 10.0, 1)
            assert str(caught.value) == "search: the time budget is spent"

        run(main)

    def test_all_attempts_and_waits_share_one_budget(self) -> None:
        async def main(clock: LoopClock) -> None:
            async def func() -> None:
                await asyncio.sleep(3.0)
                raise HttpError(503, "1")

            with pytest.raises(TimeBudgetExceededError) as caught:
                await async_retry_with_backoff(
                    func, max_attempts=99, time_budget=10.0, clock=clock, rng=random.Random(1)
                )
            assert clock.now() == pytest.approx(10.0)
            assert (caught.value.elapsed, caught.value.attempts) == (clock.now(), 3)

        run(main)

    def test_a_floor_beyond_the_budget_is_refused_at_once_with_the_time_to_come_back(self) -> None:
        async def main(clock: LoopClock) -> None:
            async def func() -> None:
                raise HttpError(429, "120")

            with pytest.raises(TimeBudgetExceededError) as caught:
                await async_retry_with_backoff(func, time_budget=60.0, clock=clock, rng=random.Random(1))
            assert clock.now() == caught.value.elapsed == 0.0
            assert caught.value.retry_after is not None
            assert 120.0 <= caught.value.retry_after <= 125.0

        run(main)

    def test_a_timeout_of_the_functions_own_is_tried_again(self) -> None:
        async def main(clock: LoopClock) -> tuple[str, float]:
            durations = iter([50.0, 0.5])

            async def func() -> str:
                async with asyncio.timeout(2.0):
                    await asyncio.sleep(next(durations))
                return "fine"

            got = await async_retry_with_backoff(
                func, base_delay=1e-6, time_budget=10.0, clock=clock, rng=random.Random(1)
            )
            return got, clock.now()

        assert run(main) == ("fine", pytest.approx(2.5, abs=1e-3))

    def test_a_late_error_in_the_place_of_the_cancellation_is_out_of_time_too(self) -> None:
        async def main(clock: LoopClock) -> None:
            async def func() -> None:
                try:
                    await asyncio.sleep(1000.0)
                finally:
                    raise ConnectionError

            with pytest.raises(TimeBudgetExceededError):
                await async_retry_with_backoff(func, time_budget=10.0, clock=clock, rng=random.Random(1))
            assert clock.now() == 10.0

        run(main)

    def test_no_attempt_starts_past_the_budget_when_the_sleep_took_longer(self) -> None:
        async def main(clock: LoopClock) -> None:
            called_at = []

            async def func() -> None:
                called_at.append(clock.now())
                raise HttpError(429, "9")

            with pytest.raises(TimeBudgetExceededError):
                await async_retry_with_backoff(func, time_budget=10.0, clock=LateClock(clock), rng=random.Random(0))
            assert called_at == [0.0]

        run(main)

    @pytest.mark.no_cover
    @modest
    @given(
        st.lists(st.tuples(st.floats(0.0, 5.0), st.sampled_from([429, 500, 503])), min_size=1, max_size=20),
        st.floats(0.1, 20.0),
        st.integers(0, 2**32),
    )
    def test_the_total_is_never_above_the_deadline(self, course, budget: float, seed: int) -> None:
        async def main(clock: LoopClock) -> None:
            called_at, steps = [], iter(course)

            async def func() -> str:
                called_at.append(clock.now())
                takes, status = next(steps, (0.0, 200))
                await asyncio.sleep(takes)
                if status == 200:
                    return "fine"
                raise HttpError(status)

            rng, error = random.Random(seed), None
            try:
                await async_retry_with_backoff(func, max_attempts=30, time_budget=budget, clock=clock, rng=rng)
            except TimeBudgetExceededError as out_of_time:
                error = out_of_time
            assert error is None or (error.elapsed, error.attempts) == (clock.now(), len(called_at))
            assert (error is None) is (len(called_at) > len(course))
            assert clock.now() <= budget + ROUNDING
            assert all(instant < budget for instant in called_at)

        run(main)

    @pytest.mark.parametrize("budget", [None, 100.0])
    @pytest.mark.parametrize("cancelled_at", [1.0, 7.0], ids=["in an attempt", "in a wait"])
    def test_a_cancellation_passes_at_once(self, cancelled_at: float, budget: float | None) -> None:
        async def main(clock: LoopClock) -> None:
            calls = []

            async def func() -> None:
                calls.append(clock.now())
                await asyncio.sleep(5.0)
                raise HttpError(429, "30")

            task = asyncio.create_task(
                async_retry_with_backoff(func, time_budget=budget, clock=clock, rng=random.Random(1))
            )
            await asyncio.sleep(cancelled_at)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (clock.now(), calls) == (cancelled_at, [0.0])

        run(main)


class TestInnocence:
    def test_a_spent_budget_counts_against_nobody(self) -> None:
        async def main(clock: LoopClock) -> CircuitState:
            breaker = CircuitBreaker(failure_threshold=1, clock=clock)

            async def retried() -> None:
                await async_retry_with_backoff(
                    lambda: asyncio.sleep(1000.0), time_budget=10.0, clock=clock, rng=random.Random(1)
                )

            for _ in range(5):
                with pytest.raises(TimeBudgetExceededError):
                    await breaker.call_async(retried)
            return breaker.state

        assert run(main) is CircuitState.CLOSED


def test_a_wait_fits_only_if_time_is_left_after_it() -> None:
    state = RetryState("call", 3, 0.2, 5.0, started_at=4.0, time_budget=6.0)
    state.check_fits(5.9, 4.0, None)
    for wait, now in ((6.0, 4.0), (0.0, 10.0)):
        with pytest.raises(TimeBudgetExceededError):
            state.check_fits(wait, now, None)


def test_a_budget_is_spent_at_its_instant() -> None:
    state = RetryState("call", 3, 0.2, 5.0, started_at=4.0, time_budget=6.0)
    state.check_deadline(9.99)
    with pytest.raises(TimeBudgetExceededError):
        state.check_deadline(10.0)


def test_without_a_budget_there_is_always_time() -> None:
    state = RetryState("call", 3, 0.2, 5.0, started_at=4.0, time_budget=None)
    state.check_fits(1e9, 4.0, None)
    state.check_deadline(1e9)
