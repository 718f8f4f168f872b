"""A run that is made up and counts how often it is looked at, the page before it on a real socket, and raw requests."""

import importlib.metadata
import json
import logging
import re
import socket
import threading
import time
from dataclasses import dataclass, field

import pytest

from headgate.observe.snapshot import (
    Action,
    CredentialLine,
    EventLine,
    KeyLine,
    ProgressLine,
    RunSnapshot,
    Timeline,
    WaitLine,
)
from headgate.web import serve

PATIENCE = 60.0
REFUSED = {0, 400, 401, 403, 404, 405, 408, 411, 413, 415, 421, 431, 501, 503}
"""0: cut off without a word."""
TELLING = re.compile(rb"(?i)traceback|file \"|/site-packages|/src/|\.py\b|python|uvicorn|starlette|h11|exception")
VERSIONS = [importlib.metadata.version(name).encode() for name in ("starlette", "uvicorn", "h11")]


class FakeRun:
    """Goes on by itself: each look finds it further than the last."""

    def __init__(self, run="run-1", keys=3):
        self.run = run
        self.keys = keys
        self.looks = 0
        self.looked_at = []
        self.timelines_asked = 0
        self.acted = []
        self.refusal = None
        self.hangs = threading.Event()
        self.hangs.set()
        self.error = None
        self.newest = 5

    def snapshot(self):
        self.hangs.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.looks += 1
        self.looked_at.append(time.monotonic())
        return RunSnapshot(
            run=self.run,
            title="rows.jsonl",
            kind="run",
            pid=1,
            host="machine",
            started_at=1_000.0,
            at=time.time(),
            progress=ProgressLine(total=100, done=self.looks),
            waits=(WaitLine(scope="api", sentence="api said wait 3 s", behind=7, seconds=3.0),),
            keys=tuple(KeyLine(key=f"key-{n}", rate=10.0 + n, reason="told to wait for 3 s") for n in range(self.keys)),
            credentials=(CredentialLine(label="main", mark="a1b2c3"),),
            counters={"sent": 12.0},
        )

    def events(self, after, most=200):
        first = max(after + 1, self.newest - most + 1)
        return [EventLine(number=n, at=1_000.0 + n, kind="paused", key="api") for n in range(first, self.newest + 1)]

    def timelines(self, keys, since):
        self.timelines_asked += 1
        at = tuple(moment for moment in (1_001.0, 1_002.0, 1_003.0) if moment >= since)
        return [Timeline(key=key, at=at, rate=(5.0,) * len(at)) for key in keys]

    def act(self, action: Action):
        if self.refusal is not None:
            raise self.refusal
        self.acted.append(action)
        return f"{action.kind}: done"


class FakeSources:
    def __init__(self, *runs):
        self.all = list(runs) or [FakeRun()]

    def runs(self):
        return self.all


@dataclass
class Answer:
    """What came back before the connection ended; status 0 if that was nothing."""

    raw: bytes
    status: int = 0
    head: bytes = b""
    body: bytes = b""
    fields: dict = field(default_factory=dict)

    def __post_init__(self):
        self.head, _, self.body = self.raw.partition(b"\r\n\r\n")
        lines = self.head.split(b"\r\n")
        if lines[0].startswith(b"HTTP/1.1 "):
            self.status = int(lines[0].split()[1])
        self.fields = dict(line.decode("latin-1").lower().split(": ", 1) for line in lines[1:])


class Page:
    """The page that is served, with what its operator knows."""

    def __init__(self, sources, **how):
        self.sources = sources
        self.run = sources.all[0]
        self.served = serve(sources, **how)
        self.port = self.served.port
        self.token = self.served.url.partition("token=")[2]
        self.host = f"127.0.0.1:{self.port}"
        self.bearer = f"Authorization: Bearer {self.token}"
        self.cookie = self.ask(f"GET /?token={self.token}").fields["set-cookie"].partition(";")[0]

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def ask(self, line, *fields, body=b"", host=None):
        """A whole request as it should be, but for what the caller adds."""
        length = [f"Content-Length: {len(body)}"] if body else []
        head = "\r\n".join([f"{line} HTTP/1.1", f"Host: {host or self.host}", *fields, *length, "Connection: close"])
        return self.send(head.encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body)

    def send(self, raw, *, ends=False):
        """Anything; ``ends`` says that no more will come, for what would else be waited for."""
        received = b""
        with self.connect() as connection:
            try:
                connection.sendall(raw)
                if ends:
                    connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(65_536):
                    received += piece
            except TimeoutError:
                pytest.fail("the page neither answered nor ended the connection")
            except OSError:
                pass
        return Answer(received)

    def listen(self, query="", *fields):
        """A stream that is open, of which nothing has been read yet."""
        connection = self.connect()
        more = "".join(f"{one}\r\n" for one in fields)
        connection.sendall(
            f"GET /api/stream{query} HTTP/1.1\r\nHost: {self.host}\r\n{self.bearer}\r\n{more}\r\n".encode()
        )
        return connection

    def close(self):
        self.served.close()


@pytest.fixture
def fake_run():
    return FakeRun


@pytest.fixture
def fake_sources():
    return FakeSources


@pytest.fixture
def open_page():
    """Serve what a test wants; closed at its end."""
    opened = []

    def open_one(*runs, **how):
        page = Page(FakeSources(*runs), **how)
        opened.append(page)
        return page

    yield open_one
    for page in opened:
        page.close()


@pytest.fixture(scope="module")
def shared_page():
    """One page for many tests, which must not change it."""
    page = Page(FakeSources())
    yield page
    page.close()


@pytest.fixture
def page(open_page):
    return open_page()


@pytest.fixture
def logged():
    """All that anything logs, at every level."""
    lines = []

    class Listening(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    listening = Listening(logging.DEBUG)
    root = logging.getLogger()
    level = root.level
    root.addHandler(listening)
    root.setLevel(logging.DEBUG)
    yield lines
    root.removeHandler(listening)
    root.setLevel(level)


@pytest.fixture
def check_refused(logged, capfd):
    """Send what is hostile: it must be refused, tell nothing to anybody, and change nothing."""

    def check(page, send):
        answer = send(page)
        secret = page.cookie.partition("=")[2]
        assert answer.status in REFUSED, answer.raw[:500]
        for leak in (page.token.encode(), secret.encode(), b"run-1", b"key-0", *VERSIONS):
            assert leak not in answer.raw
        assert not TELLING.search(answer.raw), answer.raw
        assert "set-cookie" not in answer.fields
        assert "access-control-allow-origin" not in answer.fields
        assert page.run.acted == []

        still = page.ask("GET /api/snapshot", page.bearer)
        assert still.status == 200
        assert json.loads(still.body)["runs"][0]["run"] == "run-1"
        written = "".join(capfd.readouterr()) + "\n".join(logged)
        for leak in (page.token, secret, "Traceback", "evil.example"):
            assert leak not in written

    return check
