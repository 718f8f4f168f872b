"""Every row of the table of errors, for every provider, with the gate and with the kill switch."""

import time

import pytest

from headgate.errors import AuthenticationError, ProviderError, RateLimitError
from headgate.providers import PROVIDERS

NAMES = tuple(PROVIDERS)
TOLD_TO_WAIT = 0.1
"""Seconds of Retry-After; real, and just long enough to be told from a backoff."""

PASSING = {
    "429 with Retry-After": {"trouble": "rate_limited", "headers": {"retry-after": str(TOLD_TO_WAIT)}},
    "429 without": {"trouble": "rate_limited", "headers": {"retry-after": ""}},
    "500": {"trouble": "server_error"},
    "502, a page of HTML": {"status": 502, "body": "<html><h1>Bad Gateway</h1></html>"},
    "503": {"trouble": "unavailable"},
    "503 with Retry-After": {"trouble": "unavailable", "headers": {"retry-after": str(TOLD_TO_WAIT)}},
    "hangs up": {"drop": "before"},
    "hangs up midway": {"drop": "midway"},
}
FINAL = {
    "401": ({"status": 401, "body": {"error": "no"}}, AuthenticationError, 401),
    "its own word for a bad key": ({"trouble": "unauthorized"}, AuthenticationError, None),
    "403": ({"trouble": "forbidden"}, AuthenticationError, 403),
    "402": ({"status": 402, "body": {"error": "pay"}}, AuthenticationError, 402),
    "400": ({"trouble": "invalid"}, ProviderError, 400),
    "404": ({"status": 404, "body": {"error": "gone"}}, ProviderError, 404),
    "413": ({"status": 413, "body": {"error": "big"}}, ProviderError, 413),
    "a redirect": ({"status": 302, "headers": {"Location": "/elsewhere"}}, ProviderError, None),
}
LASTING = {
    "500": ({"trouble": "server_error"}, 500),
    "503": ({"trouble": "unavailable"}, 503),
    "hangs up": ({"drop": "before"}, None),
    "hangs up midway": ({"drop": "midway"}, None),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("row", PASSING)
def test_what_passes_is_asked_again(run, switch, name, row):
    async def scenario(world):
        world.fault(name, **PASSING[row])
        started = time.monotonic()
        results = await world.search(name)
        return results, world.calls(name), time.monotonic() - started

    results, calls, took = run(scenario)
    assert results
    assert calls == 2
    if "with Retry-After" in row:
        assert took >= TOLD_TO_WAIT


def test_an_answer_that_does_not_come_in_time_is_asked_for_again(run, switch):
    async def scenario(world):
        world.fault("tavily", delay=30.0)
        results = await world.search("tavily", timeout=0.5)
        return results, world.calls("tavily")

    results, calls = run(scenario)
    assert results
    assert calls >= 2


@pytest.mark.no_cover
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("row", FINAL)
def test_what_will_not_pass_is_told_at_once(run, switch, name, row):
    fault, kind, status = FINAL[row]

    async def scenario(world):
        world.fault(name, times=5, **fault)
        with pytest.raises(kind) as failure:
            await world.search(name)
        return failure.value, world.calls(name)

    error, calls = run(scenario)
    assert type(error) is kind
    assert error.provider == name
    assert status is None or error.status_code == status
    assert calls == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("row", LASTING)
def test_what_goes_on_failing_is_told_after_three_attempts(run, switch, name, row):
    fault, status = LASTING[row]

    async def scenario(world):
        world.fault(name, times=9, **fault)
        with pytest.raises(ProviderError) as failure:
            await world.search(name)
        return failure.value, world.calls(name)

    error, calls = run(scenario)
    assert type(error) is ProviderError
    assert error.status_code == status
    assert calls == 3


def test_an_answer_that_never_comes_in_time_is_an_error(run, switch):
    async def scenario(world):
        world.fault("tavily", times=9, delay=30.0)
        with pytest.raises(ProviderError, match=r"did not answer within 0\.2 s"):
            await world.search("tavily", timeout=0.2)
        return world.calls("tavily")

    assert 1 <= run(scenario) <= 3  # on a busy machine the time may be over before the request is sent


@pytest.mark.parametrize("name", NAMES)
def test_being_told_to_slow_down_for_ever_is_a_rate_limit_error(run, switch, settings, name):
    async def scenario(world):
        world.fault(name, times=9, trouble="rate_limited", headers={"retry-after": "0.01"})
        with pytest.raises(RateLimitError) as failure:
            await world.search(name, config=settings.quick(max_rate_limit_retries=2))
        return failure.value, world.calls(name)

    error, calls = run(scenario)
    assert (error.provider, error.status_code) == (name, 429)
    assert error.retry_after == pytest.approx(0.01)
    assert calls == 3


CLASSIFIED = {
    "rate_limited": (True, False, "rate_limit"),
    "unauthorized": (False, False, "auth"),
    "forbidden": (False, False, "auth"),
    "invalid": (False, False, "validation"),
    "unavailable": (True, True, "overloaded"),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("trouble", CLASSIFIED)
def test_a_provider_says_what_its_errors_mean(run, settings, name, trouble):
    async def scenario(world):
        provider = world.provider(name)
        world.fault(name, times=9, trouble=trouble)
        with pytest.raises((RateLimitError, AuthenticationError, ProviderError)) as failure:
            await world.search(name, config=settings.quick(max_rate_limit_retries=0))
        return provider.classify_error(failure.value.response, failure.value)

    said = run(scenario)
    assert (said.retryable, said.trips_breaker, said.error_type) == CLASSIFIED[trouble]
