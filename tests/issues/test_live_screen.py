"""What a terminal shows of a run while it goes and afterwards: nothing of it is lost, nothing stale stays."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headgate.cli.commands.run_display import RunProgress

WIDTH, HEIGHT = 100, 40
GOOD, BAD = "sk-good-0123456789abcdef", "sk-bad-0123456789abcdef"


class Terminal:
    """As much of a terminal as a live screen needs: lines that are written over, erased and wrapped."""

    _piece = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|([\r\n])|([^\x00-\x1f]+)")

    def __init__(self) -> None:
        self.lines, self.row, self.column = [""], 0, 0

    def feed(self, text: str) -> None:
        for numbers, command, control, plain in self._piece.findall(text):
            if command == "A":
                self.row = max(0, self.row - int(numbers or 1))
            elif command == "K":
                self.lines[self.row] = ""
            elif control == "\r":
                self.column = 0
            elif control == "\n":
                self._down()
            for character in plain:
                if self.column == WIDTH:
                    self.column = 0
                    self._down()
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
                self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.lines if line.strip()]


class Session:
    """A command in a terminal of its own."""

    def __init__(self, tmp_path, *command: str) -> None:
        self.screen, self._master = Terminal(), None
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headgate", *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=tmp_path,
            env=environment(tmp_path),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 1 << 16):
                self.screen.feed(data.decode(errors="replace"))
        except OSError:  # the other end is closed
            pass

    def shows(self, text: str) -> None:
        until = time.monotonic() + 60
        while not any(text in line for line in self.screen.shown()):
            assert time.monotonic() < until, self.screen.shown()
            time.sleep(0.02)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> int:
        code = self.process.wait(60)
        self._reader.join(60)
        os.close(self._master)
        return code


@contextmanager
def api(until_revoked: int):
    """Refuses the bad key after so many calls."""
    calls = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal calls
            calls += 1
            self.rfile.read(int(self.headers["Content-Length"]))
            bad = BAD in self.headers["Authorization"] and calls > until_revoked
            body = json.dumps({"error": {"code": "invalid_api_key", "message": "Incorrect API key"}} if bad else {})
            time.sleep(0.0 if bad else 0.05)
            self.send_response(401 if bad else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def environment(tmp_path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm", "KEYS_1": GOOD, "KEYS_2": BAD}


def words_of(tmp_path, to: str, rows: int) -> list[str]:
    row = {"method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": []}}
    lines = [json.dumps({"custom_id": f"row-{number}", **row}) for number in range(rows)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    return ["run", "rows.jsonl", "-o", "out.jsonl", "--to", to, "--keys", "env:KEYS", "--store", "none"]


def test_a_warning_during_the_run_stays_and_leaves_nothing_stale(tmp_path):
    with api(until_revoked=12) as to:
        session = Session(tmp_path, *words_of(tmp_path, to, 120))
        session.shows("in flight")
        assert session.end() == 0
    shown = session.screen.shown()
    assert sum("KEYS_2" in line and line.startswith("headgate: ") for line in shown) == 1
    assert not [line for line in shown if "in flight" in line or "rows/s" in line or "of 120" in line]
    assert sum("120 done" in line for line in shown) == 1
    ends = [line for line in shown if not line.startswith("headgate: ")]
    assert any("KEYS_2" in line for line in ends), "the end says which key was lost"


def test_ctrl_c_leaves_nothing_stale(tmp_path):
    with api(until_revoked=1_000_000) as to:
        session = Session(tmp_path, *words_of(tmp_path, to, 5_000))
        session.shows("in flight")
        session.type("\x03")
        assert session.end() == 4
    shown = session.screen.shown()
    stale = ("in flight  why", "rows/s", "of 5,000")
    assert not [line for line in shown if any(words in line for words in stale)]
    assert not any("^C" in line for line in shown)


def test_a_run_that_stops_tells_no_time_to_go():
    going = RunProgress(
        done=10, dead=0, rows=110, rate=5.0, tokens=0, cost=0.0, lanes=[], trouble="", stopping=False, in_flight=3
    )
    assert going.left == 20.0
    assert replace(going, stopping=True).left is None


def test_the_lost_key_is_in_the_last_json_line_too(tmp_path):
    with api(until_revoked=0) as to:
        command = [sys.executable, "-m", "headgate", *words_of(tmp_path, to, 5), "--json"]
        said = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, timeout=60)
    last = json.loads(said.stdout.splitlines()[-1])
    assert (last["event"], last["keys_lost"]) == ("end", [{"key": "KEYS_2", "reason": "auth"}])
