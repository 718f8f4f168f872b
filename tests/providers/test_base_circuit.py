"""A provider that is down is left alone, tried by one call, and taken back. The clock is put forward for that."""

import asyncio
import time

import pytest

from headgate.clock import SystemClock
from headgate.core.decision import CircuitState
from headgate.errors import CircuitOpenError, ProviderError, RateLimitError
from headgate.resilience import ProviderResilienceManager

RECOVERY = 30.0
CASES = {"with a key": ("tavily", "a-key-of-some-length"), "without": ("semantic_scholar", None)}
"""With a key the pace is the key's and the circuit the provider's; without one both are the provider's."""


class AdvancingClock(SystemClock):
    """The real one, which a test may put forward: none waits for a recovery, and none comes too late for it."""

    runs_loop_timers = runs_in_real_time = False
    ahead = 0.0

    def now(self):
        return time.monotonic() + self.ahead


@pytest.fixture
def run(run):
    """``run(scenario)`` awaits ``scenario(world)``, whose clock can be put forward."""

    def run_by_a_clock(scenario):
        async def main(world):
            world.clock = AdvancingClock()
            world.manager = ProviderResilienceManager(clock=world.clock, on_event=world.events.append)
            return await scenario(world)

        return run(main)

    return run_by_a_clock


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


async def break_down(world, name, provider):
    """Five failures in a row."""
    world.fault(name, times=5, trouble="server_error")
    for _ in range(5):
        with pytest.raises(ProviderError):
            await provider.search("gates")
    assert world.manager.get_breaker_state(name) is CircuitState.OPEN


@pytest.fixture
def once(settings):
    return settings.quick(max_attempts=1, recovery_timeout=RECOVERY)


def test_an_open_circuit_refuses_without_a_call(run, once, case):
    name, key = case

    async def scenario(world):
        provider = world.provider(name, key, config=once)
        await break_down(world, name, provider)
        with pytest.raises(CircuitOpenError) as refusal:
            await provider.search("gates")
        return refusal.value.retry_after, world.calls(name), world.manager.is_provider_available(name)

    retry_after, calls, available = run(scenario)
    assert 0 < retry_after <= RECOVERY
    assert calls == 5
    assert not available


def test_six_callers_at_a_half_open_circuit_make_one_call(run, once, case):
    name, key = case

    async def scenario(world):
        provider = world.provider(name, key, config=once)
        await break_down(world, name, provider)
        world.clock.ahead += RECOVERY
        assert world.manager.get_breaker_state(name) is CircuitState.HALF_OPEN
        world.fault(name, delay=0.2)  # so that all six are there before the one is answered
        ends = await asyncio.gather(*(provider.search("gates") for _ in range(6)), return_exceptions=True)
        return ends, world.calls(name) - 5, world.manager.get_breaker_state(name)

    ends, calls, state = run(scenario)
    assert calls == 1
    assert [type(end) for end in ends].count(CircuitOpenError) == 5
    assert state is CircuitState.CLOSED


def test_a_failing_probe_opens_the_circuit_again(run, once, case):
    name, key = case

    async def scenario(world):
        provider = world.provider(name, key, config=once)
        await break_down(world, name, provider)
        world.clock.ahead += RECOVERY
        world.fault(name, trouble="unavailable")
        with pytest.raises(ProviderError):
            await provider.search("gates")
        return world.manager.get_breaker_state(name), world.calls(name)

    assert run(scenario) == (CircuitState.OPEN, 6)


def test_polled_while_it_is_open_a_provider_recovers_by_itself(run, once, case):
    name, key = case

    async def scenario(world):
        provider = world.provider(name, key, config=once)
        await break_down(world, name, provider)
        refusals = 0
        for _ in range(40):
            try:
                found = await provider.search("gates")
            except CircuitOpenError:
                refusals += 1
                world.clock.ahead += RECOVERY / 4
            else:
                return found, refusals, world.calls(name), world.manager.get_breaker_state(name)
        raise AssertionError("it never came back")

    found, refusals, calls, state = run(scenario)
    assert found
    assert 1 <= refusals <= 8
    assert calls == 6
    assert state is CircuitState.CLOSED


def test_rate_limits_never_open_a_circuit(run, settings):
    async def scenario(world):
        config = settings.quick(max_rate_limit_retries=0)
        for _ in range(7):
            world.fault("tavily", trouble="rate_limited", headers={"retry-after": "0.01"})
            with pytest.raises(RateLimitError):
                await world.search("tavily", config=config)
        return world.manager.get_breaker_state("tavily")

    assert run(scenario) is CircuitState.CLOSED


def test_a_broken_provider_leaves_the_others_alone(run, once):
    async def scenario(world):
        await break_down(world, "tavily", world.provider("tavily", config=once))
        return [len(await world.search(name)) for name in ("google", "perplexity", "semantic_scholar")]

    assert run(scenario) == [3, 3, 3]


def test_with_the_kill_switch_there_is_no_circuit(run, once, monkeypatch):
    monkeypatch.setenv("HEADGATE_ENHANCED_RESILIENCE_TAVILY", "false")

    async def scenario(world):
        provider = world.provider("tavily", config=once)
        world.fault("tavily", times=7, trouble="server_error")
        for _ in range(7):
            with pytest.raises(ProviderError):
                await provider.search("gates")
        return world.calls("tavily"), len(await provider.search("gates", max_results=3))

    assert run(scenario) == (7, 3)
