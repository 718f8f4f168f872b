"""A process that forks while its callers wait or decide: the child begins with an empty line and with locks that work.

These run in real time: a child is a real process. Each lives for milliseconds, unless something hangs.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import pytest

from headgate import (
    AdaptiveRateLimiter,
    CircuitBreaker,
    CredentialCoordinator,
    Permit,
    ProviderResilienceManager,
    RateLimitConfig,
    RecoveryRateLimiter,
    execute_with_resilience_sync,
)

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
PATIENCE = 60
"""Seconds after which a child is given up; it needs milliseconds."""
FAST = RateLimitConfig(strategy="fixed", initial_rps=1000, token_bucket_capacity=100)
BUSY = RateLimitConfig(
    strategy="fixed",
    initial_rps=200,
    token_bucket_capacity=1,
    overrides={"held": RateLimitConfig(strategy="fixed", initial_rps=3, token_bucket_capacity=1)},
)

limiter = AdaptiveRateLimiter(BUSY)
"""Of this module, so that the children of a pool find it."""


def exit_code(work: Callable[[], object]) -> int:
    """Fork, do the work in the child, and say how that ended."""
    child = os.fork()
    if child == 0:
        signal.alarm(PATIENCE)  # a child that hangs is ended by it
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def waiters(limiter: AdaptiveRateLimiter, key: str = "held", threads: int = 8) -> Iterator[None]:
    """So many threads ask for a key that lets few calls through."""
    limiter.acquire(key).release()
    waiting = [threading.Thread(target=_wait, args=(limiter, key), daemon=True) for _ in range(threads)]
    for thread in waiting:
        thread.start()
    until = time.monotonic() + PATIENCE
    while (seen := limiter.key_status(key)) is None or seen.waiters < 2:
        assert time.monotonic() < until
        time.sleep(0.001)
    yield
    limiter.pause_all()


def _wait(limiter: AdaptiveRateLimiter, key: str) -> None:
    limiter.acquire(key).release()


def take(_: int = 0) -> int:
    """In a child: the line is empty, and a caller gets a permit."""
    seen = limiter.key_status("held")
    assert seen is not None
    assert (seen.waiters, seen.in_flight) == (0, 0)
    return limiter.acquire("held", max_wait=PATIENCE).seq


def test_a_child_gets_a_permit_although_callers_of_its_parent_wait() -> None:
    own = AdaptiveRateLimiter(BUSY)

    def work() -> None:
        seen = own.key_status("held")
        assert seen is not None
        assert (seen.waiters, seen.in_flight) == (0, 0)
        assert isinstance(own.acquire("held", max_wait=PATIENCE), Permit)
        assert asyncio.run(own.acquire_async("other")).waited == 0.0

    with waiters(own):
        assert exit_code(work) == 0
        seen = own.key_status("held")
        assert seen is not None
        assert seen.waiters > 0  # the parent's stay in line


@pytest.mark.parametrize("how", ["process", "pool", "executor"])
def test_multiprocessing_by_fork_does_too(how: str) -> None:
    global limiter
    limiter = AdaptiveRateLimiter(BUSY)
    by_fork = multiprocessing.get_context("fork")
    with waiters(limiter):
        if how == "process":
            child = by_fork.Process(target=take)
            child.start()
            child.join(PATIENCE)
            assert child.exitcode == 0
        elif how == "pool":
            with by_fork.Pool(1) as pool:
                assert pool.map_async(take, [0]).get(PATIENCE) > [0]
        else:
            with ProcessPoolExecutor(1, mp_context=by_fork) as executor:
                assert executor.submit(take).result(PATIENCE) > 0


def test_tasks_of_the_parent_do_not_stand_in_a_childs_line() -> None:
    own = AdaptiveRateLimiter(BUSY)

    async def main() -> int:
        (await own.acquire_async("held")).release()
        tasks = [asyncio.create_task(own.acquire_async("held")) for _ in range(3)]
        await asyncio.sleep(0)
        code = exit_code(lambda: own.acquire("held", max_wait=PATIENCE))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return code

    assert asyncio.run(main()) == 0


def test_threads_that_decide_all_the_time_leave_no_lock_taken_in_a_child() -> None:
    own = AdaptiveRateLimiter(FAST)
    keys, manager = CredentialCoordinator(["first", "second"]), ProviderResilienceManager()
    breaker, ramp = CircuitBreaker(), RecoveryRateLimiter()
    ends = threading.Event()

    def use() -> None:
        own.acquire("api", max_wait=PATIENCE).report(status_code=200)
        with keys.lease(timeout=PATIENCE):
            pass
        own.snapshot()
        manager.get_provider_status("search")
        assert breaker.state is not None
        ramp.record_result(True)

    def work() -> None:
        while not ends.is_set():
            use()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = [exit_code(use) for _ in range(10)]
    ends.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert codes == [0] * 10


def test_a_lock_that_is_held_for_long_works_in_the_child() -> None:
    own = AdaptiveRateLimiter(FAST)
    own.acquire("api").release()
    held, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with own._lock:
            held.set()
            ends.wait(PATIENCE)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    held.wait(PATIENCE)
    try:
        assert exit_code(lambda: own.acquire("api", max_wait=PATIENCE)) == 0
    finally:
        ends.set()
        thread.join(PATIENCE)


def test_a_child_waits_for_a_credential_beside_callers_of_its_parent() -> None:
    keys = CredentialCoordinator(["only"], at_once=1)
    lease = keys.acquire()
    waiting = threading.Thread(target=lambda: keys.acquire(timeout=PATIENCE).release(), daemon=True)
    waiting.start()
    time.sleep(0.05)  # most likely it stands in line by now; the child must get the key in either case
    assert exit_code(lambda: keys.acquire(timeout=PATIENCE)) == 0
    lease.release()
    waiting.join(PATIENCE)


def test_a_manager_serves_a_child_while_calls_of_its_parent_wait() -> None:
    manager = ProviderResilienceManager()
    execute_with_resilience_sync(lambda: 1, "search", manager=manager)
    with waiters(manager.limiter, "search", threads=20):
        call = lambda: execute_with_resilience_sync(lambda: 2, "search", manager=manager, time_budget=PATIENCE)  # noqa: E731
        assert exit_code(call) == 0


def test_children_do_not_draw_the_same_numbers() -> None:
    own, parts = AdaptiveRateLimiter(FAST), []
    for _ in range(2):
        reading, writing = os.pipe()
        exit_code(lambda writing=writing: os.write(writing, repr(own._rng.random()).encode()))
        os.close(writing)
        with os.fdopen(reading) as said:
            parts.append(said.read())
    assert parts[0] != parts[1]
