"""What a limiter promises whoever calls it holds for a shared key as well: order, waits, costs, taking nothing."""

import asyncio

import pytest

from headgate import RateLimitConfig
from headgate.errors import CostTooLargeError, WaitTooLongError

pytestmark = pytest.mark.no_cover

KEY = "api.example.com"
BEGIN = 1000.0


def fixed(rate, **more):
    return RateLimitConfig(strategy="fixed", initial_rps=rate, **more)


def task(coroutine):
    return asyncio.get_running_loop().create_task(coroutine)


class TestWaits:
    def test_a_wait_that_would_be_too_long_is_refused_at_once(self, shared):
        async def main(population):
            members = [population.join() for _ in range(4)]
            for member in members:
                population.work(member, 8)
            await population.until(2.0)
            asked_at = population.clock.now()
            with pytest.raises(WaitTooLongError) as refused:
                await members[0].limiter.acquire_async(KEY, max_wait=0.1)
            return population.clock.now() - asked_at, refused.value.retry_after

        took, retry_after = shared(main, fixed(10.0))
        assert took == 0.0
        assert retry_after > 0.1

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 3))])
    def test_nobody_waits_longer_than_allowed(self, shared, seed):
        async def main(population):
            late, told = [], []

            async def call(member, patience):
                while True:
                    asked_at = population.clock.now()
                    try:
                        permit = await member.limiter.acquire_async(KEY, max_wait=patience)
                        permit.report(status_code=200)
                    except WaitTooLongError:
                        told.append(population.clock.now() - asked_at - patience)
                        await population.clock.sleep_async(0.01)
                    late.append(population.clock.now() - asked_at - patience - 0.01)

            for _ in range(4):
                member = population.join()
                member.tasks += [task(call(member, population.rng.uniform(0.02, 0.5))) for _ in range(8)]
            await population.until(5.0)
            return max(late), max(told)

        late, told = shared(main, fixed(50.0), seed=seed)
        assert late <= 1e-6
        assert told <= 1e-6

    def test_a_deadline_that_has_passed_is_refused_at_once(self, shared):
        async def main(population):
            with pytest.raises(WaitTooLongError):
                await population.join().limiter.acquire_async(KEY, deadline_at=BEGIN - 1.0)

        shared(main)

    def test_a_deadline_is_kept_when_the_store_says_it_takes_longer_than_it_looked(self, shared):
        async def main(population):
            crowd, caller = population.join(), population.join()
            population.work(crowd, 64)
            await population.until(1.0)
            asked_at = population.clock.now()
            with pytest.raises(WaitTooLongError):
                for _ in range(40):
                    await caller.limiter.acquire_async(KEY, deadline_at=asked_at + 0.5)
            return population.clock.now() - asked_at

        assert shared(main, fixed(4.0)) <= 0.5

    def test_callers_of_one_process_are_let_through_in_the_order_they_came(self, shared):
        async def main(population):
            one, other = population.join(), population.join()
            population.work(other, 4)
            order = []

            async def call(number):
                (await one.limiter.acquire_async(KEY)).report(status_code=200)
                order.append(number)

            one.tasks += [task(call(number)) for number in range(50)]
            await population.until(3.0)
            return order

        assert shared(main) == list(range(50))

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 3))])
    def test_a_cancelled_wait_takes_nothing(self, shared, most_over, seed):
        async def main(population):
            worker, fickle = population.join(), population.join()
            population.work(worker, 8)

            async def come_and_go():
                while True:
                    waiting = task(fickle.limiter.acquire_async(KEY))
                    await population.clock.sleep_async(population.rng.uniform(0.0, 0.02))
                    if waiting.done():
                        waiting.result().abandon()
                    waiting.cancel()
                    await asyncio.sleep(0)

            fickle.tasks += [task(come_and_go()) for _ in range(4)]
            await population.until(6.0)
            return worker.started(1.0, 6.0), worker.starts, fickle.limiter.key_status(KEY).in_flight

        started, starts, flying = shared(main, fixed(200.0, token_bucket_capacity=10), seed=seed)
        assert started >= 0.6 * 5 * 200
        assert most_over(starts, 200.0) <= 10
        assert flying <= 4

    @pytest.mark.parametrize("pause", [0.005, pytest.param(0.05, marks=pytest.mark.chaos), 0.3])
    @pytest.mark.parametrize("limits", [{}, {"requests": "100/s", "tokens": "1000/s"}])
    def test_whoever_only_tries_gets_a_permit_in_the_end_however_seldom_it_tries(self, shared, pause, limits):
        async def main(population):
            member, got = population.join(), 0
            for _ in range(20):
                permit = member.limiter.try_acquire(KEY, cost={"tokens": 10} if limits else 1)
                if permit is not None:
                    permit.report(status_code=200)
                    got += 1
                await population.clock.sleep_async(pause)
            return got

        assert shared(main, fixed(100.0, limits=limits)) >= 5

    def test_whoever_only_tried_once_holds_nothing_back(self, shared):
        async def main(population):
            member, worker = population.join(), population.join()
            member.limiter.try_acquire(KEY)
            await population.until(1.5)
            requests = population.store.exchanges
            await population.until(3.0)
            idle = population.store.exchanges - requests
            population.work(worker, 4)
            await population.until(5.0)
            return idle, worker.started(3.0, 5.0)

        idle, started = shared(main)
        assert idle <= 3
        assert started >= 195

    def test_trying_never_waits_and_never_overtakes(self, shared):
        async def main(population):
            member = population.join()
            population.work(member, 8)
            await population.until(2.0)
            for _ in range(50):
                assert member.limiter.try_acquire(KEY) is None
                await population.clock.sleep_async(0.01)
            return member.started(1.0, 2.5)

        assert shared(main) >= 145


