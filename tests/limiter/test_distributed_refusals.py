"""A pause that nobody waits out: everybody comes back when it is over, and finds the way free."""

import pytest

from headgate import RateLimitConfig, WaitTooLongError

pytestmark = pytest.mark.no_cover

PAUSE = 3.0
KEY = "api.example.com"


@pytest.mark.parametrize("silent_until", [0.0, 3.5])
@pytest.mark.parametrize("members", [1, 4])
def test_a_pause_ends_although_nobody_stood_in_line_meanwhile(shared, members, silent_until):
    async def main(population):
        everyone = [population.join() for _ in range(members)]
        for number in range(20):
            with await everyone[number % members].limiter.acquire_async(KEY) as permit:
                permit.report(status_code=200)
            await population.clock.sleep_async(0.02)
        with await everyone[0].limiter.acquire_async(KEY) as permit:
            permit.report(status_code=429, retry_after=PAUSE)
        told_at, came = population.clock.now(), []
        while population.clock.now() < told_at + 6.0:
            if 0.3 < population.clock.now() - told_at < silent_until:
                await population.clock.sleep_async(silent_until - 0.3)
            for member in everyone:
                try:
                    with await member.limiter.acquire_async(KEY, max_wait=0.5) as permit:
                        permit.report(status_code=200)
                        came.append(population.clock.now() - told_at)
                except WaitTooLongError:
                    pass
            await population.clock.sleep_async(0.05)
        return [at for at in came if at > 0.1]  # until then not everybody has heard of it

    came = shared(main, RateLimitConfig(limits={"requests": "50/s"}))
    assert PAUSE <= came[0] <= max(PAUSE, silent_until) + 0.6
