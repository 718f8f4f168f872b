"""What `headgate proxy` costs beside nginx and LiteLLM: `python -m bench.proxy [--litellm FILE] [--write]`.

    load ──> the API                      nginx, which answers at once out of its memory
    load ──> nginx proxy_pass ──> the API
    load ──> headgate proxy   ──> the API
    load ──> litellm          ──> the API     where --litellm names its command, in an environment of its own

| figure  | what is timed                                                                                          |
|---------|--------------------------------------------------------------------------------------------------------|
| latency | one connection, one call after the other: the median and the 99th of 100, and what is added to direct  |
| calls/s | 32 connections, each one call after the other                                                          |
| MB/s    | 4 connections that fetch a megabyte each time                                                          |

Calls are a POST with 300 bytes of JSON, answered with a kilobyte. Each contender is a process of its own (nginx and
LiteLLM with one worker, as Headgate has one), warmed before it is timed; they take turns, and of each figure the median
round counts. Headgate is there three times: with a fixed pace far above all this, which shows what passing on costs; as
the command starts it, which learns its pace; and the same with chat completions, the only calls that LiteLLM takes.
`--write` keeps the run in `bench/PROXY.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple
from urllib.parse import urlsplit

from bench.ports import free_port
from bench.report import circumstances
from headgate import CredentialCoordinator, RateLimitConfig
from headgate.cli.ui.session import run_async
from headgate.integrations.client_gate import Passing
from headgate.proxy import Proxy, lines_of, mounts_of

RESULTS = Path(__file__).with_name("PROXY.md")
ROUNDS = 3
MANY, FEW = 32, 4
WARM = 15.0
"""Seconds until the pace is learned; on loopback a search for it takes half of that."""
BODY = json.dumps({"text": "x" * 280}).encode()
DIRECT, LEARNED, CHATTING = "direct", "headgate proxy", "headgate proxy, chat"
LITELLM = "litellm, chat"
SMALL, LARGE = 1_000, 1 << 20
CHAT = json.dumps({"model": "bench", "messages": [{"role": "user", "content": "x" * 220}]}).encode()
CHAT_PATH = "/v1/chat/completions"
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "bench",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "y" * 700}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 60, "completion_tokens": 180, "total_tokens": 240},
}
LITELLM_CONF = """
model_list:
  - model_name: bench
    litellm_params: {{model: openai/bench, api_base: "http://127.0.0.1:{api}/v1", api_key: bench-key-000001}}
litellm_settings: {{telemetry: false}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}
"""
"""Without a key of its own, on loopback: the others check none either."""

CONF = """
worker_processes 1; daemon off; pid {folder}/{name}.pid; error_log {folder}/{name}.log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/{name}-in; proxy_temp_path {folder}/{name}-out;
  fastcgi_temp_path {folder}/{name}-f; uwsgi_temp_path {folder}/{name}-u; scgi_temp_path {folder}/{name}-s;
  keepalive_requests 100000000; sendfile on; tcp_nopush off;
  {body}
}}
"""
API = """
  server {{ listen 127.0.0.1:{port} backlog=1024; default_type application/json; root {folder};
    location /small {{ error_page 405 =200 $uri; try_files /small =404; }}
    location /large {{ error_page 405 =200 $uri; try_files /large =404; }}
    location = /v1/chat/completions {{ error_page 405 =200 /chat; try_files /chat =404; }}
  }}
"""
PASS = """
  upstream api {{ server 127.0.0.1:{api}; keepalive 128; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} backlog=1024;
    location / {{ proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }}
  }}
