"""Around a shared limiter: threads, forks, the garbage collector, leaving, keys that come and go, faults inside.

These run in real time with short waits, because threads and processes do.
"""

import asyncio
import gc
import os
import random
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.controllers.fixed import Fixed
from headgate.distributed.backends.memory import MemoryStore
from headgate.distributed.backends.sqlite import SqliteStore
from headgate.distributed.lease import Lease
from headgate.distributed.store import StoreDown
from headgate.errors import CircuitOpenError, WaitTooLongError

pytestmark = pytest.mark.no_cover

KEY = "api.example.com"
PATIENCE = 60.0
"""Seconds for what takes milliseconds, unless the machine stands still; what goes wrong would take for ever."""


def fixed(rate, **more):
    return RateLimitConfig(strategy="fixed", initial_rps=rate, **more)


def sync_threads():
    """Of this process: those of tests before may be among them."""
    return {thread for thread in threading.enumerate() if thread.name == "headgate-sync"}


def eventually(is_so, within=PATIENCE):
    until = time.monotonic() + within
    while not is_so():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def limiter_of():
    limiters = []

    def make(store, config=None, **more):
        limiters.append(AdaptiveRateLimiter(config or fixed(200.0), store=store, **more))
        return limiters[-1]

    yield make
    for limiter in limiters:
        limiter.close()


class Faulty(MemoryStore):
    """Fails as it is told."""

    def __init__(self):
        super().__init__()
        self.fault = None
        self.cut_short = False

    def sync(self, requests):
        if self.fault is not None:
            raise self.fault
        replies = super().sync(requests)
        return replies[:-1] if self.cut_short else replies


