"""Waiters: what wakes a thread or a task, and what does not."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headgate import SystemClock
from headgate.lab.virtual_time import LoopClock, VirtualClock, run
from headgate.waiters import TaskWaiter, ThreadWaiter


def elsewhere(waiter: ThreadWaiter) -> ThreadWaiter:
    waiter.thread = -1  # as if it was another thread's
    return waiter


class TestThread:
    def test_it_is_not_woken_for_an_instant_that_has_not_moved(self) -> None:
        waiter = elsewhere(ThreadWaiter(VirtualClock()))
        waiter.arm(5.0)
        assert waiter.signaled
        waiter.signaled = not waiter.wakeup.acquire(blocking=False)  # it has run
        waiter.arm(5.0 + 1e-9)
        assert not waiter.signaled
        waiter.on_wake()
        waiter.arm(5.0)
        assert waiter.signaled

    def test_its_own_thread_does_not_wake_it(self) -> None:
        waiter = ThreadWaiter(VirtualClock())
        assert waiter.wake()
        assert not waiter.signaled

    def test_it_sleeps_until_the_instant_or_the_deadline(self) -> None:
        clock = VirtualClock()
        waiter = ThreadWaiter(clock)
        waiter.arm(5.0)
        waiter.sleep()
        assert clock.now() == 5.0
        waiter.on_wake()
        waiter.give_up_at = 7.0
        waiter.arm(9.0)
        waiter.sleep()
        assert clock.now() == 7.0

    def test_settling_wakes_it_wherever_it_sleeps(self) -> None:
        woken = threading.Event()
        made: list[ThreadWaiter] = []
        ready = threading.Event()

        def wait() -> None:
            made.append(ThreadWaiter(SystemClock()))
            ready.set()
            made[0].sleep()
            woken.set()

        thread = threading.Thread(target=wait)
        thread.start()
        ready.wait(60)
        assert made[0].settle()
        assert woken.wait(60)
        thread.join()
        made[0].on_wake()
        assert not made[0].signaled


class TestTask:
    def test_it_runs_at_the_instant_it_is_armed_for(self) -> None:
        async def main(clock: LoopClock) -> list[float]:
            waiter = TaskWaiter(clock)
            ran_at = []
            for at in (1.0, 2.5):
                waiter.arm(at)
                await waiter.future
                waiter.on_wake()
                ran_at.append(clock.now())
            return ran_at

        assert run(main) == [1.0, 2.5]

    def test_a_deadline_is_watched_unless_it_is_armed_for_something_else(self) -> None:
        async def main(clock: LoopClock) -> tuple[float, float]:
            waiter = TaskWaiter(clock)
            waiter.watch_deadline()
            assert not waiter.armed
            waiter.give_up_at = 3.0
            waiter.arm(1.0)
            waiter.watch_deadline()
            await waiter.future
            first = clock.now()
            waiter.on_wake()
            waiter.watch_deadline()
            await waiter.future
            return first, clock.now()

        assert run(main) == (1.0, 3.0)

    def test_an_instant_that_another_thread_set_is_void_once_it_has_run(self) -> None:
        async def main(clock: LoopClock) -> bool:
            waiter = TaskWaiter(clock)
            armed = threading.Thread(target=waiter.arm, args=(5.0,))
            armed.start()
            armed.join()  # the timer is left to the loop, which has yet to run
            waiter.on_wake()
            await clock.sleep_async(9.0)
            return waiter.future.done()

        assert run(main) is False

    def test_a_timer_of_one_that_has_settled_is_not_set(self) -> None:
        async def main(clock: LoopClock) -> None:
            waiter = TaskWaiter(clock)
            assert waiter.settle()
            waiter.arm(5.0)
            assert waiter.timer is None
            waiter.disarm()

        run(main)

    def test_another_clock_is_slept_on(self) -> None:
        clock = VirtualClock()

        async def main() -> None:
            waiter = TaskWaiter(clock)
            waiter.arm(2.0)
            await waiter.future

        asyncio.run(main())
        assert clock.now() == 2.0

    def test_one_whose_loop_is_closed_never_runs_again(self) -> None:
        async def main() -> TaskWaiter:
            return TaskWaiter(SystemClock())

        waiter = asyncio.run(main())
        assert waiter.is_dead()
        assert not waiter.settle()
        waiter.arm(1.0)
        assert waiter.timer is None


@pytest.mark.parametrize("kind", [ThreadWaiter, TaskWaiter])
def test_a_waiter_has_no_dict(kind: type[ThreadWaiter | TaskWaiter]) -> None:
    """100,000 calls may wait for one key, and a dict takes more than all that a waiter knows."""

    async def main(clock: LoopClock) -> bool:
        return hasattr(kind(clock), "__dict__")

    assert run(main) is False
