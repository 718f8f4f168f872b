"""Errors inside of a stream, as the vendors' own clients raise them, over loopback; and as the text itself has them."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from tests.sdks import anthropic, openai

from headgate import Outcome
from headgate.mock.api import MockPlan
from headgate.mock.providers.provider_api import Fault
from headgate.mock.server import MockServer
from headgate.resilience import classify_error
from headgate.resilience.circuit_breaker import failure_of
from headgate.units import Rate
from headgate.wire import read, signal_of

WALL = 1_800_000_000.0
PLENTY = MockPlan(rate=Rate(1000.0, 60.0), tokens=Rate(100_000.0, 60.0), latency=0.0)
ASKED = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "What is a headgate?"}]}
OUTCOMES = [
    ("overloaded", Outcome.OVERLOADED),
    ("server_error", Outcome.TRANSIENT),
    ("rate_limited", Outcome.RATE_LIMITED),
]


def cut_off(provider: str, trouble: str, ask: Any) -> Exception:
    """What the client raises when its stream ends in this trouble."""

    async def main() -> Exception:
        async with MockServer(PLENTY, providers=(provider,), seed=1) as server:
            server.services[provider].faults.add(Fault(trouble=trouble, drop="midway"))
            client = openai.AsyncOpenAI if provider == "openai" else anthropic.AsyncAnthropic
            async with client(api_key="key-a", base_url=server.base_url(provider), max_retries=0) as caller:
                try:
                    async for _ in await ask(caller):
                        pass
                except Exception as error:
                    return error
        raise AssertionError("it went well")

    return asyncio.run(main())


@pytest.mark.parametrize(("trouble", "outcome"), OUTCOMES)
def test_anthropics_client_has_the_error_in_its_body_beside_a_good_answer(trouble: str, outcome: Outcome) -> None:
    asked = {**ASKED, "model": "claude-haiku-4-5", "max_tokens": 64, "stream": True}
    error = cut_off("anthropic", trouble, lambda client: client.messages.create(**asked))
    assert getattr(error, "status_code", None) == 200
    assert signal_of(error, None, None, None, None, WALL).outcome is outcome
    assert failure_of(error) is outcome
    assert classify_error(None, error).trips_breaker is outcome.counts_against_target


@pytest.mark.parametrize(
    ("trouble", "outcome"), [("server_error", Outcome.TRANSIENT), ("rate_limited", Outcome.RATE_LIMITED)]
)
def test_openais_client_has_the_inner_error_and_no_answer(trouble: str, outcome: Outcome) -> None:
    error = cut_off("openai", trouble, lambda client: client.chat.completions.create(**ASKED, stream=True))
    assert not hasattr(error, "response")
    assert signal_of(error, None, None, None, None, WALL).outcome is outcome
    assert failure_of(error) is outcome
    said = classify_error(None, error)
    assert (said.retryable, said.error_type) == (True, "rate_limit" if trouble == "rate_limited" else "server_error")


def test_a_wrapped_one_is_found_too() -> None:
    cause = openai.APIError("x", request=None, body={"type": "server_error", "code": None})  # type: ignore[arg-type]
    error = RuntimeError("my own")
    error.__cause__ = cause
    assert signal_of(error, None, None, None, None, WALL).outcome is Outcome.TRANSIENT


@pytest.mark.parametrize(
    "body", [{"detail": "no such row"}, {"error": "not one of ours"}, {"code": 7}, {}, "text", None]
)
def test_a_body_that_names_no_known_error_says_nothing(body: object) -> None:
    error = ValueError("x")
    error.body = body  # type: ignore[attr-defined]
    assert signal_of(error, None, None, None, None, WALL).outcome is Outcome.INVALID


@pytest.mark.parametrize(
    ("trouble", "outcome"), [("server_error", Outcome.TRANSIENT), ("rate_limited", Outcome.RATE_LIMITED)]
)
def test_the_text_of_a_failed_response_reads_as_what_it_is(trouble: str, outcome: Outcome) -> None:
    async def main() -> str:
        async with MockServer(PLENTY, providers=("openai",), seed=1) as server:
            server.services["openai"].faults.add(Fault(trouble=trouble, drop="midway"))
            asked = {"model": "gpt-4o-mini", "input": "What is a headgate?", "stream": True}
            headers = {"Authorization": "Bearer key-a"}
            async with (
                aiohttp.ClientSession() as session,
                session.post(f"{server.base_url('openai')}/responses", json=asked, headers=headers) as answer,
            ):
                return await answer.text()

    text = asyncio.run(main())
    assert "event: response.failed" in text
    for body in (text, text.encode(), text[text.index("event: response.failed") :]):
        assert read(200, None, body, wall=WALL).outcome is outcome


class TestEventsThatEndAStream:
    FAILED = '{"type":"response.failed","response":{"status":"failed","error":{"code":"%s","message":"m"},"tail":"%s"}}'

    @pytest.mark.parametrize(
        ("code", "outcome"),
        [("server_error", Outcome.TRANSIENT), ("rate_limit_exceeded", Outcome.RATE_LIMITED), ("odd", Outcome.INVALID)],
    )
    @pytest.mark.parametrize("tail", ["", "x" * 20_000], ids=["short", "long"])
    def test_the_code_decides_however_long_the_event_is(self, code: str, outcome: Outcome, tail: str) -> None:
        before = 'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n' * 400
        text = f"{before}event: response.failed\ndata: {self.FAILED % (code, tail)}\n\n"
        assert read(200, None, text, wall=WALL).outcome is outcome
        assert read(200, None, text.encode(), wall=WALL).outcome is outcome

    def test_a_plain_error_event_counts(self) -> None:
        event = {"type": "error", "code": "server_error", "message": "m", "param": None, "sequence_number": 3}
        assert read(200, None, event, wall=WALL).outcome is Outcome.TRANSIENT
        text = 'event: error\ndata: {"type":"error","code":"server_error","message":"m","sequence_number":3}\n\n'
        assert read(200, None, text, wall=WALL).outcome is Outcome.TRANSIENT

    @pytest.mark.parametrize(
        "body",
        [
            {"type": "response.completed", "response": {"error": None}},
            {"type": "error", "message": "a line of a caller's log"},
            '{"log": [{"type": "error", "code": "server_error"}]}',
        ],
    )
    def test_what_is_no_such_event_is_fine(self, body: object) -> None:
        assert read(200, None, body, wall=WALL).outcome is Outcome.OK  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("interval", "window"), [("1s", 1.0), ("60", 60.0), ("1m0s", 60.0), ("soon", None), ("0s", None)]
)
def test_crossrefs_interval_is_the_window_of_its_limit(interval: str, window: float | None) -> None:
    (limit,) = read(200, {"X-Rate-Limit-Limit": "50", "X-Rate-Limit-Interval": interval}, wall=WALL).limits
    assert (limit.limit, limit.window, limit.dimension) == (50.0, window, "requests")
