"""Who has the last word on a setting, and what may be set at all."""

from __future__ import annotations

import logging
import math

import pytest

from headgate import ConfigError, guarded, stream_with_resilience
from headgate.resilience import (
    GLOBAL_DEFAULTS,
    PROVIDER_CONFIGS,
    ProviderResilienceConfig,
    RateLimiterConfig,
    execute_with_resilience_sync,
)
from headgate.resilience.config import CallOptions, resolve


class TestPrecedence:
    def test_argument_before_the_providers_config_before_the_table_before_the_defaults(
        self, play, http_error, monkeypatch
    ) -> None:
        monkeypatch.setitem(PROVIDER_CONFIGS, "shop", ProviderResilienceConfig(max_attempts=4))

        async def scenario(lab):
            async def attempts(provider: str, config: ProviderResilienceConfig | None, **options) -> int:
                script = lab.script(http_error(500))
                await lab.outcome(script, provider, resilience_config=config, time_budget=600, **options)
                lab.manager.reset_for_testing()
                return script.calls

            own = ProviderResilienceConfig(max_attempts=2)
            assert await attempts("unknown", None) == 3
            assert await attempts("shop", None) == 4
            assert await attempts("shop", own) == 2
            assert await attempts("shop", own, max_attempts=1) == 1

        play(scenario)

    def test_it_holds_for_each_setting_on_its_own(self, monkeypatch) -> None:
        monkeypatch.setitem(PROVIDER_CONFIGS, "shop", ProviderResilienceConfig(max_attempts=4, time_budget=9.0))
        settings = resolve("shop", ProviderResilienceConfig(max_attempts=2))
        assert (settings.max_attempts, settings.time_budget, settings.failure_threshold) == (2, 9.0, 5)

    def test_the_global_defaults_are_the_promised_ones(self) -> None:
        settings = resolve("unknown", None)
        assert (settings.time_budget, settings.max_attempts, settings.max_rate_limit_retries) == (60.0, 3, 20)
        assert (settings.failure_threshold, settings.recovery_timeout, settings.half_open_probes) == (5, 30.0, 1)
        assert settings.rate_limiter.max_wait_seconds == 30.0
        assert settings.attempt_timeout == math.inf

    def test_a_limiter_config_has_the_promised_defaults(self) -> None:
        config = RateLimiterConfig()
        assert (config.requests_per_second, config.burst_limit, config.max_wait_seconds) == (1.0, 5, 30.0)

    def test_every_known_provider_has_settings(self) -> None:
        known = {"tavily", "tavily_extract", "google", "perplexity", "semantic_scholar"}
        assert known <= set(PROVIDER_CONFIGS)
        assert all(resolve(name, None).max_attempts == 3 for name in known)

    def test_what_one_call_asks_for_does_not_hold_for_the_next(self, play, http_error) -> None:
        async def scenario(lab):
            calls = []
            for config in (lab.config(max_attempts=1), None, lab.config(max_attempts=2), None):
                script = lab.script(http_error(500))
                await lab.outcome(script, resilience_config=config, time_budget=600)
                calls.append(script.calls)
                await lab.outcome(lab.script("fine"))
            assert calls == [1, 3, 2, 3]

        play(scenario)

    def test_pace_and_circuit_stay_as_the_first_call_set_them_and_that_is_said_once(self, play, caplog) -> None:
        async def scenario(lab):
            await lab.execute(lab.script("fine"))
            other = lab.config(failure_threshold=1)
            for _ in range(3):
                await lab.execute(lab.script("fine"), resilience_config=other)

        with caplog.at_level(logging.WARNING, "headgate"):
            play(scenario)
        assert [record.getMessage() for record in caplog.records] == [
            "api: the first call set the rate and the circuit; other settings are ignored"
        ]


