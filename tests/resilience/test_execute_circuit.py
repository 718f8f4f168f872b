"""The circuit of a provider: five failures, thirty seconds, one probe."""

from __future__ import annotations

import asyncio

import pytest

from headgate.core.decision import CircuitState
from headgate.errors import CircuitOpenError


def test_five_failures_open_it_and_a_call_is_then_refused_with_the_time_to_come_back(play) -> None:
    async def scenario(lab):
        await lab.sicken(failures=4)
        assert lab.manager.get_breaker_state("api") is CircuitState.CLOSED
        await lab.sicken(failures=1)
        assert lab.manager.get_breaker_state("api") is CircuitState.OPEN
        assert not lab.manager.is_provider_available("api")
        script = lab.script("never asked")
        refusal = await lab.outcome(script)
        assert isinstance(refusal, CircuitOpenError)
        assert (refusal.retry_after, script.calls) == (30.0, 0)

    play(scenario)


def test_it_opens_within_five_seconds_of_an_overload(play, http_error) -> None:
    async def scenario(lab):
        script = lab.script(http_error(503), takes=0.1)
        await asyncio.gather(*(lab.outcome(script) for _ in range(4)))
        assert lab.manager.get_breaker_state("api") is CircuitState.OPEN
        assert lab.clock.now() < 5.0

    play(scenario)


@pytest.mark.parametrize("keys", [0, 6], ids=["without credentials", "with credentials"])
@pytest.mark.parametrize(("answer", "then"), [("fine", CircuitState.CLOSED), (500, CircuitState.OPEN)])
def test_thirty_seconds_later_six_callers_make_exactly_one_call(play, http_error, answer, then, keys) -> None:
    async def scenario(lab):
        credentials = lab.credentials(*(f"key-{number}" for number in range(keys))) if keys else None
        await lab.sicken(credentials=credentials)
        await asyncio.sleep(29.9)
        assert isinstance(await lab.outcome(lab.script("x")), CircuitOpenError)
        await asyncio.sleep(0.1)
        assert lab.manager.get_breaker_state("api") is CircuitState.HALF_OPEN
        assert lab.manager.is_provider_available("api")
        script = lab.script(http_error(500) if answer == 500 else answer, takes=1.0)
        ends = await asyncio.gather(*(lab.outcome(script, max_attempts=1, credentials=credentials) for _ in range(6)))
        assert script.calls == 1
        assert sum(isinstance(end, CircuitOpenError) for end in ends) == 5
        assert lab.manager.get_breaker_state("api") is then
        assert lab.nothing_is_held()
        assert credentials is None or not credentials.held

    play(scenario)


def test_polled_every_50_ms_while_open_it_recovers_by_itself(play) -> None:
    async def scenario(lab):
        config = lab.config(recovery_timeout=0.3)
        await lab.sicken(resilience_config=config)
        refused = 0
        while True:
            assert lab.manager.get_breaker_state("api") is not CircuitState.CLOSED
            end = await lab.outcome(lab.script("fine"), resilience_config=config)
            if end == "fine":
                break
            refused += 1
            await asyncio.sleep(0.05)
        assert lab.clock.now() == pytest.approx(0.3)
        assert refused == 6
        assert lab.manager.get_breaker_state("api") is CircuitState.CLOSED

    play(scenario)


def test_after_closing_eight_healthy_calls_leave_it_closed(play) -> None:
    async def scenario(lab):
        await lab.sicken()
        await asyncio.sleep(30.0)
        for _ in range(9):
            assert await lab.outcome(lab.script("fine")) == "fine"
            assert lab.manager.get_breaker_state("api") is CircuitState.CLOSED

    play(scenario)


def test_late_failures_from_before_it_opened_are_ignored(play, http_error) -> None:
    async def scenario(lab):
        late = [
            asyncio.create_task(lab.outcome(lab.script(http_error(500), takes=40.0), max_attempts=1, time_budget=99))
            for _ in range(8)
        ]
        await asyncio.sleep(1.0)
        await lab.sicken()
        await asyncio.sleep(30.0)
        assert await lab.outcome(lab.script("fine")) == "fine"
        await asyncio.gather(*late)
        assert lab.manager.get_breaker_state("api") is CircuitState.CLOSED

    play(scenario)


def test_a_hundred_rate_limits_never_trip_it(play, http_error) -> None:
    async def scenario(lab):
        for _ in range(5):
            await lab.outcome(lab.script(http_error(429)), time_budget=600.0)
        assert lab.manager.get_provider_status("api").consecutive_failures == 0
        assert lab.manager.get_breaker_state("api") is CircuitState.CLOSED

    play(scenario)


def test_a_probe_that_is_rate_limited_gives_its_slot_back(play, http_error) -> None:
    async def scenario(lab):
        await lab.sicken()
        await asyncio.sleep(30.0)
        config = lab.config(max_rate_limit_retries=0)
        assert isinstance(await lab.outcome(lab.script(http_error(429)), resilience_config=config), http_error)
        assert lab.manager.get_breaker_state("api") is CircuitState.HALF_OPEN
        assert await lab.outcome(lab.script("fine")) == "fine"
        assert lab.manager.get_breaker_state("api") is CircuitState.CLOSED

    play(scenario)


def test_a_circuit_that_opens_during_the_retries_ends_them_with_the_last_error(play, http_error) -> None:
    async def scenario(lab):
        await lab.sicken(failures=3)
        script = lab.script(http_error(500))
        end = await lab.outcome(script, max_attempts=9)
        assert isinstance(end, http_error)
        assert script.calls == 2
        assert lab.nothing_is_held()

    play(scenario)


def test_providers_have_circuits_of_their_own(play) -> None:
    async def scenario(lab):
        await lab.sicken("sick")
        assert lab.manager.get_breaker_state("sick") is CircuitState.OPEN
        assert await lab.outcome(lab.script("fine"), "well") == "fine"
        assert lab.manager.is_provider_available("well")

    play(scenario)


@pytest.mark.no_cover
def test_after_an_outage_the_credentials_come_back_on_a_ramp_together(play) -> None:
    async def scenario(lab):
        credentials = lab.credentials(*(f"key-{n}" for n in range(20)))
        starts: list[float] = []

        async def caller() -> None:
            async def func() -> str:
                starts.append(lab.clock.now())
                await asyncio.sleep(0.1)
                return "fine"

            while lab.clock.now() < 60.0:
                await lab.outcome(func, credentials=credentials)
                await asyncio.sleep(0.1)

        callers = [asyncio.create_task(caller()) for _ in range(20)]
        await asyncio.sleep(10.03)
        await lab.sicken(credentials=lab.credentials("other"))
        await asyncio.gather(*callers)
        before = sum(8.0 <= at < 10.0 for at in starts)
        back_at = min(at for at in starts if at > 12.0)
        first, later = (sum(back_at + a <= at < back_at + a + 1.0 for at in starts) for a in (0.0, 8.0))
        assert first < 0.6 * before / 2
        assert later > 0.9 * before / 2

    play(scenario)
