"""The twin for threads: the same decisions, and no wait or attempt that starts past the budget."""

from __future__ import annotations

import random

import pytest

from headgate.core.decision import CircuitState
from headgate.errors import CircuitOpenError, TimeBudgetExceededError, WaitTooLongError
from headgate.lab.virtual_time import VirtualClock
from headgate.resilience import (
    ProviderResilienceConfig,
    ProviderResilienceManager,
    RateLimiterConfig,
    execute_with_resilience_sync,
)

UNPACED = ProviderResilienceConfig(
    rate_limiter=RateLimiterConfig(requests_per_second=1e6, burst_limit=10**6, strategy="fixed")
)


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.manager = ProviderResilienceManager(clock=self.clock, rng=random.Random(7))
        self.called_at: list[float] = []
        self.remaining: list[float | None] = []

    def execute(self, *answers: object, takes: float = 0.0, **options):
        def func(ctx):
            self.called_at.append(self.clock.now())
            self.remaining.append(ctx.remaining)
            self.clock.advance(takes)
            answer = answers[min(len(self.called_at), len(answers)) - 1]
            if isinstance(answer, BaseException):
                raise answer
            return answer

        options.setdefault("resilience_config", UNPACED)
        return execute_with_resilience_sync(func, "api", manager=self.manager, **options)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_retries_and_returns(bench, http_error) -> None:
    assert bench.execute(http_error(500), http_error(429, {"retry-after": "4"}), "fine") == "fine"
    assert bench.called_at[2] - bench.called_at[1] >= 4.0


def test_the_last_error_is_raised_itself(bench, http_error) -> None:
    last = http_error(502)
    with pytest.raises(http_error) as caught:
        bench.execute(http_error(500), http_error(500), last)
    assert caught.value is last
    assert len(bench.called_at) == 3


def test_the_function_is_told_what_is_left_and_nothing_starts_past_it(bench, http_error) -> None:
    with pytest.raises(TimeBudgetExceededError) as caught:
        bench.execute(http_error(503, {"retry-after": "1"}), takes=3.0, time_budget=9.0, max_attempts=9)
    assert bench.remaining[0] == 9.0
    assert bench.remaining[1] == pytest.approx(9.0 - bench.called_at[1])
    assert all(at < 9.0 for at in bench.called_at)
    assert caught.value.attempts == len(bench.called_at)


def test_a_wait_for_a_permit_that_does_not_fit_is_not_begun(bench) -> None:
    config = ProviderResilienceConfig(rate_limiter=RateLimiterConfig(requests_per_second=0.1, burst_limit=1))
    bench.execute("fine", resilience_config=config)
    with pytest.raises(TimeBudgetExceededError):
        bench.execute("fine", resilience_config=config, time_budget=5.0)
    with pytest.raises(WaitTooLongError):
        bench.execute("fine", resilience_config=config, max_wait_seconds=1.0)
    assert bench.clock.now() == 0.0
    bench.execute("fine", resilience_config=config)
    assert bench.called_at == [0.0, pytest.approx(10.0)]


def test_the_circuit_is_the_same(bench, http_error) -> None:
    for _ in range(5):
        with pytest.raises(http_error):
            bench.execute(http_error(500), max_attempts=1)
    with pytest.raises(CircuitOpenError):
        bench.execute("never asked")
    bench.clock.advance(30.0)
    assert bench.execute("fine") == "fine"
    assert bench.manager.get_breaker_state("api") is CircuitState.CLOSED


def test_credentials_are_leased_and_given_back(play, http_error) -> None:
    async def scenario(lab):
        credentials = lab.credentials()

        def func(ctx):
            seen.append(ctx.credential)
            if len(seen) == 1:
                raise http_error(401)
            return "fine"

        seen: list[str | None] = []
        assert execute_with_resilience_sync(func, "api", manager=lab.manager, credentials=credentials) == "fine"
        assert seen == ["secret-of-key-1", "secret-of-key-2"]
        assert credentials.reports == [("key-1", "auth"), ("key-2", "ok")]
        assert lab.nothing_is_held()

    play(scenario)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_at_once_and_holds_nothing(bench, error) -> None:
    with pytest.raises(error):
        bench.execute(error())
    assert bench.manager.get_provider_status("api").in_flight == 0
