"""So many calls at once, and lanes in turn."""

from __future__ import annotations

import asyncio

import pytest

from headgate.engine import worker_pool as module
from headgate.engine.lane import Lane, LaneWait
from headgate.engine.supervisor import Supervisor
from headgate.engine.worker_pool import Recorder, WorkerPool


def waiting_lane(clock, name):
    lane = Lane(name, None, clock)
    lane.wait_for(LaneWait.WORKERS)
    return lane


async def call(pool, seconds):
    try:
        await asyncio.sleep(seconds)
    finally:
        pool.working.pop(asyncio.current_task(), None)


def test_it_is_free_until_workers_or_open_calls_are_used_up(play):
    async def scenario(clock):
        blocked = False
        pool = WorkerPool(2, max_open=3, is_blocked=lambda: blocked)
        assert pool.is_free
        assert pool.waits_for_recording
        pool.start("a", call(pool, 1.0))
        assert (pool.free, pool.is_free, pool.waits_for_recording) == (1, True, False)
        pool.unrecorded = 2
        assert (pool.is_free, pool.waits_for_recording) == (False, True)
        pool.unrecorded = 0
        blocked = True
        assert not pool.is_free
        blocked = False
        pool.start("b", call(pool, 2.0))
        assert not pool.is_free
        await pool.drain()
        assert clock.now() == 2.0
        assert not pool.working

    play(scenario)


def test_lanes_are_told_in_turn_and_those_that_wait_for_something_else_are_passed(play):
    async def scenario(clock):
        pool = WorkerPool(1, max_open=9)
        first, gone, second = (waiting_lane(clock, name) for name in "abc")
        for lane in (first, gone, second, first):
            pool.want(lane)
        assert pool.is_wanted_by_others(first)
        pool.dispatch()
        assert [lane.has_turn for lane in (first, gone, second)] == [True, False, False]
        gone.wait_for(LaneWait.PACE)
        pool.dispatch()
        assert [lane.has_turn for lane in (first, gone, second)] == [True, False, True]
        assert not pool.is_wanted_by_others(second)

    play(scenario)


def test_cancelling_spares_what_has_not_begun(play):
    async def scenario(clock):
        pool = WorkerPool(3, max_open=9)
        begun = pool.start("begun", call(pool, 100.0))
        other = pool.start("other", call(pool, 3.0))
        await asyncio.sleep(0)
        pool.cancel(lambda job: job == "begun")
        assert pool.is_cancelled
        await pool.drain()
        assert begun.cancelled()
        assert not other.cancelled()
        assert clock.now() == 3.0

    play(scenario)


def test_a_call_cancelled_before_its_first_step_leaves_the_pool(play):
    async def scenario(clock):
        pool = WorkerPool(1, max_open=9)
        pool.start("a", call(pool, 1.0)).cancel()
        await pool.drain()
        assert not pool.working

    play(scenario)


class Store:
    def __init__(self, takes=1.0):
        self.lots, self.takes = [], takes

    async def write(self, changes):
        self.lots.append(list(changes))
        await asyncio.sleep(self.takes)
        return [change >= 0 for change in changes]


def parts(store, patience=0.5, workers=1):
    pool = WorkerPool(workers, max_open=5 * workers)
    supervisor = Supervisor(lambda stop, now: None)
    written = []
    recorder = Recorder(
        store.write, pool, supervisor, patience=patience, on_written=lambda: written.append(len(store.lots))
    )
    return recorder, pool, supervisor, written


def test_a_change_waits_for_others_no_longer_than_patience_while_calls_are_under_way(play):
    async def scenario(clock):
        store, done = Store(), []
        recorder, pool, _, written = parts(store)
        pool.start("call", asyncio.sleep(100.0))
        recorder.put(1, lambda kept: done.append((1, kept, clock.now())))
        recorder.put(-2, lambda kept: done.append((-2, kept, clock.now())))
        assert pool.unrecorded == 2
        await asyncio.sleep(0.4)
        assert not store.lots
        await recorder.drain()
        assert store.lots == [[1, -2]]
        assert done == [(1, True, 1.4), (-2, False, 1.4)]
        assert pool.unrecorded == 0
        assert written == [1]
        pool.cancel()

    play(scenario)


def test_nothing_waits_while_no_call_is_under_way_and_one_lot_is_written_at_a_time(play):
    async def scenario(clock):
        store = Store()
        recorder, _, _, _ = parts(store)
        for number in range(3):
            recorder.put(number, lambda kept: None)
        await asyncio.sleep(0)
        assert store.lots == [[0]]
        await asyncio.sleep(1.1)
        assert store.lots == [[0], [1, 2]]
        await recorder.drain()

    play(scenario)


def test_a_full_lot_goes_at_once(play, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_LOT", 3)

    async def scenario(clock):
        store = Store()
        recorder, pool, _, _ = parts(store, patience=60.0)
        pool.start("call", asyncio.sleep(100.0))
        for number in range(7):
            recorder.put(number, lambda kept: None)
        await asyncio.sleep(0)
        assert store.lots == [[0, 1, 2], [3, 4, 5]]
        await recorder.drain()
        assert store.lots[2:] == [[6]]
        pool.cancel()

    play(scenario)


def test_a_store_that_fails_ends_the_run(play):
    async def scenario(clock):
        store, error = Store(), OSError("no space")

        async def fail(changes):
            raise error

        store.write = fail
        recorder, pool, supervisor, _ = parts(store)
        recorder.put(1, lambda kept: pytest.fail("it is not durable"))
        await recorder.drain()
        assert supervisor.failure is error
        assert pool.unrecorded == 0

    play(scenario)
