"""A chat model of LangChain's behind the limiter: what it keeps, and what it learns where it may listen."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import requests
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from tests.quota_spent import quota_spent

from headgate import CircuitOpenError, RateLimitConfig, WaitTooLongError
from headgate.errors import ConfigError
from headgate.integrations.langchain import RateLimiter


@pytest.fixture
def client():
    return "requests"


class Model(BaseChatModel):
    """Asks a server over HTTP, with a client that nobody gates."""

    url: str
    usage: int | None = None

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        answer = requests.post(self.url, json={}, timeout=5)
        answer.raise_for_status()
        usage = None
        if self.usage is not None:
            usage = {"input_tokens": 1, "output_tokens": self.usage - 1, "total_tokens": self.usage}
        message = AIMessage("hi", usage_metadata=usage, response_metadata={"headers": dict(answer.headers)})
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, *_: Any, **__: Any) -> Any:
        for word in ("hi", "there"):
            yield ChatGenerationChunk(message=AIMessageChunk(word))


def model(lab, limiter, hears=True, **about):
    return Model(url=lab.home.origin, rate_limiter=limiter, callbacks=[limiter] if hears else [], **about)


def of(limiter):
    return limiter.limiter.key_status(limiter.key)


@pytest.mark.parametrize("hears", [True, False])
def test_known_limit_is_kept(lab, hears):
    limiter = RateLimiter(limits={"requests": "2/s"}, clock=lab.clock)
    asked = model(lab, limiter, hears)
    for _ in range(5):
        asked.invoke("How high?")
    at = [seen.at for seen in lab.sent]
    assert all(later - earlier >= 1.0 for earlier, later in zip(at, at[2:], strict=False))
    assert of(limiter).in_flight == 0


def test_it_learns_from_a_refusal_if_it_hears_of_it(lab):
    lab.home.answers = [lab.Reply(429, {"Retry-After": "7"}), 200]
    for hears, at_least in ((False, 0.0), (True, 7.0)):
        limiter = RateLimiter(clock=lab.clock)
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
    asked = model(lab, RateLimiter(clock=lab.clock))
    for _ in range(5):
        asked.invoke("How high?")
    assert lab.waits[-1] > 20


def test_tokens_are_settled_by_what_the_answers_took(lab):
    limiter = RateLimiter(limits={"tokens": "100000/min"}, clock=lab.clock)
    model(lab, limiter, usage=77).invoke("How high?")
    assert quota_spent(limiter.limiter, limiter.key) == 77


def test_host_that_only_fails_is_left_alone(lab):
    lab.home.answers = [500]
    config = RateLimitConfig(consecutive_fail_threshold=2)
    limiter = RateLimiter(config=config, when_open="refuse", clock=lab.clock)
    asked = model(lab, limiter)
    for _ in range(2):
        with pytest.raises(requests.HTTPError):
            asked.invoke("How high?")
    with pytest.raises(CircuitOpenError):
        asked.invoke("How high?")
    assert len(lab.sent) == 2


def test_call_waits_for_the_probe_of_a_host_that_has_only_failed(lab):
    lab.home.answers = [500, 500, 200]
    limiter = RateLimiter(config=RateLimitConfig(consecutive_fail_threshold=2), clock=lab.clock)
    asked = model(lab, limiter)
    for _ in range(2):
        with pytest.raises(requests.HTTPError):
            asked.invoke("How high?")
    asked.invoke("How high?")
    assert len(lab.sent) == 3
    assert lab.clock.now() >= 15.0


def test_too_long_a_wait_is_refused_at_once(lab):
    limiter = RateLimiter(limits={"requests": "1/min"}, max_wait=10, clock=lab.clock)
    asked = model(lab, limiter)
    asked.invoke("How high?")
    with pytest.raises(WaitTooLongError):
        asked.invoke("How high?")
    assert (limiter._waiting, limiter._open) == ({}, {})


def test_not_blocking_says_whether_it_is_ones_turn(lab):
    limiter = RateLimiter(limits={"requests": "1/min"}, clock=lab.clock)
    assert limiter.acquire(blocking=False)
    assert not limiter.acquire(blocking=False)
    assert not asyncio.run(limiter.aacquire(blocking=False))
    assert lab.clock.now() == 0


def test_async_and_streams_and_many_at_once_give_everything_back(lab):
    limiter = RateLimiter(limits={"requests": "1000/s"}, clock=lab.clock)
    asked = model(lab, limiter)

    async def main():
        await asyncio.gather(*(asked.ainvoke("How high?") for _ in range(5)))
        return [chunk.content async for chunk in asked.astream("How high?")]

    assert asyncio.run(main())[:2] == ["hi", "there"]
    assert [chunk.content for chunk in asked.stream("How high?")][:2] == ["hi", "there"]
    asked.batch(["How high?"] * 5)
    assert (of(limiter).in_flight, limiter._waiting, limiter._open) == (0, {}, {})


def test_answers_from_a_cache_take_nothing(lab):
    limiter = RateLimiter(limits={"requests": "1/min"}, clock=lab.clock)
    asked = model(lab, limiter, cache=InMemoryCache())
    for _ in range(3):
        asked.invoke("How high?")
    assert lab.clock.now() == 0
    assert limiter._waiting == {}


def test_cancelled_call_gives_the_permit_back(lab):
    never = threading.Event()
    lab.home.answers = [lambda seen: never.wait(60) and None]
    limiter = RateLimiter(clock=lab.clock)

    class Slow(Model):
        async def _agenerate(self, *_: Any, **__: Any) -> ChatResult:
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
        {"limiter": RateLimiter().limiter, "limits": {"requests": "1/s"}},
        {"config": RateLimitConfig(), "limits": {"requests": "1/s"}},
        {"limits": {"requests": "many"}},
    ],
)
def test_settings_are_checked_when_made(settings):
    with pytest.raises(ConfigError):
        RateLimiter(**settings)
