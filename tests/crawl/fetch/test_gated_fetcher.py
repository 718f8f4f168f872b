"""The way of one address through the gate, in virtual time: permit, fetch, feedback, release, and its fate."""

import asyncio
import random

import pytest

from headgate import AdaptiveRateLimiter, CredentialCoordinator, Outcome, RateLimitConfig, Signal
from headgate.crawl.config import CrawlConfig
from headgate.crawl.fetch.credentials import FetchPermit, keys_by_origin
from headgate.crawl.fetch.gated_fetcher import (
    LONGEST_PERMIT_WAIT,
    Deferred,
    Fetched,
    FetchFailed,
    GatedFetcher,
    Redirected,
)
from headgate.crawl.fetch.response import FetchError, FetchResponse
from headgate.crawl.frontier import Reason, Visit
from headgate.lab.virtual_time import run

HOST = "example.org"


def answer(visit, status=200, latency=0.02, retry_after=None, location=None):
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return FetchResponse(
        url=visit.url,
        status=status,
        headers=headers,
        content_type="text/html",
        location=location,
        latency=latency,
        took=latency,
        retry_after=retry_after,
    )


class Script:
    """A server that answers by a list: (status, latency, Retry-After), or a problem to raise."""

    def __init__(self, clock, steps):
        self.clock, self.steps, self.sent_at = clock, list(steps), []

    async def __call__(self, visit):
        self.sent_at.append(self.clock.now())
        step = self.steps.pop(0) if self.steps else (200, 0.02, None)
        if isinstance(step, FetchError):
            raise step
        status, latency, retry_after = step
        await asyncio.sleep(latency)
        return answer(visit, status, latency, retry_after)


def page(number=1, **counts):
    return Visit(number, f"http://{HOST}/{number}", HOST, 0, **counts)


def visiting(clock, steps, config=None, **limits):
    limiter = AdaptiveRateLimiter(RateLimitConfig(**limits), clock=clock, rng=random.Random(1))
    script = Script(clock, steps)
    return GatedFetcher(limiter, script, config or CrawlConfig(), random.Random(1)), limiter, script


async def one(way, visit=None):
    permit = await way.acquire(HOST)
    return permit if isinstance(permit, Deferred) else await way.fetch(visit or page(), permit)


AIMD = {"strategy": "aimd", "initial_rps": 2.0, "aimd_increase": 0.5, "token_bucket_capacity": 1.0}


def test_a_scripted_server_moves_the_rate_as_it_should():
    """200, slow 200, 429 with Retry-After, 200, 200: up, halved, halved and held, up, up."""

    async def main(clock):
        steps = [(200, 0.1, None), (200, 2.5, None), (429, 0.1, 4), (200, 0.1, None), (200, 0.1, None)]
        way, limiter, script = visiting(clock, steps, **AIMD)
        rates, ended_at = [], []
        for _ in range(5):
            await one(way)
            rates.append(limiter.key_status(HOST).rate)
            ended_at.append(clock.now())
        return rates, script.sent_at, ended_at

    rates, sent_at, ended_at = run(main)
    assert rates == [2.5, 1.25, 0.625, 1.125, 1.625]
    assert sent_at[1] - sent_at[0] == pytest.approx(0.5, abs=0.11)  # 2 a second, 2.5 from the first answer on
    assert sent_at[3] >= ended_at[2] + 4.0  # Retry-After is a floor
    assert sent_at[3] <= ended_at[2] + 4.4 + 2.0  # ... overstayed by its jitter and the pace


def test_a_circuit_opens_after_five_failures_and_is_probed_when_its_time_is_up():
    async def main(clock):
        way, limiter, script = visiting(
            clock, [(500, 0.05, None)] * 5 + [(200, 0.05, None)] * 3, initial_rps=10.0, open_state_duration=15.0
        )
        fates = [await one(way, page(number)) for number in range(1, 6)]
        opened_at, state = clock.now(), limiter.key_status(HOST).state
        refused = await one(way)
        await asyncio.sleep(refused.seconds)
        reopened_at = clock.now()
        probe = await one(way)
        return fates, opened_at, state, refused, reopened_at, probe, limiter.key_status(HOST).state, script.sent_at

    fates, opened_at, state, refused, reopened_at, probe, after, sent_at = run(main)
    assert all(isinstance(fate, Deferred) and fate.attempts == 1 for fate in fates)
    assert (state, after) == ("open", "closed")
    assert opened_at < 5.0  # the seed's promise: within 5 s of an overload
    assert isinstance(refused, Deferred)
    assert (refused.attempts, refused.rate_limited) == (0, 0)  # nothing was sent: it counts for nothing
    assert refused.seconds == pytest.approx(15.0, abs=0.1)
    assert isinstance(probe, Fetched)
    assert sent_at[5] == reopened_at >= opened_at + 15.0


def test_being_rate_limited_uses_up_no_attempt_and_has_a_cap_of_its_own():
    async def main(clock):
        config = CrawlConfig(max_rate_limit_retries=2)
        way, *_ = visiting(clock, [(429, 0.02, 1)] * 3, config)
        return [await one(way, page(rate_limited=times)) for times in range(3)]

    first, second, third = run(main)
    for fate in (first, second):
        assert isinstance(fate, Deferred)
        assert (fate.attempts, fate.rate_limited) == (0, 1)
        assert fate.seconds >= 1.0
    assert third == FetchFailed(Reason("rate_limited", "rate limited 3 times"))