class TestPace:
    def test_a_known_limit_is_never_exceeded(self, play) -> None:
        async def scenario(lab):
            config = ProviderResilienceConfig(rate_limiter=RateLimiterConfig(requests_per_second=2.0, burst_limit=1))
            script = lab.script("fine")
            for _ in range(20):
                await lab.execute(script, resilience_config=config)
            assert min(script.waits) >= 0.5 - 1e-6
            assert lab.manager.get_provider_status("api").rate == 2.0

        play(scenario)

    def test_where_nothing_is_known_the_pace_is_learned_upward(self, play) -> None:
        async def scenario(lab):
            script = lab.script("fine", takes=0.05)
            for _ in range(200):
                await lab.execute(script, resilience_config=ProviderResilienceConfig())
            assert lab.manager.get_provider_status("api").rate > 4.0

        play(scenario)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("failure_threshold", "half_open_probes", "max_attempts")
            for value in (0, 1.5, "3")
        ),
        ("max_rate_limit_retries", -1),
        *((name, value) for name in ("recovery_timeout", "base_delay", "max_delay") for value in (0, math.inf, "1")),
        ("time_budget", 0),
        ("attempt_timeout", math.nan),
        ("retry_budget", -0.1),
    ],
)
def test_a_provider_config_is_checked_when_it_is_made(name, value) -> None:
    shown = "str" if isinstance(value, str) else repr(value)
    with pytest.raises(ConfigError, match=f"^{name}={shown} must be"):
        ProviderResilienceConfig(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("requests_per_second", 0), ("burst_limit", 0), ("max_wait_seconds", -1), ("strategy", "magic")],
)
def test_a_limiter_config_is_checked_when_it_is_made(name, value) -> None:
    with pytest.raises(ConfigError, match=f"{name}="):
        RateLimiterConfig(**{name: value})


def test_a_first_delay_above_the_longest_is_refused() -> None:
    with pytest.raises(ConfigError, match="base_delay="):
        ProviderResilienceConfig(base_delay=3.0, max_delay=2.0)
    assert resolve("x", ProviderResilienceConfig(base_delay=9.0)).max_delay == 9.0


@pytest.mark.parametrize("provider", ["", None, 7])
def test_a_provider_must_have_a_name(provider) -> None:
    with pytest.raises(ConfigError, match="provider="):
        execute_with_resilience_sync(lambda: None, provider)


def test_the_defaults_say_something_about_everything_but_attempts_timeouts() -> None:
    silent = [name for name in ProviderResilienceConfig.__slots__ if getattr(GLOBAL_DEFAULTS, name) is None]
    assert silent == ["attempt_timeout"]


WRONG = [
    ("time_budget", 0),
    ("time_budget", "3"),
    ("attempt_timeout", -1),
    ("max_wait_seconds", -0.1),
    ("max_attempts", "3"),
    ("max_attempts", 0),
    ("max_attempts", True),
    ("cost", -1),
    ("cost", {"tokens": float("nan")}),
    ("credentials", ["sk-one"]),
    ("when_open", "later"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_refused_by_its_name(name, value):
    with pytest.raises(ConfigError, match=name):
        CallOptions(**{name: value})


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_decoration_with_one_fails_when_the_function_is_decorated(name, value):
    with pytest.raises(ConfigError, match=name):
        guarded("api", **{name: value})


def test_none_leaves_a_setting_to_the_provider():
    options = CallOptions(time_budget=None, max_wait_seconds=None, attempt_timeout=None, max_attempts=None)
    assert (options.time_budget, options.max_attempts, options.cost, options.when_open) == (None, None, 1, "refuse")


@pytest.mark.parametrize(
    "tell",
    [
        lambda **options: execute_with_resilience_sync(lambda: 1, "api", **options),
        lambda **options: stream_with_resilience(lambda: None, "api", **options),
        lambda **options: guarded("api", **options),
    ],
)
@pytest.mark.parametrize("kind", [ConfigError, TypeError])
def test_an_option_that_does_not_exist_is_refused_with_a_hint(tell, kind):
    with pytest.raises(kind, match=r"tiem_budget.*did you mean time_budget"):
        tell(tiem_budget=3)


def test_options_do_not_change():
    options = CallOptions(max_attempts=3)
    with pytest.raises(AttributeError):
        options.max_attempts = 4
    assert options.replace(max_attempts=4, cost=2).max_attempts == 4
    assert (options.max_attempts, options.cost) == (3, 1)
