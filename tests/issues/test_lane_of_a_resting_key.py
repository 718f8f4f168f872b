"""A lane whose key began to rest while it waited for its permit waited for five seconds, as if the key were in use."""

import asyncio

import pytest

from headgate import AdaptiveRateLimiter, BatchRunner, Credential, CredentialCoordinator, RateLimitConfig
from headgate.exchange import Answer
from headgate.lab.virtual_time import LoopClock, run

PACED = RateLimitConfig(strategy="fixed", initial_rps=2.0, token_bucket_capacity=1)
UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, overrides={"slow*": PACED})


def test_a_lane_goes_on_when_its_key_has_rested():
    """The second slow row may start at 0.5 s; the key rests from 0.3 to 0.8 s."""
    started: dict[str, float] = {}
    waits: set[str] = set()

    async def main(clock: LoopClock) -> None:
        async def worker(item, ctx):
            is_new = item not in started
            started[item] = clock.now()
            await asyncio.sleep(0.2)
            if item == "fast" and is_new:
                ctx.report(Answer(429, {"retry-after": "0.5"}, b""))

        async def rows():
            yield "slow-1"
            await asyncio.sleep(0.1)
            yield "slow-2"
            yield "fast"
            await asyncio.sleep(0.5)
            waits.update(lane.waits_for for lane in runner.lanes() if lane.key == "slow")

        runner = BatchRunner(
            worker,
            workers=4,
            limiter=AdaptiveRateLimiter(UNPACED, clock=clock),
            credentials=CredentialCoordinator([Credential("k0", "secret-of-0")], clock=clock),
            key=lambda item: item.partition("-")[0],
            clock=clock,
        )
        report = await runner.run(rows())
        assert report.done == 3

    run(main)
    assert waits == {"credential"}
    assert started["slow-2"] == pytest.approx(0.8, abs=0.01)
