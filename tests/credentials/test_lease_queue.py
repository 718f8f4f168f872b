"""Waiting for a credential: exact in virtual time, and real threads and loops where those matter."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import pytest

from headgate import Outcome, Signal
from headgate.credentials import CredentialCoordinator, Lease, lease_queue
from headgate.errors import NoCredentialError
from headgate.lab.virtual_time import LoopClock, VirtualClock, run


def limited(seconds: float) -> Signal:
    return Signal(outcome=Outcome.RATE_LIMITED, retry_after=seconds)


def holds_again(keys: CredentialCoordinator) -> bool:
    """Whether every credential can be taken, so that none was lost; gives them back."""
    leases = [keys.try_acquire() for _ in keys.states()]
    for lease in leases:
        if lease is not None:
            lease.release()
    return all(lease is not None for lease in leases)


class TestVirtualTime:
    def test_a_waiter_with_a_second_to_spare_wakes_at_the_end_of_the_quarantine_and_so_does_one_without(self) -> None:
        async def main(clock: LoopClock) -> list[float]:
            keys = CredentialCoordinator(["a", "b"], at_once=1, clock=clock)
            for lease in (keys.acquire(), keys.acquire()):
                lease.report(signal=limited(0.3))

            async def wait(timeout: float | None) -> float:
                async with keys.lease(timeout):
                    return clock.now()

            return list(await asyncio.gather(wait(1.0), wait(None)))

        assert run(main) == [0.3, 0.3]

    def test_a_thread_wakes_at_the_end_of_the_quarantine(self) -> None:
        clock = VirtualClock()
        keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
        keys.acquire().report(signal=limited(0.3))
        with keys.lease(timeout=1):
            assert clock.now() == 0.3

    def test_one_that_is_given_back_goes_to_the_first_in_line_at_once(self) -> None:
        async def main(clock: LoopClock) -> list[tuple[int, float]]:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            served: list[tuple[int, float]] = []

            async def work(number: int) -> None:
                async with keys.lease():
                    served.append((number, clock.now()))
                    await asyncio.sleep(0.5)

            await asyncio.gather(*(work(number) for number in range(100)))
            return served

        assert run(main) == [(number, 0.5 * number) for number in range(100)]

    def test_whoever_does_not_wait_overtakes_nobody(self) -> None:
        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            first = keys.acquire()
            waiting = asyncio.create_task(keys.acquire_async())
            await asyncio.sleep(0)
            first.release()
            assert keys.get_credential() is None
            assert keys.try_acquire() is None
            assert (await waiting).label == "key-1"

        run(main)

    def test_what_cannot_come_in_time_is_refused_at_once_with_the_earliest_reset(self) -> None:
        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a", "b"], at_once=1, clock=clock, provider="search")
            keys.park("key-1", 60)
            keys.park("key-2", 40)
            with pytest.raises(NoCredentialError) as refusal:
                await keys.acquire_async(timeout=10)
            assert clock.now() == 0.0
            assert refusal.value.earliest_reset == 40
            assert refusal.value.key == "search"
            assert "2 resting" in refusal.value.reason

        run(main)

    def test_one_held_by_others_is_waited_for_until_the_time_is_up(self) -> None:
        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a", "b"], at_once=1, clock=clock)
            held = keys.acquire()
            keys.park("key-2", 60)
            with pytest.raises(NoCredentialError) as refusal:
                await keys.acquire_async(timeout=10)
            assert clock.now() == 10.0
            assert refusal.value.earliest_reset == 50
            held.release()

        run(main)

    def test_whoever_waits_is_told_at_once_that_it_has_become_hopeless(self) -> None:
        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            held = keys.acquire()
            patient, hasty = (asyncio.create_task(keys.acquire_async(timeout)) for timeout in (None, 5))
            await asyncio.sleep(1)
            held.report(signal=limited(30))
            with pytest.raises(NoCredentialError):
                await hasty
            assert clock.now() == 1.0
            (await patient).release()
            assert clock.now() == 31.0

        run(main)

    def test_with_all_retired_nobody_waits(self) -> None:
        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            held = keys.acquire()
            waiting = asyncio.create_task(keys.acquire_async())
            await asyncio.sleep(1)
            held.report(signal=Signal(outcome=Outcome.AUTH))
            with pytest.raises(NoCredentialError) as refusal:
                await waiting
            assert refusal.value.earliest_reset is None
            with pytest.raises(NoCredentialError, match="1 disabled"):
                await keys.acquire_async()

        run(main)

    def test_an_operators_word_wakes_who_waits(self) -> None:
        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            keys.park("key-1", 1000)
            waiting = asyncio.create_task(keys.acquire_async())
            await asyncio.sleep(7)
            keys.free("key-1")
            await waiting
            assert clock.now() == 7.0

        run(main)

    def test_a_longer_rest_moves_the_alarm(self) -> None:
        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            keys.park("key-1", 1)
            waiting = asyncio.create_task(keys.acquire_async())
            await asyncio.sleep(0.5)
            keys.park("key-1", 10)
            await waiting
            assert clock.now() == 10.5

        run(main)

    def test_a_clock_of_ones_own_serves_too(self) -> None:
        clock = VirtualClock()
        keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
        keys.park("key-1", 5)

        async def main() -> None:
            async with keys.lease(timeout=6):
                assert clock.now() == 5.0

        asyncio.run(main())

    def test_the_line_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lease_queue, "MOST_WAITING", 3)

        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            keys.park("key-1", 5)
            waiting = [asyncio.create_task(keys.acquire_async()) for _ in range(4)]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert [type(task.exception()) for task in done] == [NoCredentialError]
            for task in waiting:
                task.cancel()

        run(main)


class TestCancelling:
    def test_at_every_step_nothing_is_lost(self) -> None:
        """A task that waits, holds and gives back is cancelled after each number of steps it can take."""

        async def main(clock: LoopClock, steps: int) -> bool:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            held = keys.acquire()

            async def work() -> None:
                async with keys.lease() as lease:
                    await asyncio.sleep(0)
                    lease.report(signal=limited(0.5))
                    await asyncio.sleep(0)

            task, other = asyncio.create_task(work()), asyncio.create_task(keys.acquire_async())
            for step in range(steps):
                if step == 3:
                    held.release()
                await asyncio.sleep(0)
            ended = task.done()
            task.cancel()
            held.release()
            await asyncio.gather(task, return_exceptions=True)
            (await other).release()
            assert holds_again(keys)
            return ended

        ended = [run(lambda clock, steps=steps: main(clock, steps)) for steps in range(12)]
        assert not ended[0]
        assert ended[-1]

    def test_in_the_same_moment_as_it_is_served_it_gives_back(self) -> None:
        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            held = keys.acquire()
            waiting = [asyncio.create_task(keys.acquire_async()) for _ in range(2)]
            await asyncio.sleep(0)
            held.release()
            waiting[0].cancel()
            assert (await waiting[1]).label == "key-1"

        run(main)

    def test_a_waiter_behind_one_that_is_cancelled_keeps_its_alarm(self) -> None:
        async def main(clock: LoopClock) -> None:
            keys = CredentialCoordinator(["a"], at_once=1, clock=clock)
            keys.park("key-1", 5)
            waiting = [asyncio.create_task(keys.acquire_async()) for _ in range(2)]
            await asyncio.sleep(1)
            waiting[0].cancel()
            await waiting[1]
            assert clock.now() == 5.0

        run(main)


class TestReally:
    """Real threads, real loops, real time: short waits."""

    def test_a_thread_and_an_untimed_one_beside_it_wake_at_the_end_of_the_quarantine(self) -> None:
        keys = CredentialCoordinator(["a", "b"], at_once=1)
        started_at = time.monotonic()
        for lease in (keys.acquire(), keys.acquire()):
            lease.report(signal=limited(0.3))
        woke: list[float] = []

        def wait(timeout: float | None) -> None:
            keys.acquire(timeout)
            woke.append(time.monotonic() - started_at)

        threads = [threading.Thread(target=wait, args=(timeout,)) for timeout in (60.0, None)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(0.3 <= at < 50.0 for at in woke), woke

    @pytest.mark.no_cover
    @pytest.mark.parametrize("at_once", [1, 2])
    def test_threads_and_loops_share_few_keys_and_never_too_many_hold_one(self, at_once: int) -> None:
        keys = CredentialCoordinator(["a", "b"], at_once=at_once)
        holders = {"key-1": 0, "key-2": 0}
        guard, most, served = threading.Lock(), [0], [0]

        def note(label: str, change: int) -> None:
            with guard:
                holders[label] += change
                most[0] = max(most[0], *holders.values())
                served[0] += change > 0

        def thread() -> None:
            for _ in range(100):
                with keys.lease(timeout=30) as lease:
                    note(lease.label, 1)
                    time.sleep(0.0002)
                    note(lease.label, -1)

        async def task() -> None:
            for _ in range(100):
                async with keys.lease(timeout=30) as lease:
                    note(lease.label, 1)
                    await asyncio.sleep(0.0002)
                    note(lease.label, -1)

        async def tasks() -> None:
            await asyncio.gather(task(), task())

        threads = [threading.Thread(target=work) for work in (thread, thread, lambda: asyncio.run(tasks())) * 2]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert served[0] == 800
        assert most[0] == at_once
        assert holds_again(keys)

    def test_a_hanging_loop_at_the_head_of_the_line_does_not_stop_the_others(self) -> None:
        keys = CredentialCoordinator(["a", "b"], at_once=1)
        keys.park("key-1", 0.2)
        keys.park("key-2", 0.2)
        in_line, others_are_served = threading.Event(), threading.Event()

        async def hang() -> None:
            task = asyncio.create_task(keys.acquire_async())
            await asyncio.sleep(0.02)
            in_line.set()
            others_are_served.wait(60)
            (await task).release()

        loop = threading.Thread(target=lambda: asyncio.run(hang()))
        loop.start()
        in_line.wait()
        try:
            keys.acquire(timeout=20).release()
        finally:
            others_are_served.set()
            loop.join()
        assert holds_again(keys)

    def test_one_who_waited_on_a_loop_that_is_closed_is_passed_over(self) -> None:
        keys = CredentialCoordinator(["a"], at_once=1)
        held = keys.acquire()
        loop = asyncio.new_event_loop()
        task = loop.create_task(keys.acquire_async())
        loop.run_until_complete(asyncio.sleep(0))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        held.release()
        assert keys.acquire(timeout=1).label == "key-1"

    @pytest.mark.no_cover
    @pytest.mark.filterwarnings("ignore")
    def test_one_who_was_served_on_a_loop_that_never_runs_again_gives_back(self) -> None:
        keys = CredentialCoordinator(["a"], at_once=1)
        held = keys.acquire()
        loop = asyncio.new_event_loop()
        task = loop.create_task(keys.acquire_async())
        loop.run_until_complete(asyncio.sleep(0))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        held.release()
        assert keys.try_acquire() is None
        loop.close()
        del task, loop
        gc.collect()
        assert keys.try_acquire() is not None

    @pytest.mark.no_cover
    def test_a_lease_may_be_collected_in_the_middle_of_a_decision(self) -> None:
        keys = CredentialCoordinator(["a", "b"], at_once=1)
        lease: Lease | None = keys.acquire()
        assert lease is not None
        with keys._queue._lock:
            del lease  # collected while this very thread decides
            gc.collect()
        assert holds_again(keys)

    def test_rests_of_milliseconds_and_cancellations_lose_no_wake_up(self) -> None:
        keys = CredentialCoordinator(["a", "b", "c"], at_once=1)
        not_before = {"key-1": 0.0, "key-2": 0.0, "key-3": 0.0}
        served, early = [0], []
        rng = random.Random(4)

        def use(lease: Lease) -> None:
            if lease.since < not_before[lease.label] - 1e-5:
                early.append(lease.label)
            served[0] += 1
            if rng.random() < 0.5:
                rest = rng.uniform(0.0005, 0.005)
                not_before[lease.label] = time.monotonic() + rest  # a little less than it will be
                lease.report(signal=limited(rest))

        def thread() -> None:
            for _ in range(80):
                with keys.lease() as lease:
                    use(lease)

        async def task() -> None:
            for _ in range(80):
                async with keys.lease() as lease:
                    use(lease)
                    await asyncio.sleep(0)

        async def fickle() -> None:
            for _ in range(80):
                try:
                    async with asyncio.timeout(rng.uniform(0, 0.004)), keys.lease() as lease:
                        use(lease)
                except TimeoutError:
                    pass

        async def tasks() -> None:
            await asyncio.gather(task(), task(), fickle(), fickle())

        threads = [threading.Thread(target=work) for work in (thread, thread, lambda: asyncio.run(tasks())) * 2]
        for one in threads:
            one.start()
        for one in threads:
            one.join(timeout=60)
        assert not any(one.is_alive() for one in threads)
        assert served[0] >= 8 * 80
        assert early == []
        time.sleep(0.01)
        assert holds_again(keys)

    @pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="POSIX signals")
    def test_a_thread_that_is_interrupted_while_it_waits_leaves_the_line(self) -> None:
        def strike(*_: object) -> None:
            raise KeyboardInterrupt

        keys = CredentialCoordinator(["a"], at_once=1)
        keys.park("key-1", 1000)
        before = signal.signal(signal.SIGALRM, strike)
        try:
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                keys.acquire()
        finally:
            signal.signal(signal.SIGALRM, before)
        keys.free("key-1")
        assert holds_again(keys)

    def test_nobody_polls(self) -> None:
        keys = CredentialCoordinator(["a"], at_once=1)
        held, ticks = keys.acquire(), []
        tick = keys._queue.tick
        keys._queue.tick = lambda request: (ticks.append(time.monotonic()), tick(request))[1]  # type: ignore[method-assign]
        thread = threading.Thread(target=lambda: keys.acquire().release())
        thread.start()
        while not keys.waiting:
            time.sleep(0.01)
        time.sleep(0.1)
        assert ticks == []
        held.release()
        thread.join()
        assert len(ticks) == 1


INTERRUPTED = """
import signal
from headgate.credentials import CredentialCoordinator

