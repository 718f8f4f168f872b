"""The demo, small: on real sockets and in real time, so these few tests take real seconds."""

import asyncio
import errno
import io
import json
import re
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from headgate.cli.commands.demo import hidden_plan, mock_options
from headgate.cli.commands.demo_display import DemoFrame, phase_text, score_rows, show_score
from headgate.cli.ui.display import Display, Mode
from headgate.lab.score import judge
from headgate.lab.traces.reader import read_trace
from headgate.lab.traces.trace import TraceWriter
from headgate.lab.trial import KeySample, Sample, Trial
from headgate.mock.server import key_secret

SMALL = ["--calls", "40", "--seconds", "1", "--workers", "8"]


def test_it_runs_to_the_end_loses_nothing_and_draws_a_picture(headgate, tmp_path):
    picture = tmp_path / "run.svg"
    result = headgate("demo", *SMALL, "--json", "-o", picture)
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert {"at", "learned", "quota", "done", "rate_limited", "waiting", "keys"} <= set(lines[0])
    assert [key["key"] for key in lines[0]["keys"]] == ["key-1", "key-2", "key-3"]
    assert {"learned", "quota", "done", "rate_limited", "rests", "breaker", "reason"} <= set(lines[0]["keys"][0])
    end = lines[-1]
    assert end["sound"] is True
    summary = end["summary"]
    assert (summary["done"], summary["lost"], summary["done_twice"], summary["left"]) == (40, 0, 0, 0)
    assert sum(key["done"] for key in summary["keys"]) == 40
    assert any(key["reason"] for line in lines[:-1] for key in line["keys"])
    ElementTree.parse(picture)


def test_it_can_be_recorded_and_every_call_is_in_the_recording(headgate, demo_in_one_process, tmp_path):
    recording = tmp_path / "run.jsonl"
    result = headgate("demo", *SMALL, "--json", "--no-picture", "--trace", recording)
    assert result.code == 0, result.err
    end = json.loads(result.out.splitlines()[-1])
    trace = read_trace(recording)
    assert trace.is_whole
    assert (trace.heading.calls, trace.heading.workers, trace.heading.keys) == (40, 8, 3)
    assert sorted(trace.labels.values()) == ["key-1", "key-2", "key-3"]
    assert len(trace.calls) == end["summary"]["sent"]
    assert sum(call.status == 200 for call in trace.calls) == 40
    assert trace.learned[-1].rate > 0
    assert end["recording"] == str(recording)
    assert "127.0.0.1" not in recording.read_text()
    assert key_secret(1) not in recording.read_text() + result.out + result.err


def test_a_recording_that_breaks_off_does_not_cost_the_score(headgate, demo_in_one_process, tmp_path, monkeypatch):
    def full(writer, *_, **__):
        writer.trouble = OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TraceWriter, "_write", full)
    result = headgate("demo", *SMALL, "--json", "--no-picture", "--trace", tmp_path / "run.jsonl")
    assert result.code == 3
    assert "is incomplete (No space left on device)" in result.err
    assert json.loads(result.out.splitlines()[-1])["summary"]["done"] == 40


def test_a_recording_that_cannot_be_opened_is_one_sentence(headgate, demo_in_one_process, tmp_path):
    result = headgate("demo", *SMALL, "--trace", tmp_path / "no" / "run.jsonl", "--no-picture")
    assert result.code == 2
    assert "--trace" in result.err
    result = headgate("demo", *SMALL, "--trace", "/proc/nothing", "--no-picture")
    assert result.code == 3
    assert result.err.startswith("headgate: cannot write /proc/nothing")


