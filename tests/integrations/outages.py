"""A server on loopback that goes away and comes back, and every client behind the gate that asks it all the while."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

import aiohttp
import httpx
import httpx2
import requests
import urllib3
from bench.ports import free_port

import headgate
import headgate.integrations.httpx
import headgate.integrations.httpx2
import headgate.integrations.requests
import headgate.integrations.urllib3
from headgate import ProviderResilienceConfig, ProviderResilienceManager, guarded
from headgate.integrations.aiohttp import Middleware

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CLIENTS = ("aiohttp", "guarded", "httpx", "httpx2", "openai", "requests", "urllib3")


class Server:
    """``with Server() as server: ... server.away(); ... server.back()``: away, nothing listens and nothing is open."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.back()
        return self

    def __exit__(self, *_: object) -> None:
        self.away()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60.0)
        self.loop.close()

    def away(self) -> None:
        asyncio.run_coroutine_threadsafe(self._away(), self.loop).result(60.0)

    def back(self) -> None:
        asyncio.run_coroutine_threadsafe(self._back(), self.loop).result(60.0)

    async def _back(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, backlog=512)

    async def _away(self) -> None:
        assert self._server is not None
        for listening in self._server.sockets:
            self.loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)  # closed while a connection is half accepted, asyncio would leave that one open
        self._server.close()
        while connections := asyncio.all_tasks() - {asyncio.current_task()}:
            for writer in self._open:
                writer.transport.abort()
            await asyncio.wait(connections, timeout=0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                await asyncio.sleep(0.005)
                writer.write(OK)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._open.discard(writer)


def lost_in(
    server: Server,
    outage: float,
    calls: int,
    rate: float,
    *,
    after: float,
    clients: Sequence[str] = CLIENTS,
    **settings: Any,
) -> dict[str, list[str]]:
    """What each client lost in an outage of so many seconds, which begins ``after`` all have had an answer."""
    begun = threading.Semaphore(0)
    with ThreadPoolExecutor(len(clients)) as threads:
        how = (server.url, calls, rate, begun, settings)
        asked = {client: threads.submit(lost_by, client, *how) for client in clients}
        for _ in clients:
            assert begun.acquire(timeout=60.0)
        time.sleep(after)
        server.away()
        time.sleep(outage)
        server.back()
        return {client: one.result(500.0) for client, one in asked.items()}


def lost_by(
    client: str, url: str, calls: int, rate: float, begun: threading.Semaphore, settings: dict[str, Any]
) -> list[str]:
    """Make so many calls at that rate, each in a thread or a task of its own; returns what became of those lost."""
    if client == "aiohttp":
        return asyncio.run(_lost_by_aiohttp(url, calls, rate, begun, settings))
    lost: list[str] = []
    ask, close = _ASKS[client](url, settings)
    if ask() == 200:
        begun.release()

    def one() -> None:
        try:
            status = ask()
            if status != 200:
                lost.append(str(status))
        except Exception as error:
            lost.append(f"{type(error).__name__}: {error}")

    started_at = time.monotonic()
    with ThreadPoolExecutor(calls) as threads:
        for number in range(calls):
            time.sleep(max(0.0, started_at + number / rate - time.monotonic()))
            threads.submit(one)
    close()
    return lost


async def _lost_by_aiohttp(
    url: str, calls: int, rate: float, begun: threading.Semaphore, settings: dict[str, Any]
) -> list[str]:
    lost = []
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(middlewares=[Middleware(**settings)], timeout=timeout) as session:

        async def one() -> None:
            try:
                async with session.get(url) as response:
                    await response.read()
                    if response.status != 200:
                        lost.append(str(response.status))
            except Exception as error:
                lost.append(f"{type(error).__name__}: {error}")

        await one()
        begun.release()
        tasks = []
        for _ in range(calls):
            tasks.append(asyncio.create_task(one()))
            await asyncio.sleep(1 / rate)
        await asyncio.gather(*tasks)
    return lost


def _requests(url, settings):
    session = headgate.integrations.requests.gate(requests.Session(), **settings)
    session.trust_env = False
    return lambda: session.get(url).status_code, session.close


def _urllib3(url, settings):
    manager = headgate.integrations.urllib3.gate(urllib3.PoolManager(maxsize=20), **settings)
    return lambda: manager.request("GET", url).status, manager.clear


def _httpx(url, settings):
    client = headgate.integrations.httpx.gate(httpx.Client(trust_env=False), **settings)
    return lambda: client.get(url).status_code, client.close


def _httpx2(url, settings):
    client = headgate.integrations.httpx2.gate(httpx2.Client(trust_env=False), **settings)
    return lambda: client.get(url).status_code, client.close


def _openai(url, settings):
    client = headgate.openai_client(api_key="k", base_url=url, http_client=httpx2.Client(trust_env=False), **settings)
    raw = client.chat.completions.with_raw_response
    messages: list[Any] = [{"role": "user", "content": "How high is the water?"}]
    return lambda: raw.create(model="m", messages=messages).status_code, client.close


def _guarded(url, settings):
    """Around a bare client, with the same settings by their names there."""
    client, config = httpx2.Client(trust_env=False), settings.get("config")
    options: dict[str, Any] = {"manager": ProviderResilienceManager()}
    if config is not None:
        options["resilience_config"] = ProviderResilienceConfig(recovery_timeout=config.open_state_duration)

    @guarded("api", **options)
    def ask() -> int:
        return client.get(url).status_code

    return ask, client.close


_ASKS: dict[str, Any] = {
    "guarded": _guarded,
    "httpx": _httpx,
    "httpx2": _httpx2,
    "openai": _openai,
    "requests": _requests,
    "urllib3": _urllib3,
}
