"""Callers of the proxy that hang up, that only finish sending, and whose bodies take memory."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
from tests.proxy.conftest import body_of, proxied, request, status_of, upstream

from headgate import RateLimitConfig
from headgate.proxy import Bounds
from headgate.proxy.connection import UNREAD, DisconnectMonitor

MIB = 1 << 20
ONE_AN_HOUR = RateLimitConfig(limits={"requests": "1/h"}, token_bucket_capacity=1)


def run(work):
    return asyncio.run(asyncio.wait_for(work, 60))


async def until(so):
    while not so():
        await asyncio.sleep(0.01)


def waiting(proxy):
    return sum(one.waiters for one in proxy.gate.limiter.snapshot().keys)


@asynccontextmanager
async def in_line(*script, **settings):
    """A proxy whose only call of this hour has gone: whatever comes now waits."""
    async with (
        upstream(*script) as api,
        proxied(api.url, config=ONE_AN_HOUR, passing={"max_wait": None}, **settings) as proxy,
    ):
        await asked(proxy, request("GET", "/first"))
        yield api, proxy


async def asked(proxy, data, *, then=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(data)
    if then is not None:
        then(writer)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("size", [1, MIB + 1, 2 * MIB, 32 * MIB], ids=["kept", "passed on", "read by halves", "stuck"])
def test_a_caller_who_hangs_up_in_line_is_not_sent_whatever_its_body(size):
    async def work():
        async with in_line() as (api, proxy):
            loop = asyncio.get_running_loop()
            sockets = []
            for _ in range(3):
                own = socket.create_connection(("127.0.0.1", proxy.port))
                own.setblocking(False)
                head = f"POST /x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n"
                sending = asyncio.create_task(loop.sock_sendall(own, head.encode() + b"x" * size))
                sockets.append((own, sending))
            await until(lambda: waiting(proxy) == 3)
            await asyncio.wait([sending for _, sending in sockets], timeout=0.3)  # as much as the buffers take
            for own, sending in sockets:
                sending.cancel()
                await asyncio.sleep(0)
                own.close()
            await until(lambda: not proxy.requests)
            return waiting(proxy), proxy.counts.left, len(api.asked), proxy.memory.taken

    assert run(work()) == (0, 3, 1, 0)


def test_a_caller_who_is_found_gone_when_its_turn_comes_costs_no_permit(monkeypatch):
    monkeypatch.setattr(DisconnectMonitor, "_probe_again", lambda self, connection, after: None)

    async def work():
        slow = RateLimitConfig(strategy="fixed", initial_rps=2, token_bucket_capacity=1)
        async with upstream() as api, proxied(api.url, config=slow) as proxy:
            await asked(proxy, request("GET", "/first"))
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(request("POST", "/gone", body=b"x" * (2 * MIB)))
            await until(lambda: waiting(proxy))
            writer.transport.get_extra_info("socket").shutdown(socket.SHUT_RD)
            writer.transport.abort()
            await until(lambda: not proxy.requests)
            tokens = proxy.gate.limiter.snapshot().keys[0].tokens
            return [one.line.split()[1] for one in api.asked], proxy.counts.left, tokens > 0.9

    assert run(work()) == (["/first"], 1, True)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("size", [0, 1, 2 * MIB])
def test_a_caller_who_has_only_finished_sending_gets_its_answer(size, version):
    async def slow(asked, reader, writer):
        await reader.readexactly(int(asked.get("Content-Length") or 0))
        await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

    async def work():
        async with upstream(slow) as api, proxied(api.url) as proxy:
            data = request("POST", "/x", body=b"x" * size, close=False).replace(b"HTTP/1.1", f"HTTP/{version}".encode())
            return await asked(proxy, data, then=lambda writer: writer.write_eof())

    answer = run(work())
    assert answer.startswith(f"HTTP/{version} 200".encode())
    assert body_of(answer) == b"hello"


def test_it_is_answered_also_in_line_and_in_turn():
    async def work():
        config = RateLimitConfig(limits={"requests": "4/s"}, token_bucket_capacity=1)
        async with upstream() as api, proxied(api.url, config=config) as proxy:
            data = request("GET", "/a", close=False) + request("GET", "/b", close=False)
            answer = await asked(proxy, data, then=lambda writer: writer.write_eof())
            await until(lambda: not proxy.requests)
            return answer.count(b"HTTP/1.1 200 OK"), [one.line.split()[1] for one in api.asked], proxy.counts.left

    assert run(work()) == (2, ["/a", "/b"], 0)


def test_half_a_body_is_not_sent():
    async def work():
        async with upstream() as api, proxied(api.url) as proxy:
            half = request("POST", "/x", "Content-Length: 10", close=False) + b"half"
            answer = await asked(proxy, half, then=lambda writer: writer.write_eof())
            await until(lambda: not proxy.requests)
            return answer, len(api.asked)

    assert run(work()) == (b"", 0)


def test_a_refusal_reaches_a_caller_who_has_finished_sending():
    async def work():
        async with upstream() as api, proxied(api.url, config=ONE_AN_HOUR, passing={"max_wait": 1.0}) as proxy:
            await asked(proxy, request("GET", "/first"))
            data = request("POST", "/x", body=b"x" * (2 * MIB), close=False)
            return status_of(await asked(proxy, data, then=lambda writer: writer.write_eof()))

    assert run(work()) == 429


CALLERS = """
import socket, sys, threading
port, path, body = int(sys.argv[1]), sys.argv[2], sys.stdin.buffer.read()
head = f"POST {path} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n".encode()
def send(own):
    try:
        own.sendall(head + body)
        while own.recv(100):
            pass
    except OSError:
        pass
for _ in range(int(sys.argv[3])):
    threading.Thread(target=send, args=(socket.create_connection(("127.0.0.1", port)),)).start()
"""
PROXY = """
import asyncio, json, resource, sys
from tests.issues.test_proxy_callers import CALLERS, in_line, until
from headgate.proxy import Bounds

async def work(path, count, most):
    async with in_line(bounds=Bounds(kept_in_all=most)) as (api, proxy):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        callers = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CALLERS, str(proxy.port), path, str(count), stdin=asyncio.subprocess.PIPE)
        callers.stdin.write(sys.stdin.buffer.read())
        callers.stdin.close()
        await until(lambda: len(proxy.requests) >= count - 1 and proxy.memory.taken >= most - (1 << 20))
        await asyncio.sleep(0.3)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        callers.kill()
        await callers.wait()
        await until(lambda: not proxy.requests)
        return [(after - before) << 10, proxy.memory.taken]

print(json.dumps(asyncio.run(work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
"""


def test_bodies_in_line_take_no_more_memory_than_is_said():
    kept, count = 16 * MIB, 116
    said = subprocess.run(
        [sys.executable, "-c", PROXY, "/v1/embeddings", str(count), str(kept)],
        input=(b'{"model": "m", "input": [' + b"1234, " * 174_000 + b"1]}").ljust(MIB),
        stdout=subprocess.PIPE,
        timeout=90,
        check=True,
    )
    grown, held = json.loads(said.stdout)
    assert grown < kept + count * UNREAD + 24 * MIB  # one body is parsed at a time, which takes some of it
    assert held == 0


def test_what_is_said_is_256_mib():
    bounds = Bounds()
    assert bounds.kept_in_all + bounds.connections * UNREAD <= 256 * MIB