class TestThreads:
    def test_threads_of_several_limiters_stay_within_the_rate_together(self, limiter_of):
        store, starts, began_at = MemoryStore(), [], time.monotonic()
        limiters = [limiter_of(store, fixed(400.0)) for _ in range(4)]

        def work(limiter):
            while len(starts) < 800:
                permit = limiter.acquire(KEY)
                starts.append(time.monotonic())
                permit.report(status_code=200)

        threads = [threading.Thread(target=work, args=(limiter,)) for limiter in limiters for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert len(starts) <= 1.02 * 400 * (max(starts) - began_at) + 4 + 16

    def test_a_first_call_takes_milliseconds(self, limiter_of):
        took = []
        for _ in range(5):  # the quickest of some, for the machine may stand still
            limiter = limiter_of(MemoryStore())
            began_at = time.monotonic()
            limiter.acquire(KEY).report(status_code=200)
            took.append(time.monotonic() - began_at)
        assert min(took) < 0.25

    def test_the_lock_is_not_held_while_the_store_is_asked_about(self, limiter_of):
        held = []

        class Looking(MemoryStore):
            def sync(self, requests):
                held.append(limiter._lock.locked())
                return super().sync(requests)

        limiter = limiter_of(Looking())
        for _ in range(20):
            limiter.acquire(KEY).report(status_code=200)
        limiter.close()
        assert held
        assert not any(held)  # nobody else asks meanwhile

    def test_two_limiters_in_one_process_are_two_members(self, limiter_of):
        store = MemoryStore()
        one, other = limiter_of(store), limiter_of(store)
        one.acquire(KEY).report(status_code=200)
        other.acquire(KEY).report(status_code=200)
        eventually(lambda: other.key_status(KEY).shared_by == 2)

    def test_a_listener_in_the_store_s_thread_is_refused_instead_of_waiting_for_ever(self, limiter_of):
        store, refused = Faulty(), []
        limiter = limiter_of(store)
        store.fault = StoreDown("it is down")

        def listen(event):
            if event.kind == "store_lost":
                try:
                    for _ in range(1000):
                        limiter.acquire(KEY)
                except WaitTooLongError as error:
                    refused.append(error.reason)

        limiter.on_event = listen
        limiter.acquire(KEY).report(status_code=200)
        eventually(lambda: refused)
        assert "listener" in refused[0]

    def test_who_shares_nothing_has_nobody_to_share_with(self):
        limiter = AdaptiveRateLimiter(fixed(100.0))
        limiter.acquire(KEY).report(status_code=200)
        assert limiter.key_status(KEY).shared_by == 0
        assert limiter.snapshot().sharing is None


class TestLeaving:
    def test_closing_gives_back_what_is_held_and_leaves(self, limiter_of):
        store, before = MemoryStore(), sync_threads()
        one, other = limiter_of(store), limiter_of(store)
        for _ in range(5):
            one.acquire(KEY).report(status_code=200)
            other.acquire(KEY).report(status_code=200)
        one.close()
        (coordinator,) = store.snapshot()
        assert len(coordinator.members) == 1
        assert sync_threads() - before
        other.close()
        assert store.snapshot()[0].members == ()
        eventually(lambda: not sync_threads() - before)

    def test_closing_twice_and_closing_unused_is_harmless(self, limiter_of):
        unused = limiter_of(MemoryStore())
        unused.close()
        unused.close()

    def test_a_closed_limiter_that_is_used_again_joins_again(self, limiter_of):
        store = MemoryStore()
        limiter = limiter_of(store)
        limiter.acquire(KEY).report(status_code=200)
        limiter.close()
        limiter.acquire(KEY, max_wait=PATIENCE).report(status_code=200)
        assert len(store.snapshot()[0].members) == 1

    def test_whoever_waits_while_it_is_closed_is_let_through(self, limiter_of):
        limiter = limiter_of(MemoryStore(), fixed(5.0, token_bucket_capacity=1))
        limiter.acquire(KEY).report(status_code=200)
        through = []
        waiting = threading.Thread(target=lambda: through.append(limiter.acquire(KEY)))
        waiting.start()
        eventually(lambda: limiter.key_status(KEY).waiters == 1)
        limiter.close()
        waiting.join(PATIENCE)
        assert through

    def test_a_limiter_nobody_holds_any_more_ends_its_thread(self):
        limiter = AdaptiveRateLimiter(fixed(100.0), store=MemoryStore())
        others = set(threading.enumerate())
        limiter.acquire(KEY).report(status_code=200)
        (thread,) = set(threading.enumerate()) - others
        assert thread.name == "headgate-sync"
        del limiter
        # Collected again and again: the thread itself holds the limiter during a round.
        eventually(lambda: gc.collect() >= 0 and not thread.is_alive())

    def test_a_program_that_ends_leaves(self, tmp_path):
        program = """
            import sys
            from headgate import AdaptiveRateLimiter, RateLimitConfig
            from headgate.distributed.backends.sqlite import SqliteStore
            limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=100.0),
                                          store=SqliteStore(sys.argv[1]))
            for _ in range(3):
                limiter.acquire("k").report(status_code=200)
        """
        path = str(tmp_path / "shared.db")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), path], capture_output=True, text=True, timeout=30
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert SqliteStore(path).snapshot()[0].members == ()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
class TestForking:
    PROGRAM = """
        import os, sys, threading, time
        from headgate import AdaptiveRateLimiter, RateLimitConfig
        from headgate.distributed.backends.sqlite import SqliteStore

        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=200.0),
                                      store=SqliteStore(sys.argv[1], timeout=20.0))
        stop = threading.Event()

        def work():
            while not stop.is_set():
                limiter.acquire("k").report(status_code=200)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        children = []
        for _ in range(int(sys.argv[2])):
            held = limiter._registry.entries["k"].client.lease.numbers.count
            child = os.fork()
            if not child:
                entry = limiter._registry.entries["k"]
                client = entry.client
                fresh = client.lease.numbers.count == 0 and client.leader is None and not entry.gate.in_flight.pending
                for _ in range(20):
                    limiter.acquire("k", max_wait=20.0).report(status_code=200)
                shared_by = limiter.key_status("k").shared_by
                limiter.close()
                os._exit(0 if fresh and shared_by >= 2 else 1)
            children.append(child)
            time.sleep(0.02)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        stop.set()
        for thread in threads:
            thread.join(20.0)
        limiter.close()
        print(codes)
    """

    def test_a_child_is_a_member_of_its_own_that_holds_nothing(self, tmp_path):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(self.PROGRAM), str(tmp_path / "shared.db"), "8"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str([0] * 8), done.stderr


