"""One row sent over a real socket."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from aiohttp import web

from headgate.batch.input import BrokenRowError, InputRow, Rows
from headgate.batch.item import Result
from headgate.batch.ledger import RowState
from headgate.batch.pricing import Prices
from headgate.batch.target import RowAnswer, Target, TargetConfig
from headgate.core.decision import Outcome
from headgate.errors import AuthenticationError, ConfigError
from headgate.exchange import NoAnswerError, NoAnswerInTimeError, UnfitAnswerError
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.resilience import classify_error
from headgate.wire import signal_of

SECRET = "sk-very-secret-0123456789"
CHAT = {
    "model": "m-2024",
    "choices": [],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500},
}


class Context:
    """What the runner hands over, with a memory."""

    permit = None

    def __init__(self, credential: str | None = SECRET, remaining: float | None = None) -> None:
        self.credential, self.remaining = credential, remaining
        self.outcome: Outcome | None = None
        self.reported: object = None
        self.cost: Any = None
        self.charged: Any = None

    def report(self, answer: object = None, *, cost: float | Mapping[str, float] | None = None) -> Outcome:
        self.reported, self.cost = answer, cost
        self.outcome = signal_of(answer, None, None, None, None, 0.0).outcome
        return self.outcome

    def charge(self, *, tokens: float = 0, cost: float = 0.0) -> None:
        self.charged = (tokens, cost)


def row(index: int = 0, **line: Any) -> InputRow:
    body = {"model": "m", "messages": []}
    lines = [
        {"custom_id": f"r{number}", "url": "/v1/chat/completions", "body": body, **line} for number in range(index + 1)
    ]
    content = "\n".join(json.dumps(one) for one in lines).encode()
    return list(Rows("-", stdin=io.BufferedReader(io.BytesIO(content))))[index]


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def ask(
    handler: Handler,
    sent: InputRow | None = None,
    ctx: Context | None = None,
    prices: Prices | None = None,
    **config: Any,
) -> tuple[Any, Context]:
    """Send one row to a server that answers like this; returns the line and the context."""
    context = ctx or Context()

    async def main() -> bytes:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            async with Target(TargetConfig(to=url, **config), prices=prices) as target:
                asked = sent or row()
                answer = await target.fetch(asked, context)
                return Target.line(Result(index=0, name=asked.key, item=asked, state=RowState.DONE, value=answer))
        finally:
            await runner.cleanup()

    line = asyncio.run(main())
    assert line.endswith(b"\n")
    assert SECRET.encode() not in line
    return json.loads(line), context


def answering(body: object = CHAT, status: int = 200, **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(
            body, status=status, headers={name.replace("_", "-"): headers[name] for name in headers}
        )

    return handler


def test_a_good_answer_becomes_a_line_of_a_batchs_output() -> None:
    line, ctx = ask(answering(x_request_id="req_7"))
    assert line["custom_id"] == "r0"
    assert line["id"].startswith("batch_req_")
    assert line["response"] == {"status_code": 200, "request_id": "req_7", "body": CHAT}
    assert line["error"] is None
    assert ctx.outcome is Outcome.OK


def test_the_request_is_what_the_row_says_with_the_key_where_it_belongs() -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, dict(request.headers), await request.json()))
        return web.json_response(CHAT)

    ask(handler, headers={"OpenAI-Organization": "org-1"})
    ((method, path, headers, body),) = seen
    assert (method, path, body) == ("POST", "/v1/chat/completions", {"model": "m", "messages": []})
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert headers["Content-Type"] == "application/json"
    assert headers["OpenAI-Organization"] == "org-1"
    assert "Cookie" not in headers


def test_without_a_credential_no_key_is_sent() -> None:
    seen: list[bool] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append("Authorization" in request.headers)
        return web.json_response(CHAT)

    ask(handler, ctx=Context(credential=None))
    assert seen == [False]


def test_anthropic_is_spoken_to_in_its_own_way() -> None:
    target = Target(TargetConfig(to="anthropic"))
    assert (target.endpoint.key_header, target.endpoint.key_prefix) == ("x-api-key", "")
    assert target.identity == {"target": "https://api.anthropic.com/v1/messages"}


def test_tokens_and_money_are_what_the_answer_says() -> None:
    _, ctx = ask(answering(), prices=Prices.of({"m": "2/10"}))
    assert ctx.cost == {"requests": 1, "tokens": 1500, "input_tokens": 1000, "output_tokens": 500}
    assert ctx.charged == (1500, pytest.approx(0.007))
    _, ctx = ask(answering(), prices=Prices.of({"m-2024": "1/1"}))
    assert ctx.charged == (1500, pytest.approx(0.0015))


def test_what_a_row_will_cost_is_guessed_before_it_is_sent() -> None:
    target = Target(TargetConfig(to="openai"), prices=Prices.of({"m": "1000000/0"}))
    sent = row(body={"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "x" * 395}]})
    counted = {"requests": 1, "tokens": 104, "input_tokens": 104, "output_tokens": 10}
    assert target.cost(sent) == {**counted, "money": pytest.approx(104)}
    assert Target(TargetConfig(to="openai")).cost(sent) == counted
    assert Target(TargetConfig(to="groq")).cost(sent) == {**counted, "tokens": 114}
    assert target.cost(row(body="broken")) == {"requests": 1}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (429, Outcome.RATE_LIMITED),
        (401, Outcome.AUTH),
        (400, Outcome.INVALID),
        (500, Outcome.TRANSIENT),
        (529, Outcome.OVERLOADED),
    ],
)
def test_an_error_is_reported_and_still_becomes_a_line(status: int, outcome: Outcome) -> None:
    error = {"error": {"message": "no", "type": "x", "code": None}}
    line, ctx = ask(answering(error, status))
    assert ctx.outcome is outcome
    assert line["response"]["status_code"] == status
    assert line["response"]["body"] == error
    assert line["error"] is None


def test_headers_reach_the_limiter() -> None:
    _, ctx = ask(answering({}, 429, Retry_After="7"))
    assert signal_of(ctx.reported, None, None, None, None, 0.0).retry_after == 7


def test_an_error_page_becomes_a_text() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="<html>bad\ngateway</html>", status=502, content_type="text/html")

    line, ctx = ask(handler)
    assert line["response"]["body"] == "<html>bad\ngateway</html>"
    assert ctx.outcome is Outcome.TRANSIENT


def test_a_secret_that_is_sent_back_is_in_no_line_and_no_report() -> None:
    line, ctx = ask(answering({"error": {"message": f"Incorrect API key provided: {SECRET}"}}, 401, X_Echo=SECRET))
    assert "***" in line["response"]["body"]["error"]["message"]
    assert SECRET not in str(dict(ctx.reported.headers))  # type: ignore[attr-defined]
    assert SECRET.encode() not in ctx.reported.content  # type: ignore[attr-defined]


def test_a_redirect_is_not_followed() -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        raise web.HTTPTemporaryRedirect("/elsewhere")

    with pytest.raises(UnfitAnswerError, match=r"sent a redirect \(307\)") as caught:
        ask(handler)
    assert asked == ["/v1/chat/completions"]
    assert classify_error(None, caught.value).retryable is False


def test_a_page_in_place_of_an_answer_is_not_a_result() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="<html>welcome</html>", content_type="text/html")

    with pytest.raises(UnfitAnswerError, match="not JSON; check the URL"):
        ask(handler)


def test_json_that_is_cut_off_may_be_asked_for_again() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text='{"choices": [', content_type="application/json")

    with pytest.raises(NoAnswerError, match="damaged or truncated") as caught:
        ask(handler)
    assert classify_error(None, caught.value).retryable is True


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(10_000):
            await response.write(b" " * 65_536)
            sent += 65_536
        return response

    with pytest.raises(UnfitAnswerError, match="sent more than 100,000 bytes"):
        ask(handler, largest_answer=100_000)
    assert sent < 100 << 20


def test_an_answer_in_many_pieces_is_put_together() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in (b'{"a":\r\n  ', b"1.50,\n", b'"b": "\xc3', b'\xa9"}\n'):
            await response.write(piece)
            await asyncio.sleep(0.01)  # so that they travel apart
        return response

    line, _ = ask(handler)
    assert line["response"]["body"] == {"a": 1.5, "b": "é"}


def test_time_is_bounded_by_the_target_and_by_what_is_left() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.json_response({})

    for ctx, config in ((Context(), {"timeout": 0.05}), (Context(remaining=0.05), {}), (Context(remaining=-1), {})):
        with pytest.raises(NoAnswerInTimeError, match=r"did not answer within|in time") as caught:
            ask(handler, ctx=ctx, **config)
        assert classify_error(None, caught.value).error_type == "timeout"


def test_a_server_that_has_vanished() -> None:
    async def main() -> None:
        async with Target(TargetConfig(to="http://127.0.0.1:1")) as target:
            await target.fetch(row(), Context())

    with pytest.raises(NoAnswerError, match=r"127.0.0.1:1: cannot be reached") as caught:
        asyncio.run(main())
    assert classify_error(None, caught.value).trips_breaker is True
    assert caught.value.__context__ is None


def test_a_server_that_hangs_up_is_asked_once() -> None:
    asked = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    with pytest.raises(NoAnswerError, match="closed the connection without an answer"):
        ask(handler, row(method="GET"))
    assert asked == 1


def test_a_row_that_leads_elsewhere_is_broken_and_not_sent() -> None:
    asked = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({})

    for url in ("http://evil.example/v1/x", "//evil.example/x", "/v1/../x"):
        with pytest.raises(BrokenRowError, match="line 1: url must"):
            ask(handler, row(url=url))
    assert asked == 0


def test_a_credential_that_fits_into_no_header_is_told_without_it() -> None:
    with pytest.raises(AuthenticationError, match="characters that are not allowed in a header") as caught:
        ask(answering(), ctx=Context(credential="sk-abc\r\nX-Evil: 1"))
    assert "sk-abc" not in str(caught.value)


def test_an_empty_answer_is_null() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=204)

    line, _ = ask(handler, row(method="DELETE", url="/v1/files/x"))
    assert line["response"] == {"status_code": 204, "request_id": "", "body": None}


def test_the_same_row_has_the_same_idempotency_key_in_every_attempt_and_no_other_row_has_it() -> None:
    one, other_run = (Target(TargetConfig(to="openai")) for _ in range(2))
    one.for_run("run-1")
    other_run.for_run("run-2")
    keys = [one.idempotency_key(row()), one.idempotency_key(row()), one.idempotency_key(row(1))]
    assert keys[0] == keys[1] != keys[2]
    assert other_run.idempotency_key(row()) != keys[0]


def test_a_server_can_tell_which_row_it_has_done_how_often() -> None:
    async def main() -> list[int]:
        async with MockServer(MockPlan(latency=0.0), seed=1) as server:
            async with Target(TargetConfig(to=server.url)) as target:
                for index in (0, 1, 2, 1):
                    await target.fetch(row(index), Context())
            return sorted(server.api.times_done.values())

    assert asyncio.run(main()) == [1, 1, 2]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"to": "openia"}, 'unknown target "openia"; did you mean "openai"'),
        ({"to": "openai", "timeout": 0}, "timeout=0"),
        ({"to": "openai", "connections": True}, "connections=True"),
        ({"to": "openai", "largest_answer": 0}, "largest_answer=0"),
        ({"to": "openai", "headers": {"Host": "x"}}, "'Host' cannot be set"),
        ({"to": "openai", "headers": {"X": "a\nb"}}, "'X' cannot be set"),
        ({"to": "openai", "headers": {"authorization": "x"}}, "carries the key"),
        ({"to": "openai", "path": "http://x"}, "path='http://x'"),
    ],
)
def test_settings_are_checked(config: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Target(TargetConfig(**config))


def test_every_row_has_a_line_whatever_became_of_it() -> None:
    sent = row(1)
    answer = RowAnswer(400, "req-1", b'{"error": 1.10}', None)
    answered = Result(index=1, name="r1", item=sent, state=RowState.DEAD, value=answer, reason="invalid: 400")
    line = json.loads(Target.line(answered), parse_float=str)
    assert (line["custom_id"], line["error"]) == ("r1", None)
    assert line["response"] == {"status_code": 400, "request_id": "req-1", "body": {"error": "1.10"}}
    never = Result(index=1, name="r1", item=sent, state=RowState.DEAD, reason="deadline: not done in time")
    line = json.loads(Target.line(never))
    assert (line["custom_id"], line["response"]) == ("r1", None)
    assert line["error"] == {"code": "deadline", "message": "not done in time"}
    assert line["id"] == json.loads(Target.line(never))["id"]


def test_the_ledger_gets_a_rows_place_name_and_digest() -> None:
    sent = row(1)
    known = Target.row(1, sent)
    assert (known.index, known.key, known.digest) == (1, "r1", sent.digest)


def test_a_target_that_is_not_open_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(Target(TargetConfig(to="openai")).fetch(row(), Context()))


def test_a_query_is_part_of_every_url_and_a_header_of_every_request() -> None:
    seen: list[Any] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers["api-key"]))
        return web.json_response({**CHAT, "echo": request.headers["api-key"]})

    hidden = "azure-secret-0123456789"
    line, _ = ask(
        handler, row(url="/v1/chat/completions?x=1"), query={"api-version": "2024-10-21"}, headers={"api-key": hidden}
    )
    assert seen == [("/v1/chat/completions?x=1&api-version=2024-10-21", hidden)]
    assert line["response"]["body"]["echo"] == "***"
    with pytest.raises(ConfigError, match="may be a credential"):
        TargetConfig(to="http://x", query={"key": "abc"})
    with pytest.raises(ConfigError, match="query: 'a b'"):
        TargetConfig(to="http://x", query={"a b": "1"})
