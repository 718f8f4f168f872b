"""Facts out of the responses of httpx, aiohttp and requests, without a byte of I/O."""

from __future__ import annotations

import types
from collections.abc import Iterator

import aiohttp
import httpx2
import multidict
import pytest
import requests
from aiohttp import web
from yarl import URL

from headgate.core.decision import Outcome
from headgate.wire import facts_of, read, response_of

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
