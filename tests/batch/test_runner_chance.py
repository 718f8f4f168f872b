"""Whatever happens, in whatever order: no row is lost, none is done twice, and nothing stays held."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.ledger import RowState
from headgate.batch.runner import BatchRunner
from headgate.core.cooldown import FixedCooldown

pytestmark = pytest.mark.no_cover

RUNS = 8


class Chance:
    """A server, a batch and an impatient user, all drawn from one seed."""

    def __init__(self, seed, lab, http_error):
        self.draw = random.Random(seed)
        self.lab, self.http_error = lab, http_error
        self.rows = self.draw.choice([5, 50, 200])
        self.keys = self.draw.choice([1, 3, 20])
        self.refuses = self.draw.choice([0.0, 0.1, 0.4])
        self.fails = self.draw.choice([0.0, 0.1, 0.3])
        self.credentials = self.draw.choice([None, ["a-1"], ["a-1", "b-2", "c-3"]])
        self.knows_limits = self.draw.random() < 0.4
        self.settings = {
            "window": self.draw.choice([1, 7, 100]),
            "cooldown": self.draw.choice([None, FixedCooldown(2.0)]),
            "cooldown_scope": self.draw.choice(["credential", "key", "provider"]),
            "item_deadline": self.draw.choice([None, 20.0]),
        }

    async def answer(self, item, ctx):
        await asyncio.sleep(self.draw.choice([0.0, 0.01, 0.3, 1.0]))
        drawn = self.draw.random()
        if drawn < self.refuses:
            raise self.http_error(429, self.draw.choice([{}, {"retry-after": "1"}, {"retry-after": "3"}]))
        if drawn < self.refuses + self.fails:
            raise self.http_error(self.draw.choice([500, 503, 400]))
        return item

    def runner(self, ledger, limiter):
        return BatchRunner(
            self.answer,
            workers=self.draw.choice([1, 5, 40]),
            ledger=ledger,
            limiter=limiter,
            credentials=self.credentials,
            config=BatchConfig(**self.settings),
            key=lambda item: f"key-{item % self.keys}",
            cost=(lambda _: {"tokens": self.draw.choice([10, 10, 3000])}) if self.knows_limits else 1,
            priority=lambda item: item % 3,
            clock=self.lab.clock,
            rng=self.draw,
        )

    def limiter(self):
        limits = {"tokens": "60000/min"} if self.knows_limits else {}
        strategy = self.draw.choice(["fixed", "adaptive", "aimd"])
        config = RateLimitConfig(strategy=strategy, initial_rps=50.0, token_bucket_capacity=20.0, limits=limits)
        return AdaptiveRateLimiter(config, clock=self.lab.clock, rng=self.draw)


@pytest.mark.parametrize("seed", range(16))
def test_no_row_is_lost_and_none_is_done_twice(play, http_error, seed):
    async def scenario(lab):
        chance, ledger, shown = Chance(seed, lab, http_error), lab.ledger(), Counter()
        for number in range(RUNS):
            limiter = chance.limiter()
            runner = chance.runner(ledger, limiter)

            async def consume(runner=runner, number=number):
                async for result in runner.stream(range(chance.rows), in_order=number % 2 == 0):
                    shown[result.index] += 1

            consuming = asyncio.ensure_future(consume())
            ends = "never" if number == RUNS - 1 else chance.draw.choice(["never", "soon", "now", "cancelled"])
            if ends != "never":
                await asyncio.sleep(chance.draw.choice([0.0, 0.001, 0.2, 1.0, 4.0]))
                if ends == "cancelled":
                    consuming.cancel()
                else:
                    runner.stop(now=ends == "now")
            await asyncio.gather(consuming, return_exceptions=True)
            held = [key for key in limiter.snapshot().keys if key.in_flight or key.waiters]
            assert held == []
            assert RowState.LEASED not in (await ledger.counts()).states
        states = (await ledger.counts()).states
        assert states.get(RowState.DONE, 0) + states.get(RowState.DEAD, 0) == chance.rows
        assert set(shown.values()) <= {1}

    play(scenario)
