"""The caller's function: on the loop or in a thread, and within its time."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from headgate import AdaptiveRateLimiter
from headgate.batch.attempt import ItemContext, WorkerFunction, is_async
from headgate.core.decision import UNKNOWN


def attempt_of(value, deadline_at=UNKNOWN, timeout=UNKNOWN, time_left=UNKNOWN):
    return SimpleNamespace(
        item=SimpleNamespace(value=value, deadline_at=deadline_at),
        attempt=1,
        lease=None,
        permit=None,
        attempt_timeout=timeout,
        time_left=lambda: time_left,
    )


async def slow(value, ctx):
    await asyncio.sleep(value)
    return value


class Callable:
    async def __call__(self, value, ctx):
        return value


def test_coroutine_functions_and_objects_that_act_like_one_are_known():
    assert is_async(slow)
    assert is_async(Callable())
    assert not is_async(lambda value, ctx: value)


def test_it_is_called_on_the_loop_with_its_context(play):
    async def scenario(lab):
        seen = []

        async def worker(value, ctx):
            seen.append(type(ctx))
            return await slow(value, ctx)

        function = WorkerFunction(worker, AdaptiveRateLimiter(clock=lab.clock), threads=1, attempt_timeout=None)
        assert await function(attempt_of(5.0)) == 5.0
        assert lab.clock.now() == 5.0
        assert seen == [ItemContext]

    play(scenario)


@pytest.mark.parametrize(
    ("attempt_timeout", "attempt"),
    [(2.0, attempt_of(5.0, timeout=2.0)), (None, attempt_of(5.0, deadline_at=2.0, time_left=2.0))],
)
def test_it_has_the_time_of_an_attempt_or_what_is_left_of_the_rows(play, attempt_timeout, attempt):
    async def scenario(lab):
        limiter = AdaptiveRateLimiter(clock=lab.clock)
        function = WorkerFunction(slow, limiter, threads=1, attempt_timeout=attempt_timeout)
        with pytest.raises(TimeoutError):
            await function(attempt)
        assert lab.clock.now() == 2.0

    play(scenario)


def test_a_plain_function_runs_in_a_thread_until_it_is_closed():
    async def main():
        function = WorkerFunction(
            lambda value, ctx: (value, threading.current_thread().name),
            AdaptiveRateLimiter(),
            threads=1,
            attempt_timeout=None,
        )
        value, name = await function(attempt_of("row"))
        function.close()
        return value, name

    value, name = asyncio.run(main())
    assert value == "row"
    assert name.startswith("headgate-batch")
