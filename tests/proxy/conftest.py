"""A proxy between a raw client and a raw server, over real sockets: what is on the wire is what is looked at."""

import asyncio
import re
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from headgate import CredentialCoordinator, RateLimitConfig
from headgate.integrations.client_gate import Passing
from headgate.proxy import Bounds, Proxy, lines_of, mounts_of

CANARY = "canary-secret-4711"
FAST = RateLimitConfig(
    strategy="fixed", initial_rps=10_000, token_bucket_capacity=1000, retry_base_delay=0.001, retry_max_delay=0.01
)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class Asked:
    """A request as the server got it."""

    line: str
    headers: list
    body: bytes = b""

    def all(self, name):
        return [value for given, value in self.headers if given.lower() == name.lower()]

    def get(self, name):
        found = self.all(name)
        return found[0] if found else None


@dataclass
class Upstream:
    """Answers with ``script``: bytes, or ``async def (asked, reader, writer)``; the last one again and again."""

    script: list = field(default_factory=lambda: [OK])
    asked: list = field(default_factory=list)
    lost: int = 0
    """Connections that the other side has closed or cut."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                line, *fields = head.decode("latin-1").strip().split("\r\n")
                asked = Asked(line, [tuple(one.split(": ", 1)) if ": " in one else (one[:-1], "") for one in fields])
                step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                self.asked.append(asked)
                if callable(step):
                    if await step(asked, reader, writer) == "end":
                        return
                    continue
                await read_body(asked, reader)
                writer.write(step)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.lost += 1
        finally:
            writer.close()


async def read_body(asked, reader):
    if (asked.get("Transfer-Encoding") or "").lower() == "chunked":
        whole = bytearray()
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            whole += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        asked.body = bytes(whole)
    else:
        asked.body = await reader.readexactly(int(asked.get("Content-Length") or 0))


@asynccontextmanager
async def upstream(*script):
    one = Upstream(list(script) or [OK])
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # so that what is not read is soon felt
    server = await asyncio.start_server(one.serve, sock=listening)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        server.close()


@asynccontextmanager
async def proxied(*targets, keys=None, header=None, config=FAST, timeout=5.0, bounds=None, passing=None, **settings):
    """``keys``: for the first target."""
    mounts = mounts_of(targets)
    first = mounts[0]
    form = header or f"{first.address.key_header}: {first.address.key_prefix}{{secret}}"
    given = {first.origin: (CredentialCoordinator(keys, at_once=None), form)} if keys else None
    gate = Passing(config=config, credentials=given, key=lines_of(mounts), **(passing or {}))
    keyed = [first.name] if keys else []
    settings = {"keyed": keyed, "timeout": timeout, "bounds": bounds or Bounds(), **settings}
    async with Proxy(mounts, gate, **settings) as proxy:
        yield proxy
    gate.close()


async def raw(proxy, data, *, read=True, host="127.0.0.1"):
    """Send these bytes; everything that comes back until the proxy closes."""
    reader, writer = await asyncio.open_connection(host, proxy.port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), 30) if read else b""
    except ConnectionError:
        return b""
    finally:
        writer.close()


def request(method, target, *fields, body=b"", host="127.0.0.1", close=True):
    lines = [f"{method} {target} HTTP/1.1", *([f"Host: {host}"] if host else []), *fields]
    lines += [f"Content-Length: {len(body)}"] if body else []
    lines += ["Connection: close"] if close else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def in_flight(proxy):
    return sum(one.in_flight for one in proxy.gate.limiter.snapshot().keys)


def status_of(answer):
    found = re.match(rb"HTTP/1.[01] (\d{3})", answer)
    return int(found[1]) if found else 0


def body_of(answer):
    return answer.partition(b"\r\n\r\n")[2]


@pytest.fixture
def tools():
    return SimpleNamespace(
        CANARY=CANARY,
        FAST=FAST,
        OK=OK,
        upstream=upstream,
        proxied=proxied,
        raw=raw,
        request=request,
        in_flight=in_flight,
        status_of=status_of,
        body_of=body_of,
        read_body=read_body,
    )
