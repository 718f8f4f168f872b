"""Time: budgets, floors, promises and cancellation, exact in virtual time. And the budget of retries."""

from __future__ import annotations

import asyncio
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import CircuitOpenError, ConfigError, TimeBudgetExceededError, WaitTooLongError
from headgate.resilience import RateLimiterConfig

ROUNDING = 1e-6


def slow(lab, rate: float, burst: int = 1, **more):
    limiter = RateLimiterConfig(requests_per_second=rate, burst_limit=burst, strategy="fixed", **more)
    return lab.config(rate_limiter=limiter)


class TestMaxWait:
    def test_of_fifteen_callers_nobody_waits_longer(self, play) -> None:
        async def scenario(lab):
            config = slow(lab, 20.0, max_wait_seconds=0.15)
            script = lab.script("fine")
            started = lab.clock.now()
            ends = await asyncio.gather(*(lab.outcome(script, resilience_config=config) for _ in range(15)))
            assert all(at - started <= 0.15 + ROUNDING for at in script.called_at)
            assert script.calls == 4
            refused = [end for end in ends if isinstance(end, WaitTooLongError)]
            assert len(refused) == 11
            assert all(end.retry_after > 0.15 for end in refused)

        play(scenario)

    def test_it_is_refused_at_once_and_not_after_the_wait(self, play) -> None:
        async def scenario(lab):
            config = slow(lab, 0.1)
            await lab.execute(lab.script("fine"), resilience_config=config)
            refusal = await lab.outcome(lab.script("fine"), resilience_config=config, max_wait_seconds=5.0)
            assert isinstance(refusal, WaitTooLongError)
            assert (lab.clock.now(), round(refusal.retry_after, 6)) == (0.0, 10.0)

        play(scenario)


class TestTimeBudget:
    def test_an_attempt_under_way_is_cut_off_and_counts_against_nobody(self, play) -> None:
        async def scenario(lab):
            for _ in range(6):
                error = await lab.outcome(lab.script("late", takes=99.0), time_budget=2.0)
                assert isinstance(error, TimeBudgetExceededError)
                assert (error.elapsed, error.attempts) == (2.0, 1)
            assert lab.clock.now() == 12.0
            assert lab.manager.get_provider_status("api").consecutive_failures == 0
            assert lab.nothing_is_held()

        play(scenario)

    def test_waiting_for_the_limiter_counts(self, play) -> None:
        async def scenario(lab):
            config = slow(lab, 0.5)
            await lab.execute(lab.script("fine"), resilience_config=config)
            script = lab.script("late", takes=99.0)
            error = await lab.outcome(script, resilience_config=config, time_budget=3.0)
            assert isinstance(error, TimeBudgetExceededError)
            assert (lab.clock.now(), script.called_at) == (3.0, [2.0])

        play(scenario)

    def test_a_wait_for_the_limiter_beyond_it_is_refused_at_once(self, play) -> None:
        async def scenario(lab):
            config = slow(lab, 0.1)
            await lab.execute(lab.script("fine"), resilience_config=config)
            error = await lab.outcome(lab.script("fine"), resilience_config=config, time_budget=3.0)
            assert isinstance(error, TimeBudgetExceededError)
            assert (lab.clock.now(), round(error.retry_after, 6), error.attempts) == (0.0, 10.0, 0)

        play(scenario)

    @pytest.mark.parametrize("status", [429, 503])
    def test_a_floor_beyond_it_is_refused_at_once_with_the_time_to_come_back(self, play, http_error, status) -> None:
        async def scenario(lab):
            cause = http_error(status, {"retry-after": "120"})
            error = await lab.outcome(lab.script(cause), time_budget=60.0)
            assert isinstance(error, TimeBudgetExceededError)
            assert 120.0 <= error.retry_after <= 132.0
            assert (lab.clock.now(), error.__cause__, error.attempts) == (0.0, cause, 1)

        play(scenario)

    def test_an_attempt_timeout_is_a_failure_of_its_own(self, play) -> None:
        async def scenario(lab):
            script = lab.script("late", takes=50.0)
            error = await lab.outcome(script, attempt_timeout=1.0)
            assert isinstance(error, TimeoutError)
            assert script.calls == 3
            assert lab.manager.get_provider_status("api").consecutive_failures == 3
            assert lab.told("retry_attempt")[0].error_type == "timeout"

        play(scenario)

    def test_the_function_is_told_what_is_left(self, play) -> None:
        async def scenario(lab):
            async def func(ctx):
                left.append(ctx.remaining)
                await asyncio.sleep(1.0)
                raise ConnectionError

            left: list[float | None] = []
            await lab.outcome(func, time_budget=10.0, attempt_timeout=9.5)
            assert left[0] == 9.5
            assert left[1] == pytest.approx(10.0 - lab.clock.now() + 2.0 + 0.0, abs=1.5)
            await lab.outcome(func, time_budget=math.inf)
            assert left[-1] is None

        play(scenario)

    @pytest.mark.no_cover
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        st.lists(st.tuples(st.floats(0.0, 5.0), st.sampled_from([429, 500, 503, 0])), min_size=1, max_size=12),
        st.floats(0.1, 20.0),
        st.integers(0, 2**16),
    )
    def test_the_total_is_never_above_the_deadline(self, play, http_error, course, budget, seed) -> None:
        async def scenario(lab):
            lab.manager.rng = random.Random(seed)
            steps = iter(course)

            async def func():
                takes, status = next(steps, (0.0, 200))
                await asyncio.sleep(takes)
                if status == 0:
                    raise http_error(429, {"retry-after": "2"})
                if status != 200:
                    raise http_error(status)

            await lab.outcome(func, max_attempts=9, time_budget=budget)
            assert lab.clock.now() <= budget + 0.05
            assert lab.nothing_is_held()

        play(scenario)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("time_budget", 0),
            ("time_budget", math.nan),
            ("attempt_timeout", -1),
            ("max_wait_seconds", -0.1),
            ("max_attempts", 0),
            ("max_attempts", 1.5),
        ],
    )
    def test_what_cannot_be_is_refused_by_name_before_anything_is_called(self, play, name, value) -> None:
        async def scenario(lab):
            script = lab.script("never asked")
            error = await lab.outcome(script, **{name: value})
            assert isinstance(error, ConfigError)
            assert f"{name}={value!r}" in str(error)
            assert script.calls == 0

        play(scenario)


