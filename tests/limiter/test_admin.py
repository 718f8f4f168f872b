"""What an operator says to a limiter: pause all of it, resume, hold a key under a limit; and what a look tells then."""

import asyncio
import threading
import time

import pytest

from headgate import AdaptiveRateLimiter, ConfigError, RateLimitConfig, WaitTooLongError
from headgate.lab.virtual_time import VirtualClock, run

KEY = "api.example.com"


def quick(clock, **more):
    return AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=100.0, **more), clock=clock)


async def starts_of(limiter, clock, seconds, callers=8, latency=0.0):
    """When calls start while so many callers do nothing but call."""
    starts = []

    async def call():
        while True:
            permit = await limiter.acquire_async(KEY)
            starts.append(clock.now())
            await clock.sleep_async(latency)
            permit.report(status_code=200)
            await asyncio.sleep(0)

    tasks = [asyncio.ensure_future(call()) for _ in range(callers)]
    await clock.sleep_async(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return starts


class TestPauseAll:
    def test_nothing_starts_until_it_is_resumed_and_then_everybody_does(self):
        async def main(clock):
            limiter = quick(clock)
            limiter.pause_all()
            waiting = [asyncio.ensure_future(limiter.acquire_async(f"key-{n % 3}")) for n in range(9)]
            await clock.sleep_async(3600.0)
            assert not any(task.done() for task in waiting)
            assert limiter.try_acquire(KEY) is None
            limiter.resume_all()
            await clock.sleep_async(0.1)
            assert all(task.done() for task in waiting)
            assert limiter.try_acquire(KEY) is not None

        run(main)

    def test_a_key_in_full_swing_is_held_too(self):
        async def main(clock):
            limiter = quick(clock)
            clock_of_pause = 1.0

            async def operator():
                await clock.sleep_async(clock_of_pause)
                limiter.pause_all()
                await clock.sleep_async(10.0)
                limiter.resume_all()

            operating = asyncio.ensure_future(operator())
            starts = await starts_of(limiter, clock, 12.0)
            await operating
            assert not [at for at in starts if 1.0 < at < 11.0]
            assert len([at for at in starts if at >= 11.0]) > 90

        run(main)

    def test_what_accrued_meanwhile_is_not_made_up_for(self):
        async def main(clock):
            limiter = quick(clock, token_bucket_capacity=2.0)
            limiter.pause_all()
            asyncio.get_running_loop().call_later(100.0, limiter.resume_all)
            starts = await starts_of(limiter, clock, 101.0)
            assert len([at for at in starts if at <= 100.1]) <= 2 + 0.1 * 100 + 4

        run(main)

    def test_a_promise_is_kept_while_it_is_paused(self):
        async def main(clock):
            limiter = quick(clock)
            limiter.pause_all()
            with pytest.raises(WaitTooLongError):
                await limiter.acquire_async(KEY, max_wait=5.0)
            assert clock.now() == pytest.approx(5.0)

        run(main)

    def test_a_look_says_so(self):
        limiter = quick(VirtualClock())
        limiter.acquire(KEY).report(status_code=200)
        limiter.pause_all()
        assert limiter.key_status(KEY).reason == "paused by an operator"
        assert limiter.snapshot().keys[0].reason == "paused by an operator"
        limiter.resume_all()
        assert limiter.key_status(KEY).reason == ""

    def test_threads_that_wait_are_woken(self):
        """In real time, for a fraction of a second: threads have no other."""
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6))
        limiter.pause_all()
        thread = threading.Thread(target=lambda: limiter.acquire(KEY).release())
        thread.start()
        until = time.monotonic() + 20.0
        while limiter.key_status(KEY) is None or not limiter.key_status(KEY).waiters:
            assert time.monotonic() < until
        limiter.resume_all()
        thread.join(20.0)
        assert not thread.is_alive()


