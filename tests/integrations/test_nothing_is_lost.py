"""Many calls of every kind at once, at a server that misbehaves, by users who leave at any moment: nothing is lost.

For each client: every permit and every credential comes back, the circuit is not stuck, and what may be done once only
was done once only. Real clients over loopback; the seed decides what is asked, the machine who is faster.
"""

from __future__ import annotations

import asyncio
import collections
import gc
import importlib
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import aiohttp
import httpx2
import pytest
import requests
import urllib3
from yarl import URL

from headgate import CredentialCoordinator, RateLimitConfig
from headgate.core.cooldown import FixedCooldown
from headgate.integrations.client_gate import Passing
from headgate.proxy import Proxy, mounts_of
from headgate.resilience import recovery

pytestmark = pytest.mark.no_cover

SEED = 4711
AT_ONCE = 20
WAIT = 0.25
"""Seconds that a client waits for an answer."""
CONFIG = RateLimitConfig(
    strategy="fixed",
    initial_rps=1e5,
    token_bucket_capacity=1e4,
    retry_base_delay=0.0005,
    retry_max_delay=0.001,
    consecutive_fail_threshold=1_000_000,
    min_samples_to_trip=1_000_000,
)
JSON = b"Content-Type: application/json\r\n"
ANSWERS: dict[str, tuple[bytes, bool]] = {
    "fine": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", True),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n3\r\nabc\r\n0\r\n\r\n", True),
    "nothing": (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    "unchanged": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", True),
    "hints": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", True),
    "redirect": (b"HTTP/1.1 302 Found\r\nLocation: /fine\r\nContent-Length: 0\r\n\r\n", True),
    "keep": (b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /fine\r\nContent-Length: 0\r\n\r\n", True),
    "missing": (b"HTTP/1.1 404 Not Found\r\n" + JSON + b"Content-Length: 2\r\n\r\n{}", True),
    "fault": (b"HTTP/1.1 500 Fault\r\nContent-Length: 5\r\n\r\nfault", True),
    "cut error": (b"HTTP/1.1 500 Fault\r\n" + JSON + b"Content-Length: 50\r\n\r\n{}", False),
    "cut": (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc", False),
    "cut chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", False),
    "hung up": (b"", False),
    "no http": (b"220 mail ready\r\n\r\n", False),
    "bad gzip": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", True),
    "to its end": (b"HTTP/1.0 200 OK\r\n\r\nabc", False),
}
KINDS = (*ANSWERS, *["turned away"] * 3, *["slow"] * 5, *["fine"] * 20)
WAYS = ("read", "read", "read", "leave", "part", "drop", "cancel")
REFUSED = b"HTTP/1.1 429 Too Many Requests\r\n" + JSON + b"Content-Length: 2\r\n\r\n{}"
METHODS = ("GET", "GET", "HEAD", "PUT", "POST", "POST")


class Server:
    """Does what the path says, and counts for each errand how often it was not turned away."""

    def __init__(self) -> None:
        self.done: collections.Counter[str] = collections.Counter()
        self.loop = asyncio.new_event_loop()
        self.url = ""
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(60)

    def _run(self, ready: threading.Event) -> None:
        async def main() -> None:
            self._over = asyncio.Event()
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            ready.set()
            await self._over.wait()
            server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.05)  # so that their connections are closed

        self.loop.run_until_complete(main())
        self.loop.close()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        pairs = (line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        fields = {name.lower(): value for name, value in pairs}
        if fields.get("transfer-encoding") == "chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await reader.readexactly(size + 2)
            await reader.readexactly(2)
        await reader.readexactly(int(fields.get("content-length", 0)))
        kind = path.strip("/").replace("%20", " ").partition("?")[0]
        if kind == "slow":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
            await asyncio.sleep(0.05)
            writer.write(b"0\r\n\r\n")
            return True
        if kind == "silent":
            await asyncio.sleep(2 * WAIT)
            return False
        if kind == "turned away" and not self.done[f"429 {fields.get('errand')}"]:
            self.done[f"429 {fields.get('errand')}"] += 1
            writer.write(REFUSED.partition(b"{}")[0] if method == "HEAD" else REFUSED)
            return True
        if method == "HEAD" and kind == "hints":
            kind = "fine"
        answer, goes_on = ANSWERS.get(kind, ANSWERS["fine"])
        if kind not in ("redirect", "keep") and f"-{method}-" in fields["errand"]:  # a redirect may make it a GET
            self.done[fields["errand"]] += 1
        writer.write(answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" and answer else answer)
        await writer.drain()
        return goes_on


@pytest.fixture(scope="module")
def server() -> Any:
    one = Server()
    yield one
    one.close()


class Errand:
    """What is asked, how, and when its user leaves."""

    def __init__(self, number: int, rng: random.Random, url: str) -> None:
        self.method, self.way = rng.choice(METHODS), rng.choice(WAYS)
        self.kind = "silent" if rng.random() < 0.003 else rng.choice(KINDS)
        self.url = f"{url}/{self.kind.replace(' ', '%20')}"
        self.name = f"{number}-{self.kind}-{self.method}-{self.way}"
        self.headers = {"errand": self.name}
        self.streams = self.method in ("PUT", "POST") and rng.random() < 0.3
        self.leaves_after = rng.random() ** 2 * 0.03

    def body(self) -> Any:
        return None if self.method in ("GET", "HEAD") else iter([b"a", b"b"]) if self.streams else b"ab"


async def with_the_proxy(passing: Passing, errands: list[Errand]) -> None:
    api = str(URL(errands[0].url).origin())
    async with Proxy(mounts_of([api]), passing, keyed=[mounts_of([api])[0].name], timeout=WAIT) as proxy:
        for errand in errands:
            errand.url = errand.url.replace(api, proxy.url)
        await _with_aiohttp([], errands)
        while proxy.requests:
            await asyncio.sleep(0.01)


async def with_aiohttp(passing: Passing, errands: list[Errand]) -> None:
    await _with_aiohttp([importlib.import_module("headgate.integrations.aiohttp").Middleware(passing=passing)], errands)


async def _with_aiohttp(middlewares: list[Any], errands: list[Errand]) -> None:
    timeout = aiohttp.ClientTimeout(total=WAIT)
    connector = aiohttp.TCPConnector(limit=50)
    async with aiohttp.ClientSession(middlewares=middlewares, timeout=timeout, connector=connector) as session:

        async def ask(errand: Errand) -> None:
            body = errand.body()
            data = body if body is None or isinstance(body, bytes) else _slowly(body)
            response = await session.request(errand.method, errand.url, data=data, headers=errand.headers)
            if errand.way == "drop":
                return
            if errand.way == "part":
                await response.content.read(1)
            if errand.way in ("leave", "part"):
                response.close()
            else:
                await response.read()

        await _all(ask, errands)
        gc.collect()
        await asyncio.sleep(0.01)


async def with_httpx2(passing: Passing, errands: list[Errand]) -> None:
    transport = importlib.import_module("headgate.integrations.httpx2").AsyncGatedTransport(passing=passing)
    async with httpx2.AsyncClient(transport=transport, timeout=WAIT, follow_redirects=True) as client:

        async def ask(errand: Errand) -> None:
            body = errand.body()
            data = body if body is None or isinstance(body, bytes) else _slowly(body)
            request = client.build_request(errand.method, errand.url, content=data, headers=errand.headers)
            response = await client.send(request, stream=True)
            try:
                if errand.way == "part":
                    await anext(response.aiter_raw(), None)
                elif errand.way in ("read", "cancel"):
                    await response.aread()
            finally:
                await response.aclose()

        await _all(ask, errands)


async def _slowly(pieces: Any) -> Any:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece


async def _all(ask: Callable[[Errand], Any], errands: list[Errand]) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(errand: Errand) -> None:
        async with room:
            within = errand.leaves_after if errand.way == "cancel" else None
            with suppress(Exception):
                async with asyncio.timeout(within):
                    await ask(errand)

    await asyncio.gather(*map(one, errands))


def in_threads(ask: Callable[[Errand], None], errands: list[Errand]) -> None:
    def one(errand: Errand) -> None:
        with suppress(Exception):
            ask(errand)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, errands))


