"""A chat model of LangChain's behind the limiter: what it keeps, and what it learns where it may listen."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import requests
from tests.quota_spent import quota_spent
from tests.sdks import LazyModule, langchain

from headgate import AdaptiveRateLimiter, CircuitOpenError, RateLimitConfig, WaitTooLongError
from headgate.errors import ConfigError

langchain_model = LazyModule("tests.integrations.clients.langchain_model")


@pytest.fixture
def client():
    return "requests"


def model(lab, limiter, hears=True, **about):
    return langchain_model.Model(
        url=lab.home.origin, rate_limiter=limiter, callbacks=[limiter] if hears else [], **about
    )


def of(limiter):
    return limiter.limiter.key_status(limiter.key)


@pytest.mark.parametrize("hears", [True, False])
def test_known_limit_is_kept(lab, hears):
    limiter = langchain.RateLimiter(limits={"requests": "2/s"}, clock=lab.clock)
    asked = model(lab, limiter, hears)
    for _ in range(5):
        asked.invoke("How high?")
    at = [seen.at for seen in lab.sent]
    assert all(later - earlier >= 1.0 for earlier, later in zip(at, at[2:], strict=False))
    assert of(limiter).in_flight == 0


def test_it_learns_from_a_refusal_if_it_hears_of_it(lab):
    lab.home.answers = [lab.Reply(429, {"Retry-After": "7"}), 200]
    for hears, at_least in ((False, 0.0), (True, 7.0)):
        limiter = langchain.RateLimiter(clock=lab.clock)
        asked = model(lab, limiter, hears)
        lab.home.seen.clear()
        began = lab.clock.now()
        with pytest.raises(requests.HTTPError):
            asked.invoke("How high?")
        asked.invoke("How high?")
        assert lab.clock.now() - began >= at_least
        assert hears or lab.clock.now() == began, "it cannot know"


def test_it_learns_from_headers_if_the_model_hands_them_on(lab):
    told = {"RateLimit": '"default";r=0;t=30', "RateLimit-Policy": '"default";q=10;w=60'}
    lab.home.answers = [lab.Reply(headers=told)]
    asked = model(lab, langchain.RateLimiter(clock=lab.clock))
    for _ in range(5):
        asked.invoke("How high?")
    assert lab.waits[-1] > 20


def test_tokens_are_settled_by_what_the_answers_took(lab):
    limiter = langchain.RateLimiter(limits={"tokens": "100000/min"}, clock=lab.clock)
    model(lab, limiter, usage=77).invoke("How high?")
    assert quota_spent(limiter.limiter, limiter.key) == 77


def test_host_that_only_fails_is_left_alone(lab):
    lab.home.answers = [500]
    config = RateLimitConfig(consecutive_fail_threshold=2)
    limiter = langchain.RateLimiter(config=config, when_open="refuse", clock=lab.clock)
    asked = model(lab, limiter)
    for _ in range(2):
        with pytest.raises(requests.HTTPError):
            asked.invoke("How high?")
    with pytest.raises(CircuitOpenError):
        asked.invoke("How high?")
    assert len(lab.sent) == 2


def test_call_waits_for_the_probe_of_a_host_that_has_only_failed(lab):
    lab.home.answers = [500, 500, 200]
    limiter = langchain.RateLimiter(config=RateLimitConfig(consecutive_fail_threshold=2), clock=lab.clock)
    asked = model(lab, limiter)
    for _ in range(2):
        with pytest.raises(requests.HTTPError):
            asked.invoke("How high?")
    asked.invoke("How high?")
    assert len(lab.sent) == 3
    assert lab.clock.now() >= 15.0


def test_too_long_a_wait_is_refused_at_once(lab):
    limiter = langchain.RateLimiter(limits={"requests": "1/min"}, max_wait=10, clock=lab.clock)
    asked = model(lab, limiter)
    asked.invoke("How high?")
    with pytest.raises(WaitTooLongError):
        asked.invoke("How high?")
    assert (limiter._waiting, limiter._open) == ({}, {})


def test_not_blocking_says_whether_it_is_ones_turn(lab):
    limiter = langchain.RateLimiter(limits={"requests": "1/min"}, clock=lab.clock)
    assert limiter.acquire(blocking=False)
    assert not limiter.acquire(blocking=False)
    assert not asyncio.run(limiter.aacquire(blocking=False))
    assert lab.clock.now() == 0


def test_async_and_streams_and_many_at_once_give_everything_back(lab):
    limiter = langchain.RateLimiter(limits={"requests": "1000/s"}, clock=lab.clock)
    asked = model(lab, limiter)

    async def main():
        await asyncio.gather(*(asked.ainvoke("How high?") for _ in range(5)))
        return [chunk.content async for chunk in asked.astream("How high?")]

    assert asyncio.run(main())[:2] == ["hi", "there"]
    assert [chunk.content for chunk in asked.stream("How high?")][:2] == ["hi", "there"]
    asked.batch(["How high?"] * 5)
    assert (of(limiter).in_flight, limiter._waiting, limiter._open) == (0, {}, {})


def test_answers_from_a_cache_take_nothing(lab):
    limiter = langchain.RateLimiter(limits={"requests": "1/min"}, clock=lab.clock)
    asked = model(lab, limiter, cache=langchain_model.InMemoryCache())
    for _ in range(3):
        asked.invoke("How high?")
    assert lab.clock.now() == 0
    assert limiter._waiting == {}


def test_cancelled_call_gives_the_permit_back(lab):
    never = threading.Event()
    lab.home.answers = [lambda seen: never.wait(60) and None]
    limiter = langchain.RateLimiter(clock=lab.clock)

    class Slow(langchain_model.Model):
        async def _agenerate(self, *_: Any, **__: Any) -> Any:
            await asyncio.sleep(60)
            raise AssertionError

    async def main():
        asked = Slow(url=lab.home.origin, rate_limiter=limiter, callbacks=[limiter])
        asking = asyncio.ensure_future(asked.ainvoke("How high?"))
        while not limiter._open:
            await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(main())
    assert (of(limiter).in_flight, limiter._open) == (0, {})


@pytest.mark.parametrize(
    "settings",
    [
        {"limiter": AdaptiveRateLimiter(), "limits": {"requests": "1/s"}},
        {"config": RateLimitConfig(), "limits": {"requests": "1/s"}},
        {"limits": {"requests": "many"}},
    ],
)
def test_settings_are_checked_when_made(settings):
    with pytest.raises(ConfigError):
        langchain.RateLimiter(**settings)
