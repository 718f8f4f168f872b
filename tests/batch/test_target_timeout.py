"""Many calls under one timer: each is as long as it may be, and a cancellation is never taken for lateness."""

import asyncio

import pytest

from headgate.batch.target import SharedTimeout
from headgate.lab.virtual_time import run


def in_virtual_time(scenario):
    return run(lambda clock: scenario(clock, SharedTimeout()))


def test_each_ends_at_its_own_time():
    async def scenario(clock, limits):
        async def call(takes, within):
            try:
                await limits.run(asyncio.sleep(takes), within)
            except TimeoutError:
                return clock.now(), "late"
            return clock.now(), "done"

        ended = await asyncio.gather(call(5, 2), call(1, 2), call(50, 10), call(9, 10), call(5, 1))
        assert ended == [(2.0, "late"), (1.0, "done"), (10.0, "late"), (9.0, "done"), (1.0, "late")]
        assert asyncio.current_task().cancelling() == 0

    in_virtual_time(scenario)


def test_a_call_after_one_that_was_late_has_its_whole_time():
    async def scenario(clock, limits):
        for _ in range(3):
            began = clock.now()
            with pytest.raises(TimeoutError):
                await limits.run(asyncio.sleep(100), 3)
            assert clock.now() - began == 3.0
        assert await limits.run(asyncio.sleep(2.9, "done"), 3) == "done"

    in_virtual_time(scenario)


@pytest.mark.parametrize("cancelled_at", [1.0, 2.0])
def test_who_is_cancelled_is_not_late(cancelled_at):
    """Even at the very moment it would be."""

    async def scenario(clock, limits):
        task = asyncio.create_task(limits.run(asyncio.sleep(100), 2.0))
        asyncio.get_running_loop().call_at(asyncio.get_running_loop().time() + cancelled_at, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    in_virtual_time(scenario)


def test_what_the_call_raises_is_what_is_raised():
    async def scenario(clock, limits):
        async def broken():
            await asyncio.sleep(1)
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await limits.run(broken(), 2)
        limits.close()

    in_virtual_time(scenario)
