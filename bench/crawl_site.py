"""A web of many hosts on one loopback port, for crawls that are measured: `python -m bench.crawl_site`.

Each host has as many pages as are asked for; a page links to two further ones and to one that robots.txt forbids.
How a host behaves is the first word of its name:

| host       | behaves                                                                                     |
|------------|---------------------------------------------------------------------------------------------|
| ok-7       | answers after ``latency``                                                                   |
| quota-7    | lets ``quota`` calls a second in, and answers 429 beyond                                    |
| told-7     | the same, with Retry-After: 2                                                               |
| delay-7    | asks for a crawl-delay of ``delay`` seconds in its robots.txt                               |
| slow-7     | takes ``slow`` seconds for each page                                                        |
| fail-7     | answers 500 to every page                                                                   |
| throttle-7 | answers 429 with Retry-After: 2 to all but one call in a second                             |
| lie-7      | promises more bytes than it sends and hangs up; or Retry-After: soon; or garbage for a page |

It says its port in one line of JSON and serves until its standard input ends. ``/_log`` gives every call it has had,
``/_count`` how many those are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.ports import free_port

ROOT = Path(__file__).parents[1]
WORDS = ("water", "gate", "lock", "canal", "keeper", "level", "paddle", "boat", "tide", "sluice", "weir", "chamber")
LARGEST_HEAD = 65_536


def page_of(host: str, number: int, pages: int) -> bytes:
    links = "".join(
        f'<a href="/p/{next_}">page {next_}</a> ' for next_ in (2 * number + 1, 2 * number + 2) if next_ < pages
    )
    text = " ".join(WORDS[(number * 7 + place) % len(WORDS)] for place in range(150))
    return (
        f"<!doctype html><html lang=en><head><title>Page {number} of {host}</title>"
        f'<meta name="description" content="Page {number}"></head><body><nav><a href="/">home</a></nav>'
        f'<main><h1>Page {number}</h1><p>{text}.</p><p>{text[::-1]}.</p>{links}<a href="/private/{number}">private</a>'
        f"</main><footer>a site for measuring</footer></body></html>"
    ).encode()


class Site:
    def __init__(self, settings: argparse.Namespace) -> None:
        self.settings = settings
        self.log: list[tuple[float, str, str, int]] = []
        self.tokens: dict[str, tuple[float, float]] = {}
        self.calls: Counter[str] = Counter()

    def behaviour(self, host: str) -> str:
        kind, dash, _ = host.partition("-")
        return kind if dash else self.settings.kind

    def answer(self, host: str, path: str) -> tuple[int, bytes, str, float]:
        """Status, body, further headers, seconds until it is sent."""
        kind, now = self.behaviour(host), time.monotonic()
        settings = self.settings
        self.calls[host] += 1
        if path == "/robots.txt":
            delay = f"Crawl-delay: {settings.delay}\n" if kind == "delay" else ""
            return 200, f"User-agent: *\nDisallow: /private/\n{delay}".encode(), "Content-Type: text/plain", 0.0
        number = 0 if path == "/" else int(path.rpartition("/")[2]) if path.rpartition("/")[2].isdigit() else -1
        if number < 0 or number >= settings.pages:
            return 404, b"gone", "Content-Type: text/plain", 0.0
        if kind == "fail":
            return 500, b"broken", "Content-Type: text/plain", 0.0
        if kind == "throttle" and not self.lets_in(host, 1.0, now):
            return 429, b"", "Retry-After: 2", 0.0
        if kind in ("quota", "told") and not self.lets_in(host, settings.quota, now):
            return 429, b"", "Retry-After: 2" if kind == "told" else "Content-Type: text/plain", 0.0
        if kind == "lie":
            if self.calls[host] % 3 == 0:
                return 429, b"", "Retry-After: soon", 0.0
            if self.calls[host] % 3 == 1:
                return 200, b"\x00\xff<html<<" * 50, "Content-Type: text/html; charset=klingon", 0.0
            return -1, b"<html>", "Content-Type: text/html", 0.0
        wait = settings.slow if kind == "slow" else settings.latency
        return 200, page_of(host, number, settings.pages), "Content-Type: text/html; charset=utf-8", wait

    def lets_in(self, host: str, rate: float, now: float) -> bool:
        tokens, at = self.tokens.get(host, (rate, now))
        tokens = min(max(1.0, rate), tokens + (now - at) * rate)
        self.tokens[host] = (tokens - 1.0 if tokens >= 1.0 else tokens, now)
        return tokens >= 1.0


class Connection(asyncio.Protocol):
    def __init__(self, site: Site) -> None:
        self.site = site
        self.buffer = b""
        self.is_last = False
        self.transport: asyncio.Transport
        self.timers: list[asyncio.TimerHandle] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self.timers:
            timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while b"\r\n\r\n" in self.buffer and len(self.buffer) < LARGEST_HEAD:
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            path = lines[0].split(" ")[1]
            fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            self.is_last = fields.get("connection", "") == "close"
            self.serve(fields.get("host", "").partition(":")[0], path)

    def serve(self, host: str, path: str) -> None:
        site = self.site
        if path in ("/_log", "/_count"):
            told = site.log if path == "/_log" else len(site.log)
            return self.send(200, json.dumps(told).encode(), "Content-Type: application/json")
        status, body, headers, wait = site.answer(host, path)
        site.log.append((time.time(), host, path, status))
        if wait <= 0.0:
            return self.send(status, body, headers)
        self.timers = [timer for timer in self.timers if not timer.cancelled() and timer.when() > time.monotonic()]
        self.timers.append(asyncio.get_running_loop().call_later(wait, self.send, status, body, headers))
        return None

    def send(self, status: int, body: bytes, headers: str) -> None:
        length = len(body)
        if status < 0:  # promises more than it sends
            status, length = 200, 10 * length
        stays = "close" if self.is_last else "keep-alive"
        head = f"HTTP/1.1 {status} So\r\n{headers}\r\nContent-Length: {length}\r\nConnection: {stays}\r\n\r\n"
        self.transport.write(head.encode() + body)
        if length != len(body) or self.is_last:
            self.transport.close()


async def main(settings: argparse.Namespace) -> None:
    site = Site(settings)
    loop = asyncio.get_running_loop()
    addresses = [f"127.0.0.{number}" for number in range(1, settings.addresses + 1)]
    port = settings.port or free_port(*addresses)
    server = await loop.create_server(lambda: Connection(site), addresses, port, backlog=4096)
    print(json.dumps({"port": port}), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def settings_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pages", type=int, default=1_000_000, help="of each host")
    parser.add_argument("--addresses", type=int, default=1, help="127.0.0.1, 127.0.0.2, ...: hosts without names")
    parser.add_argument("--kind", default="ok", help="how hosts without a word and a dash behave")
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--slow", type=float, default=12.0)
    parser.add_argument("--quota", type=float, default=20.0)
    parser.add_argument("--delay", type=float, default=1.0)
    return parser.parse_args(arguments)


# ---------------------------------------------------------------------- for measurements


@contextmanager
def site(*arguments: str) -> Iterator[int]:
    """The port of a site that runs in a process of its own."""
    command = [sys.executable, "-m", "bench.crawl_site", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["port"]
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def log_of(port: int) -> list[tuple[float, str, str, int]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/_log", timeout=60) as answer:
        return [tuple(line) for line in json.load(answer)]


if __name__ == "__main__":
    asyncio.run(main(settings_of()))
