"""Whoever looks on at a run: headgate watch and status, the page, the report."""

import asyncio
import io
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
import pytest
from bench.redis_server import RedisServer
from rich.console import Console

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.cli import group
from headgate.cli.ui.observe_options import ObservedCommand
from headgate.cli.ui.run_page import ENDLESS, KEY_COLUMNS, RunsFrame, RunView
from headgate.cli.ui.shared_state import SharedState
from headgate.observe.monitor import RunMonitor
from headgate.observe.run_registry import RunAnnouncement, announced, machine_runs, runs_folder
from headgate.observe.snapshot import EventLine, KeyLine, ProgressLine, RunSnapshot, WaitLine

DOCS = Path(__file__).parents[3] / "docs"
SMALL = ("--calls", "20", "--seconds", "1", "--workers", "8", "--no-picture")
LONG_RUN = """
import time
from headgate import AdaptiveRateLimiter
from headgate.observe.monitor import RunMonitor
from headgate.observe.run_registry import announced
from headgate.observe.snapshot import ProgressLine

progress = lambda: ProgressLine(total=5000, done=1)
with announced(RunMonitor(limiter=AdaptiveRateLimiter(), progress=progress, kind="demo", title="long")):
    time.sleep(600)
"""
LINK = re.compile(r"The page: (http://127\.0\.0\.1:(\d+)/\?token=\S+)")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def a_run(title="rows.jsonl to out.jsonl", done=30):
    """A run of this process that others can see."""
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=50.0))
    limiter.acquire("api.example.com").report(status_code=200)
    progress = ProgressLine(total=100, done=done, rate=7.0, eta=10.0)
    watched = RunMonitor(limiter=limiter, progress=lambda: progress, kind="run", title=title).start(alone=False)
    files = RunAnnouncement(watched)
    limiter.pause("api.example.com", 5.0)
    files.step()
    try:
        yield watched
    finally:
        watched.close()
        files.end()


async def begun(ledger):
    await ledger.begin({"input": "rows.jsonl"})
    await ledger.close()


class TestStatus:
    def test_without_a_ledger_it_shows_the_runs_of_this_machine(self, headgate):
        with a_run() as one:
            said = headgate("status")
            assert (said.code, said.err) == (0, "")
            assert one.run in said.out
            assert "30 done of 100" in said.out
            assert "api.example.com" in said.out
            (line,) = headgate("status", "--json").out.splitlines()
            (told,) = json.loads(line)["runs"]
            assert (told["run"], told["progress"]["done"]) == (one.run, 30)
            assert set(told) >= set(RunSnapshot.__dataclass_fields__)
            with a_run("another", 5) as other:
                listed = headgate("status").out
                assert "2 runs on this machine" in listed
                assert one.run in listed
                assert other.run in listed

    def test_with_neither_it_says_so(self, headgate):
        said = headgate("status")
        assert said.code == 2
        assert "no run is under way on this machine" in said.err
        said = headgate("status", "--json")
        assert (said.code, json.loads(said.out), said.err) == (0, {"runs": []}, "")

    def test_the_only_ledger_of_the_folder_comes_after_the_runs(self, headgate, here):
        asyncio.run(begun(SqliteLedger(str(here / "a.ledger"))))
        with a_run() as one:
            shown = headgate("status").out
            assert 0 <= shown.index(one.run) < shown.index("a.ledger: 0 done")
            told = json.loads(headgate("status", "--json").out)
            assert (told["runs"][0]["run"], told["rows"]) == (one.run, 0)
            (here / "a.ledger").write_text("no ledger at all" * 100)
            said = headgate("status")
            assert (said.code, one.run in said.out) == (3, True)

    def test_several_ledgers_are_no_reason_to_show_no_run(self, headgate, here):
        for name in ("a.ledger", "b.ledger"):
            (here / name).touch()
        assert headgate("status", "--json").code == 2
        with a_run() as one:
            said = headgate("status")
            assert (said.code, one.run in said.out) == (0, True)
            assert list(json.loads(headgate("status", "--json").out)) == ["runs"]

    def test_a_run_is_named_as_for_watch(self, headgate, here):
        with a_run() as one, a_run("another") as other:
            for wanted in (one.run, "rows.jsonl", "out.jsonl"):
                (told,) = json.loads(headgate("status", wanted, "--json").out)["runs"]
                assert told["run"] == one.run
            assert other.run in headgate("status", "another").out
            several = headgate("status", "run-")
            assert (several.code, "give more of the name" in several.err) == (3, True)
            asyncio.run(begun(SqliteLedger(str(here / "out.jsonl.ledger"))))
            assert headgate("status", "out.jsonl").out.startswith("out.jsonl.ledger: 0 done")
        gone = headgate("status", one.run)
        assert gone.code == 2
        assert f"no run '{one.run}' is under way" in gone.err


