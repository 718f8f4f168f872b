"""A real server on loopback and real clients: what it answers changes the very next admission."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import httpx2
import pytest
import requests
from bench.ports import free_port

from headgate import AdaptiveRateLimiter, Outcome, RateLimitConfig, WaitTooLongError


class Scripted(BaseHTTPRequestHandler):
    """Answers from a script: (status, headers), then 200 for ever. Notes when each call arrived."""

    script: list[tuple[int, dict[str, str]]]
    arrivals: list[float]

    def do_GET(self) -> None:
        self.arrivals.append(time.monotonic())
        status, headers = self.script.pop(0) if self.script else (200, {})
        body = b"{}"
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[type[Scripted]]:
    handler = type("Handler", (Scripted,), {"script": [], "arrivals": []})
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.url = f"http://127.0.0.1:{httpd.server_port}/"
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield handler
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_a_refusal_changes_the_very_next_admission(server: type[Scripted]) -> None:
    server.script[:] = [(429, {"Retry-After": "20"})]
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="aimd"))
    with limiter.permit(server.url) as permit:  # type: ignore[attr-defined]
        assert permit.report(requests.get(server.url, timeout=5)) is Outcome.RATE_LIMITED  # type: ignore[attr-defined]
    with pytest.raises(WaitTooLongError, match="rate limited by the server") as refusal:
        limiter.acquire(server.url, max_wait=5)  # type: ignore[attr-defined]
    assert refusal.value.retry_after is not None
    assert 15.0 <= refusal.value.retry_after <= 22.1
    assert limiter.snapshot().keys[0].rate == 1.0
    assert len(server.arrivals) == 1


@pytest.mark.parametrize("strategy", ["adaptive", "aimd", "fixed"])
def test_retry_after_is_never_undercut(server: type[Scripted], strategy: str) -> None:
    """Real time: half a second of it, as the server asks."""
    server.script[:] = [(200, {}), (429, {"Retry-After": "0.5"})]
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=strategy, initial_rps=50, token_bucket_capacity=10))

    async def main() -> list[float]:
        async with aiohttp.ClientSession() as session:
            starts = []
            for _ in range(4):
                async with limiter.permit(server.url) as permit:  # type: ignore[attr-defined]
                    starts.append(time.monotonic())
                    async with session.get(server.url) as response:  # type: ignore[attr-defined]
                        permit.report(response)
            return starts

    starts = asyncio.run(main())
    assert starts[2] - server.arrivals[1] >= 0.5
    assert starts[2] - server.arrivals[1] < 30.0


def test_headers_of_a_real_answer_are_read_by_every_client(server: type[Scripted]) -> None:
    headers = {"RateLimit-Policy": '"default";q=100;w=60', "RateLimit": '"default";r=0;t=33'}
    server.script[:] = [(429, headers)] * 3
    url = server.url  # type: ignore[attr-defined]

    async def through_aiohttp(limiter: AdaptiveRateLimiter) -> None:
        async with aiohttp.ClientSession() as session, limiter.permit(url) as permit, session.get(url) as response:
            permit.report(response)

    def through_httpx2(limiter: AdaptiveRateLimiter) -> None:
        with limiter.permit(url) as permit:
            permit.report(httpx2.get(url))

    def through_requests(limiter: AdaptiveRateLimiter) -> None:
        with limiter.permit(url) as permit:
            permit.report(requests.get(url, timeout=5))

    for ask in (lambda limiter: asyncio.run(through_aiohttp(limiter)), through_httpx2, through_requests):
        limiter = AdaptiveRateLimiter()
        ask(limiter)
        assert 28_000 <= limiter.snapshot().keys[0].not_before_ms <= 36_400


def test_a_server_that_is_gone_opens_the_circuit() -> None:
    dead = f"http://127.0.0.1:{free_port()}/"
    limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=1000, token_bucket_capacity=10))
    for _ in range(5):
        with pytest.raises(requests.ConnectionError), limiter.permit(dead):
            requests.get(dead, timeout=1)
    assert limiter.snapshot().keys[0].state == "open"