class TestLimit:
    def test_no_more_start_than_the_operator_allows_until_it_is_lifted(self):
        async def main(clock):
            limiter = quick(clock)
            limiter.limit(KEY, 5.0)
            limited = await starts_of(limiter, clock, 20.0)
            assert 95 <= len(limited) <= 105
            limiter.limit(KEY, None)
            free = await starts_of(limiter, clock, 2.0)
            assert 195 <= len(free) <= 210

        run(main)

    def test_it_is_said_why(self):
        limiter = quick(VirtualClock())
        limiter.limit(KEY, 0.5)
        while limiter.try_acquire(KEY):
            pass
        seen = limiter.key_status(KEY)
        assert seen.reason.startswith("held under the operator's limit of 0.5 calls/s, ")
        assert seen.limit == 0.5
        assert seen.rate == 0.5

    def test_a_slower_pace_that_was_learned_stays(self):
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=2.0), clock=VirtualClock())
        limiter.limit(KEY, 50.0)
        assert limiter.key_status(KEY).rate == 2.0
        while limiter.try_acquire(KEY):
            pass
        assert "operator" not in limiter.key_status(KEY).reason

    def test_it_outlives_a_key_that_is_put_away_and_forgotten(self):
        clock = VirtualClock()
        limiter = quick(clock, domain_state_ttl=60.0)
        limiter.limit(KEY, 5.0)
        limiter.acquire(KEY).report(status_code=200)
        for passed in (15.0, 1000.0):
            clock.advance(passed)
            limiter.snapshot()
            limiter.acquire("another").report(status_code=200)
            limiter.acquire(KEY).report(status_code=200)
            assert limiter.key_status(KEY).limit == 5.0
            assert limiter.key_status(KEY).rate == 5.0

    def test_nothing_grows_in_secret_under_it(self):
        """Callers wait for the operator, which says nothing of what the server would take."""

        async def main(clock):
            limiter = AdaptiveRateLimiter(clock=clock)
            limiter.limit(KEY, 3.0)
            await starts_of(limiter, clock, 120.0, latency=0.05)
            limiter.limit(KEY, None)
            assert limiter.key_status(KEY).rate < 50.0

        run(main)

    @pytest.mark.parametrize("rps", [0, -1.0, float("inf"), float("nan"), "5", True])
    def test_what_is_no_pace_is_refused_by_name(self, rps):
        with pytest.raises(ConfigError, match="rps="):
            quick(VirtualClock()).limit(KEY, rps)

    def test_a_key_whose_limiting_is_off_has_none(self):
        limiter = AdaptiveRateLimiter(RateLimitConfig(enabled=False), clock=VirtualClock())
        with pytest.raises(ConfigError, match="limiting is disabled"):
            limiter.limit(KEY, 1.0)

    def test_listeners_hear_of_it(self):
        heard = []
        limiter = quick(VirtualClock())
        limiter.on_event = heard.append
        limiter.limit(KEY, 5.0)
        limiter.limit(KEY, None)
        assert [event.reason for event in heard] == ["limited to 5 calls/s", "limit removed"]


class TestCounting:
    def test_answers_are_counted_by_what_they_were(self):
        limiter = quick(VirtualClock())
        for status in (200, 200, 404, 429, 500):
            limiter.acquire(KEY).report(status_code=status)
        seen = limiter.key_status(KEY)
        assert (seen.sent, seen.answers, seen.refused, seen.failed) == (5, 5, 1, 2)

    def test_counts_survive_being_put_away(self):
        clock = VirtualClock()
        limiter = quick(clock)
        for status in (429, 200, 500):
            limiter.acquire(KEY).report(status_code=status)
        clock.advance(30.0)
        limiter.snapshot()
        assert limiter._registry.packed
        seen = limiter.key_status(KEY)
        assert (seen.sent, seen.refused, seen.failed) == (3, 1, 1)

    def test_what_the_server_says_of_its_limits_is_kept(self):
        limiter = quick(VirtualClock())
        headers = {"ratelimit-policy": '"default";q=120;w=60', "ratelimit": '"default";r=119;t=60'}
        limiter.acquire(KEY).report(status_code=200, headers=headers)
        limiter.acquire(KEY).report(status_code=200)
        (told,) = limiter.key_status(KEY).told
        assert (told.limit, told.window) == (120.0, 60.0)

    def test_many_keys_are_looked_at_in_turns(self):
        limiter = quick(VirtualClock())
        for number in range(100):
            limiter.acquire(f"key-{number}").report(status_code=200)
        names = limiter.recent_keys(70)
        assert [seen.key for seen in limiter.key_statuses(names)] == names
        assert len(set(names)) == 70


class TestShared:
    @pytest.mark.no_cover
    def test_a_limit_is_for_this_process_and_leaves_the_rest_to_others(self, shared):
        async def main(population):
            one, other = population.join(), population.join()
            one.limiter.limit(KEY, 10.0)
            population.work(one, 8)
            population.work(other, 8)
            await population.until(20.0)
            assert 90 <= one.started(10.0, 20.0) <= 102
            assert other.started(10.0, 20.0) >= 800

        shared(main)

    @pytest.mark.no_cover
    def test_a_paused_process_takes_nothing_from_the_others(self, shared):
        async def main(population):
            one, other = population.join(), population.join()
            population.work(one, 8)
            population.work(other, 8)
            await population.until(5.0)
            one.limiter.pause_all()
            await population.until(15.0)
            assert one.started(5.1, 15.0) == 0
            assert other.started(6.0, 15.0) >= 0.97 * 900
            one.limiter.resume_all()
            await population.until(25.0)
            assert one.started(16.0, 25.0) >= 400

        shared(main)
