"""The kill switch: back to plain, bounded retries, for all providers or for one."""

from __future__ import annotations

import pytest

from headgate.core.decision import CircuitState
from headgate.errors import TimeBudgetExceededError
from headgate.resilience import RateLimiterConfig
from headgate.resilience.manager import KillSwitch

ALL = "HEADGATE_ENHANCED_RESILIENCE"


@pytest.mark.parametrize(
    ("provider", "variable"),
    [
        ("tavily", f"{ALL}_TAVILY"),
        ("semantic_scholar", f"{ALL}_SEMANTIC_SCHOLAR"),
        ("api.tavily.com", f"{ALL}_API_TAVILY_COM"),
        ("openai/gpt-4o", f"{ALL}_OPENAI_GPT_4O"),
    ],
)
def test_a_providers_switch_is_its_name(provider, variable) -> None:
    assert KillSwitch(provider).variable == variable


@pytest.mark.parametrize("value", ["false", "False", "0", "no", "off", " FALSE "])
@pytest.mark.parametrize("variable", [ALL, f"{ALL}_API"])
def test_with_it_off_there_is_no_pace_and_no_circuit_but_bounded_retries(
    play, http_error, monkeypatch, variable, value
) -> None:
    monkeypatch.setenv(variable, value)

    async def scenario(lab):
        config = lab.config(rate_limiter=RateLimiterConfig(requests_per_second=0.1, burst_limit=1))
        for _ in range(4):
            script = lab.script(http_error(500))
            assert isinstance(await lab.outcome(script, resilience_config=config), http_error)
            assert script.calls == 3
        assert lab.clock.now() < 4 * (0.2 + 0.4)
        assert lab.manager.get_breaker_state("api") is CircuitState.CLOSED
        assert lab.manager.limiter.key_status("api") is None
        script = lab.script(http_error(429, {"retry-after": "9"}), "fine")
        assert await lab.execute(script, resilience_config=config) == "fine"
        assert script.waits[0] >= 9.0
        assert isinstance(await lab.outcome(lab.script("late", takes=9), time_budget=1), TimeBudgetExceededError)

    play(scenario)


@pytest.mark.parametrize("value", ["true", "1", "yes", "", "anything"])
def test_any_other_word_leaves_it_on(play, monkeypatch, value) -> None:
    monkeypatch.setenv(ALL, value)

    async def scenario(lab):
        await lab.sicken()
        assert lab.manager.get_breaker_state("api") is CircuitState.OPEN

    play(scenario)


def test_one_providers_switch_leaves_the_others_on(play, monkeypatch) -> None:
    monkeypatch.setenv(f"{ALL}_TAVILY", "false")

    async def scenario(lab):
        await lab.sicken("tavily")
        await lab.sicken("google")
        assert lab.manager.get_breaker_state("tavily") is CircuitState.CLOSED
        assert lab.manager.get_breaker_state("google") is CircuitState.OPEN

    play(scenario)


def test_the_narrower_word_wins(play, monkeypatch) -> None:
    monkeypatch.setenv(ALL, "false")
    monkeypatch.setenv(f"{ALL}_TAVILY", "true")

    async def scenario(lab):
        await lab.sicken("tavily")
        assert lab.manager.get_breaker_state("tavily") is CircuitState.OPEN

    play(scenario)


def test_it_can_be_flipped_while_the_program_runs(play, monkeypatch) -> None:
    async def scenario(lab):
        await lab.sicken()
        monkeypatch.setenv(ALL, "false")
        assert await lab.outcome(lab.script("fine")) == "fine"
        monkeypatch.setenv(ALL, "true")
        assert await lab.outcome(lab.script("fine")) != "fine"

    play(scenario)


def test_credentials_still_rest_and_retire_with_it_off(play, http_error, monkeypatch) -> None:
    monkeypatch.setenv(ALL, "false")

    async def scenario(lab):
        credentials = lab.credentials()
        script = lab.script(http_error(401), "fine")
        assert await lab.execute(script, credentials=credentials) == "fine"
        assert credentials.reports == [("key-1", "auth"), ("key-2", "ok")]

    play(scenario)
