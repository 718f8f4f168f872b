"""The clients' connections: what ends them, and what a request on them leaves to the next."""

import asyncio
import socket

import pytest

from headgate.proxy import Bounds


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


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
            return len(proxy.requests), tools.in_flight(proxy), proxy.counts.left

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
            return tools.status_of(said), proxy.counts.failed, tools.in_flight(proxy)

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


@pytest.mark.parametrize("kept", [1000, 100_000], ids=["sent on", "kept"])
def test_a_malformed_chunk_of_a_request_is_told_at_once(tools, kept):
    async def work():
        bounds = Bounds(kept=kept, stalled=600.0)
        async with tools.upstream() as api, tools.proxied(api.url, timeout=600.0, bounds=bounds) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            head = b"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(head + b"1388\r\n" + b"x" * 5000 + b"\r\n")
            while not (api.asked if kept == 1000 else proxy.requests):
                await asyncio.sleep(0.01)
            writer.write(b"zz\r\n")
            said = await reader.read()
            writer.close()
            await asyncio.sleep(0)
            return tools.status_of(said), tools.in_flight(proxy), proxy.counts.failed, proxy.counts.turned_away

    assert run(work()) == (400, 0, 0, 1)


def test_requests_that_wait_behind_another_take_little_memory(tools):
    async def work():
        async def silent(asked, reader, writer):
            await reader.read()
            return "end"

        async with tools.upstream(silent) as api, tools.proxied(api.url) as proxy:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            for _ in range(40):
                writer.write(tools.request("POST", "/x", body=b"x" * 30_000, close=False))
            while not api.asked:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            (one,) = proxy._listener.open
            waiting = sum(body._size for _, body in one._messages)
            writer.transport.abort()
            while proxy._listener.open or proxy.requests:
                await asyncio.sleep(0.01)
            return waiting, tools.in_flight(proxy)

    waiting, left = run(work())
    assert waiting < 100_000
    assert left == 0


def test_requests_behind_one_another_are_answered_in_turn(tools):
    async def work():
        async with tools.upstream() as api, tools.proxied(api.url) as proxy:
            one = tools.request("POST", "/x", body=b"x" * 3000, close=False)
            said = await tools.raw(proxy, one * 39 + tools.request("POST", "/x", body=b"x"))
            return said.count(b"HTTP/1.1 200"), [len(one.body) for one in api.asked] == [3000] * 39 + [1]

    assert run(work()) == (40, True)