def test_a_picture_that_cannot_be_written_does_not_cost_the_score(headgate, demo_in_one_process, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = headgate("demo", *SMALL, "--json", "-o", tmp_path / "run.svg")
    assert result.code == 3
    assert "cannot write" in result.err
    end = json.loads(result.out.splitlines()[-1])
    assert (end["summary"]["done"], end["picture"]) == (40, None)


def test_a_quota_that_was_not_found_is_said_so_and_no_share_is_told_from_then_on():
    trial, plan = watched_trial(), hidden_plan(1, 6000, 28.0)
    trial.samples = [Sample(n / 10, (KeySample(3.0),) * 3, 0, 0) for n in range(140)]
    rows = dict(score_rows(judge(trial, plan, {"ids_done": 0, "ids_done_twice": 0}), plan, None))
    for key, own in zip(("key-1", "key-2", "key-3"), plan.keys, strict=True):
        assert rows[key].split()[:2] == [f"{own.rate.per_second:.1f}/s", "never"]
        assert rows[key].count("never") == 2
    assert "once found" not in rows["goodput"]


def test_without_a_terminal_it_prints_plain_lines(headgate, demo_in_one_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = headgate("demo", *SMALL, "--no-picture", "--seed", "2")
    assert result.code == 0, result.err
    assert "\x1b" not in result.out
    assert "learned" in result.out.splitlines()[1]
    assert "none lost, none done twice" in result.out
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_gives_the_score_so_far_and_exit_code_4(headgate_process, tmp_path):
    recorded = ["--trace", "run.jsonl"]
    process = headgate_process("demo", "--calls", "5000", "--seconds", "60", "--json", *recorded, cwd=tmp_path)
    while json.loads(process.stdout.readline())["done"] == 0:
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4, err
    end = json.loads(out.splitlines()[-1])
    assert end["sound"] is True
    assert end["summary"]["left"] == 5000 - end["summary"]["done"] > 0
    assert (tmp_path / "headgate-demo.svg").exists()
    trace = read_trace(tmp_path / "run.jsonl")
    assert trace.is_whole
    assert sum(call.status == 200 for call in trace.calls) == end["summary"]["done"]


def test_a_run_that_takes_far_too_long_is_given_up_and_says_so(headgate, demo_in_one_process, monkeypatch):
    monkeypatch.setattr("headgate.cli.commands.demo.PATIENCE", 0.02)
    result = headgate("demo", "--calls", "5000", "--seconds", "60", "--no-picture", "--json")
    assert result.code == 3
    left = json.loads(result.out.splitlines()[-1])["summary"]["left"]
    assert 0 < left < 5000
    assert result.err == f"headgate: stopped after 0.02 times the planned 60 s with {left:,} calls not done.\n"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("calls", "seconds"), [(6000, 28.0), (20, 1.0), (200, 3.0), (20, 3600.0)])
def test_the_hidden_quota_fits_the_time_it_has(seed, calls, seconds):
    plan = hidden_plan(seed, calls, seconds)
    assert plan == hidden_plan(seed, calls, seconds)
    assert plan.allowed_between(0.0, seconds) > calls
    first, second, third = (key.rate.per_second for key in plan.keys)
    assert first > second > third
    for key in plan.keys:
        assert 0 < key.steps[0].at < plan.outages[0].at < plan.outages[0].until < seconds
    assert mock_options(plan, seed).count("--key") == 3


def watched_trial():
    trial = Trial(None, "http://127.0.0.1:1", 3000, 48, ("a", "b", "c"), began_at=0.0, ended_at=14.0)
    shares = (1.0, 0.5, 0.2)
    for n in range(140):
        looks = tuple(KeySample(share * min(110.0, 2.0 + n)) for share in shares)
        trial.samples.append(Sample(n / 10, looks, 40, 5 * n))
    waits = KeySample(58.0, "half_open", "circuit half open; waiting for the result of a probe")
    trial.samples.append(Sample(14.0, (waits, KeySample(30.0), KeySample(11.0, "open")), 47, 700))
    for book, done in zip(trial.keys, (400, 200, 100), strict=True):
        book.done_at = [14.0 * n / done for n in range(done)]
        book.statuses.update({200: done, 429: 2, 503: 5})
        book.refused_at, book.rests = [9.0, 13.0], 1
    return trial


@pytest.mark.parametrize(("width", "height"), [(80, 18), (80, 24), (120, 40), (200, 60)])
def test_the_screen_fits_its_window_and_says_why_it_waits(width, height):
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    trial = watched_trial()
    frame = DemoFrame(trial, trial.samples[-1], hidden_plan(1, 6000, 28.0), 28.0)
    console.print(frame.render(width, height))
    lines = console.file.getvalue().splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for word in ("learned rate", "true quota", "429s", "half-open", "key-1 circuit half open", "700 of 3,000", "now: "):
        assert word in text
    for label, done in (("key-1", 400), ("key-2", 200), ("key-3", 100)):
        assert re.search(rf"^  {label} +\d+\.\d/s +\d+\.\d/s +{done} +2 +1  \S+$", text, re.MULTILINE)


def test_the_screen_tells_what_happens():
    trial, plan = watched_trial(), hidden_plan(1, 6000, 28.0)
    _, key_2, key_3 = plan.keys

    def told(at, shares=(1.0, 1.0, 1.0), done=0):
        looks = (KeySample(share * (key.rate_at(at) or 0.0)) for share, key in zip(shares, plan.keys, strict=True))
        return phase_text(plan, trial, Sample(at, tuple(looks), 40, done))

    assert "searching for the quotas" in told(4.0, (1.0, 1.3, 1.0))
    assert "every quota is found" in told(4.0)
    assert "quota of key-3 has dropped" in told(key_3.steps[0].at + 0.1)
    assert "quota of key-1 and key-2 has dropped" in told(key_2.steps[0].at + 0.1)
    assert "the API is down" in told(plan.outages[0].at + 0.1)
    assert "the API is back" in told(plan.outages[0].until + 0.1)
    assert told(27.0, done=trial.calls) == "all calls are done"


def test_a_terminal_keeps_the_last_screen_and_the_score():
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True)
    trial, plan = watched_trial(), hidden_plan(1, 6000, 28.0)
    trial.times_done.update(range(700))
    trial.stopped = True
    score = judge(trial, plan, {"ids_done": 700, "ids_done_twice": 0})
    display = Display(Mode.SCREEN, console=console, transient=False)
    with display:
        display.show(DemoFrame(trial, trial.samples[-1], plan, 28.0))
    show_score(display, score, plan, Path("run.svg"))
    text = console.file.getvalue()
    for word in ("learned rate", "2,300 left", "none lost, none done twice", "goodput", "run.svg", "drops to"):
        assert word in text
    assert "outage" not in text.partition("goodput")[2]  # it was stopped before


def test_a_mock_that_cannot_start_is_one_sentence(headgate, monkeypatch):
    async def no_child(*_, **__):
        return await start("/bin/sh", "-c", "echo it broke >&2; exit 1", **__)

    start = asyncio.create_subprocess_exec
    monkeypatch.setattr("asyncio.create_subprocess_exec", no_child)
    result = headgate("demo", *SMALL, "--no-picture")
    assert result.code == 3
    assert result.err == "headgate: the mock API did not start: it broke.\n"


def test_a_mock_that_says_nothing_in_time_is_one_sentence_too(headgate, monkeypatch):
    async def no_child(*_, **__):
        return await start("/bin/sleep", "60", **__)

    start = asyncio.create_subprocess_exec
    monkeypatch.setattr("asyncio.create_subprocess_exec", no_child)
    monkeypatch.setattr("headgate.cli.commands.demo.START_WITHIN", 0.1)
    result = headgate("demo", *SMALL, "--no-picture")
    assert result.code == 3
    assert "the mock API did not start: no answer within 0.1 s; try again when" in result.err
