"""An outage of the whole target uses up no row's attempts: whatever was sent into it is sent again afterwards."""

import asyncio
import random
from collections import Counter

import pytest

from headgate import AdaptiveRateLimiter, BatchConfig, BatchRunner, RateLimitConfig
from headgate.lab.virtual_time import run

OUTAGE = 300.0
COMMAND = {"max_attempts": 5, "base_delay": 1.0, "max_delay": 60.0}
"""The settings of ``headgate run``."""


def outage(rows, *, begins=0.0, lasts=OUTAGE, settings=None, gate=None, keys=None, workers=50):
    """How many rows are done and dead, how often each was called, and when the last was done."""

    async def scenario(clock):
        calls = Counter()
        began_at = clock.now()

        async def ask(item, ctx):
            calls[item] += 1
            await asyncio.sleep(0.05)
            if begins <= clock.now() - began_at < begins + lasts:
                raise ConnectionRefusedError("nobody listens")
            return item

        rng = random.Random(7)
        limiter = AdaptiveRateLimiter(RateLimitConfig(**(gate or {})), clock=clock, rng=rng)
        config = BatchConfig(**(settings or {}))
        runner = BatchRunner(
            ask, workers=workers, limiter=limiter, config=config, credentials=keys, clock=clock, rng=rng
        )
        report = await runner.run(range(rows))
        return report, calls, clock.now() - began_at

    return run(scenario)


@pytest.mark.parametrize("lasts", [5.0, 60.0, OUTAGE])
@pytest.mark.parametrize("settings", [{}, COMMAND], ids=["library", "command"])
def test_rows_outlive_it(lasts, settings):
    gate = {"open_state_duration": 5.0} if settings else {}
    report, _, _ = outage(200, begins=10.0, lasts=lasts, settings=settings, gate=gate)
    assert (report.done, report.dead) == (200, 0)


@pytest.mark.parametrize("rows", [1, 2, 5, 20])
def test_a_small_batch_outlives_it_from_the_first_call_on(rows):
    report, _, ended = outage(rows)
    assert (report.done, report.dead) == (rows, 0)
    assert OUTAGE < ended < OUTAGE + 60


def test_the_last_row_alone_outlives_it():
    report, calls, ended = outage(1, settings=COMMAND, gate={"open_state_duration": 5.0})
    assert (report.done, report.dead) == (1, 0)
    assert ended < OUTAGE + 60
    assert calls[0] <= 26


def test_with_several_keys_each_of_which_sees_only_a_part_of_it():
    report, _, _ = outage(4, keys=["key-one-secret", "key-two-secret", "key-three-secret"])
    assert (report.done, report.dead) == (4, 0)


def test_a_row_that_may_be_called_once_is_called_once():
    _, calls, _ = outage(1, settings={"max_attempts": 1})
    assert calls == {0: 1}


def test_an_attempt_is_given_back_twenty_times_and_no_more():
    report, calls, _ = outage(1, lasts=1e6, settings=COMMAND, gate={"open_state_duration": 5.0})
    assert (report.done, report.dead) == (0, 1)
    assert calls == {0: 5 + 20}


def test_a_row_that_fails_by_itself_is_dead_after_its_attempts():
    """Others succeed, so that it is no outage."""

    async def scenario(clock):
        calls = Counter()

        async def ask(item, ctx):
            calls[item] += 1
            await asyncio.sleep(0.05)
            if item == 3:
                raise ConnectionResetError("this one alone")
            return item

        limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=50.0), clock=clock, rng=random.Random(7))
        report = await BatchRunner(ask, limiter=limiter, clock=clock, rng=random.Random(7)).run(range(500))
        return report, calls

    report, calls = run(scenario)
    assert (report.done, report.dead, calls[3]) == (499, 1, 3)