async def with_httpx2_sync(passing: Passing, errands: list[Errand]) -> None:
    transport = importlib.import_module("headgate.integrations.httpx2").GatedTransport(passing=passing)
    with httpx2.Client(transport=transport, timeout=WAIT, follow_redirects=True) as client:

        def ask(errand: Errand) -> None:
            request = client.build_request(errand.method, errand.url, content=errand.body(), headers=errand.headers)
            response = client.send(request, stream=True)
            try:
                if errand.way == "part":
                    next(response.iter_raw(), None)
                elif errand.way == "read":
                    response.read()
            finally:
                response.close()

        in_threads(ask, errands)


async def with_requests(passing: Passing, errands: list[Errand]) -> None:
    with importlib.import_module("headgate.integrations.requests").gate(requests.Session(), passing=passing) as session:

        def ask(errand: Errand) -> None:
            asking = {"data": errand.body(), "headers": errand.headers, "timeout": WAIT}
            response = session.request(errand.method, errand.url, stream=errand.way != "read", **asking)
            if errand.way == "part":
                next(response.iter_content(1), None)
            if errand.way != "drop":
                response.close()

        in_threads(ask, errands)


async def with_urllib3(passing: Passing, errands: list[Errand]) -> None:
    manager = urllib3.PoolManager(maxsize=AT_ONCE)
    manager = importlib.import_module("headgate.integrations.urllib3").gate(manager, passing=passing)

    def ask(errand: Errand) -> None:
        retries = urllib3.Retry(5, status_forcelist=[500], allowed_methods=None) if errand.way == "leave" else None
        asking = {"body": errand.body(), "headers": errand.headers, "timeout": WAIT, "retries": retries}
        response = manager.request(errand.method, errand.url, preload_content=errand.way == "read", **asking)
        if errand.way == "part":
            response.read(1)
        if errand.way == "leave":
            response.release_conn()
        elif errand.way != "drop":
            response.close()

    in_threads(ask, errands)
    manager.clear()


