"""A limit under a name that no call spends was accepted, and limited nothing."""

import pytest

from headgate import AdaptiveRateLimiter, ConfigError, RateLimitConfig
from headgate.lab.virtual_time import VirtualClock


def warned_of(caplog):
    return [record.args[1] for record in caplog.records if getattr(record, "event", "") == "limit_unspent"]


def calls(limiter, number, **more):
    for _ in range(number):
        limiter.acquire("api", **more).report(status_code=200)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "request",
            "Requests",
            "REQUESTS",
            " requests",
            "reqests",
            "requests/min",
            "requests_per_minute",
            "rpm",
            "req",
        ),
        *("token", "Tokens", "toknes", "tokens-per-minute", "tokens per day", "tpm", "input-tokens", ""),
    ],
)
def test_a_near_miss_is_refused(name):
    with pytest.raises(ConfigError):
        RateLimitConfig(limits={name: "6/min"})


@pytest.mark.parametrize(
    "name", ["requests", "tokens", "input_tokens", "output_tokens", "tokens_in", "images", "credits", "characters"]
)
def test_a_name_of_its_own_is_taken(name):
    assert RateLimitConfig(limits={name: "6/min"}).quotas()[0].dimension == name


def test_a_limit_that_no_call_spends_is_warned_of_once(caplog):
    config = RateLimitConfig(initial_rps=1e6, limits={"requests": "1000/s", "images": "5/min", "tokens": "1000/s"})
    limiter = AdaptiveRateLimiter(config, clock=VirtualClock())
    calls(limiter, 19, cost={"tokens": 1})
    assert warned_of(caplog) == []
    calls(limiter, 200, cost={"tokens": 1})
    assert warned_of(caplog) == ["images"]


@pytest.mark.parametrize("reserves", [True, False])
def test_a_limit_that_some_calls_spend_is_not(reserves, caplog):
    """Neither where it is reserved nor where only the real cost names it."""
    config = RateLimitConfig(initial_rps=1e6, limits={"tokens": "100000/s"})
    limiter = AdaptiveRateLimiter(config, clock=VirtualClock())
    limiter.acquire("api", cost={"tokens": 1} if reserves else 1).report(cost={"tokens": 5})
    calls(limiter, 50)
    assert warned_of(caplog) == []