"""


class Round(NamedTuple):
    p50: float
    p99: float
    calls: float
    megabytes: float


# ---------------------------------------------------------------------- the load


class Caller(asyncio.Protocol):
    """One connection that asks again as soon as it is answered; it reads no more of an answer than its length."""

    def __init__(self, request: bytes, until: float) -> None:
        self._request, self._until = request, until
        self.times: list[float] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head, self._left = b"", -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._ask()

    def _ask(self) -> None:
        self._asked_at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._head[:end].lower()
            if not head.startswith(b"http/1.1 200"):
                self._fail(head)
                return
            place = head.index(b"content-length:") + 15
            length = int(head[place:].split(b"\r\n", 1)[0])
            self._left = length - (len(self._head) - end - 4)
            self._head = b""
        else:
            self._left -= len(data)
        if self._left == 0:
            now = time.perf_counter()
            self.times.append(now - self._asked_at)
            self._left = -1
            if now < self._until:
                self._ask()
            elif not self.over.done():
                self.over.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(b"hung up")

    def _fail(self, said: bytes) -> None:
        if not self.over.done():
            self.over.set_exception(RuntimeError(f"not answered: {said[:200]!r}"))


async def load(url: str, connections: int, seconds: float) -> list[float]:
    parts = urlsplit(url)
    body = CHAT if parts.path == CHAT_PATH else BODY
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    request = head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    until = time.perf_counter() + seconds
    loop = asyncio.get_running_loop()
    callers: list[Caller] = []
    for _ in range(connections):
        _, caller = await loop.create_connection(lambda: Caller(request, until), parts.hostname, parts.port)
        callers.append(caller)
    await asyncio.gather(*(one.over for one in callers))
    for one in callers:
        one._transport.abort()
    return [took for one in callers for took in one.times]


async def measure(url: str, seconds: float) -> Round:
    alone = await load(url, 1, seconds)
    many = await load(url, MANY, seconds)
    large = [] if url.endswith(CHAT_PATH) else await load(url.replace("/small", "/large"), FEW, seconds)
    cuts = quantiles(alone, n=100)
    return Round(cuts[49], cuts[98], len(many) / seconds, len(large) * LARGE / seconds / 1e6)


# ---------------------------------------------------------------------- what is measured


@contextmanager
def process(command: list[str], port: int, **settings: object) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **settings)  # type: ignore[call-overload]
    try:
        for _ in range(1200):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if running.poll() is not None:
                raise RuntimeError(f"{command[0]} has ended at once")
            time.sleep(0.05)
        yield running
    finally:
        running.terminate()
        running.wait(10)


@contextmanager
def contenders(litellm: str | None) -> Iterator[dict[str, str]]:
    """The address that each is called at."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if nginx is None:
        sys.exit("bench.proxy needs nginx on PATH (apt-get install nginx-light)")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-"))
        os.chmod(folder, 0o755)
        Path(folder, "small").write_bytes(b'{"text": "' + b"y" * (SMALL - 12) + b'"}')
        Path(folder, "large").write_bytes(b"y" * LARGE)
        Path(folder, "chat").write_text(json.dumps(COMPLETION))
        api, passing, ours = free_port(), free_port(), free_port()
        for name, port, body in (("api", api, API), ("pass", passing, PASS)):
            conf = Path(folder, f"{name}.conf")
            inner = body.format(port=port, api=api, folder=folder)
            user = "user root;" if hasattr(os, "getuid") and os.getuid() == 0 else ""
            conf.write_text(user + CONF.format(folder=folder, name=name, body=inner))
            stack.enter_context(process([nginx, "-p", folder, "-c", str(conf), "-e", f"{folder}/{name}.log"], port))
        state = {**os.environ, "HEADGATE_STATE": folder, "KEY": "bench-key-000001"}
        command = [sys.executable, "-m", "headgate", "proxy", "--to", f"http://127.0.0.1:{api}", "--keys", "env:KEY"]
        command += ["--port", str(ours), "--store", "none", "-q"]
        stack.enter_context(process(command, ours, env=state))
        fixed = free_port()
        serve = [sys.executable, "-m", "bench.proxy", "--serve", f"{fixed}", "--to", f"http://127.0.0.1:{api}"]
        stack.enter_context(process(serve, fixed, env=state, cwd=Path(__file__).parents[1]))
        ports = {DIRECT: api, "nginx proxy_pass": passing, "headgate proxy, pace fixed": fixed, LEARNED: ours}
        urls = {name: f"http://127.0.0.1:{port}/small" for name, port in ports.items()}
        urls[CHATTING] = f"http://127.0.0.1:{ours}{CHAT_PATH}"
        if litellm is not None:
            port = free_port()
            Path(folder, "litellm.yaml").write_text(LITELLM_CONF.format(api=api))
            command = [litellm, "--config", f"{folder}/litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
            own = {**state, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # else it asks the internet for prices
            stack.enter_context(process(command, port, env=own, cwd=folder))
            urls[LITELLM] = f"http://127.0.0.1:{port}{CHAT_PATH}"
        yield urls


async def serve_fixed(port: int, to: str) -> None:
    """The proxy as the command has it, but with a pace that holds no call up."""
    config = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e5)
    mounts = mounts_of([to])
    keys = {mounts[0].origin: CredentialCoordinator([os.environ["KEY"]])}
    passing = Passing(config=config, credentials=keys, key=lines_of(mounts))
    async with Proxy(mounts, passing, keyed=[mounts[0].name], port=port):
        await asyncio.Event().wait()


async def compare(seconds: float, litellm: str | None) -> dict[str, Round]:
    with contenders(litellm) as urls:
        for name, url in urls.items():
            await load(url, MANY, WARM if name in (LEARNED, CHATTING) else 1.0)
        rounds: dict[str, list[Round]] = {name: [] for name in urls}
        for _ in range(ROUNDS):
            for name, url in urls.items():
                rounds[name].append(await measure(url, seconds))
    return {name: Round(*map(median, zip(*of, strict=True))) for name, of in rounds.items()}


# ---------------------------------------------------------------------- telling


def table(found: dict[str, Round]) -> str:
    direct = found[DIRECT]
    lines = ["| | p50 | p99 | added p50 | added p99 | calls/s | MB/s |", "|---|--:|--:|--:|--:|--:|--:|"]
    for name, one in found.items():
        added = ["", ""] if one is direct else [_us(one.p50 - direct.p50), _us(one.p99 - direct.p99)]
        cells = [
            name,
            _us(one.p50),
            _us(one.p99),
            *added,
            f"{one.calls:,.0f}",
            f"{one.megabytes:,.0f}" if one.megabytes else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def page(found: dict[str, Round], seconds: float, litellm: str | None) -> str:
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"
    version = subprocess.run([nginx, "-v"], capture_output=True, text=True).stderr.strip()
    versions = version.removeprefix("nginx version: ")
    if litellm is not None:
        ask = "from importlib.metadata import version; print(version('litellm'))"
        said = subprocess.run([Path(litellm).with_name("python"), "-c", ask], capture_output=True, text=True)
        versions += f", litellm {said.stdout.strip()}"
    command = f"python -m bench.proxy{'' if litellm is None else ' --litellm FILE'} --write"
    about = (
        f"A POST of 300 bytes answered with 1 kB; latency over one connection, calls/s over {MANY}, MB/s over {FEW} "
        f"that fetch 1 MiB. {ROUNDS} rounds of {seconds:g} s each, in turn; the median round counts. Load, API and "
        f"contender share {os.cpu_count()} cores (load average {os.getloadavg()[0]:.1f} at the end)."
    )
    words = (
        "nginx passes bytes on. The proxy also keeps the line, leases a key for each call, keeps small bodies so "
        "that a refused call can go again, and reads what answers say of limits and tokens, in Python. With a fixed "
        "pace that is all there is; as the command starts it, it also looks for the pace that the API takes, "
        f"is timed after {WARM:g} s of that, and counts what happens for its page. By a sampling profiler a sixth of "
        "a call is the two writes to sockets, three tenths are aiohttp's (reading, parsing, streams), the rest is "
        "ours: permits, circuit, retries and lease over a quarter, bodies, headers and checks a fifth, the answer's "
        "limits and the events 5 %. A chat completion is parsed for its model and its tokens as well. An API that "
        "takes 100 ms to answer does not show the difference, and few vendors' limits let through as much."
    )
    return (
        "# The proxy, beside nginx and LiteLLM\n\n"
        f"{circumstances(command)} {versions}; loopback.\n\n"
        f"{about}\n\n{table(found)}\n\n{words}\n"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--seconds", type=float, default=1.5)
    arguments.add_argument("--litellm", help="LiteLLM's command, in an environment of its own")
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--to", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.serve is not None:
        run_async(serve_fixed(given.serve, given.to))
        return
    found = run_async(compare(given.seconds, given.litellm))
    print(table(found))
    if given.write:
        RESULTS.write_text(page(found, given.seconds, given.litellm), encoding="utf-8")


if __name__ == "__main__":
    main()
