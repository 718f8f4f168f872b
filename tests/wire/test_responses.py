"""Facts out of the responses of httpx, aiohttp and requests, without a byte of I/O."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import types
import urllib.error
from collections.abc import Iterator
from email.message import Message

import aiohttp
import httpx2
import multidict
import pytest
import requests
from aiohttp import web
from yarl import URL

from headgate.core.decision import Outcome
from headgate.core.signal import SILENT
from headgate.exchange import Answer
from headgate.wire import error_message, facts_of, outcome_of_exception, outcome_of_status, read, response_of

REQUEST = httpx2.Request("GET", "https://api.example.com/")


def unread() -> Iterator[bytes]:
    raise AssertionError("the body was downloaded")
    yield b""


def test_httpx_with_its_body() -> None:
    status, headers, body = facts_of(httpx2.Response(429, headers={"Retry-After": "7"}, content=b"{}"))
    assert (status, headers["retry-after"], body) == (429, "7", b"{}")


def test_httpx_stream_is_left_alone() -> None:
    assert facts_of(httpx2.Response(200, content=unread()))[2] is None


def test_requests_with_and_without_its_body() -> None:
    response = requests.Response()
    response.status_code = 503
    response.headers["Retry-After"] = "3"
    response.raw = types.SimpleNamespace(read=unread, stream=unread)
    assert facts_of(response) == (503, response.headers, None)
    response._content = b"busy"
    assert facts_of(response)[2] == b"busy"


async def _aiohttp_facts() -> tuple[tuple[object, ...], tuple[object, ...]]:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"ok": False, "error": "ratelimited"}, headers={"Retry-After": "4"})

    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/") as response:
            before = facts_of(response)
            await response.read()
            return before, facts_of(response)
    finally:
        await runner.cleanup()


def test_aiohttp_before_and_after_its_body_is_read() -> None:
    import asyncio

    before, after = asyncio.run(_aiohttp_facts())
    assert (before[0], before[2]) == (200, None)
    assert b"ratelimited" in after[2]  # type: ignore[operator]
    signal = read(*after, wall=0)  # type: ignore[arg-type]
    assert (signal.outcome, signal.retry_after) == (Outcome.RATE_LIMITED, 4)


def test_what_is_no_response_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="dict has neither"):
        facts_of({"status": 200})


def test_response_of() -> None:
    response = httpx2.Response(429, request=REQUEST)
    assert response_of(httpx2.HTTPStatusError("x", request=REQUEST, response=response)) is response
    info = aiohttp.RequestInfo(
        URL("http://x"), "GET", multidict.CIMultiDictProxy(multidict.CIMultiDict()), URL("http://x")
    )
    headers = multidict.CIMultiDict({"Retry-After": "2"})
    error = aiohttp.ClientResponseError(info, (), status=429, headers=headers)
    assert response_of(error) is error
    assert facts_of(error) == (429, headers, None)
    assert response_of(ValueError()) is None
    assert response_of(requests.ConnectionError()) is None


# --------------------------------------------------- How a call ended: by status, by exception, by what hides in a body


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ((100, 101, 200, 201, 204, 206, 301, 304, 399), Outcome.OK),
        ((429,), Outcome.RATE_LIMITED),
        ((432, 433), Outcome.QUOTA_EXHAUSTED),
        ((503, 529), Outcome.OVERLOADED),
        ((0, 408, 425, 500, 501, 502, 504, 520, 524, 599), Outcome.TRANSIENT),
        ((401, 403), Outcome.AUTH),
        ((402,), Outcome.KEY_DEAD),
        ((413,), Outcome.TOO_LARGE),
        ((400, 404, 405, 409, 410, 418, 422, 423, 451, 499), Outcome.INVALID),
        ((-1, 1, 99, 600, 999, 4290, 10**30), Outcome.INVALID),
    ],
)
def test_statuses(statuses: tuple[int, ...], outcome: Outcome) -> None:
    for status in statuses:
        assert outcome_of_status(status) is outcome, status


@pytest.mark.parametrize("status", [None, "429", 429.0, True, b"200", object()])
def test_what_is_no_status_teaches_nothing(status: object) -> None:
    assert outcome_of_status(status) is Outcome.INVALID
    assert read(status, wall=0.0).outcome is Outcome.INVALID  # type: ignore[arg-type]


def test_words_in_messages_mean_nothing() -> None:
    for message in ("4290 tokens were rate limited: 429 Too Many Requests", "quota insufficient_quota overloaded"):
        assert read(400, {}, {"error": {"message": message, "code": "bad_input"}}, wall=0).outcome is Outcome.INVALID
        assert read(500, {}, {"message": message, "code": 4290}, wall=0).outcome is Outcome.TRANSIENT
        assert read(200, {}, {"error": {"message": message}}, wall=0).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("status", "headers", "body", "outcome"),
    [
        (402, {}, {}, Outcome.KEY_DEAD),
        (402, {"retry-after": "60"}, {}, Outcome.QUOTA_EXHAUSTED),
        (402, {}, {"error": {"code": "quota_exceeded"}}, Outcome.QUOTA_EXHAUSTED),
        (402, {"retry-after": "60"}, {"error": {"code": "insufficient_quota"}}, Outcome.SPEND),
        (403, {}, {}, Outcome.AUTH),
        (403, {"retry-after": "60"}, None, Outcome.RATE_LIMITED),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"}, None, Outcome.RATE_LIMITED),
        (403, {"x-ratelimit-remaining": "5"}, None, Outcome.AUTH),
        (403, {"retry-after": "60"}, {"error": {"code": "permission_error"}}, Outcome.AUTH),
        (401, {"retry-after": "60"}, {"error": {"code": "rate_limit_exceeded"}}, Outcome.AUTH),
        (409, {}, {}, Outcome.INVALID),
        (409, {"retry-after": "1"}, {}, Outcome.TRANSIENT),
        (409, {"stripe-should-retry": "true"}, {}, Outcome.TRANSIENT),
        (409, {"stripe-should-retry": "false"}, {}, Outcome.INVALID),
        (413, {}, {"error": {"code": "rate_limit_exceeded"}}, Outcome.TOO_LARGE),
        (400, {}, {"error": {"code": "context_length_exceeded"}}, Outcome.TOO_LARGE),
        (429, {}, {"error": {"code": "api_error"}}, Outcome.RATE_LIMITED),
        (500, {}, {"error": {"type": "overloaded_error"}}, Outcome.OVERLOADED),
        (500, {}, {"error": {"code": "rate_limit_exceeded"}}, Outcome.TRANSIENT),
        (404, {"retry-after": "9"}, {"error": {"code": "insufficient_quota"}}, Outcome.INVALID),
    ],
)
def test_a_body_or_header_corrects_a_status_only_where_it_may(
    status: int, headers: dict[str, str], body: dict[str, object] | None, outcome: Outcome
) -> None:
    assert read(status, headers, body, wall=0).outcome is outcome


def test_floors_are_for_what_may_be_sent_again() -> None:
    for status in (200, 202, 301, 400, 401, 404, 413):
        assert read(status, {"retry-after": "9"}, wall=0).retry_after is None, status
    for status in (0, 402, 403, 408, 429, 432, 500, 502, 503, 529):
        assert read(status, {"retry-after": "9"}, wall=0).retry_after == 9, status


@pytest.mark.parametrize(
    "body",
    [
        {"error": None},
        {"error": {}},
        {"error": {"count": 3}},
        {"error": "none at all"},
        {"errors": []},
        {"errors": [{"line": 4}]},
        {"choices": [{"message": {"content": '{"error": {"code": 429}}'}}]},
        {"type": "rate_limited", "code": "429", "message": "a row of a caller's data"},
        {"results": [{"error": {"code": 429}}]},
        [],
        [{"error": None}] * 20,
        'data: {"text": "fine"}\n\ndata: {"error": {"code": "unheard_of"}}\n\n',
        "plain text about an error: 429",
        '{"error": {"code": 429',
    ],
)
def test_a_good_answer_stays_good_unless_it_names_a_known_error(body: object) -> None:
    assert read(200, {}, body, wall=0) is SILENT[Outcome.OK]  # type: ignore[arg-type]
    assert read(200, {}, body if isinstance(body, str) else json.dumps(body), wall=0) is SILENT[Outcome.OK]


def test_an_error_in_a_stream_without_names_for_its_events() -> None:
    body = 'data: {"text": "fi"}\n\ndata: {"id": 1, "error": {"code": 429, "message": "slow"}, "choices": []}\n\n'
    assert read(200, {}, body, wall=0).outcome is Outcome.RATE_LIMITED


@pytest.mark.parametrize(
    "exc",
    [
        TimeoutError(),
        ConnectionResetError(),
        BrokenPipeError(),
        OSError("network is unreachable"),
        socket.gaierror(),
        ssl.SSLError(),
        ssl.SSLCertVerificationError(),
        http.client.IncompleteRead(b""),
        http.client.RemoteDisconnected(),
        urllib.error.URLError("refused"),
        aiohttp.ClientError(),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ServerTimeoutError(),
        aiohttp.ClientPayloadError(),
        httpx2.ConnectTimeout("slow"),
        httpx2.ReadError("gone"),
        httpx2.RemoteProtocolError("odd"),
        httpx2.PoolTimeout("full"),
        requests.ConnectionError(),
        requests.ReadTimeout(),
        requests.exceptions.ChunkedEncodingError(),
    ],
    ids=lambda exc: type(exc).__module__ + "." + type(exc).__name__,
)
def test_no_answer_is_transient(exc: BaseException) -> None:
    assert outcome_of_exception(exc) is Outcome.TRANSIENT


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("429 rate limit"),
        KeyError("x"),
        ZeroDivisionError(),
        RuntimeError("timeout"),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
        FileNotFoundError(),
        json.JSONDecodeError("x", "", 0),
        requests.exceptions.InvalidURL(),
        requests.exceptions.MissingSchema(),
        requests.exceptions.JSONDecodeError("x", "", 0),
        requests.TooManyRedirects(),
        httpx2.UnsupportedProtocol("gopher"),
        httpx2.LocalProtocolError("bad header"),
        httpx2.InvalidURL("x"),
        httpx2.TooManyRedirects("x"),
        aiohttp.InvalidURL(URL("x")),
    ],
    ids=lambda exc: type(exc).__module__ + "." + type(exc).__name__,
)
def test_what_says_nothing_about_the_server_is_invalid(exc: BaseException) -> None:
    assert outcome_of_exception(exc) is Outcome.INVALID


def test_an_exception_with_an_answer_counts_as_that_answer() -> None:
    httpx_error = httpx2.HTTPStatusError("x", request=REQUEST, response=httpx2.Response(429, request=REQUEST))
    answer = requests.Response()
    answer.status_code = 503
    info = aiohttp.RequestInfo(
        URL("http://x"), "GET", multidict.CIMultiDictProxy(multidict.CIMultiDict()), URL("http://x")
    )
    assert outcome_of_exception(httpx_error) is Outcome.RATE_LIMITED
    assert outcome_of_exception(requests.HTTPError(response=answer)) is Outcome.OVERLOADED
    assert outcome_of_exception(aiohttp.ClientResponseError(info, (), status=401)) is Outcome.AUTH
    assert outcome_of_exception(urllib.error.HTTPError("http://x", 413, "x", Message(), None)) is Outcome.TOO_LARGE


def test_the_cause_speaks_for_an_exception_that_says_nothing() -> None:
    exc = RuntimeError("my client failed")
    exc.__cause__ = TimeoutError()
    assert outcome_of_exception(exc) is Outcome.TRANSIENT


def test_a_circle_of_causes_ends() -> None:
    one, two = RuntimeError(), RuntimeError()
    one.__cause__, two.__cause__ = two, one
    assert outcome_of_exception(one) is Outcome.INVALID


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (400, {"error": {"message": "It is not valid.", "type": "invalid_request_error"}}, "400 It is not valid."),
        (
            404,
            {"type": "error", "error": {"type": "not_found_error", "message": "No such model."}},
            "404 No such model.",
        ),
        (400, {"errors": [{"message": "first"}, {"message": "second"}]}, "400 first"),
        (422, {"detail": "a field is missing"}, "422 a field is missing"),
        (400, {"error": "no\x1b[31m such\nthing"}, "400 no [31m such thing"),
        (400, {"error": {"message": 7}, "message": "outside"}, "400 outside"),
        (400, {"error": {}}, "400 validation"),
        (502, "<html>Bad Gateway</html>", "502 validation"),
        (200, {"error": {"message": "hidden in what seems well"}}, "hidden in what seems well"),
    ],
)
def test_the_sentence_stands_behind_the_status(status, body, says):
    content = body if isinstance(body, str) else json.dumps(body)
    assert error_message(Answer(status, {}, content.encode()), "validation") == says


def test_what_is_no_answer_says_nothing():
    assert error_message(None, "validation") == "validation"
