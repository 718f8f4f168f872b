"""What tests of credentials share: a state folder of their own, and a server that refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is kept in the real user's folder."""
    folder = tmp_path / "state"
    monkeypatch.setenv("HEADGATE_STATE", str(folder))
    return folder


class Scripted(BaseHTTPRequestHandler):
    """Answers from a script, (status, headers, body), then 200 for ever. Notes which key each call used."""

    script: list[tuple[int, dict[str, str], bytes]]
    used: list[str]
    url: str

    def do_GET(self) -> None:
        self.used.append(self.headers.get("Authorization", ""))
        status, headers, body = self.script.pop(0) if self.script else (200, {}, b"{}")
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[type[Scripted]]:
    handler = type("Handler", (Scripted,), {"script": [], "used": []})
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.url = f"http://127.0.0.1:{httpd.server_port}/"
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
    thread.start()
    yield handler
    httpd.shutdown()
    thread.join()
    httpd.server_close()
