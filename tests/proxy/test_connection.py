"""The clients' connections: what ends them, and what a request on them leaves to the next."""

import asyncio
import socket
from contextvars import ContextVar

import pytest

from headgate.proxy import Bounds
from headgate.proxy.proxied_request import ProxiedRequest


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


def in_flight(proxy):
    return sum(one.in_flight for one in proxy.passing.limiter.snapshot().keys)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_client_that_reads_nothing_holds_nothing(tools, is_whole):
    """Also when all of the response was written, and when the connection is being closed."""
    many = 3_000_000 if not is_whole else 60_000

    async def work():
        async def large(asked, reader, writer):
            head = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nDate: x\r\nContent-Length: %d\r\n\r\n" % many
            writer.write(head + b"x" * many)
            await writer.drain()

        async with tools.upstream(large) as api, tools.proxied(api.url, bounds=Bounds(stalled=0.2)) as proxy:
            own = socket.socket()
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            own.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(own, ("127.0.0.1", proxy.port))
            await loop.sock_sendall(own, tools.request("GET", "/x", close=False) * (100 if is_whole else 1))
            while not api.asked or proxy._listener.open:
                await asyncio.sleep(0.01)
            await proxy.drain()
            own.close()
            return len(proxy.requests), in_flight(proxy), proxy.counts.left

    assert run(work()) == (0, 0, 0)


@pytest.mark.parametrize("when", ["before the request", "after the response"])
def test_an_internal_error_is_logged_without_secrets_and_counted(tools, monkeypatch, caplog, when):
    def fault(*_, **__):
        raise KeyError(tools.CANARY)

    name = "request_headers" if when == "before the request" else "response_headers"
    monkeypatch.setattr(f"headgate.proxy.proxied_request.{name}", fault)

    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            said = await tools.raw(proxy, tools.request("GET", "/x"))
            return tools.status_of(said), proxy.counts.failed, in_flight(proxy)

    assert run(work()) == (500, 1, 0)
    logged = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "headgate.proxy"]
    assert len(logged) == 1
    assert logged[0][0] == "ERROR"
    assert "KeyError in fault" in logged[0][1]
    assert tools.CANARY not in caplog.text


def test_a_later_version_of_http_is_not_supported(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            said = await tools.raw(proxy, b"GET /x HTTP/2.0\r\nHost: localhost\r\n\r\n")
            return said[:12], len(api.asked), proxy.counts.turned_away

    assert run(work()) == (b"HTTP/1.1 505", 0, 1)


def test_context_variables_of_a_request_are_its_own(tools, monkeypatch):
    who, seen = ContextVar("who", default=""), []
    real = ProxiedRequest.respond

    async def respond(self):
        seen.append(who.get())
        who.set("the first")
        response = await real(self)
        assert who.get() == "the first"
        return response

    monkeypatch.setattr(ProxiedRequest, "respond", respond)

    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            one = tools.request("GET", "/x", close=False)
            return (await tools.raw(proxy, one + tools.request("GET", "/x"))).count(b"HTTP/1.1 200")

    assert run(work()) == 2
    assert seen == ["", ""]
