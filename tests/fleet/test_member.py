"""A member's reports, orders and lease: in virtual time, with real threads and processes, and on a real server."""

import json
import logging
import os
import time

import pytest

from headgate import ConfigError
from headgate.distributed.store import StoreDown
from headgate.engine.supervisor import StopReason
from headgate.fleet.member import LONGEST_DETAIL, FleetMember, MemberReport, Orders, detail_text
from headgate.fleet.protocol import Caps, Counts
from headgate.fleet.redis_state import RedisRunState
from headgate.fleet.state_store import MemoryRunState, open_run_state
from headgate.limiter.key_lines import KeyLine, WaitLine


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Broken(MemoryRunState):
    where = "redis at cache"
    is_down = False

    def exchange(self, run, request):
        if self.is_down:
            raise StoreDown("redis at cache: connection refused")
        return super().exchange(run, request)


class TestReports:
    def test_counts_rate_and_detail_arrive(self, fleet):
        member, clock = fleet(), fleet.ground.clock
        member.step()
        clock.advance(2.0)
        member.counts |= {"done": 20, "calls": 22, "rate_limited": 2, "in_flight": 4}
        member.step()
        (seen,) = fleet.ground.store.view("nightly").members
        assert seen.counts == Counts(done=20, calls=22, rate_limited=2)
        assert (seen.rate, seen.in_flight) == (10.0, 4)
        assert json.loads(seen.detail)["pid"] == os.getpid()

    def test_a_name_that_no_display_could_show_is_refused(self, fleet):
        for name in ("", "a\nb", "\x1b[31mred", " x", "x" * 121):
            with pytest.raises(ConfigError, match="printable"):
                fleet(run=name)

    def test_the_detail_is_bounded(self):
        keys = tuple(KeyLine(key=f"key-{number}" + "k" * 190, rate=1.0, reason="w" * 200) for number in range(100))
        waits = tuple(WaitLine(scope="s", sentence="x" * 2000) for _ in range(100))
        text = detail_text(MemberReport(keys=keys, waits=waits))
        assert len(text) <= LONGEST_DETAIL
        assert json.loads(text)["keys"]

    def test_a_store_that_comes_back_empty_has_the_detail_again(self, fleet):
        member = fleet()
        member.step()
        member._state = fleet.ground.store = MemoryRunState(fleet.ground.clock)
        for _ in range(2):
            member.step()
        (seen,) = fleet.ground.store.view("nightly").members
        assert seen.detail


class TestOrders:
    def test_stop_pause_and_resume_are_told_once_each(self, fleet):
        told = []
        member, store = fleet(on_orders=told.append), fleet.ground.store
        member.step()
        for order in ("pause", "resume", "stop"):
            store.order("nightly", order)
            member.step()
            member.step()
        assert told == [Orders(paused=True), Orders(), Orders(stop=StopReason.STOPPED)]
        assert member.orders.stop is StopReason.STOPPED

    def test_a_stopped_run_can_be_started_again(self, fleet):
        member, store = fleet(), fleet.ground.store
        member.step()
        store.order("nightly", "stop")
        member.step()
        member.step(leaves=True)
        again = fleet()
        again.step()
        assert again.orders == Orders()


class TestStoreDown:
    def test_a_store_that_is_down_stops_nothing_and_is_told_once(self, caplog):
        store = Broken()
        member = FleetMember(store, "nightly", report=MemberReport, caps=Caps(max_tokens=100.0))
        member.step()
        assert not member.budget.allows(10.0, 0.0)
        member.step()
        assert member.budget.allows(10.0, 0.0)
        store.order("nightly", "pause")
        store.is_down = True
        with caplog.at_level(logging.INFO, "headgate"):
            for _ in range(3):
                member.step()
            assert member.is_lost
            assert member.budget.allows(10.0, 0.0), "what is leased may be spent"
            store.is_down = False
            member.step()
        assert member.orders.paused
        lost, back = (record.getMessage() for record in caplog.records)
        assert lost.startswith("redis at cache: connection refused; run nightly is not reported until it is back")
        assert back == "redis at cache is back"


class TestThread:
    def test_it_reports_and_leaves_by_itself(self):
        store, done = MemoryRunState(), [0]
        member = FleetMember(store, "nightly", report=lambda: MemberReport(done=done[0]))
        member.start()
        member.start()
        until(lambda: store.view("nightly") is not None)
        done[0] = 5
        member.close()
        member.close()
        view = store.view("nightly")
        assert (view.counts.done, view.members) == (5, ())

    def test_a_lease_comes_at_once(self):
        member = FleetMember(MemoryRunState(), "nightly", report=MemberReport, caps=Caps(max_tokens=100.0))
        member.start()
        began = time.monotonic()
        until(lambda: member.budget.allows(10.0, 0.0))
        assert time.monotonic() - began < 15.0
        member.close()

    def test_a_report_that_fails_does_not_end_the_thread(self, caplog):
        store, faults = MemoryRunState(), [ValueError("no")]

        def report():
            if faults:
                raise faults.pop()
            return MemberReport(done=1)

        member = FleetMember(store, "nightly", report=report)
        member.start()
        until(lambda: not faults)
        member.wake()
        until(lambda: store.view("nightly") is not None)
        member.close()
        assert "a report of run nightly failed" in caplog.text

    def test_a_forked_child_is_another_member_and_holds_nothing(self):
        store = MemoryRunState()
        member = FleetMember(store, "nightly", report=lambda: MemberReport(done=5), caps=Caps(max_tokens=100.0))
        member.budget.allows(10.0, 0.0)
        member.step()
        before = member.name
        child = os.fork()
        if child == 0:
            member.step()
            view = store.view("nightly")
            fine = member.name != before and not member.budget.allows(1.0, 0.0) and view.counts.done == 5
            os._exit(0 if fine and len(view.members) == 2 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert member.budget.allows(10.0, 0.0)


class TestRedis:
    def test_open_run_state(self, redis_server):
        state = open_run_state(redis_server.url)
        member = FleetMember(state, "nightly", report=lambda: MemberReport(done=1, cost=0.123456789))
        member.start()
        until(lambda: state.view("nightly") is not None)
        member.close()
        assert state.view("nightly").counts == Counts(done=1, cost=0.123456789)
        state.close()

    def test_only_stores_that_other_machines_can_reach(self):
        for store in ("machine", "memory", "none", "http://x"):
            with pytest.raises(ConfigError, match="redis://host:6379"):
                open_run_state(store)

    def test_what_lies_there_expires(self, redis_server):
        state = RedisRunState(redis_server.url, timeout=5.0)
        keys = (KeyLine(key="openai", rate=5.0),)
        FleetMember(state, "nightly", report=lambda: MemberReport(keys=keys)).step()
        for key in (b"headgate:fleet:1", b"headgate:fleet:1:nightly"):
            (left,) = redis_server.ask(b"TTL " + key).strip(b":\r\n").split()
            assert 6.9 * 86_400 < int(left) <= 7 * 86_400
        state.close()

    def test_a_server_that_is_gone_raises_in_time(self, own_server):
        state = RedisRunState(own_server.url, timeout=0.2)
        own_server.stop()
        began = time.monotonic()
        with pytest.raises(StoreDown):
            state.views()
        assert time.monotonic() - began < 20.0


@pytest.fixture
def own_server():
    from bench.redis_server import RedisServer

    with RedisServer() as server:
        yield server
