"""A fleet run as a monitored run: members merged into one snapshot, orders, and hostile or broken reports."""

import json

import pytest

from headgate.fleet.member import FleetMember, MemberReport
from headgate.fleet.protocol import Caps, MemberRequest
from headgate.fleet.run_state import LOST_AFTER
from headgate.fleet.state_store import MemoryRunState
from headgate.lab.virtual_time import VirtualClock
from headgate.limiter.key_lines import KeyLine, WaitLine
from headgate.observe.snapshot import MOST_MEMBERS, Action, ActionRefusedError, to_json
from headgate.observe.sources.fleet import ENDED_FOR, FleetRuns


class Fleet:
    def __init__(self):
        self.clock = VirtualClock()
        self.store = MemoryRunState(self.clock)
        self.runs = FleetRuns(self.store, self.clock)

    def member(self, run="nightly", caps=None, job="", **report):
        member = FleetMember(
            self.store, run, caps=caps, job=job, report=lambda: MemberReport(**report), clock=self.clock
        )
        member.step()
        return member

    def raw(self, detail, run="nightly", name="aa-1@host"):
        self.store.exchange(run, MemberRequest(member=name, number=1, detail=detail))

    def snapshot(self):
        (run,) = self.runs.runs()
        return run.snapshot()


@pytest.fixture
def fleet():
    return Fleet()


def key(**more):
    usual = {"key": "openai", "rate": 20.0, "said": 25.0, "sent": 10, "done": 9, "refused": 1, "latency": 0.1}
    return KeyLine(**usual | more)


def test_without_runs_there_is_nothing(fleet):
    assert list(fleet.runs.runs()) == []


def test_members_are_one_run(fleet):
    fleet.member(done=10, failed=1, tokens=100.0, cost=0.5, in_flight=3, keys=(key(shared_by=2),))
    fleet.member(done=5, in_flight=2, keys=(key(sent=30, latency=0.3, waiting=4, reason="paced", shared_by=2),))
    seen = fleet.snapshot()
    assert (seen.run, seen.kind, seen.state, seen.store) == ("nightly", "fleet", "running", "2 workers, memory")
    progress = seen.progress
    assert (progress.done, progress.dead, progress.in_flight, progress.tokens) == (15, 1, 5, 100)
    (line,) = seen.keys
    assert (line.rate, line.said, line.sent, line.refused, line.waiting) == (20.0, 25.0, 40, 2, 4)
    assert (line.reason, round(line.latency, 3)) == ("paced", 0.25)
    assert [member.done for member in seen.members] == [10, 5]
    assert all(member.name.partition("@")[0].isdigit() and member.host for member in seen.members)


def test_rates_of_keys_that_are_not_shared_add_up(fleet):
    fleet.member(keys=(key(),))
    fleet.member(keys=(key(rate=5.0),))
    assert fleet.snapshot().keys[0].rate == 25.0


def test_why_it_waits_is_told_once_for_each_cause(fleet):
    wait = WaitLine(scope="openai", sentence="openai: paced at 20 calls/s", behind=7, code="pace")
    fleet.member(waits=(wait,))
    fleet.member(waits=(wait, WaitLine(scope="openai", sentence="openai: held for 9 s", behind=1, code="hold")))
    assert [(line.code, line.behind) for line in fleet.snapshot().waits] == [("hold", 1), ("pace", 14)]


def test_a_lost_member_comes_first_and_does_not_count_as_work(fleet):
    fleet.member(done=3)
    fleet.runs.runs()
    fleet.clock.advance(LOST_AFTER + 0.5)
    fleet.member(done=4)
    seen = fleet.snapshot()
    assert [member.state for member in seen.members] == ["lost", "working"]
    assert (seen.state, seen.progress.done) == ("running", 7)
    assert seen.counters["lost_workers"] == 1
    (run,) = fleet.runs.runs()
    assert {"member_lost", "member_joined"} <= {line.kind for line in run.events(0)}


@pytest.mark.parametrize("how", ["done", "lost", "stopped"])
def test_how_it_ended(fleet, how):
    member = fleet.member(done=3)
    if how == "stopped":
        fleet.store.order("nightly", "stop")
    if how == "lost":
        fleet.clock.advance(LOST_AFTER + 0.5)
    else:
        member.step(leaves=True)
    seen = fleet.snapshot()
    assert (seen.state, seen.ending, seen.progress.done) == ("ended", how, 3)


