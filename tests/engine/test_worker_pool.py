"""So many calls at once, and lanes in turn."""

import asyncio

from headgate.engine.lane import Lane, LaneWait
from headgate.engine.worker_pool import WorkerPool


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