class Struck(BaseException):
    pass

def strike(*_):
    if armed:
        raise Struck

signal.signal(signal.SIGALRM, strike)
keys = CredentialCoordinator(["a", "b"], at_once=1)
struck, armed = 0, False
for turn in range(1000):
    try:
        armed = True
        signal.setitimer(signal.ITIMER_REAL, 0.00002 + 0.0000013 * (turn % 97), 0.005)  # again, if one is swallowed
        while True:
            with keys.lease():
                pass
    except Struck:
        armed = False
        struck += 1
signal.setitimer(signal.ITIMER_REAL, 0)
leases = [keys.try_acquire(), keys.try_acquire(), keys.try_acquire()]
assert [lease is None for lease in leases] == [False, False, True], leases
print(struck)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX signals and fork")
class TestPosix:
    def test_ctrl_c_at_any_moment_loses_no_credential(self) -> None:
        done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) > 600

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_a_forked_child_has_all_that_rests_and_nothing_that_is_held(self) -> None:
        keys = CredentialCoordinator(["a", "b"], at_once=1)
        lease = keys.acquire()
        keys.park("key-2", 60)
        keys._queue._lock.acquire()  # as if another thread were deciding
        child = os.fork()
        if child == 0:
            lease.release()  # the parent's: means nothing here
            states = [one.state for one in keys.states()]
            mine = keys.try_acquire()
            os._exit(0 if states == ["free", "resting"] and mine is not None else 1)
        keys._queue._lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [one.state for one in keys.states()] == ["held", "resting"]
        lease.release()


def test_least_recently_used_over_many() -> None:
    keys = CredentialCoordinator([f"s{number}" for number in range(5)], at_once=1)
    order = []
    for _ in range(15):
        with keys.lease() as lease:
            order.append(int(lease.label[4:]))
    assert all((later - earlier) % 5 == 1 for earlier, later in pairwise(order))