class TestWatch:
    def test_lines_for_a_pipe_until_the_run_ends(self, headgate_process):
        with a_run() as one:
            process = headgate_process("watch", one.run[:8], "--every", "100ms", "--json")
            first = json.loads(process.stdout.readline())
            assert (first["event"], first["run"], first["progress"]["done"]) == ("run", one.run, 30)
            assert [event["kind"] for event in first["events"]]
            assert json.loads(process.stdout.readline())["events"] == []  # told already
        rest = process.communicate(timeout=60)[0].splitlines()
        last = json.loads(rest[-1])
        assert (last["event"], last["run"], last["title"]) == ("ended", one.run, one.title)
        assert (last["progress"]["done"], last["progress"]["total"]) == (30, 100)
        assert process.returncode == 0

    def test_all_runs_in_words_until_ctrl_c(self, headgate_process):
        process = headgate_process("watch", "--every", "100ms")
        assert process.stdout.readline().startswith("No run is active")
        with a_run() as one:
            assert process.stdout.readline().startswith(f"{one.run} running: 30 done of 100, 7.0/s, 10.0 s to go")
        ended = process.stdout.readline()
        assert ended == f"rows.jsonl to out.jsonl: ended, 30 of 100 rows ({one.run})\n"
        assert process.stdout.readline().startswith("No run is active")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""

    def test_of_all_runs_each_end_is_told_once_also_after_a_crash(self, headgate_process):
        process = headgate_process("watch", "--every", "100ms", "--json")
        run = subprocess.Popen([sys.executable, "-c", LONG_RUN])
        told = map(json.loads, process.stdout)
        crashed = next(told)["run"]
        run.kill()
        run.wait()
        end = next(line for line in told if line["event"] == "ended")
        assert (end["run"], end["kind"], end["progress"]["total"]) == (crashed, "demo", 5000)
        assert end["ending"] == "lost"
        with a_run(done=100) as one:
            assert next(told)["run"] == one.run
        end = next(line for line in told if line["event"] == "ended")
        assert (end["run"], end["progress"]["done"], end["ending"]) == (one.run, 100, "done")
        process.send_signal(signal.SIGINT)
        assert list(told) == []

    def test_who_leaves_the_screen_reads_what_has_ended(self):
        with a_run(done=100) as one, ExitStack() as stack:
            process, terminal = stack.enter_context(on_screen("watch", one.run))
            assert b"why it waits" in read_until(terminal, b"Ctrl-C quits")
            ended = stack.pop_all()
        with ended:
            left = read_until(terminal, one.run.encode() + b")").partition(b"\x1b[?1049l")[2]
            assert b"rows.jsonl to out.jsonl: ended, 100 of 100 rows (" in left
            assert process.wait(60) == 0

    def test_q_ends_the_screen_and_leaves_the_terminal_as_it_was(self):
        """The terminal is small: whole columns are shown, and how to leave."""
        termios = pytest.importorskip("termios")
        with a_run() as one, on_screen("watch", columns=60, lines=12) as (process, terminal):
            shown = read_until(terminal, b"Ctrl-C quits").decode()
            assert one.run in shown
            assert all(heading in shown for heading in ("key", "learned", "in flight", "429s", "circuit"))
            assert "server limit" not in shown
            assert not termios.tcgetattr(terminal)[3] & termios.ICANON
            os.write(terminal, b"q")
            read_until(terminal, b"\x1b[?1049l")
            assert process.wait(60) == 0
            assert termios.tcgetattr(terminal)[3] & termios.ICANON

    @pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 140])
    def test_no_number_and_no_heading_is_ever_cut(self, width):
        keys = tuple(KeyLine(key="openai/gpt-4o-mini#key-" + "1" * n, rate=1234.5, refused=9876) for n in range(1, 20))
        waits = (WaitLine(scope="a", sentence="it is paced, as was learned of " + "a" * 200, behind=4321),)
        seen = RunSnapshot(
            run="run-1", title="a", kind="run", pid=1, host="", started_at=0, at=time.time(), keys=keys, waits=waits
        )
        events = [EventLine(number=n, at=0.0, kind=f"kind-{n}") for n in range(1, 9)]
        console = Console(width=width, height=30, file=io.StringIO())
        console.print(RunsFrame([RunView(seen, events)], [], [], is_over=False).render(width, 30))
        lines = console.file.getvalue().splitlines()
        assert len(lines) <= 30
        assert any("4,321 waiting: it is" in line for line in lines)
        (heading,) = [line for line in lines if line.startswith(" key")]
        assert set(re.split(r"\s{2,}", heading.strip())) <= {column.name for column in KEY_COLUMNS}
        assert "learned" in heading
        assert sum("1,234.5/s" in line for line in lines) >= 3
        kinds = [line.split()[1] for line in lines if "kind-" in line]
        assert kinds == [f"kind-{n}" for n in range(8, 0, -1)]
        console.print(RunsFrame([RunView(seen)] * 2, [], [], is_over=False).render(width, ENDLESS))

    def test_which_run_is_meant_must_be_clear(self, headgate):
        none = headgate("watch", "nonsense")
        assert (none.code, none.out) == (3, "")
        assert "no run is active" in none.err
        with a_run(), a_run("another"):
            both = headgate("watch", "run-")
            assert both.code == 3
            assert "give more of the name" in both.err

    @pytest.mark.parametrize("where", ["machine", "redis"])
    def test_a_store_is_watched_while_it_is_used(self, headgate_process, where, request):
        store = where if where == "machine" else f"{request.getfixturevalue('redis_server').url}?timeout=5"
        words = ("watch", "--store", store, "--key", "api.example.com", "--json", "--every", "100ms")
        process = headgate_process(*words)
        first = json.loads(process.stdout.readline())
        assert (first["event"], first["keys"]) == ("store", [])
        limiter = SharedState.open(store).limiter(RateLimitConfig(initial_rps=50.0), lambda _: None)
        with limiter.permit("api.example.com") as permit:
            permit.report(status_code=429, retry_after=30.0)

        def held():
            limiter.pause("api.example.com", 30.0)  # again and again: a busy machine may lose a store for a moment
            told = json.loads(process.stdout.readline())
            return [key for key in told.get("keys", ()) if key["state"].startswith("held for")]

        (key,) = eventually(held)
        assert key["name"] == "api.example.com"
        assert key["members"][0]["process"].startswith(f"{os.getpid()}@")
        limiter.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""

    def test_a_store_that_goes_away_and_comes_back_is_told(self, headgate_process):
        with RedisServer() as server:
            url = f"redis://:hunter2@127.0.0.1:{server.port}"
        process = headgate_process("watch", "--store", url, "--json", "--every", "100ms")
        gone = process.stdout.readline()
        assert json.loads(gone) == {
            "event": "unreachable",
            "reason": f"redis at 127.0.0.1:{server.port}: connection refused.",
        }
        with RedisServer("--requirepass", "hunter2", port=server.port):
            back = eventually(lambda: '"store"' in (line := process.stdout.readline()) and line)
        assert "hunter2" not in gone + back

    def test_a_page_beside_it(self, headgate_process):
        with a_run() as one:
            process = headgate_process("watch", "--web", "--json", "--every", "100ms")
            link = LINK.match(process.stderr.readline())
            assert json.loads(process.stdout.readline())["run"] == one.run
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            opener.open(link[1], timeout=20).read()
            address = f"http://127.0.0.1:{link[2]}"
            told = json.load(opener.open(f"{address}/api/snapshot", timeout=20))
            assert [run["run"] for run in told["runs"]] == [one.run]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        with pytest.raises(urllib.error.URLError):
            opener.open(f"{address}/healthz", timeout=5)

    def test_options_that_do_not_go_together(self, headgate):
        assert headgate("watch", "run", "--store", "machine").code == 2
        assert headgate("watch", "--key", "name").code == 2
        assert headgate("watch", "--every", "1ms").code == 2
        assert headgate("watch", "--store", "nonsense").code == 2