class TestOneWait:
    def test_a_retry_waits_the_longest_of_backoff_floor_and_pace_and_not_their_sum(self, play, http_error) -> None:
        async def scenario(lab):
            lab.manager.rng.random = lambda: 1.0 - 2**-53
            config = slow(lab, 0.2)  # a call in 5 s
            script = lab.script(http_error(503, {"retry-after": "0.9"}), "fine")
            await lab.execute(script, resilience_config=config)
            assert script.waits == [pytest.approx(5.0)]  # pace
            await asyncio.sleep(30.0)
            script = lab.script(http_error(503, {"retry-after": "8"}), "fine")
            await lab.execute(script, resilience_config=config)
            assert script.waits == [pytest.approx(8.8)]  # floor
            await asyncio.sleep(30.0)
            longest = lab.config(base_delay=7.0, max_delay=7.0)
            script = lab.script(http_error(500), "fine")
            await lab.execute(script, resilience_config=longest)
            assert script.waits == [pytest.approx(7.0)]  # backoff

        play(scenario)

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(st.lists(st.sampled_from([429, 500, 503]), min_size=1, max_size=8), st.integers(0, 2**16))
    def test_no_delay_is_above_the_longest_except_a_floor(self, play, http_error, statuses, seed) -> None:
        async def scenario(lab):
            lab.manager.rng = random.Random(seed)
            script = lab.script(*map(http_error, statuses), http_error(429, {"retry-after": "9"}), "fine")
            config = lab.config(base_delay=0.5, max_delay=2.0, failure_threshold=99)
            assert await lab.execute(script, resilience_config=config, max_attempts=99) == "fine"
            *free, floored = script.waits
            assert all(wait <= 2.0 + ROUNDING for wait in free)
            assert 9.0 <= floored <= 9.9 + ROUNDING

        play(scenario)


