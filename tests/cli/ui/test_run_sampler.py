"""``status``, ``watch``, ``stop``, ``pause`` and ``resume`` with ``--store``: the runs of many machines."""

import json

import pytest

from headgate.fleet.member import FleetMember, MemberReport
from headgate.fleet.redis_state import RedisRunState
from headgate.limiter.key_lines import KeyLine


@pytest.fixture
def store(redis_server):
    return f"{redis_server.url}?timeout=5"


@pytest.fixture
def join(redis_server):
    """Members that report by hand; a run's worth of seconds passes while a machine is busy, so they report often."""
    state = RedisRunState(redis_server.url, timeout=5.0)
    members = []

    def add(run="nightly", **report):
        key = KeyLine(key="openai", rate=20.0, said=25.0, sent=50, refused=2, shared_by=2)
        member = FleetMember(state, run, report=lambda: MemberReport(keys=(key,), **report))
        member.start()
        member.step()
        members.append(member)
        return member

    yield add
    for member in members:
        member.close()
    state.close()


def test_one_run_is_shown_in_full_with_its_workers(headgate, store, join):
    join(done=1200, failed=2, rate_limited=7)
    join(done=800)
    page = headgate("status", "--store", store)
    assert page.code == 0
    for text in ("nightly  running", "2,000 done", "2 failed", "2 workers", "openai", "20.0/s", "25.0/s", "1,200"):
        assert text in page.out


def test_several_runs_are_a_list_and_run_chooses_one(headgate, store, join):
    join(done=3)
    join(run="weekly", done=4)
    page = headgate("status", "--store", store)
    assert "2 runs in redis" in page.out
    assert {"nightly", "weekly"} <= set(page.out.split())
    one = headgate("status", "--store", store, "--run", "weekly", "--json")
    told = json.loads(one.out)
    assert (told["run"], told["progress"]["done"], told["members"][0]["state"]) == ("weekly", 4, "working")
    both = json.loads(headgate("status", "--store", store, "--json").out)
    assert sorted(run["run"] for run in both["runs"]) == ["nightly", "weekly"]


def test_a_misspelled_run_is_told_with_the_nearest(headgate, store, join):
    join()
    for command in ("status", "watch", "stop", "pause"):
        said = headgate(command, "--store", store, "--run", "nigthly")
        assert (said.code, said.err) == (3, "headgate: unknown run 'nigthly'; did you mean 'nightly'?\n")


def test_stop_pause_and_resume_reach_every_worker(headgate, store, join):
    members = [join(), join()]
    for command, check in (
        ("pause", lambda one: one.orders.paused),
        ("resume", lambda one: not one.orders.paused),
        ("stop", lambda one: one.orders.stop is not None),
    ):
        said = headgate(command, "--store", store, "--run", "nightly")
        assert (said.code, said.out.startswith("nightly: ")) == (0, True), said.err
        for member in members:
            member.step()
            assert check(member)


def test_the_only_run_need_not_be_named_and_several_must(headgate, store, join):
    join()
    assert headgate("pause", "--store", store).code == 0
    join(run="weekly")
    said = headgate("stop", "--store", store)
    assert said.code == 2
    assert "2 runs are active in this store; name one: " in said.err


def test_watch_shows_one_run_as_json_lines_until_it_ends(headgate_process, store, join):
    member = join(done=3)
    process = headgate_process("watch", "--store", store, "--run", "nightly", "--json", "--every", "100ms")
    first = json.loads(process.stdout.readline())
    assert (first["event"], first["run"], first["kind"]) == ("run", "nightly", "fleet")
    member.close()
    last = [json.loads(line) for line in process.stdout][-1]
    assert (last["event"], last["ending"]) == ("ended", "done")
    assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "--run", "x"], "--run needs --store"),
        (["watch", "--run", "x"], "--run needs --store"),
        (["stop", "--run", "x"], "--run needs --store"),
        (["stop", "x", "--store", "redis://h"], "name the run with --run NAME"),
        (["stop", "--store", "machine"], "redis://host:6379"),
        (["status", "--store", "machine", "--run", "x"], "redis://host:6379"),
        (["web", "--store", "none"], "redis://host:6379"),
    ],
)
def test_mistakes(headgate, words, said):
    answer = headgate(*words)
    assert answer.code == 2
    assert said in answer.err


def test_a_store_that_cannot_be_reached(headgate):
    for words in (["status"], ["stop"], ["web"], ["status", "--run", "x"]):
        answer = headgate(*words, "--store", "redis://:hunter2@127.0.0.1:1")
        assert answer.code == 3
        assert "connection refused" in answer.err
        assert "hunter2" not in answer.err


def test_stop_without_a_run_here(headgate, monkeypatch, tmp_path):
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))
    assert headgate("stop").err == "headgate: no run is active on this machine.\n"
    assert "unknown run 'x'; no run is active on this machine" in headgate("pause", "x").err