class TestKnownLimits:
    LIMITS = fixed(1000.0, limits={"requests": "6000/min", "tokens": "6000/10s"}, burst={"tokens": 600})

    @pytest.mark.parametrize("members", [2, pytest.param(8, marks=pytest.mark.chaos)])
    def test_every_dimension_is_kept_by_all_together(self, shared, members):
        async def main(population):
            spent = []

            async def call(member):
                while True:
                    tokens = population.rng.randrange(1, 60)
                    permit = await member.limiter.acquire_async(KEY, cost={"tokens": tokens})
                    spent.append((population.clock.now(), tokens))
                    member.starts.append(population.clock.now())
                    permit.report(status_code=200)

            for _ in range(members):
                member = population.join()
                member.tasks += [task(call(member)) for _ in range(4)]
            await population.until(25.0)
            return spent, population.fairness(2.0, 25.0)

        spent, fairness = shared(main, self.LIMITS, seed=members)
        most = max(sum(t for at, t in spent if begin <= at < begin + 10.0) for begin, _ in spent[::5])
        assert 0.9 * 6000 <= most <= 1.01 * 6000
        assert sum(tokens for _, tokens in spent) >= 0.85 * 25 * 600
        assert fairness >= 0.7

    def test_what_was_reserved_and_not_used_goes_to_the_others(self, shared):
        async def main(population):
            members = [population.join() for _ in range(3)]
            for member in members:
                population.work(
                    member,
                    4,
                    cost={"tokens": 100},
                    latency=0.05,
                    answer=lambda at: {"status_code": 200, "cost": {"tokens": 50}},
                )
            await population.until(20.0)
            return population.started(2.0, 20.0)

        assert shared(main, self.LIMITS) >= 0.85 * 18 * 600 / 50

    def test_what_was_used_beyond_the_reservation_is_charged(self, shared):
        async def main(population):
            for _ in range(3):
                population.work(
                    population.join(),
                    2,
                    cost={"tokens": 50},
                    latency=0.05,
                    answer=lambda at: {"status_code": 200, "cost": {"tokens": 100}},
                )
            await population.until(30.0)
            return population.started(10.0, 30.0)

        assert shared(main, self.LIMITS) <= 1.05 * 20 * 600 / 100

    def test_an_abandoned_call_gives_back_what_it_took(self, shared):
        async def main(population):
            one, other = population.join(), population.join()
            for _ in range(6):
                (await one.limiter.acquire_async(KEY, cost={"tokens": 100})).abandon()
            await population.clock.sleep_async(0.1)
            asked_at = population.clock.now()
            for _ in range(6):
                (await other.limiter.acquire_async(KEY, cost={"tokens": 100})).report(status_code=200)
            return population.clock.now() - asked_at

        assert shared(main, self.LIMITS) <= 0.1

    def test_a_cost_that_never_fits_is_refused_at_once(self, shared):
        async def main(population):
            with pytest.raises(CostTooLargeError):
                await population.join().limiter.acquire_async(KEY, cost={"tokens": 6001})

        shared(main, self.LIMITS)

    def test_a_cost_above_one_request_takes_as_many_of_the_rate(self, shared):
        async def main(population):
            for _ in range(3):
                population.work(population.join(), 4, cost=5)
            await population.until(6.0)
            return population.started(1.0, 6.0)

        assert shared(main) == pytest.approx(5 * 100 / 5, rel=0.05)


class TestSeveralKeys:
    def test_a_call_under_two_keys_is_let_through_under_both_or_none(self, shared, most_over):
        async def main(population):
            for _ in range(3):
                population.work(population.join(), 4, key="one", also=("two",))
            await population.until(5.0)
            return population.starts(), population.started(1.0, 5.0)

        starts, started = shared(main, fixed(200.0))
        assert most_over(starts, 200.0) <= 4
        assert started >= 0.8 * 4 * 200

    def test_it_gets_through_where_both_keys_are_in_demand(self, shared):
        async def main(population):
            crowd, other_crowd, both = population.join(), population.join(), population.join()
            population.work(crowd, 8, key="one")
            population.work(other_crowd, 8, key="two")
            population.work(both, 4, key="one", also=("two",))
            await population.until(8.0)
            return both.started(2.0, 8.0), crowd.started(2.0, 8.0), other_crowd.started(2.0, 8.0)

        both, crowd, other_crowd = shared(main, fixed(100.0))
        assert both >= 0.1 * 6 * 100
        assert both + crowd >= 0.8 * 6 * 100
        assert both + other_crowd >= 0.8 * 6 * 100

    def test_a_slow_key_does_not_cost_the_other_its_slots(self, shared):
        config = fixed(200.0, overrides={"slow": fixed(5.0)})

        async def main(population):
            worker, both = population.join(), population.join()
            population.work(worker, 8, key="fast")
            population.work(both, 4, key="fast", also=("slow",))
            await population.until(8.0)
            return both.started(2.0, 8.0), worker.started(2.0, 8.0)

        both, worker = shared(main, config)
        assert both >= 20
        assert worker >= 0.6 * 6 * 200
