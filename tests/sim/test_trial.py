"""A trial against the mock API on a real socket: every item done once, whatever is answered."""

import asyncio
import random

from headgate.config import RateLimitConfig
from headgate.limiter import AdaptiveRateLimiter
from headgate.sim.api import MockPlan
from headgate.sim.notation import Outage, Rate
from headgate.sim.score import judge
from headgate.sim.server import MockServer
from headgate.sim.trial import Trial

QUICK = RateLimitConfig(initial_rps=100.0, open_state_duration=0.1)


def run_trial(plan, *, calls, workers, stop_after=None):
    async def main():
        limiter = AdaptiveRateLimiter(QUICK, rng=random.Random(1))
        async with MockServer(plan, seed=1) as server:
            trial = Trial(limiter, server.url, calls, workers)
            if stop_after is not None:
                asyncio.get_running_loop().call_later(stop_after, trial.stop)
            await trial.run()
            trial.observe()
            return trial, server.truth()

    return asyncio.run(main())


def test_every_item_is_done_once_through_429s_and_an_outage():
    plan = MockPlan(rate=Rate(40.0), burst=12, latency=0.005, outages=(Outage(0.3, 0.3),))
    trial, truth = run_trial(plan, calls=80, workers=20)
    assert trial.statuses[429] > 0
    assert trial.statuses[503] > 0
    assert sorted(trial.times_done.elements()) == list(range(80))
    assert (truth["ids_done"], truth["ids_done_twice"]) == (80, 0)
    assert judge(trial, plan, truth).is_sound
    assert trial.samples[-1].done == 80
    assert trial.samples[-1].learned > 0


def test_a_stopped_trial_takes_the_answers_on_their_way_and_starts_nothing_more():
    plan = MockPlan(rate=Rate(1000.0), latency=0.2)
    trial, truth = run_trial(plan, calls=10_000, workers=10, stop_after=0.3)
    assert trial.stopped
    assert trial.done == truth["answered"] == truth["ids_done"]
    assert truth["in_flight"] == 0
    assert 0 < trial.done < 10_000
    assert judge(trial, plan, truth).is_sound
