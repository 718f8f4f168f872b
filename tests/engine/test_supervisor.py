"""A run stops for its first reason, and with its first failure."""

import asyncio

from headgate.engine.supervisor import Stop, StopReason, Supervisor


def test_the_first_reason_counts_and_a_later_request_may_be_more_urgent():
    asked = []
    supervisor = Supervisor(lambda stop, now: asked.append((stop, now)))
    supervisor.stop(StopReason.STANDSTILL, "nothing can start")
    supervisor.stop(StopReason.CANCELLED, now=True)
    first = Stop(StopReason.STANDSTILL, "nothing can start")
    assert supervisor.stopped == first
    assert asked == [(first, False), (first, True)]
    assert str(first) == "standstill: nothing can start"
    assert str(Stop(StopReason.CANCELLED)) == "cancelled"


def test_what_a_guarded_task_raises_ends_the_run(play):
    supervisor = Supervisor(lambda stop, now: None)

    async def work(error):
        raise error

    async def scenario(clock):
        first = ValueError("one")
        await supervisor.guarded(work, first)
        await supervisor.guarded(work, KeyError("two"))
        assert supervisor.failure is first
        assert supervisor.stopped == Stop(StopReason.FAILED, "ValueError")

    play(scenario)


def test_what_a_started_task_raises_ends_the_run_and_a_cancelled_task_does_not(play):
    asked = []
    supervisor = Supervisor(lambda stop, now: asked.append((stop, now)))

    async def work(error):
        await asyncio.sleep(1)
        raise error

    async def scenario(clock):
        first = ValueError("one")
        cancelled, failed = supervisor.start(work(KeyError("none"))), supervisor.start(work(first))
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert supervisor.failure is None
        await asyncio.wait([failed])
        assert supervisor.failure is first
        assert asked == [(Stop(StopReason.FAILED, "ValueError"), True)]

    play(scenario)
