"""A store that is far away, or becomes slow: calls hardly wait for it, the sum stays the same, nobody loses it."""

import pytest

from headgate import RateLimitConfig

pytestmark = pytest.mark.no_cover

KEY = "api.example.com"
BEGIN = 1000.0
RATE = 200.0
BURST = 4
TRIPS = [0.001, 0.048, 0.2, *(pytest.param(trip, marks=pytest.mark.chaos) for trip in (0.02, 0.03, 0.04, 0.06, 0.1))]


def fixed(rate=RATE, **more):
    return RateLimitConfig(strategy="fixed", initial_rps=rate, **more)


def away(trip):
    """Half of it each way, a fifth more or less."""
    return lambda rng: trip / 2 * rng.uniform(0.8, 1.2)


def p99(waits):
    return sorted(waits)[int(0.99 * (len(waits) - 1))]


def about_the_store(population):
    return [kind for member in population.members for kind in member.kinds() if kind.startswith("store")]


class TestFarAway:
    @pytest.mark.parametrize("trip", TRIPS)
    @pytest.mark.parametrize(("callers", "pause"), [(3, 1.5), (2, 0.1), (6, 0.2)])
    def test_calls_do_not_wait_for_it(self, shared, trip, callers, pause):
        async def main(population):
            for _ in range(4):
                population.work(population.join(), callers, pause=pause)
            await population.until(1.0)
            for member in population.members:
                member.waits.clear()
            await population.until(5.0)
            return [wait for member in population.members for wait in member.waits], about_the_store(population)

        waits, events = shared(main, fixed(), seed=3, delay=away(trip))
        assert p99(waits) <= 0.06
        assert not events

    @pytest.mark.parametrize("trip", TRIPS)
    def test_the_sum_is_the_limit_whatever_is_wanted(self, shared, most_over, trip):
        """Little, then all at once, nothing, all again, and others who join. Newcomers may send one call."""

        async def main(population):
            first = [population.join() for _ in range(4)]
            for until, callers, pause in ((2.0, 6, 0.3), (4.0, 4, 0.0), (5.5, 0, 0.0), (7.0, 4, 0.0)):
                for member in first:
                    member.idle()
                    population.work(member, callers, pause=pause)
                await population.until(until)
            for _ in range(4):
                population.work(population.join(), 4)
            await population.until(10.0)
            return population.starts(), about_the_store(population), population.started(8.0, 10.0)

        starts, events, started = shared(main, fixed(), seed=1, delay=away(trip))
        assert most_over(starts, RATE) <= BURST + 0.02 * RATE + 8
        assert not events
        assert started >= 0.9 * 2 * RATE

    def test_one_alone_has_all_of_the_rate(self, shared):
        async def main(population):
            population.work(population.join(), 20, latency=0.05)
            await population.until(4.0)
            return population.started(1.0, 4.0)

        assert shared(main, fixed(), delay=away(0.15)) >= 0.95 * 3 * RATE

    def test_a_known_limit_is_kept_but_for_a_call_of_each(self, shared):
        async def main(population):
            for _ in range(4):
                population.work(population.join(), 4, cost={"tokens": 10})
            await population.until(12.0)
            starts = population.starts()
            return max(sum(begin <= at < begin + 4.0 for at in starts) for begin in starts), len(starts)

        fullest, started = shared(main, fixed(limits={"tokens": "1000/4s"}), delay=away(0.1))
        assert fullest <= 100 + 4
        assert started >= 250

    def test_who_would_rather_send_nothing_waits_for_it(self, shared):
        async def main(population):
            member, asked_at = population.join(), population.clock.now()
            (await member.limiter.acquire_async(KEY)).report(status_code=200)
            return population.clock.now() - asked_at

        assert shared(main, fixed(without_store="refuse"), delay=away(0.1)) >= 0.08


class TestSlowing:
    @pytest.mark.parametrize("trip", [0.03, 0.2, pytest.param(0.1, marks=pytest.mark.chaos)])
    def test_a_store_that_becomes_slow_is_lost_for_a_moment_at_most(self, shared, trip):
        ways = [0.001]

        async def main(population):
            for _ in range(4):
                population.work(population.join(), 3, pause=0.2)
            await population.until(2.0)
            ways[0] = trip
            for member in population.members:
                member.waits.clear()
            await population.until(8.0)
            waits = [wait for member in population.members for wait in member.waits]
            return waits, about_the_store(population), [member.entry.client.alone for member in population.members]

        waits, events, alone = shared(main, fixed(), delay=lambda rng: away(ways[0])(rng))
        assert p99(waits) <= 0.06
        assert len(events) <= 2 * len(alone)
        assert not any(alone)

    def test_a_stall_is_bridged_at_the_share_and_paid_for(self, shared, most_over):
        """Nobody waits, nobody is told, and what left meanwhile is missing from what comes after."""

        async def main(population):
            for _ in range(4):
                population.work(population.join(), 4)
            await population.until(2.0)
            usual, population.store._delay = population.store._delay, lambda rng: 0.08
            await population.until(2.05)
            population.store._delay = usual
            await population.until(5.0)
            return population.starts()

        assert most_over(shared(main, fixed(), delay=away(0.02)), RATE) <= BURST + 4
