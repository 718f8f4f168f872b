"""RateLimitConfig: its defaults, what it refuses and in which words, and how keys are set apart."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from math import inf, nan

import pytest

from headgate import AdaptiveRateLimiter, ConfigError, Controller, RateLimitConfig
from headgate.checks import shown
from headgate.controllers import CONTROLLERS
from headgate.lab.virtual_time import VirtualClock

DEFAULTS = {
    "enabled": True,
    "strategy": "adaptive",
    "initial_rps": 2.0,
    "min_rps": 0.01,
    "max_rps": None,
    "token_bucket_capacity": 4.0,
    "aimd_increase": 0.25,
    "aimd_decrease": 0.5,
    "latency_target": 1.0,
    "latency_degrade_factor": 2.0,
    "error_rate_threshold": 0.4,
    "min_samples_to_trip": 10,
    "consecutive_fail_threshold": 5,
    "open_state_duration": 15.0,
    "half_open_probes": 1,
    "successes_to_close": 1,
    "retry_base_delay": 0.2,
    "retry_max_delay": 5.0,
    "retry_max_attempts": 3,
    "stats_window": 30.0,
    "stats_bucket": 2.0,
    "domain_state_ttl": 120.0,
    "max_keys": 100_000,
    "without_store": "share",
    "group_subdomains": False,
    "limits": {},
    "burst": {},
    "overrides": {},
}
NUMBERS = [name for name, value in DEFAULTS.items() if type(value) is float]
COUNTS = [name for name, value in DEFAULTS.items() if type(value) is int]
FLAGS = [name for name, value in DEFAULTS.items() if type(value) is bool]
STRATEGIES = list(CONTROLLERS)


def complaint(**settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        RateLimitConfig(**settings)
    return str(caught.value)


def test_the_defaults_are_the_documented_ones_and_there_are_no_others() -> None:
    config = RateLimitConfig()
    assert {field.name: getattr(config, field.name) for field in fields(config)} == DEFAULTS


class TestBadValues:
    @pytest.mark.parametrize("value", [0, 0.0, -1, -0.5, nan, inf, -inf, "fast", None, [1.0], 1j])
    @pytest.mark.parametrize("name", NUMBERS)
    def test_a_number_must_be_positive_and_finite(self, name: str, value: object) -> None:
        message = complaint(**{name: value})
        assert f"{name}={shown(value)} must be " in message

    @pytest.mark.parametrize("value", [0, -3, 1.5, 2.0, nan, inf, "3", None])
    @pytest.mark.parametrize("name", COUNTS)
    def test_a_count_must_be_a_whole_number_from_1(self, name: str, value: object) -> None:
        assert complaint(**{name: value}) == f"{name}={shown(value)} must be a whole number, 1 or more"

    @pytest.mark.parametrize("value", ["false", "no", None, nan, []])
    @pytest.mark.parametrize("name", FLAGS)
    def test_a_flag_must_be_true_or_false(self, name: str, value: object) -> None:
        assert f"{name}={shown(value)} must be " in complaint(**{name: value})

    @pytest.mark.parametrize("value", [0, -1, nan, -inf, "fast", 0.001])
    def test_the_ceiling_must_be_none_or_above_the_least_pace(self, value: object) -> None:
        assert complaint(max_rps=value) == f"max_rps={shown(value)} must be None or at least min_rps (0.01)"

    def test_a_bucket_must_hold_one_call(self) -> None:
        assert complaint(token_bucket_capacity=0.99).startswith("token_bucket_capacity=0.99 must be 1 or more")

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("aimd_decrease", 1.0),
            ("aimd_decrease", 1.5),
            ("latency_degrade_factor", 0.5),
            ("error_rate_threshold", 1.01),
            ("stats_bucket", 30.1),
            ("retry_max_delay", 0.1),
        ],
    )
    def test_a_setting_must_lie_in_its_own_range(self, name: str, value: float) -> None:
        assert f"{name}={shown(value)} must be " in complaint(**{name: value})

    def test_a_statistics_window_of_too_many_buckets_is_refused_when_made(self) -> None:
        assert "stats_bucket=1e-06" in complaint(stats_bucket=1e-6)

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            ("ADAPTIVE", "'ADAPTIVE'"),
            ("adaptve", "'adaptve'"),
            ("sk-proj-1234", "<text of 12 characters>"),  # it may be a key in the wrong place
            ("", "<text of 0 characters>"),
            (None, "None"),
            (3, "3"),
            (["fixed"], "list"),
            ({}, "dict"),
        ],
    )
    def test_an_unknown_strategy_is_told_which_ones_there_are(self, value: object, shown: str) -> None:
        message = complaint(strategy=value)
        assert message.startswith(f"strategy={shown} ")
        assert " must be one of " in message
        assert all(known in message for known in STRATEGIES)

    @pytest.mark.parametrize("name", [*NUMBERS, *COUNTS, *FLAGS, "max_rps", "limits", "without_store", "strategy"])
    def test_a_secret_in_the_wrong_place_is_not_repeated(self, name: str) -> None:
        assert "Correct-Horse" not in complaint(**{name: "Correct-Horse"})

    def test_a_config_error_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="initial_rps=-1"):
            RateLimitConfig(initial_rps=-1)

    def test_settings_are_given_by_name(self) -> None:
        with pytest.raises(TypeError):
            RateLimitConfig(True)


class TestLimits:
    @pytest.mark.parametrize(
        ("text", "amount", "window", "burst"),
        [
            ("500/min", 500, 60, 4),
            ("100/10s", 100, 10, 4),
            ("200_000 per day", 200_000, 86_400, 200_000),
            ("3,600 / hour", 3_600, 3_600, 3_600),
            ("1/s", 1, 1, 1),
            ("0.5/s", 1, 2, 1),
        ],
    )
    def test_a_limit_on_requests_is_read(self, text: str, amount: float, window: float, burst: float) -> None:
        quota = RateLimitConfig(limits={"requests": text}).quotas()[0]
        assert (quota.amount, quota.window, quota.burst) == (amount, window, burst)

    @pytest.mark.parametrize(("text", "amount", "burst"), [("200000/min", 200_000, 20_000), ("0.5/min", 0.5, 0.05)])
    def test_a_tenth_of_any_other_limit_may_go_at_once(self, text: str, amount: float, burst: float) -> None:
        quota = RateLimitConfig(limits={"tokens": text}).quotas()[0]
        assert (quota.amount, quota.window, quota.burst) == (amount, 60, burst)

    def test_the_bursts_can_be_set(self) -> None:
        config = RateLimitConfig(
            limits={"requests": "500/min", "tokens": "1000/s"}, burst={"requests": 50, "tokens": 1000}
        )
        assert [(quota.dimension, quota.burst) for quota in config.quotas()] == [("requests", 50), ("tokens", 1000)]

    def test_the_bucket_capacity_is_the_burst_of_requests(self) -> None:
        config = RateLimitConfig(token_bucket_capacity=20, limits={"requests": "500/min"})
        assert config.quotas()[0].burst == 20

    @pytest.mark.parametrize("text", ["5/s", "4/min", "2/min", "1/day", "0.1/s"])
    def test_a_small_limit_still_lets_calls_through_again(self, text: str) -> None:
        assert RateLimitConfig(limits={"requests": text}).quotas()[0].refill > 0

    def test_a_known_limit_takes_the_place_of_the_initial_rate(self) -> None:
        assert RateLimitConfig(limits={"requests": "600/min"}, initial_rps=2.0).starting_rate() == 10.0

    @pytest.mark.parametrize(
        "text",
        ["", "500", "/min", "500/", "500/fortnight", "-5/s", "5/-1s", "1e3/s", "many/min", "5/s/s", "5" * 99 + "/s"],
    )
    def test_malformed_text_is_quoted_beside_an_example(self, text: str) -> None:
        message = complaint(limits={"requests": text})
        assert message.startswith(f"limits['requests']: {text[:64]!r} is not a limit")
        assert "'500/min'" in message

    @pytest.mark.parametrize("dimension", ["requests", "tokens"])
    @pytest.mark.parametrize("text", ["0/min", "0.0/s", "5/0s", "5/32d"])
    def test_a_limit_must_allow_something_within_31_days(self, dimension: str, text: str) -> None:
        assert complaint(limits={dimension: text}).startswith(f"limits[{dimension!r}]: ")

    @pytest.mark.parametrize("value", [500, None, 8.3, b"500/min", {"500/min"}])
    def test_a_limit_that_is_no_text_is_named(self, value: object) -> None:
        message = complaint(limits={"requests": value})
        assert message.startswith("limits['requests']")
        assert repr(value) in message

    @pytest.mark.parametrize("value", [[], ["500/min", 5], [["500/min"]], ["1/s"] * 9, ["500/min", "fast"]])
    def test_each_of_several_limits_must_be_one(self, value: object) -> None:
        assert complaint(limits={"requests": value}).startswith("limits['requests']")

    def test_a_burst_that_is_set_leaves_longer_windows_alone(self) -> None:
        config = RateLimitConfig(limits={"requests": ["2000/day", "10/s", "90/min"]}, burst={"requests": 7})
        assert [(quota.window, quota.burst) for quota in config.quotas()] == [(1, 7), (60, 7), (86_400, 2000)]

    def test_a_burst_that_is_set_paces_a_long_window_that_stands_alone(self) -> None:
        assert RateLimitConfig(limits={"requests": "8640/day"}, burst={"requests": 7}).starting_rate() == 0.1

    @pytest.mark.parametrize("value", ["500/min", None, ["500/min"], 500])
    def test_limits_must_be_given_by_dimension(self, value: object) -> None:
        message = complaint(limits=value)
        assert message.startswith("limits")
        assert f"limits={shown(value)} must be " in message

    def test_a_burst_must_belong_to_a_limit(self) -> None:
        message = complaint(limits={"requests": "10/s"}, burst={"tokens": 5})
        assert message == "burst['tokens'] has no limit of that name; limits: requests"

    @pytest.mark.parametrize("value", [11, 0, -1, nan, inf, "many", None, [5]])
    def test_a_burst_must_lie_within_its_limit(self, value: object) -> None:
        message = complaint(limits={"requests": "10/s"}, burst={"requests": value})
        assert "requests" in message
        assert "burst" in message
        assert repr(value) in message
        assert "at most the limit, 10" in message

    @pytest.mark.parametrize("value", [5, None, "requests"])
    def test_bursts_must_be_given_by_dimension(self, value: object) -> None:
        assert complaint(limits={"requests": "10/s"}, burst=value).startswith("burst")


class TestFrozen:
    def test_no_setting_changes_once_it_is_made(self) -> None:
        config = RateLimitConfig()
        for name in DEFAULTS:
            with pytest.raises(FrozenInstanceError):
                setattr(config, name, 1)

    def test_the_dict_it_was_made_from_may_change(self) -> None:
        limits, burst = {"requests": "10/s"}, {"requests": 2.0}
        overrides = {"a": RateLimitConfig(initial_rps=7.0)}
        config = RateLimitConfig(limits=limits, burst=burst, overrides=overrides)
        limits["requests"], burst["requests"], overrides["a"] = "nonsense", 99.0, RateLimitConfig()
        quota = config.quotas()[0]
        assert (quota.amount, quota.burst, config.for_key("a").initial_rps) == (10.0, 2.0, 7.0)

    def test_a_changed_copy_is_checked_again(self) -> None:
        assert replace(RateLimitConfig(), initial_rps=9.0).initial_rps == 9.0
        with pytest.raises(ConfigError, match="initial_rps=0"):
            replace(RateLimitConfig(), initial_rps=0)

    def test_configs_with_the_same_settings_are_equal(self) -> None:
        assert RateLimitConfig(limits={"requests": "1/s"}) == RateLimitConfig(limits={"requests": "1/s"})
        assert RateLimitConfig() != RateLimitConfig(initial_rps=3.0)


class TestOverrides:
    SLOW, QUICK = RateLimitConfig(initial_rps=1.0), RateLimitConfig(initial_rps=50.0)

    def test_other_keys_keep_the_settings(self) -> None:
        config = RateLimitConfig(overrides={"a.example.com": self.QUICK})
        assert config.for_key("b.example.com") is config

    def test_the_exact_key_comes_before_any_pattern(self) -> None:
        config = RateLimitConfig(overrides={"*": self.SLOW, "a.example.com": self.QUICK})
        assert config.for_key("a.example.com") is self.QUICK

    def test_the_first_pattern_that_matches_counts(self) -> None:
        config = RateLimitConfig(overrides={"*.example.com": self.QUICK, "*": self.SLOW})
        assert config.for_key("a.example.com") is self.QUICK
        assert config.for_key("elsewhere.org") is self.SLOW

    @pytest.mark.parametrize("key", ["api.example.com", "API.Example.com", "https://api.example.com:443/v1"])
    def test_a_limiter_applies_them_however_the_host_is_spelt(self, key: str) -> None:
        limiter = AdaptiveRateLimiter(RateLimitConfig(overrides={key: self.QUICK}), clock=VirtualClock())
        limiter.acquire(key).release()
        assert limiter.snapshot().keys[0].rate == 50.0

    @pytest.mark.parametrize("value", [None, "ab", ["a"], {"a": "slow"}, {"a": None}, {"a": {"initial_rps": 1.0}}])
    def test_they_must_be_configs_by_key(self, value: object) -> None:
        assert complaint(overrides=value).startswith("overrides")

    def test_there_is_a_bound_on_them(self) -> None:
        message = complaint(overrides={str(number): self.SLOW for number in range(10_001)})
        assert "must be at most 10000 patterns" in message
        assert len(message) < 500


class Steady(Controller):
    """A strategy of the user's own: the pace is what the config begins with."""

    def __init__(self, config: RateLimitConfig) -> None:
        self.rate = config.initial_rps

    def on_answer(self, *_: object) -> float:
        self.rate += 1.0
        return 0.0