@contextmanager
def on_screen(*arguments, columns=150, lines=40):
    """The command line in a terminal: the process, and the terminal's other end."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": str(lines)}
    command = [sys.executable, "-m", "headgate", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def read_until(terminal, words):
    found, until = b"", time.monotonic() + 60
    while words not in found:
        assert time.monotonic() < until, found
        if select.select([terminal], [], [], 0.5)[0]:
            found += os.read(terminal, 65536)
    return found


class TestCommands:
    def test_a_demo_is_seen_served_and_reported(self, headgate_process, here):
        process = headgate_process(
            "demo", "--calls", "60", "--seconds", "3", "--workers", "8", "--no-picture", "--json", "--web",
            "--report", "a.html",
        )  # fmt: skip
        link = LINK.match(process.stderr.readline())
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"<title>" in opener.open(link[1], timeout=20).read()
        snapshot = json.load(opener.open(f"http://127.0.0.1:{link[2]}/api/snapshot", timeout=20))
        assert [run["kind"] for run in snapshot["runs"]] == ["demo"]
        runs = eventually(lambda: [name for name in os.listdir(runs_folder()) if name.endswith(".json")])
        assert runs[0].startswith(f"demo-{process.pid}-")
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "sound" in json.loads(out.splitlines()[-1])
        assert os.listdir(runs_folder()) == runs
        last = json.loads((Path(runs_folder()) / runs[0]).read_bytes())["snapshot"]
        assert (last["state"], last["ending"], last["progress"]["done"]) == ("ended", "done", 60)
        report = (here / "a.html").read_text(encoding="utf-8")
        assert "60 of 60 calls" in report
        assert "key-1" in report
        assert "mock-key" not in report
        with pytest.raises(urllib.error.URLError):
            opener.open(f"http://127.0.0.1:{link[2]}/healthz", timeout=5)

    def test_a_run_that_is_stopped_has_its_report_too(self, headgate_process, here):
        process = headgate_process("demo", "--calls", "5000", "--seconds", "60", "--no-picture", "--report", "a.md")
        while not process.stdout.readline().startswith("   1 s"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 4
        (last,) = Path(runs_folder()).iterdir()
        assert json.loads(last.read_bytes())["snapshot"]["ending"] == "stopped"
        assert "when it was stopped" in (here / "a.md").read_text(encoding="utf-8")

    def test_an_unseen_one_leaves_nothing(self, headgate, demo_in_one_process):
        assert headgate("demo", *SMALL, "--json", "--unseen").code == 0
        assert not os.path.exists(runs_folder())

    def test_what_cannot_be_done_is_told_before_anything_begins(self, headgate, demo_in_one_process):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            said = headgate("demo", *SMALL, "--web", taken.getsockname()[1])
        assert said.code == 2
        assert "cannot serve the page" in said.err
        for wrong in (["--report", "a.pdf"], ["--report", "nowhere/a.html"], ["--web=x"], ["--web=99999"]):
            assert headgate("demo", *SMALL, *wrong).code == 2

    def test_a_report_that_cannot_be_written_is_a_failure(self, headgate, demo_in_one_process, here):
        (here / "a.html").mkdir()
        said = headgate("demo", *SMALL, "--json", "--report", "a.html")
        assert said.code == 3
        assert "cannot write a.html" in said.err

    @pytest.mark.parametrize(
        ("typed", "port", "words"),
        [
            (["--web", "example.org"], 0, ["example.org"]),
            (["--web", "8080", "example.org"], 8080, ["example.org"]),
            (["--web=8080", "example.org"], 8080, ["example.org"]),
            (["example.org", "--web"], 0, ["example.org"]),
            (["--", "--web"], None, ["--web"]),
        ],
    )
    def test_the_page_takes_a_port_only_if_it_is_one(self, typed, port, words):
        crawl = group.get_command(click.Context(group), "crawl")
        context = crawl.make_context("crawl", ["-o", "out.jsonl", *typed])
        assert (context.params["web"], list(context.params["seeds"])) == (port, words)


class TestWeb:
    def test_all_runs_of_this_machine(self, headgate_process):
        with a_run() as one:
            process = headgate_process("web", "--read-only")
            link = LINK.match(process.stderr.readline())
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            opener.open(link[1], timeout=20).read()
            told = json.load(opener.open(f"http://127.0.0.1:{link[2]}/api/snapshot", timeout=20))
            assert ([run["run"] for run in told["runs"]], told["read_only"]) == ([one.run], True)
            health = urllib.request.urlopen(f"http://127.0.0.1:{link[2]}/healthz", timeout=20)  # needs no token
            assert (health.status, health.read()) == (200, b"ok\n")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert process.stderr.read() == ""

    def test_a_token_of_ones_own_so_that_prometheus_can_be_set_up(self, headgate_process, monkeypatch):
        monkeypatch.setenv("HEADGATE_WEB_TOKEN", "a-token-of-ones-own")
        process = headgate_process("demo", "--calls", "100000", "--no-picture", "--web", "--unseen")
        link = LINK.match(process.stderr.readline())
        request = urllib.request.Request(f"http://127.0.0.1:{link[2]}/metrics")
        request.add_header("Authorization", "Bearer a-token-of-ones-own")
        assert b"headgate_run_info" in urllib.request.urlopen(request, timeout=20).read()

    def test_other_addresses_need_a_token(self, headgate, monkeypatch):
        monkeypatch.delenv("HEADGATE_WEB_TOKEN", raising=False)
        said = headgate("web", "--host", "0.0.0.0")
        assert said.code == 2
        assert "HEADGATE_WEB_TOKEN=$(openssl rand -hex 24)" in said.err
        monkeypatch.setenv("HEADGATE_WEB_TOKEN", "short-one")
        said = headgate("web")
        assert said.code == 2
        assert "HEADGATE_WEB_TOKEN: token" in said.err
        assert "short-one" not in said.err


def eventually(ask):
    until = time.monotonic() + 60
    while not (answer := ask()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return answer


def test_a_run_that_announces_itself_goes_when_it_ends():
    with announced(RunMonitor(limiter=AdaptiveRateLimiter())):
        assert os.listdir(runs_folder())
    assert machine_runs().runs() == []


@pytest.mark.parametrize("name", ["run", "crawl", "demo", "watch", "web"])
def test_every_option_is_in_the_page_about_seeing(name):
    text = (DOCS / "watching.md").read_text(encoding="utf-8")
    command = group.get_command(click.Context(group), name)
    wanted = {"--web", "--report", "--unseen"} if name in ("run", "crawl", "demo") else set()
    options = {one for parameter in command.params for one in parameter.opts if one.startswith("--")}
    assert wanted <= options
    for option in sorted(wanted or options):
        assert f"`{option}" in text, f"{name} {option}"
    assert isinstance(command, ObservedCommand) or name == "web"
