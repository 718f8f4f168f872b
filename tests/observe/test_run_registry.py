"""Runs that others can see: files of their own, read, acted on, and gone with the run."""

import json
import os
import stat
import subprocess
import sys
import time

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.lab.virtual_time import VirtualClock
from headgate.observe.monitor import RunMonitor
from headgate.observe.run_registry import (
    LEFT_FOR,
    MOST_TIMELINES,
    RunAnnouncement,
    announced,
    machine_runs,
    read_snapshot,
    runs_folder,
    sweep,
)
from headgate.observe.snapshot import STALE, Action, ActionRefusedError, plain

KEY = "api.example.com"


class PumpedClock(VirtualClock):
    """While somebody waits, the run does its steps."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def sleep(self, seconds):
        self.advance(seconds)
        for step in self.steps:
            step()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "runs")


@pytest.fixture
def clock():
    return PumpedClock()


@pytest.fixture
def limiter(clock):
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=50.0), clock=clock)
    limiter.acquire(KEY).report(status_code=200)
    return limiter


@pytest.fixture
def files(limiter, folder, clock):
    watched = RunMonitor(limiter=limiter, title="a run").start(alone=False)
    files = RunAnnouncement(watched, folder)
    clock.steps.append(files.step)
    yield files
    watched.close()
    files.end()


def test_a_run_is_read_as_it_tells_itself(files, folder, clock, limiter):
    for _ in range(3):
        files._monitor.record()
        files.step()
        clock.advance(1.0)
    limiter.pause(KEY, 5.0)
    files.step()
    (run,) = machine_runs(folder, clock).runs()
    assert run.snapshot() == files._monitor.snapshot()
    assert run.events(0) == files._monitor.events(0)
    assert run.timelines([KEY, "unknown"], 0.0) == files._monitor.timelines([KEY], 0.0)
    since = run.timelines([KEY], 0.0)[0].at[1]
    assert len(run.timelines([KEY], since)[0].at) == 1


def test_of_many_keys_it_names_those_whose_time_lines_it_tells(files, folder, clock, limiter):
    for key in range(2 * MOST_TIMELINES):
        limiter.acquire(f"key-{key}").report(status_code=200)
    files._monitor.record()
    files.step()
    (run,) = machine_runs(folder, clock).runs()
    charted = run.snapshot().charted
    assert len(charted) == MOST_TIMELINES
    assert [line.key for line in run.timelines(charted, 0.0)] == list(charted)


def test_it_is_written_about_once_a_second(files, folder, clock, limiter):
    written = set()
    for _ in range(40):
        files.step()
        written.add(os.stat(files._base + ".json").st_ino)
        with open(files._base + ".json", "rb") as file:
            written.add(json.load(file)["snapshot"]["at"])
        clock.advance(0.25)
    assert len([one for one in written if isinstance(one, float)]) == 10


def test_nobody_else_can_read_it(files, folder):
    files.step()
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert os.listdir(folder)
    for name in os.listdir(folder):
        assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600


@pytest.fixture
def ended(limiter, folder):
    """A run that has ended, and what had it in hand before."""
    watched = RunMonitor(limiter=limiter)
    files = RunAnnouncement(watched, folder)
    files.step()
    (run,) = machine_runs(folder).runs()
    limiter.acquire(KEY).report(status_code=200)
    watched.close()
    files.end()
    return run


def test_only_its_last_word_is_left_when_it_ends(ended, folder):
    assert os.listdir(folder) == [f"{ended.name}.json"]
    assert machine_runs(folder).runs() == []
    last = ended.snapshot()
    assert (last.state, last.ending, last.silent, last.keys[0].sent) == ("ended", "done", False, 2)


@pytest.mark.parametrize("who", [lambda folder: machine_runs(folder).runs(), sweep])
def test_a_last_word_is_removed_after_a_while(ended, folder, who):
    path = os.path.join(folder, f"{ended.name}.json")
    who(folder)
    assert os.path.exists(path)
    long_ago = time.time() - LEFT_FOR - 1.0
    os.utime(path, (long_ago, long_ago))
    who(folder)
    assert os.listdir(folder) == []
    assert ended.snapshot().ending == "lost"  # it was not read in time


@pytest.mark.parametrize(("error", "ending"), [(RuntimeError, "failed"), (KeyboardInterrupt, "stopped")])
def test_what_ended_a_block_is_told(error, ending):
    watched = RunMonitor(limiter=AdaptiveRateLimiter())
    with pytest.raises(error), announced(watched):
        raise error
    (name,) = os.listdir(runs_folder())
    with open(os.path.join(runs_folder(), name), "rb") as file:
        assert json.load(file)["snapshot"]["ending"] == ending == watched.snapshot().ending


def test_an_action_reaches_the_run_and_its_answer_comes_back(files, folder, clock, limiter):
    files.step()
    (run,) = machine_runs(folder, clock).runs()
    assert run.act(Action(kind="limit", target=KEY, value=5.0)) == f"{KEY}: limited to 5 calls/s"
    assert limiter.key_status(KEY).limit == 5.0
    assert run.snapshot().keys[0].limit == 5.0
    assert run.act(Action(kind="limit", target=KEY)) == f"{KEY}: limit removed"
    with pytest.raises(ActionRefusedError, match="not in use"):
        run.act(Action(kind="limit", target="unknown", value=5.0))
    assert sorted(os.listdir(folder)) == [f"{run.name}.alive", f"{run.name}.json"]


def test_a_run_that_does_not_answer_is_left_alone(files, folder, clock):
    files.step()
    clock.steps.clear()
    (run,) = machine_runs(folder, clock).runs()
    with pytest.raises(ActionRefusedError, match="did not respond"):
        run.act(Action(kind="pause"))
    assert clock.now() == pytest.approx(5.0, abs=0.1)
    assert sorted(os.listdir(folder)) == [f"{run.name}.alive", f"{run.name}.json"]


def test_a_run_that_gives_no_sign_for_long_is_said_to_be_silent(files, folder, clock):
    files.step()
    (run,) = machine_runs(folder, clock).runs()
    clock.advance(STALE)
    assert not run.snapshot().silent
    clock.advance(0.1)
    assert (run.snapshot().silent, run.snapshot().state) == (True, "running")
    files.step()
    assert not run.snapshot().silent


def test_orders_that_others_could_have_written_are_not_followed(files, folder, clock, limiter):
    path = f"{files._base}.{'0' * 16}.do"
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"kind": "pause"}, file)
    os.chmod(path, 0o666)
    files.step()
    assert not limiter.is_paused
    with open(path.replace(".do", ".said"), "rb") as file:
        assert "not sent by this user" in json.load(file)["refused"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"kind": 5}', b'{"kind": "park", "value": "x"}', b"\xff" * 9_000]
)
def test_orders_that_make_no_sense_are_refused_and_go(files, folder, content, limiter):
    path = f"{files._base}.{'a' * 16}.do"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(content)
    files.step()
    assert not os.path.exists(path)
    with open(path.replace(".do", ".said"), "rb") as file:
        assert json.load(file)["refused"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"snapshot": {"schema": 99}}', b'{"snapshot": 5}'])
def test_a_file_that_makes_no_sense_is_passed_over(files, folder, content, clock):
    with open(files._base + ".json", "wb") as file:
        file.write(content)
    os.chmod(files._base + ".json", 0o600)
    assert machine_runs(folder, clock).runs() == []


def test_what_a_newer_version_adds_is_left_out(files):
    told = plain(files._monitor.snapshot()) | {"more": 1}
    told["keys"] = [one | {"colour": "red"} for one in told["keys"]]
    assert read_snapshot(told) == files._monitor.snapshot()


def test_what_a_crash_leaves_is_removed_by_the_next_who_looks(folder):
    """A real process that dies on the spot."""
    program = f"""
