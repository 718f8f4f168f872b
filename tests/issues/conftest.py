"""What tests of whole commands need: the command line in this process, and a server on loopback that follows a plan."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.cli import execute

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The lines behind these are covered by the tests of their own parts, which are quicker."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("no_cover")


Answer = tuple[int, Any]
"""A status and a body, or a status, a body and headers."""


class Server(ThreadingHTTPServer):
    """Answers every POST by ``plan(n)``, n from 1; the default is a chat completion."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plan: Callable[[int], tuple[Any, ...]] = lambda _: (200, {"ok": True})
        self.calls: list[tuple[str, Any]] = []
        """The path and the body of each."""
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, *_: Any) -> None:
        """A client that leaves is no error of the server's."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"null")
        with self.server.lock:
            self.server.calls.append((self.path, body))
            number = len(self.server.calls)
        status, answer, *headers = self.server.plan(number)
        content = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in (headers[0] if headers else {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def headgate(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Run the command line in this process: ``headgate("status", path)`` gives code, out and err."""

    def call(*arguments: object) -> SimpleNamespace:
        code = execute([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return SimpleNamespace(code=code, out=said.out, err=said.err)

    return call


@pytest.fixture
def batch(tmp_path: Any, server: Server, headgate: Any) -> SimpleNamespace:
    """``batch.run()`` sends the rows of ``batch.rows`` to the server, and writes ``batch.out``."""

    def write(count: int, first: int = 0) -> None:
        names = range(first, first + count)
        lines = [json.dumps({"custom_id": f"row-{name}", "body": {"model": "m", "n": name}}) + "\n" for name in names]
        rows.write_text("".join(lines))

    def run(*options: object, to: str = "", out: Any = None) -> SimpleNamespace:
        known = ("--limits", "requests=60000/min", "--store", "none", *options)
        return headgate("run", rows, "-o", out or made.out, "--to", to or server.url, *known)

    rows = tmp_path / "rows.jsonl"
    made = SimpleNamespace(folder=tmp_path, rows=rows, out=tmp_path / "out.jsonl", write=write, run=run)
    made.ledger = tmp_path / "out.jsonl.ledger"
    return made
