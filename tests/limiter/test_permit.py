"""A permit is real and ends once: what reporting, releasing, abandoning and leaving the block do."""

from __future__ import annotations

import asyncio
import random

import httpx2
import pytest
import requests

from headgate import AdaptiveRateLimiter, CircuitOpenError, Feedback, Outcome, RateLimitConfig
from headgate.lab.virtual_time import VirtualClock

AIMD = RateLimitConfig(strategy="aimd", initial_rps=2.0, aimd_increase=0.5)


def limiter_at(time: float = 1000.0, config: RateLimitConfig = AIMD) -> tuple[AdaptiveRateLimiter, VirtualClock]:
    clock = VirtualClock(time)
    return AdaptiveRateLimiter(config, clock=clock, rng=random.Random(7)), clock


def rate_of(limiter: AdaptiveRateLimiter, key: str = "api") -> float:
    return next(entry.rate for entry in limiter.snapshot().keys if entry.key == key)


def test_a_fast_answer_raises_the_rate_by_the_increase() -> None:
    limiter, _ = limiter_at()
    assert limiter.acquire("api").report(status_code=200, latency=0.1) is Outcome.OK
    assert rate_of(limiter) == 2.5


@pytest.mark.parametrize("answer", [{"status_code": 429}, {"status_code": 503}, {"status_code": 200, "latency": 2.0}])
def test_a_refusal_or_twice_the_latency_target_halves_it(answer: dict[str, float]) -> None:
    limiter, _ = limiter_at()
    limiter.acquire("api").report(**answer)  # type: ignore[arg-type]
    assert rate_of(limiter) == 1.0


def test_four_refusals_of_one_burst_are_one_cut() -> None:
    limiter, _ = limiter_at()
    for permit in [limiter.acquire("api") for _ in range(4)]:
        permit.report(status_code=429, latency=0.0)
    assert rate_of(limiter) == 1.0


def test_the_rate_stays_within_its_bounds() -> None:
    limiter, clock = limiter_at(config=RateLimitConfig(strategy="aimd", min_rps=0.5, max_rps=3.0, aimd_increase=0.5))
    for _ in range(10):
        clock.advance(10)
        limiter.acquire("api").report(status_code=200, latency=0.1)
    assert rate_of(limiter) == 3.0
    for _ in range(10):
        clock.advance(10)
        limiter.acquire("api").report(status_code=429)
    assert rate_of(limiter) == 0.5


def test_a_broken_key_leaves_another_untouched() -> None:
    limiter, _ = limiter_at()
    for _ in range(4):
        limiter.acquire("a").report(status_code=503)
    limiter.acquire("b").report(status_code=200, latency=0.1)
    limiter.feedback("a", Feedback(status_code=503))
    with pytest.raises(CircuitOpenError):
        limiter.acquire("a")
    assert limiter.acquire("b").waited == 0.0
    assert rate_of(limiter, "b") == 2.5


def test_releasing_learns_nothing_and_keeps_what_was_taken() -> None:
    limiter, _ = limiter_at()
    limiter.acquire("api").release()
    entry = limiter.snapshot().keys[0]
    assert (entry.rate, entry.tokens, entry.in_flight) == (2.0, 3.0, 0)


def test_abandoning_gives_everything_back() -> None:
    limiter, _ = limiter_at()
    limiter.acquire("api").abandon()
    entry = limiter.snapshot().keys[0]
    assert (entry.rate, entry.tokens, entry.in_flight) == (2.0, 4.0, 0)


def test_ending_twice_is_harmless() -> None:
    limiter, _ = limiter_at()
    permit = limiter.acquire("api")
    permit.report(status_code=200, latency=0.1)
    for end in (permit.release, permit.abandon, permit.abandon, lambda: permit.report(status_code=429)):
        end()
    entry = limiter.snapshot().keys[0]
    assert (entry.rate, entry.tokens, entry.in_flight) == (2.5, 3.0, 0)


def test_leaving_the_block_releases() -> None:
    limiter, _ = limiter_at()
    with limiter.permit("api"):
        assert limiter.snapshot().keys[0].in_flight == 1
    entry = limiter.snapshot().keys[0]
    assert (entry.in_flight, entry.tokens) == (0, 3.0)