class TestFaultsInside:
    @pytest.mark.parametrize("fault", [StoreDown("gone"), ValueError("ours"), RecursionError(), KeyError("k")])
    def test_whatever_a_store_raises_calls_go_on_and_come_back(self, limiter_of, fault):
        store = Faulty()
        limiter = limiter_of(store)
        limiter.acquire(KEY).report(status_code=200)
        store.fault = fault
        for _ in range(20):
            limiter.acquire(KEY, max_wait=PATIENCE).report(status_code=200)
        eventually(lambda: limiter.snapshot().sharing.failures > 0)
        store.fault = None
        eventually(lambda: not limiter._registry.entries[KEY].client.alone)
        limiter.acquire(KEY, max_wait=PATIENCE).report(status_code=200)

    def test_a_store_with_too_few_replies_ends_no_thread(self, limiter_of):
        store, before = Faulty(), sync_threads()
        limiter = limiter_of(store)
        limiter.acquire(KEY).report(status_code=200)
        store.cut_short = True
        for _ in range(20):
            limiter.acquire(KEY, max_wait=PATIENCE).report(status_code=200)
        store.cut_short = False
        eventually(lambda: not limiter._registry.entries[KEY].client.alone)
        assert sync_threads() - before

    def test_a_strategy_that_raises_ends_no_thread(self, limiter_of):
        class Broken(Fixed):
            learns = True

            def on_answer(self, ticket, signal, latency, now):
                raise ZeroDivisionError

        before = sync_threads()
        limiter = limiter_of(MemoryStore(), RateLimitConfig(strategy=Broken(200.0)))
        for _ in range(50):
            limiter.acquire(KEY, max_wait=PATIENCE).report(status_code=200)
        assert sync_threads() - before

    def test_a_listener_that_raises_ends_no_thread(self, limiter_of):
        def listen(event):
            raise ZeroDivisionError

        store = Faulty()
        limiter = limiter_of(store, on_event=listen)
        limiter.acquire(KEY).report(status_code=200)
        store.fault = StoreDown("gone")
        for _ in range(10):
            limiter.acquire(KEY, max_wait=PATIENCE).report(status_code=200)
        store.fault = None
        eventually(lambda: not limiter._registry.entries[KEY].client.alone)

    def test_without_a_thread_to_be_had_calls_go_on_alone(self, limiter_of, monkeypatch):
        def start(thread):
            raise RuntimeError("can't start new thread")

        limiter = limiter_of(MemoryStore())
        monkeypatch.setattr(threading.Thread, "start", start)
        for _ in range(5):
            limiter.acquire(KEY, max_wait=PATIENCE).report(status_code=200)
        assert limiter._registry.entries[KEY].client.alone


