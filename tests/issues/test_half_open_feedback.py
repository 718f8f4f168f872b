"""A circuit stayed half-open for ever when outcomes came by ``feedback()`` with latencies that include the wait."""

import asyncio

import pytest

from headgate import AdaptiveRateLimiter, CircuitOpenError, Feedback, RateLimitConfig
from headgate.lab.virtual_time import VirtualClock, run

KEY = "api"


def state(limiter):
    return limiter.key_status(KEY).state


def fail(limiter):
    for _ in range(5):
        limiter.acquire(KEY)
        limiter.feedback(KEY, Feedback(status_code=503, latency=0.0))


@pytest.mark.parametrize("releases", [True, False])
def test_calls_that_are_measured_from_before_they_asked_close_the_circuit(releases):
    """Twenty callers, a server that is down for a minute, and latencies from before ``acquire``."""

    async def main(clock):
        limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=5.0), clock=clock)
        served = []

        async def caller():
            while clock.now() < 200.0:
                began_at = clock.now()
                try:
                    permit = await limiter.acquire_async(KEY)
                except CircuitOpenError as refused:
                    await asyncio.sleep(refused.retry_after or 1.0)
                    continue
                status = 503 if clock.now() < 60.0 else 200
                await asyncio.sleep(0.2)
                limiter.feedback(KEY, Feedback(status_code=status, latency=clock.now() - began_at))
                served.append((clock.now(), status))
                if releases:
                    permit.release()

        await asyncio.gather(*(caller() for _ in range(20)))
        return state(limiter), [at for at, status in served if status == 200 and at > 100.0]

    last_state, served = run(main)
    assert last_state == "closed"
    assert len(served) > 200


@pytest.mark.parametrize(("status", "ends_in"), [(200, "closed"), (503, "open")])
@pytest.mark.parametrize("releases", [True, False])
def test_a_latency_from_before_the_circuit_opened_counts_when_the_probe_ends(status, ends_in, releases):
    """The caller was refused, came back, and measured all of it: by its times it may be an older call's answer."""
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(RateLimitConfig(), clock=clock)
    began_at = clock.now()
    fail(limiter)
    clock.advance(16.0)
    probe = limiter.acquire(KEY)
    clock.advance(0.5)
    limiter.feedback(KEY, Feedback(status_code=status, latency=clock.now() - began_at))
    if releases:
        probe.release()
        assert state(limiter) == ends_in
    else:
        clock.advance(15.0)
        limiter.acquire(KEY)
        assert state(limiter) == ("closed" if status == 200 else "half_open")


def test_an_old_call_that_is_still_out_gets_its_own_answer():
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(RateLimitConfig(), clock=clock)
    limiter.acquire(KEY)
    fail(limiter)
    clock.advance(16.0)
    probe = limiter.acquire(KEY)
    limiter.feedback(KEY, Feedback(status_code=200, latency=clock.now()))
    assert state(limiter) == "half_open"
    probe.report(status_code=200)
    assert state(limiter) == "closed"


def test_an_open_circuit_shows_what_tripped_it():
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(RateLimitConfig(), clock=clock)
    for status in (200, 200, 200, 503, 503, 503, 503, 503):
        limiter.acquire(KEY).report(status_code=status)
    seen = limiter.key_status(KEY)
    assert (seen.state, seen.consecutive_failures, seen.error_rate) == ("open", 5, 5 / 8)
    clock.advance(16.0)
    seen = limiter.key_status(KEY)
    assert (seen.state, seen.consecutive_failures, seen.error_rate) == ("half_open", 5, 5 / 8)
    limiter.acquire(KEY).report(status_code=200)
    seen = limiter.key_status(KEY)
    assert (seen.state, seen.consecutive_failures, seen.error_rate) == ("closed", 0, 0.0)