def test_an_exception_that_leaves_the_block_is_reported() -> None:
    limiter, _ = limiter_at()
    for _ in range(4):
        with pytest.raises(ConnectionError), limiter.permit("api"):
            raise ConnectionResetError
    assert limiter.snapshot().keys[0].consecutive_failures == 4


def test_a_refusal_inside_the_block_means_that_nothing_was_sent() -> None:
    limiter, _ = limiter_at()
    with pytest.raises(CircuitOpenError), limiter.permit("api"):
        raise CircuitOpenError("another", "sick")
    assert limiter.snapshot().keys[0].tokens == 4.0


def test_a_cancelled_block_counts_as_sent_and_unknown() -> None:
    limiter, _ = limiter_at()

    async def call() -> None:
        async with limiter.permit("api"):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call())
    entry = limiter.snapshot().keys[0]
    assert (entry.tokens, entry.in_flight, entry.consecutive_failures) == (3.0, 0, 0)


def test_a_response_speaks_for_itself() -> None:
    limiter, _clock = limiter_at()
    response = httpx2.Response(429, headers={"Retry-After": "30"})
    assert limiter.acquire("api").report(response) is Outcome.RATE_LIMITED
    assert 30_000 <= limiter.snapshot().keys[0].not_before_ms <= 33_000


def test_an_error_that_carries_its_response_speaks_for_it() -> None:
    limiter, _ = limiter_at()
    response = requests.Response()
    response.status_code = 503
    assert limiter.acquire("api").report(requests.HTTPError(response=response)) is Outcome.OVERLOADED


def test_a_told_wait_is_a_floor_whatever_the_headers_say() -> None:
    limiter, _ = limiter_at()
    limiter.acquire("api").report(status_code=429, headers={"Retry-After": "5"}, retry_after=40)
    assert limiter.snapshot().keys[0].not_before_ms >= 40_000


def test_reporting_nothing_is_a_mistake() -> None:
    limiter, _ = limiter_at()
    with pytest.raises(TypeError, match="needs a response"):
        limiter.acquire("api").report()


def test_feedback_ends_the_oldest_permit_it_can_belong_to() -> None:
    limiter, clock = limiter_at()
    first = limiter.acquire("api")
    clock.advance(1.0)
    limiter.acquire("api")
    clock.advance(0.5)
    limiter.feedback("api", Feedback(status_code=200, latency=1.5))
    first.release()
    entry = limiter.snapshot().keys[0]
    assert (entry.in_flight, entry.average_latency) == (1, 1.5)


def test_feedback_older_than_every_permit_only_teaches() -> None:
    limiter, clock = limiter_at()
    clock.advance(1.0)
    limiter.acquire("api")
    limiter.feedback("api", Feedback(status_code=200, latency=0.9))
    entry = limiter.snapshot().keys[0]
    assert (entry.in_flight, entry.rate) == (1, 2.5)


def test_four_refusals_fed_back_for_one_instant_are_one_cut() -> None:
    limiter, _ = limiter_at()
    for _ in range(4):
        limiter.feedback("api", Feedback(status_code=429))
    assert rate_of(limiter) == 1.0


def test_feedback_about_nothing_is_a_mistake() -> None:
    limiter, _ = limiter_at()
    with pytest.raises(TypeError, match="status_code"):
        limiter.feedback("api", Feedback(latency=1.0))


def test_after_twenty_permits_without_a_report_it_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    limiter, clock = limiter_at()
    for _ in range(60):
        clock.advance(1.0)
        limiter.acquire("api").release()
    assert [record.message for record in caplog.records] == [
        "api: 20 permits were given and none was reported, so nothing can be learned; "
        "call permit.report(response) after each call"
    ]


def test_a_permit_names_its_key_and_nothing_else() -> None:
    limiter, _ = limiter_at()
    assert repr(limiter.acquire("https://user:secret@API.example.com:443/v1")) == "<Permit 1 of 'api.example.com'>"


@pytest.mark.no_cover
def test_permits_that_are_never_ended_are_let_go_in_the_end() -> None:
    config = RateLimitConfig(strategy="fixed", initial_rps=1e9, token_bucket_capacity=1e6)
    limiter, _ = limiter_at(config=config)
    for _ in range(100_000):
        limiter.acquire("api")
    assert limiter.snapshot().keys[0].in_flight <= 60_000