class TestCancelling:
    @pytest.mark.parametrize("where", ["limiter", "attempt", "backoff", "credential"])
    @pytest.mark.parametrize("budget", [60.0, math.inf])
    def test_it_goes_through_every_wait_at_once(self, play, http_error, where, budget) -> None:
        async def scenario(lab):
            config = slow(lab, 0.05, max_wait_seconds=99.0) if where == "limiter" else lab.config()
            credentials = lab.credentials("only") if where == "credential" else None
            if where == "limiter":
                await lab.execute(lab.script("fine"), resilience_config=config)
            if where == "credential":
                credentials.back_at["only"] = 20.0
            script = {
                "limiter": lab.script("fine"),
                "attempt": lab.script("fine", takes=20.0),
                "backoff": lab.script(http_error(429, {"retry-after": "30"})),
                "credential": lab.script("fine"),
            }[where]
            task = asyncio.create_task(
                lab.execute(script, resilience_config=config, time_budget=budget, credentials=credentials)
            )
            await asyncio.sleep(1.0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lab.clock.now() == 1.0
            assert lab.nothing_is_held()
            assert credentials is None or not credentials.held

        play(scenario)

    def test_a_cancellation_in_the_instant_the_budget_ends_stays_one(self, play) -> None:
        async def scenario(lab):
            task = asyncio.create_task(lab.execute(lab.script("late", takes=9.0), time_budget=5.0))
            asyncio.get_running_loop().call_at(5.0, task.cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert lab.nothing_is_held()

        play(scenario)

    def test_a_budget_that_ended_leaves_the_task_uncancelled(self, play) -> None:
        async def scenario(lab):
            error = await lab.outcome(lab.script("late", takes=9.0), time_budget=5.0)
            assert isinstance(error, TimeBudgetExceededError)
            assert asyncio.current_task().cancelling() == 0
            await asyncio.sleep(1.0)
            async with asyncio.timeout(1.0):
                await asyncio.sleep(0.5)

        play(scenario)

    def test_budgets_inside_of_budgets_end_each_for_itself(self, play) -> None:
        async def scenario(lab):
            async def outer():
                inner = await lab.outcome(lab.script("late", takes=9.0), "inner", time_budget=2.0)
                assert isinstance(inner, TimeBudgetExceededError)
                await asyncio.sleep(99.0)

            error = await lab.outcome(outer, time_budget=5.0)
            assert isinstance(error, TimeBudgetExceededError)
            assert error.key == "api"
            assert lab.clock.now() == 5.0

        play(scenario)


class TestRetryBudget:
    def test_when_it_is_spent_the_call_fails_at_once_with_the_last_error(self, play, http_error) -> None:
        async def scenario(lab):
            config = lab.config(failure_threshold=10**6)
            script = lab.script(http_error(500), takes=1.0)
            ends = await asyncio.gather(
                *(lab.outcome(script, max_attempts=2, resilience_config=config) for _ in range(100))
            )
            assert all(isinstance(end, http_error) for end in ends)
            assert 103 <= script.calls <= 121  # a fifth of the calls may be sent again
            assert lab.nothing_is_held()

        play(scenario)

    def test_sending_again_after_a_rate_limit_stands_outside_of_it(self, play, http_error) -> None:
        async def scenario(lab):
            config = lab.config(retry_budget=0.0)

            async def one():
                return await lab.outcome(lab.script(http_error(429), "fine"), resilience_config=config)

            assert await asyncio.gather(*(one() for _ in range(50))) == ["fine"] * 50

        play(scenario)

    def test_a_few_in_flight_are_always_allowed(self, play, http_error) -> None:
        async def scenario(lab):
            script = lab.script(http_error(500), http_error(500), "fine")
            assert await lab.execute(script, resilience_config=lab.config(retry_budget=0.0)) == "fine"

        play(scenario)


def test_a_refusal_inside_of_the_function_counts_against_nobody(play) -> None:
    async def scenario(lab):
        await lab.sicken("inner")

        async def func():
            return await lab.execute(lab.script("never asked"), "inner")

        for _ in range(6):
            assert isinstance(await lab.outcome(func), CircuitOpenError)
        assert lab.manager.get_provider_status("api").consecutive_failures == 0
        assert lab.nothing_is_held()

    play(scenario)
