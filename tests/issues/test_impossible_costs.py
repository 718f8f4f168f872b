"""A cost that cannot be raised from deep inside, or blocked its key for ever."""

import asyncio
import random
from decimal import Decimal
from fractions import Fraction
from math import inf, nan

import pytest
from bench.delayed_store import DelayedStore

from headgate import AdaptiveRateLimiter, BatchConfig, BatchRunner, ConfigError, Feedback, RateLimitConfig
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

WINDOW = 60.0
IMPOSSIBLE = [10**400, 1e300, inf, nan, 1.1e12]


def limiter_of(clock, **more):
    settings = {"strategy": "fixed", "initial_rps": 1000.0, "limits": {"tokens": "6000/min"}, **more}
    return AdaptiveRateLimiter(RateLimitConfig(**settings), clock=clock)


def clamped(caplog):
    return [record for record in caplog.records if getattr(record, "event", "") == "cost_clamped"]


@pytest.mark.parametrize("amount", IMPOSSIBLE)
def test_acquire_refuses_it(amount):
    limiter = limiter_of(VirtualClock())
    for cost in (amount, {"tokens": amount}):
        for ask in (limiter.acquire, limiter.try_acquire, limiter.check):
            with pytest.raises(ConfigError):
                ask("api", cost=cost)


@pytest.mark.parametrize("burst", [{}, {"tokens": 6000}, {"tokens": 1}])
@pytest.mark.parametrize("amount", [10**400, 1e300, inf, 1e12])
def test_a_report_owes_at_most_one_window(amount, burst, caplog):
    clock = VirtualClock()
    limiter = limiter_of(clock, burst=burst)
    for _ in range(3):
        limiter.acquire("api", cost={"tokens": 1}).report(status_code=200, cost={"tokens": amount})
        began_at = clock.now()
        permit = limiter.acquire("api", cost={"tokens": 1})
        assert WINDOW / 2 < clock.now() - began_at <= WINDOW * 1.01
        permit.abandon()
    assert len(clamped(caplog)) == (0 if amount == 1e12 else 3)


def test_a_report_of_no_number_leaves_what_was_reserved(caplog):
    clock = VirtualClock()
    limiter = limiter_of(clock, burst={"tokens": 6000})
    limiter.acquire("api", cost={"tokens": 5000}).report(status_code=200, cost={"tokens": nan})
    assert len(clamped(caplog)) == 1
    assert limiter.key_status("api").answers == 1
    began_at = clock.now()
    limiter.acquire("api", cost={"tokens": 1000})
    assert clock.now() == began_at
    limiter.acquire("api", cost={"tokens": 1000})
    assert clock.now() == began_at + WINDOW


@pytest.mark.parametrize("amount", [Decimal(2), {"tokens": Decimal(2)}, Fraction(3, 2), {"tokens": 10**5000}])
def test_a_number_of_another_kind_is_refused_before_anything_is_taken(amount):
    clock = VirtualClock()
    limiter = limiter_of(clock, burst={"tokens": 6000})
    with pytest.raises(ConfigError):
        limiter.acquire("api", cost=amount)
    limiter.acquire("api", cost={"tokens": 6000})
    assert clock.now() == VirtualClock().now()


@pytest.mark.parametrize("strategy", ["adaptive", "aimd", "gradient"])
@pytest.mark.parametrize("latency", [10**400, inf, nan])
def test_a_latency_that_cannot_be_raises_nothing(latency, strategy):
    limiter = limiter_of(VirtualClock(), strategy=strategy)
    for _ in range(3):
        limiter.acquire("api").report(status_code=200, latency=latency)
        limiter.feedback("api", Feedback(status_code=200, latency=latency))
    assert limiter.key_status("api").answers == 6


def test_a_wait_that_no_clock_can_add_is_refused():
    for seconds in (10**400, 10**5000, -(10**5000), "5"):
        with pytest.raises(ConfigError):
            limiter_of(VirtualClock()).acquire("api", max_wait=seconds)


def test_a_shared_key_owes_at_most_one_window_too():
    async def main(clock: LoopClock):
        store = DelayedStore(clock, random.Random(1))
        config = RateLimitConfig(strategy="fixed", initial_rps=1000.0, limits={"tokens": "6000/min"})
        limiter = AdaptiveRateLimiter(config, clock=clock, store=store)
        for _ in range(5):
            permit = await limiter.acquire_async("api", cost={"tokens": 10})
            permit.report(status_code=200, cost={"tokens": 1e300})
        await asyncio.sleep(1.0)
        began_at = clock.now()
        await limiter.acquire_async("api", cost={"tokens": 10})
        waited = clock.now() - began_at
        await store.finish()
        return waited

    assert WINDOW / 2 < run(main) <= WINDOW * 1.02


def test_a_cooldown_without_an_end_is_one_of_31_days():
    """Rows waited for an instant that never comes, and died of a deadline that nobody had set."""

    class Endless:
        def pause(self, _eras):
            return inf

    async def main(clock: LoopClock):
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=100.0), clock=clock)
        started_at = []

        async def worker(item, ctx):
            started_at.append(clock.now())
            ctx.report(status_code=429 if len(started_at) == 1 else 200)
            return item

        runner = BatchRunner(worker, limiter=limiter, config=BatchConfig(cooldown=Endless()), workers=1, clock=clock)
        report = await runner.run(range(3))
        return report.done, report.dead, started_at[1] - started_at[0]

    done, dead, paused_for = run(main)
    assert (done, dead) == (3, 0)
    assert paused_for == pytest.approx(31 * 86_400.0, rel=0.01)


@pytest.mark.parametrize("name", ["open_state_duration", "retry_max_delay"])
def test_settings_in_seconds_are_bounded_by_31_days(name):
    with pytest.raises(ConfigError):
        RateLimitConfig(**{name: 32 * 86_400.0})
