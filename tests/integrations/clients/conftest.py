"""Real clients behind the gate, over real loopback sockets, in virtual time: ``lab.ask`` asks servers that keep a log.

Only the gate's waiting is virtual. What the sockets take is a few milliseconds, and nothing here sleeps.
"""

from __future__ import annotations

import asyncio
import importlib
import random
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import pytest
import requests
import trustme
import urllib3
from bench.ports import free_port

from headgate.config import RateLimitConfig
from headgate.integrations.client_gate import Passing
from headgate.lab.virtual_time import VirtualClock

SEED = 7
UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6)


@dataclass
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    pieces: list[Any] | None = None
    """Chunks instead of a body; an event among them is waited for, ``None`` cuts the connection."""


@dataclass
class Seen:
    """What a server got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    origin: str
    at: float

    def __str__(self) -> str:
        """Everything in which a secret could be."""
        return f"{self.method} {self.path} {self.headers} {self.body!r}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 10
    server: Server

    def handle_any(self) -> None:
        body = self._body()
        seen = Seen(
            self.command,
            self.path,
            {name.lower(): value for name, value in self.headers.items()},
            body,
            self.server.origin,
            self.server.clock.now(),
        )
        reply = self.server.reply_to(seen)
        if reply is None:
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.pieces is None:
            if "content-length" not in {name.lower() for name in reply.headers}:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in reply.pieces:
            if piece is None:
                self.close_connection = True
                return
            if isinstance(piece, threading.Event):
                piece.wait(60)
            else:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = handle_any

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """One origin: ``answers`` is its script, of which the last goes on for ever."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tls = tls
        self.origin = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.server_port}"
        self.answers: list[Any] = [200]
        self.seen: list[Seen] = []
        self.clock = VirtualClock()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def reply_to(self, seen: Seen) -> Reply | None:
        self.seen.append(seen)
        answer = self.answers[min(len(self.seen), len(self.answers)) - 1]
        answer = answer(seen) if callable(answer) else answer
        return Reply(answer) if isinstance(answer, int) else answer

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(5)
        with self.tls.wrap_socket(request, server_side=True) as encrypted:
            super().finish_request(encrypted, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


@pytest.fixture(scope="session")
def ca(tmp_path_factory):
    authority = trustme.CA()
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return authority, str(path)


@pytest.fixture(scope="session")
def server_tls(ca):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca[0].issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


@pytest.fixture
def origins(server_tls):
    """home and elsewhere, each with http and https.

    New ones for each test: a request whose client did not wait for it may be read when the next test has begun.
    """
    servers = {
        "home": Server(None),
        "elsewhere": Server(None),
        "home_tls": Server(server_tls),
        "elsewhere_tls": Server(server_tls),
    }
    yield servers
    for server in servers.values():
        threading.Thread(target=server.close).start()  # a server takes up to 10 ms to notice


class Answer:
    def __init__(self, status: int, body: bytes, headers: Any, asked_with: str) -> None:
        self.status, self.body, self.headers, self.asked_with = status, body, headers, asked_with


class Lab:
    """One client, and four servers."""

    Reply = Reply

    def __init__(self, client: str, origins: dict[str, Server], ca_path: str) -> None:
        self.client, self.ca_path = client, ca_path
        self.library = {"aiohttp": aiohttp, "requests": requests, "urllib3": urllib3.exceptions}[client]
        self.integration = importlib.import_module(f"headgate.integrations.{client}")
        self.clock = VirtualClock()
        self.origins = origins
        for server in origins.values():
            server.clock = self.clock
        self.home = origins["home"]
        self.host = f"127.0.0.1:{self.home.server_port}"
        self.events: list[Any] = []
        self.passing: Passing | None = None

    # ------------------------------------------------------------------ the gate

    def gate(self, **settings: Any) -> Passing:
        settings.setdefault("config", UNPACED)
        self.passing = Passing(clock=self.clock, rng=random.Random(SEED), on_event=self.events.append, **settings)
        return self.passing

    def look(self) -> Any:
        assert self.passing is not None
        return self.passing.limiter.key_status(self.host)

    # ------------------------------------------------------------------ asking

    def ask(self, method: str = "GET", url: str = "/v1/x", **about: Any) -> Answer:
        """Ask once, with a client made for it, and read all of the answer."""
        self.passing = self.passing or self.gate()
        url = self.home.origin + url if url.startswith("/") else url
        return getattr(self, f"_{self.client}")(method, url, **about)

    def _aiohttp(self, method: str, url: str, body: Any = None, follow: bool = True, **about: Any) -> Answer:
        async def main() -> Answer:
            asking = {"data": body, "allow_redirects": follow, **about}
            async with self.session() as session, session.request(method, url, **asking) as response:
                told = await response.read()
                hops = [*response.history, response]
                asked_with = " ".join(str(dict(hop.request_info.headers)) for hop in hops)
                return Answer(response.status, told, response.headers, asked_with)

        return asyncio.run(main())

    def session(self, **options: Any) -> aiohttp.ClientSession:
        context = ssl.create_default_context(cafile=self.ca_path)
        middleware = self.integration.Middleware(passing=self.passing or self.gate())
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), middlewares=[middleware], **options)

    def _requests(self, method: str, url: str, body: Any = None, follow: bool = True, **about: Any) -> Answer:
        with self.requests_session() as session:
            response = session.request(method, url, data=body, allow_redirects=follow, **about)
            hops = [*response.history, response]
            asked_with = " ".join(str(hop.request.headers) for hop in hops)
            return Answer(response.status_code, response.content, response.headers, asked_with)

    def requests_session(self) -> requests.Session:
        session = self.integration.gate(requests.Session(), passing=self.passing or self.gate())
        session.verify, session.trust_env = self.ca_path, False
        return session

    def _urllib3(self, method: str, url: str, body: Any = None, follow: bool = True, **about: Any) -> Answer:
        with self.manager() as manager:
            response = manager.request(method, url, body=body, redirect=follow, **about)
            return Answer(response.status, response.data, response.headers, "")

    def manager(self, **options: Any) -> urllib3.PoolManager:
        manager = urllib3.PoolManager(ca_certs=self.ca_path, **options)
        return self.integration.gate(manager, passing=self.passing or self.gate())

    # ------------------------------------------------------------------ what came of it

    @property
    def sent(self) -> list[Seen]:
        return self.home.seen

    @property
    def waits(self) -> list[float]:
        return [later.at - earlier.at for earlier, later in zip(self.sent, self.sent[1:], strict=False)]

    @property
    def kinds(self) -> list[str]:
        return [event.event_type for event in self.events]

    @staticmethod
    def nobody_there() -> str:
        return f"http://127.0.0.1:{free_port()}/"


@pytest.fixture(params=["aiohttp", "requests", "urllib3"])
def client(request):
    return request.param


@pytest.fixture
def lab(client, origins, ca):
    return Lab(client, origins, ca[1])