def test_runs_that_ended_long_ago_are_listed_only_on_demand(fleet):
    fleet.member().step(leaves=True)
    fleet.clock.advance(ENDED_FOR + 1.0)
    fleet.member(run="today")
    assert [run.name for run in fleet.runs.runs()] == ["today"]
    everything = FleetRuns(fleet.store, fleet.clock, all_ended=True)
    assert [run.name for run in everything.runs()] == ["today", "nightly"]


def test_an_operator_pauses_resumes_and_stops_all_of_them(fleet):
    members = [fleet.member(), fleet.member()]
    (run,) = fleet.runs.runs()
    for kind, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopping")):
        assert run.act(Action(kind=kind))
        for member in members:
            member.step()
        assert run.snapshot().state == state
    assert all(member.orders.stop for member in members)
    assert [line.kind for line in run.events(0)].count("operator") == 3


def test_a_paused_run_says_so(fleet):
    fleet.member(in_flight=2)
    fleet.store.order("nightly", "pause")
    seen = fleet.snapshot()
    assert seen.waits[0].sentence == "the run is paused by an operator"


def test_what_a_fleet_cannot_do_is_refused(fleet):
    member = fleet.member()
    (run,) = fleet.runs.runs()
    with pytest.raises(ActionRefusedError, match="paused, resumed and stopped"):
        run.act(Action(kind="limit", target="openai", value=3.0))
    member.step(leaves=True)
    fleet.runs.runs()
    with pytest.raises(ActionRefusedError, match="no workers"):
        run.act(Action(kind="pause"))


def test_caps_that_are_used_up_are_a_reason_to_wait(fleet):
    member = fleet.member(caps=Caps(max_tokens=100.0))
    assert not member.budget.allows(100.0, 0.0)
    member.step()
    (line,) = fleet.snapshot().waits
    assert (line.scope, line.sentence) == ("max_tokens", "max_tokens=100 is spent or leased to workers")


def test_a_view_of_many_members_is_bounded(fleet):
    for _ in range(MOST_MEMBERS + 20):
        fleet.member(keys=(key(),))
    seen = fleet.snapshot()
    assert (len(seen.members), seen.more_members) == (MOST_MEMBERS, 20)
    assert len(to_json(seen)) < 64_000


@pytest.mark.parametrize(
    "detail",
    [
        "",
        "not json",
        "[]",
        "[" * 100_000,
        '{"keys": 5, "waits": {"a": 1}}',
        '{"keys": [5, null, {"rate": 1}, {"key": 7, "rate": 1}, {"key": "a", "rate": "b"}]}',
        '{"keys": [{"key": "a", "rate": NaN}, {"key": "a", "rate": null}], "waits": [{"scope": "x"}]}',
        '{"waits": [{"scope": "x", "sentence": "y", "behind": []}]}',
    ],
)
def test_reports_that_cannot_be_read_are_left_out(fleet, detail):
    fleet.raw(detail)
    seen = fleet.snapshot()
    assert (seen.state, seen.keys, seen.waits) == ("running", (), ())
    json.loads(to_json(seen))


def test_control_codes_of_other_machines_are_escaped(fleet):
    escape = "\x1b[31m"
    fleet.raw(json.dumps({"keys": [{"key": f"a{escape}", "rate": 1.0}]}), run=f"run{escape}", name=f"aa-1@{escape}")
    assert escape not in repr(to_json(fleet.snapshot()).decode())
    seen = fleet.snapshot()
    assert all("\x1b" not in text for text in (seen.run, seen.keys[0].key, seen.members[0].name, seen.members[0].host))


def test_a_chart_has_the_keys_of_all_members(fleet):
    for second in range(3):
        fleet.member(keys=(key(sent=10 * second, in_flight=1),))
        fleet.runs.runs()
        fleet.clock.advance(1.1)
    (run,) = fleet.runs.runs()
    assert run.snapshot().charted == ("openai",)
    assert len(run.timelines(["openai"], 0.0)[0].at) >= 2
