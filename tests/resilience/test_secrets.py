"""A secret may come in by any door; it leaves by none that is ours."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from headgate.errors import ConfigError, Refused
from headgate.resilience import (
    ErrorClassification,
    ProviderResilienceConfig,
    RateLimiterConfig,
    classify_error,
    execute_with_resilience,
    stream_with_resilience,
)

CANARY = "cAnArY7f3a9"
HEADERS = {
    "authorization": f"Bearer {CANARY}",
    "retry-after": CANARY,
    "x-ratelimit-reset": CANARY,
    "set-cookie": CANARY,
}
BODY = json.dumps({"error": {"message": f"Incorrect API key provided: {CANARY}", "code": "rate_limit_exceeded"}})


class Pool:
    """One credential, which is the canary."""

    secret, label = CANARY, "key-1"

    async def acquire_async(self, timeout=None):
        return self

    acquire = acquire_async

    def report(self, answer=None, *, signal=None): ...
    def release(self): ...

    def __repr__(self) -> str:
        return "<Pool>"


def test_it_appears_in_no_event_no_log_no_text_and_no_error_of_ours(play, http_error, caplog) -> None:
    async def scenario(lab):
        said: list[object] = []
        failures = [
            http_error(429, HEADERS, BODY),
            http_error(500, HEADERS, BODY),
            http_error(401, HEADERS, BODY),
            http_error(503, {**HEADERS, "retry-after": "999"}, BODY),
            ConnectionError(f"https://user:{CANARY}@api.example.com/?key={CANARY}"),
            ValueError(CANARY),
        ]
        for failure in failures:
            for options in ({}, {"credentials": Pool()}, {"time_budget": 0.5}, {"max_wait_seconds": 0.0}):

                async def func(ctx, failure=failure):
                    said.extend((repr(ctx), str(ctx), repr(ctx.permit)))
                    await asyncio.sleep(0.1)
                    raise failure

                end = await lab.outcome(func, **options)
                if isinstance(end, Refused):
                    said.extend((repr(end), str(end), vars(end)))
                said.append(classify_error(None, failure))
        said.extend(lab.events)
        said.append(lab.manager.get_provider_status("api"))
        said.append(lab.manager.limiter.snapshot())
        said.append(vars(lab.manager))
        return said

    with caplog.at_level(logging.DEBUG):
        told = "\n".join(map(repr, play(scenario)))
    assert "budget_exceeded" in told
    assert "circuit_open" in told
    assert CANARY not in told
    assert CANARY not in caplog.text


def test_neither_does_one_inside_of_a_stream(play, caplog) -> None:
    async def scenario(lab):
        async def pieces():
            yield f'data: {{"id": "{CANARY}"}}\n\n'
            yield f"data: {BODY}\n\n"

        stream = stream_with_resilience(pieces, "api", manager=lab.manager, credentials=Pool())
        async with stream as opened:
            assert len([piece async for piece in opened]) == 2
        return [*lab.events, stream]

    with caplog.at_level(logging.DEBUG):
        told = "\n".join(map(repr, play(scenario)))
    assert "rate_limit" in told
    assert CANARY not in told + caplog.text


@pytest.mark.parametrize(
    "make",
    [
        lambda: ProviderResilienceConfig(time_budget=CANARY),
        lambda: ProviderResilienceConfig(max_attempts=CANARY),
        lambda: RateLimiterConfig(requests_per_second=CANARY),
        lambda: ErrorClassification(True, False, backoff_seconds=CANARY),
        lambda: asyncio.run(execute_with_resilience(lambda: None, "api", time_budget=CANARY)),
        lambda: asyncio.run(execute_with_resilience(lambda: None, "api", max_attempts=CANARY)),
        lambda: asyncio.run(execute_with_resilience(lambda: None, "api", max_wait_seconds=CANARY)),
    ],
)
def test_one_in_the_wrong_place_is_not_repeated(make) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert CANARY not in str(caught.value)
