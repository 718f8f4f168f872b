"""A trial against the mock API on a real socket: every item done once, whatever is answered."""

import asyncio
import random

import pytest

from headgate.config import RateLimitConfig
from headgate.errors import WaitTooLongError
from headgate.lab.score import judge
from headgate.lab.trial import LONGEST_IN_LINE, Trial
from headgate.lab.virtual_time import VirtualClock, run
from headgate.limiter import AdaptiveRateLimiter
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Outage, Rate

QUICK = RateLimitConfig(initial_rps=100.0, open_state_duration=0.1)
SLOW = RateLimitConfig(strategy="fixed", initial_rps=0.1)


def run_trial(plan, *, calls, workers, stop_after=None, secrets=("any",)):
    async def main():
        limiter = AdaptiveRateLimiter(QUICK, rng=random.Random(1))
        async with MockServer(plan, seed=1) as server:
            trial = Trial(limiter, server.url, calls, workers, secrets)
            if stop_after is not None:
                asyncio.get_running_loop().call_later(stop_after, trial.stop)
            await trial.run()
            trial.observe()
            return trial, server.truth()

    return asyncio.run(main())


@pytest.mark.no_cover
def test_every_item_is_done_once_through_429s_and_an_outage():
    plan = MockPlan(rate=Rate(40.0), burst=12, latency=0.005, outages=(Outage(1.5, 0.3),))
    trial, truth = run_trial(plan, calls=120, workers=20)
    assert trial.statuses[429] > 0
    assert trial.statuses[503] > 0
    assert sorted(trial.times_done.elements()) == list(range(120))
    assert (truth["ids_done"], truth["ids_done_twice"]) == (120, 0)
    assert judge(trial, plan, truth).is_sound
    assert trial.samples[-1].done == 120
    assert trial.samples[-1].learned > 0


THREE = tuple(MockPlan(rate=Rate(rate), burst=6) for rate in (60.0, 30.0, 10.0))
SECRETS = ("mock-key-1", "mock-key-2", "mock-key-3")


@pytest.mark.no_cover
def test_every_key_does_what_its_own_quota_allows_and_rests_when_it_was_refused():
    plan = MockPlan(latency=0.005, keys=THREE)
    trial, truth = run_trial(plan, calls=200, workers=20, secrets=SECRETS)
    assert sorted(trial.times_done.elements()) == list(range(200))
    assert judge(trial, plan, truth).is_sound
    assert [log.label for log in trial.keys] == ["key-1", "key-2", "key-3"]
    done = [len(log.done_at) for log in trial.keys]
    assert done == [key["admitted"] for key in truth["keys"]]
    refused = [log.statuses[429] for log in trial.keys]
    assert refused == [key["rate_limited"] for key in truth["keys"]]
    assert all(0 < log.rests <= log.statuses[429] for log in trial.keys if log.statuses[429])
    assert len({look.learned for look in trial.samples[-1].keys}) == 3


def test_no_secret_is_in_what_a_trial_keeps():
    plan = MockPlan(latency=0.005, keys=THREE)
    trial, _ = run_trial(plan, calls=30, workers=4, secrets=SECRETS)
    shown = f"{trial.keys} {trial.samples} {trial.credentials!r} {trial.limiter.snapshot()}"
    assert "mock-key" not in shown
    assert "mock-api/key-1" in shown


def test_work_goes_to_the_key_whose_gate_would_let_it_through_first():
    trial = Trial(AdaptiveRateLimiter(QUICK, clock=VirtualClock()), "", calls=1, workers=1, secrets=SECRETS)
    for _ in range(5):
        trial.limiter.acquire("mock-api/key-2").report(status_code=503)  # opens its circuit
    while trial.limiter.try_acquire("mock-api/key-1"):
        pass
    assert trial._soonest() == "key-3"
    while trial.limiter.try_acquire("mock-api/key-3"):
        pass
    trial.limiter.clock.advance(0.02)
    trial.limiter.acquire("mock-api/key-1")
    assert trial._soonest() == "key-3"
    trial.credentials.park("key-3", 60)
    assert trial._soonest() == "key-1"


def test_a_key_that_rests_for_a_moment_is_waited_for_where_the_other_lines_are_longer():
    async def main():
        trial = Trial(AdaptiveRateLimiter(SLOW), "", calls=1, workers=1, secrets=SECRETS[:2])
        while trial.limiter.try_acquire("mock-api/key-2"):
            pass  # its next call would start in ten seconds
        trial.credentials.park("key-1", 0.05)
        return (await trial._lease()).label

    assert asyncio.run(main()) == "key-1"


def test_no_caller_stays_for_long_in_the_line_of_a_slow_key():
    """Another one may be free by then."""

    async def main(clock):
        trial = Trial(AdaptiveRateLimiter(SLOW, clock=clock), "", calls=1, workers=1, secrets=SECRETS[:1])
        (log,) = trial.keys
        while trial.limiter.try_acquire(log.gate):
            pass  # the next call would start in ten seconds
        with pytest.raises(WaitTooLongError):
            async with trial._permit(log):
                pass
        return clock.now()

    assert run(main) <= LONGEST_IN_LINE


def test_a_stopped_trial_takes_the_answers_on_their_way_and_starts_nothing_more():
    plan = MockPlan(rate=Rate(1000.0), latency=0.2)
    trial, truth = run_trial(plan, calls=10_000, workers=10, stop_after=0.3)
    assert trial.stopped
    assert trial.done == truth["answered"] == truth["ids_done"]
    assert truth["in_flight"] == 0
    assert 0 < trial.done < 10_000
    assert judge(trial, plan, truth).is_sound