class TestStrategies:
    @pytest.mark.parametrize("name", STRATEGIES)
    def test_every_strategy_begins_at_the_initial_rate(self, name: str) -> None:
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=name, initial_rps=3.0), clock=VirtualClock())
        limiter.acquire("a").release()
        assert limiter.snapshot().keys[0].rate == 3.0

    @pytest.mark.parametrize(("name", "at_once"), [("fixed", 4), ("leaky", 1)])
    def test_only_leaky_starts_no_calls_at_once(self, name: str, at_once: int) -> None:
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=name), clock=VirtualClock())
        assert sum(limiter.try_acquire("a") is not None for _ in range(10)) == at_once

    @pytest.mark.parametrize("strategy", [Steady, lambda config: Steady(config)], ids=["class", "function"])
    def test_a_strategy_of_ones_own_makes_a_controller_for_each_key(self, strategy) -> None:
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=strategy, initial_rps=3.0), clock=VirtualClock())
        limiter.acquire("a").report(status_code=200)
        limiter.acquire("b").release()
        assert {entry.key: entry.rate for entry in limiter.snapshot().keys} == {"a": 4.0, "b": 3.0}

    def test_a_strategy_of_ones_own_stays_within_the_bounds(self) -> None:
        config = RateLimitConfig(strategy=Steady, initial_rps=3.0, max_rps=3.5)
        limiter = AdaptiveRateLimiter(config, clock=VirtualClock())
        limiter.acquire("a").report(status_code=200)
        assert limiter.snapshot().keys[0].rate == 3.5