class TestKeys:
    def test_a_key_that_is_forgotten_and_used_again_goes_on_at_once(self, shared):
        async def main(population):
            member = population.join()
            waits = []
            for _ in range(40):  # the coordinator has seen many requests of this member
                (await member.limiter.acquire_async(KEY)).report(status_code=200)
                await population.clock.sleep_async(0.05)
            for _ in range(3):
                await population.clock.sleep_async(2.0)
                member.limiter.snapshot()  # tidies up
                assert KEY not in member.limiter._registry.entries
                asked_at = population.clock.now()
                (await member.limiter.acquire_async(KEY)).report(status_code=200)
                waits.append(population.clock.now() - asked_at)
            return waits

        assert max(shared(main, fixed(100.0, domain_state_ttl=0.5))) <= 0.02

    def test_keys_make_room_for_each_other(self, shared):
        async def main(population):
            member = population.join()
            for number in range(30):
                (await member.limiter.acquire_async(f"key{number}")).report(status_code=200)
                await population.clock.sleep_async(0.1)
            return len(member.limiter._registry.entries)

        assert shared(main, fixed(100.0, max_keys=4)) <= 4

    def test_what_is_not_used_any_more_is_not_asked_about_any_more(self, shared):
        async def main(population):
            member = population.join()
            for number in range(20):
                (await member.limiter.acquire_async(f"key{number}")).report(status_code=200)
            await population.until(15.0)
            requests = population.store.exchanges
            await population.until(60.0)
            return len(member.sharing._clients), population.store.exchanges - requests

        assert shared(main, fixed(100.0)) == (0, 0)

    def test_those_who_wait_for_a_pace_go_with_it_to_another_key(self, shared):
        async def main(population):
            member = population.join()
            population.work(member, 6)
            await population.until(1.0)
            member.limiter.split_pace(KEY, "other", fixed(1000.0))
            await population.until(3.0)
            (await member.limiter.acquire_async(KEY, max_wait=0.1)).report(status_code=200)
            return (
                member.started(1.0, 3.0),
                sorted(population.store._keys),
                member.limiter.key_status("other").waiters,
            )

        started, keys, waiting = shared(main, fixed(20.0))
        assert started >= 30
        assert keys == [KEY, "other"]
        assert waiting == 0

    def test_memory_is_bounded_when_nobody_reports(self, shared, monkeypatch):
        monkeypatch.setattr("headgate.core.concurrency.A_LOT", 2_000)
        monkeypatch.setattr("headgate.core.gate.CHECK_EVERY", 500)
        monkeypatch.setattr("headgate.distributed.leader.MOST_OUT", 5_000)

        async def main(population):
            member = population.join(RateLimitConfig(strategy="aimd", initial_rps=50_000.0, max_rps=50_000.0))
            most = 0
            for _ in range(12_000):
                await member.limiter.acquire_async(KEY)
                most = max(most, len(member.entry.client.log))
            learning = member.entry.client.leader
            return most, len(member.entry.gate.in_flight), len(learning._out), len(population.store._keys[KEY].notes)

        book, flying, out, notes = shared(main)
        assert book <= 2_000
        assert flying <= 6_000
        assert out <= 5_000
        assert notes <= 512


class TestRefusing:
    def test_refusing_without_a_store_holds_from_the_first_call(self, limiter_of):
        store = Faulty()
        store.fault = StoreDown("gone")
        limiter = limiter_of(store, fixed(100.0, without_store="refuse"))
        with pytest.raises(CircuitOpenError, match="cannot be reached"):
            limiter.acquire(KEY)
        time.sleep(0.1)
        assert limiter.try_acquire(KEY) is None


def test_numbers_are_never_used_twice(shared):
    """Random callers that cancel, abandon, report and pause, on two keys: each number leaves once, in no other era."""
    seen = set()

    async def main(population):
        before = Lease.use

        def use(lease, count, now):
            numbers = lease.numbers
            at = numbers.next if numbers.left or not numbers._later else numbers._later[0][0]
            client = lease.outbox.want.__self__
            for number in range(count):
                name = (client.key, client.era, at + number)
                assert name not in seen, name
                seen.add(name)
            before(lease, count, now)

        Lease.use = use
        try:
            rng = random.Random(3)
            members = [population.join() for _ in range(4)]

            async def call(member):
                while True:
                    key, also = rng.choice([("one", ()), ("two", ()), ("one", ("two",))])
                    patience = rng.choice([None, 0.05])
                    try:
                        permit = await member.limiter.acquire_async(key, also=also, max_wait=patience)
                    except WaitTooLongError:
                        await population.clock.sleep_async(0.01)
                        continue
                    await population.clock.sleep_async(rng.uniform(0.0, 0.03))
                    fate = rng.random()
                    if fate < 0.1:
                        permit.abandon()
                    elif fate < 0.12:
                        permit.report(status_code=429, headers={"Retry-After": "0.3"})
                    else:
                        permit.report(status_code=200)

            loop = asyncio.get_running_loop()
            for member in members:
                member.tasks += [loop.create_task(call(member)) for _ in range(5)]
            for _ in range(60):
                await population.clock.sleep_async(0.1)
                member = rng.choice(members)
                victim = member.tasks.pop(rng.randrange(len(member.tasks)))
                victim.cancel()
                member.tasks.append(loop.create_task(call(member)))
        finally:
            Lease.use = before

    shared(main, fixed(200.0))
    assert len(seen) > 500