import os
from headgate import AdaptiveRateLimiter
from headgate.observe.run_registry import RunAnnouncement
from headgate.observe.monitor import RunMonitor
files = RunAnnouncement(RunMonitor(limiter=AdaptiveRateLimiter()), {folder!r})
files.step()
print("here", flush=True)
os.read(0, 1)
os._exit(9)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"here\n"
        (run,) = machine_runs(folder).runs()
        assert run.snapshot().pid == process.pid
        process.stdin.write(b"x")
        process.stdin.close()
        assert process.wait(60) == 9
    assert machine_runs(folder).runs() == []
    assert os.listdir(folder) == []
    assert (run.snapshot().state, run.snapshot().ending) == ("ended", "lost")
    with pytest.raises(ActionRefusedError, match="ended"):
        run.act(Action(kind="pause"))


def test_a_block_announces_and_cleans_up():
    """In real time, for one round of the thread."""
    limiter = AdaptiveRateLimiter()
    with announced(RunMonitor(limiter=limiter, kind="demo")) as watched:
        until = time.monotonic() + 10.0
        while not (runs := machine_runs().runs()):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert [run.name for run in runs] == [watched.run]
        assert runs[0].act(Action(kind="pause")).startswith("paused")
        assert limiter.is_paused
    assert machine_runs().runs() == []


def test_where_nothing_can_be_written_the_run_goes_on(monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path / "file"))
    with announced(RunMonitor(limiter=AdaptiveRateLimiter())) as watched:
        assert watched.snapshot().state == "running"
    assert "this run won't appear in `headgate watch`" in caplog.text