def test_a_failure_is_put_off_by_full_jitter_and_given_up_in_the_end():
    async def main(clock):
        config = CrawlConfig(max_attempts=3, base_delay=1.0, max_delay=60.0)
        steps = [(502, 0.02, None), FetchError("timeout", "did not answer"), FetchError("connect", "is not there")]
        way, _, script = visiting(clock, steps, config)
        return [await one(way, page(attempts=number)) for number in range(3)], script.sent_at

    (first, second, third), _ = run(main)
    assert 0.0 <= first.seconds <= 1.0
    assert 0.0 <= second.seconds <= 2.0
    assert second.reason == Reason("timeout", "it did not answer")
    assert third == FetchFailed(Reason("connect", "it is not there (3 attempts)"))


def test_a_503_with_retry_after_comes_back_not_before():
    async def main(clock):
        way, *_ = visiting(clock, [(503, 0.02, 30)])
        return await one(way)

    assert 30.0 <= run(main).seconds <= 33.0


def test_nothing_is_held_while_an_address_is_put_off():
    async def main(clock):
        way, limiter, _ = visiting(clock, [(500, 0.02, None)])
        fate = await one(way)
        return fate, limiter.key_status(HOST)

    fate, seen = run(main)
    assert isinstance(fate, Deferred)
    assert (seen.in_flight, seen.waiters) == (0, 0)


@pytest.mark.parametrize("kind", ["refused_address", "bad_address"])
def test_an_address_that_must_not_be_asked_takes_no_permit(kind):
    async def main(clock):
        way, limiter, _ = visiting(clock, [FetchError(kind, "is at 10.0.0.1 (private)")], **AIMD)
        fate = await one(way)
        return fate, limiter.key_status(HOST).tokens, clock.now()

    fate, tokens, now = run(main)
    assert isinstance(fate, FetchFailed)
    assert not fate.sent
    assert (tokens, now) == (1.0, 0.0)


@pytest.mark.parametrize("kind", ["too_large", "bomb", "not_wanted", "bad_encoding"])
def test_a_bad_answer_is_given_up_at_once_and_counts_against_nobody(kind):
    async def main(clock):
        way, limiter, _ = visiting(clock, [FetchError(kind, "sent it")])
        return await one(way), limiter.key_status(HOST).consecutive_failures

    fate, failures = run(main)
    assert fate == FetchFailed(Reason(kind, "it sent it"))
    assert failures == 0


def test_a_redirect_is_sent_on_to_its_canonical_target():
    async def main(clock):
        limiter = AdaptiveRateLimiter(clock=clock)

        async def fetch(visit):
            return answer(visit, 302, location="HTTP://Other.example:80/a/../b#part")

        return await one(GatedFetcher(limiter, fetch, CrawlConfig(), random.Random(1)))

    fate = run(main)
    assert isinstance(fate, Redirected)
    assert fate.target == "http://other.example/b"


def test_a_host_that_asks_for_an_hour_is_put_off_instead_of_waited_for():
    async def main(clock):
        way, *_ = visiting(clock, [(429, 0.02, 3600)])
        await one(way)
        asked_at = clock.now()
        return await one(way), clock.now() - asked_at

    fate, waited = run(main)
    assert isinstance(fate, Deferred)
    assert waited == 0.0
    assert fate.seconds > 3500.0 > LONGEST_PERMIT_WAIT


def test_a_cancelled_fetch_gives_its_permit_back():
    async def main(clock):
        way, limiter, _ = visiting(clock, [(200, 100.0, None)])
        task = asyncio.create_task(one(way))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return limiter.key_status(HOST).in_flight

    assert run(main) == 0


def test_calls_are_told_with_the_wait_for_the_permit_apart_from_the_fetch():
    async def main(clock):
        calls = []
        limiter = AdaptiveRateLimiter(RateLimitConfig(**AIMD), clock=clock)
        way = GatedFetcher(
            limiter, Script(clock, [(200, 0.3, None)] * 2), CrawlConfig(), random.Random(1), calls.append
        )
        await asyncio.gather(one(way), one(way))
        return [(round(call.waited, 3), round(call.latency, 3), call.status) for call in calls]

    (first, second) = run(main)
    assert first == (0.0, 0.3, 200)
    assert second[0] > 0.3  # of the wait, nothing is the server's
    assert second[1:] == (0.3, 200)


def test_a_key_whose_account_could_not_spend_asks_again():
    async def main(clock):
        origin = f"http://{HOST}"
        keys = keys_by_origin({origin: CredentialCoordinator(["sk-aaaa"], clock=clock)})
        limiter = AdaptiveRateLimiter(clock=clock, rng=random.Random(1))
        way = GatedFetcher(limiter, Script(clock, ()), CrawlConfig(), random.Random(1), None, keys)
        found = []
        for outcome in (Outcome.SPEND, Outcome.SPEND, Outcome.OK, Outcome.OK):
            permit = await way.acquire(f"{origin}/1")
            found.append(type(permit))
            permit.end(Signal(outcome=outcome))
            if outcome is Outcome.SPEND:
                found.append(type(await way.acquire(f"{origin}/1")))
                await asyncio.sleep(901)
        return found

    assert run(main) == [FetchPermit, Deferred, FetchPermit, Deferred, FetchPermit, FetchPermit]