@pytest.mark.parametrize("calls", [100, pytest.param(3_000, marks=pytest.mark.chaos)])
@pytest.mark.parametrize(
    "client", [with_aiohttp, with_httpx2, with_httpx2_sync, with_requests, with_urllib3, with_the_proxy]
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of what is dropped unread, on purpose
def test_everything_comes_back(
    server: Server, client: Callable[[Passing, list[Errand]], Any], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "FEW", 1_000_000)  # the pace after an outage does not matter here
    rng, name = random.Random(SEED), f"{client.__name__}-{calls}"
    keys = CredentialCoordinator(["one", "two"], at_once=2 * AT_ONCE, cooldown=FixedCooldown(0.001))
    passing = Passing(config=CONFIG, credentials={server.url: keys}, max_wait=2.0)
    errands = [Errand(f"{name}-{number}", rng, server.url) for number in range(calls)]
    asyncio.run(client(passing, errands))
    gc.collect()
    time.sleep(0.05)
    monkeypatch.setitem(globals(), "WAIT", 20.0)  # these are asked once, and a machine may stand still
    asyncio.run(client(passing, [_plain(f"{name}-last-{number}", rng, server.url) for number in range(5)]))

    left = {one.key: one.in_flight for one in passing.limiter.snapshot().keys}
    assert set(left.values()) == {0}, (SEED, left)
    assert [one.state for one in keys.states()] == ["free"] * 2
    assert server.done[f"{name}-last-4-fine-GET-read"] == 1, "the circuit is stuck"
    keeps = client is with_the_proxy  # what is small, so that it can send it again
    once = [errand.name for errand in errands if errand.method == "POST" or (errand.streams and not keeps)]
    assert {errand: server.done[errand] for errand in once if server.done[errand] > 1} == {}, SEED


def _plain(number: str, rng: random.Random, url: str) -> Errand:
    errand = Errand(number, rng, url)
    errand.method, errand.way, errand.kind, errand.streams = "GET", "read", "fine", False
    errand.url, errand.name = f"{url}/fine", f"{number}-fine-GET-read"
    errand.headers = {"errand": errand.name}
    return errand
