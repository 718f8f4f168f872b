"""Keys and row names with line feeds and escape codes: shown wherever a person reads them, obeyed nowhere."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

import headgate
from headgate import AdaptiveRateLimiter, BatchRunner, CircuitOpenError, ProviderError, WaitTooLongError
from headgate.batch.ledger import Row
from headgate.cli import execute
from headgate.cli.ui.run_page import ENDLESS, RunsFrame, RunView, run_line
from headgate.cli.ui.terminal import complain
from headgate.formatting import LOGGERS, PrintableFilter, printable
from headgate.lab.virtual_time import LoopClock, VirtualClock, run
from headgate.observe.monitor import RunMonitor

EVIL = "e\x1b[31mvil\nFORGED line\r\x9b2J\u202e\x07"
"""Colours, a line of its own, clearing the screen, text from right to left, a bell."""


def is_safe(text: str) -> bool:
    """Nothing that a terminal obeys, and no line that a name has begun."""
    lines = text.split("\n")
    return all(line.isprintable() and not line.startswith("FORGED") for line in lines)


def test_what_is_printable_stays_and_the_rest_is_escaped() -> None:
    assert printable("gpt-4o · naïve \\n") == "gpt-4o · naïve \\n"
    assert printable("a\nb\x1b[0m\u202e\udc80") == "a\\nb\\x1b[0m\\u202e\\udc80"


def test_refusals_and_failures_say_it_in_one_line_and_keep_the_key() -> None:
    limiter = AdaptiveRateLimiter(clock=VirtualClock())
    limiter.pause(EVIL, 60.0)
    with pytest.raises(WaitTooLongError) as caught:
        limiter.acquire(EVIL, max_wait=1.0)
    assert is_safe(str(caught.value))
    assert caught.value.key == EVIL
    for error in (CircuitOpenError(EVIL, f"open {EVIL}", 5.0), ProviderError(EVIL, f"said {EVIL}")):
        assert is_safe(str(error))


class TestLogs:
    def test_every_logger_of_the_package_is_filtered(self) -> None:
        source = Path(headgate.__file__).parent
        texts = [path.read_text() for path in source.rglob("*.py")]
        names = {name for text in texts for name in re.findall(r'(?:getLogger\(|LOGGER = )"([^"]+)"', text)}
        assert names == set(LOGGERS)
        for name in LOGGERS:
            assert sum(isinstance(one, PrintableFilter) for one in logging.getLogger(name).filters) == 1

    def test_a_key_that_nothing_is_reported_of(self, caplog: pytest.LogCaptureFixture) -> None:
        limiter = AdaptiveRateLimiter(clock=VirtualClock())
        for _ in range(40):
            limiter.clock.advance(10.0)  # type: ignore[attr-defined]
            limiter.acquire(EVIL).release()
        assert any(record.levelno == logging.WARNING for record in caplog.records)
        assert all(is_safe(record.getMessage()) for record in caplog.records)

    def test_a_listener_that_fails_on_a_key(self, caplog: pytest.LogCaptureFixture) -> None:
        def listen(event: object) -> None:
            raise RuntimeError

        limiter = AdaptiveRateLimiter(clock=VirtualClock(), on_event=listen)
        limiter.pause(EVIL, 60.0)
        limiter.acquire("other").report(status_code=429)
        limiter.try_acquire(EVIL)
        assert all(is_safe(record.getMessage()) for record in caplog.records)

    def test_an_error_as_an_argument_and_a_name_in_the_message(self, caplog: pytest.LogCaptureFixture) -> None:
        log = logging.getLogger("headgate")
        log.warning("not kept: %s, %d, %s", OSError(EVIL), 7, None)
        log.warning(f"{EVIL} can be read by other users, 100 %")
        assert len(caplog.records) == 2
        assert all(is_safe(record.getMessage()) for record in caplog.records)


class TestABatch:
    def test_its_reasons_names_and_events(self, caplog: pytest.LogCaptureFixture) -> None:
        async def main(clock: LoopClock):
            async def worker(item, ctx) -> None:
                if item:
                    raise ValueError(EVIL)

            def row_of(index: int, item: int) -> Row:
                return Row(index, f"{EVIL}{item}", bytes([index]))

            runner = BatchRunner(worker, key=lambda item: f"m {EVIL}", row_of=row_of, clock=clock)
            watched = RunMonitor(job=runner)
            report = await runner.run(range(3))
            watched.record()
            return report, watched.snapshot(), watched.events(0)

        with caplog.at_level(logging.INFO, "headgate"):
            report, snapshot, events = run(main)
        assert report.dead == 2
        assert all(is_safe(reason) for reason in report.reasons)
        assert all(is_safe(record.getMessage()) for record in caplog.records)
        assert snapshot.keys
        assert all(is_safe(f"{line.key} {line.reason}") for line in (*snapshot.keys, *events))
        assert all(is_safe(line.sentence) for line in snapshot.waits)
        assert all(is_safe(f"{line.reason} {line.example}") for line in snapshot.dead)
        assert is_safe(run_line(snapshot))
        for look in ([RunView(snapshot, events)], [RunView(snapshot), RunView(snapshot)]):
            screen = io.StringIO()
            Console(file=screen, width=120).print(RunsFrame(look, [], [], is_over=False).render(120, ENDLESS))
            assert is_safe(screen.getvalue())


@pytest.fixture
def refusing() -> Iterator[str]:
    """An API that refuses every row in words of its own."""

    class Refusal(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.dumps({"error": {"message": f"no: {EVIL}", "code": EVIL, "type": EVIL}}).encode()
            self.send_response(400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_commands_and_reports(
    refusing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / "state"))
    row = {"method": "POST", "url": "/v1/chat/completions", "body": {"model": f"m{EVIL}", "messages": []}}
    rows = [json.dumps({"custom_id": f"{EVIL}{number}", **row}) for number in range(3)]
    Path("rows.jsonl").write_text("\n".join(rows))
    output = f"out{EVIL}.jsonl"
    sent = ["run", "rows.jsonl", "-o", output, "--to", refusing]
    for words in (
        [*sent, "--plan"],
        [*sent, "--report", "report.md"],
        [*sent, "--report", "report.html"],
        ["status", output],
        ["verify", output],
        ["retry", output, "--only", EVIL],
        ["retry", output],
        ["status", f"no {EVIL}"],
        ["verify", f"no {EVIL}"],
        ["run", f"no {EVIL}", "-o", "other.jsonl"],
        [f"no {EVIL}"],
        ["limits", f"no {EVIL}"],
    ):
        capsys.readouterr()
        execute(words)
        said = capsys.readouterr()
        assert is_safe(said.out), words
        assert is_safe(said.err), words
    for name in ("report.md", "report.html"):
        assert is_safe(Path(name).read_text()), name


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"no such row: {EVIL}.")
    said = capsys.readouterr().err
    assert is_safe(said)
    assert said.count("\n") == 1
