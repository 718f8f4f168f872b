"""Many limiters on one quota stay within it together, share it fairly, and leave nobody's part unused."""

import pytest

from headgate import RateLimitConfig
from headgate.wire.token_usage import Usage, admitted

pytestmark = pytest.mark.no_cover


BEGIN = 1000.0


def fixed(rate):
    return RateLimitConfig(strategy="fixed", initial_rps=rate)


SLACK = 4.0
"""The burst that every key has, alone or shared, on top of its rate."""


class TestWithinTheLimit:
    @pytest.mark.parametrize("members", [2, 8, *(pytest.param(many, marks=pytest.mark.chaos) for many in (3, 64))])
    @pytest.mark.parametrize("rate", [200.0, pytest.param(1000.0, marks=pytest.mark.chaos)])
    def test_the_sum_stays_within_the_rate_in_every_window(self, shared, most_over, members, rate):
        async def main(population):
            for _ in range(members):
                population.work(population.join(), 4)
            await population.until(4.0)
            return population.starts(), population.fairness(1.0, 4.0)

        starts, fairness = shared(main, fixed(rate), seed=members)
        assert most_over(starts, rate) <= SLACK
        assert len(starts) >= 0.98 * 4 * rate
        assert fairness >= 0.8

    def test_a_start_of_many_on_a_busy_machine_does_not_come_due_at_once(self, shared, most_over):
        """Replies are held up while all start, then less and less: what was counted from their arrival comes sooner."""
        rate = 200.0

        async def main(population):
            def held_up(rng):
                since = population.clock.now() - BEGIN
                return max(0.002, 0.2 - 0.5 * max(0.0, since - 0.8)) * rng.uniform(0.7, 1.3)

            population.store._delay = held_up
            for _ in range(64):
                population.work(population.join(), 2)
            await population.until(4.0)
            return population.starts()

        starts = shared(main, fixed(rate))
        assert most_over([at for at in starts if at >= BEGIN + 1.5], rate) <= SLACK + 0.04 * rate
        assert most_over(starts, rate) <= 0.15 * rate
        assert len(starts) >= 0.85 * 4 * rate

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 20))])
    def test_it_does_so_while_they_join_leave_crash_and_idle(self, shared, most_over, seed):
        rate = 400.0

        async def main(population):
            for _ in range(4):
                population.work(population.join(), 4)
            for second in range(8):
                await population.until(1.0 + second)
                here = [member for member in population.members if member.tasks]
                fate = population.rng.choice(["join", "join", "leave", "crash", "idle"]) if len(here) > 2 else "join"
                if fate == "join":
                    for _ in range(population.rng.randrange(1, 4)):
                        population.work(population.join(), population.rng.randrange(1, 8))
                    continue
                gone = population.rng.choice(here)
                if fate == "crash":
                    gone.crash()
                elif fate == "idle":
                    gone.idle()
                else:
                    await gone.leave()
            await population.until(10.0)
            return population.starts(), population.started(1.0, 10.0)

        starts, started = shared(main, fixed(rate), seed=seed)
        assert most_over(starts, rate) <= SLACK
        assert started >= 0.97 * 9 * rate

    @pytest.mark.parametrize("delay", [0.0002, pytest.param(0.005, marks=pytest.mark.chaos), 0.015])
    def test_it_does_so_however_far_the_store_is(self, shared, most_over, delay):
        rate = 400.0

        async def main(population):
            for _ in range(8):
                population.work(population.join(), 8)
            await population.until(6.0)
            return population.starts(), population.fairness(1.0, 6.0)

        starts, fairness = shared(
            main, fixed(rate), seed=5, delay=lambda rng: rng.uniform(0.5, 1.5) * delay, timeout=0.1
        )
        assert most_over(starts, rate) <= SLACK
        assert len(starts) >= 0.97 * 6 * rate
        assert fairness >= 0.8


class TestWhoGetsWhat:
    def test_demand_that_one_does_not_use_goes_to_the_others_within_a_second(self, shared):
        async def main(population):
            idler, worker = population.join(), population.join()
            population.work(idler, 4)
            population.work(worker, 4)
            await population.until(3.0)
            idler.idle()
            await population.until(5.0)
            return worker.started(1.0, 3.0), worker.started(4.0, 5.0)

        half, whole = shared(main, fixed(200.0))
        assert half == pytest.approx(200, rel=0.1)
        assert whole >= 190

    def test_a_crashed_member_takes_nothing_for_longer_than_a_second(self, shared):
        async def main(population):
            crashing, worker = population.join(), population.join()
            population.work(crashing, 4)
            population.work(worker, 4)
            await population.until(3.0)
            crashing.crash()
            await population.until(5.0)
            return worker.started(4.0, 5.0)

        assert shared(main, fixed(200.0)) >= 190

    def test_one_that_asks_for_little_gets_all_of_it(self, shared):
        async def main(population):
            modest, greedy = population.join(), population.join()
            population.work(modest, 1, pause=0.1)
            population.work(greedy, 32)
            await population.until(6.0)
            return modest.waits, greedy.started(1.0, 6.0), modest.started(1.0, 6.0)

        waits, greedy, modest = shared(main, fixed(200.0))
        assert sorted(waits)[int(0.99 * len(waits))] < 0.12
        assert modest >= 30
        assert greedy + modest >= 980

    def test_more_callers_in_one_process_do_not_get_it_more(self, shared):
        async def main(population):
            few, many = population.join(), population.join()
            population.work(few, 2)
            population.work(many, 50)
            await population.until(5.0)
            return few.started(1.0, 5.0) / many.started(1.0, 5.0)

        assert shared(main, fixed(200.0)) >= 0.8

    @pytest.mark.parametrize("callers", [4, pytest.param(1, marks=pytest.mark.chaos)])
    def test_the_way_of_most_calls_is_local(self, shared, callers):
        """One caller after the other asks the store no more often than many at once."""

        async def main(population):
            for _ in range(2):
                population.work(population.join(), callers)
            await population.until(3.0)
            return population.started(1.0, 3.0), population.store.exchanges / population.started(0.0, 3.0)

        started, requests = shared(main, fixed(2000.0))
        assert started >= 0.98 * 2 * 2000
        assert requests <= 0.6

    def test_who_waits_for_its_number_does_not_ask_all_the_time(self, shared):
        """Also where a limit is known: what is held is enough, and only its time has not come."""

        async def main(population):
            for _ in range(4):
                population.work(population.join(), 1)
            await population.until(5.0)
            return population.store.exchanges / population.started(0.0, 5.0)

        assert shared(main, RateLimitConfig(strategy="fixed", limits={"requests": "20/s"}), seed=3) <= 7.5

    def test_members_come_and_find_each_other_by_the_key_alone(self, shared):
        async def main(population):
            here, there = population.join(), population.join()
            population.work(here, 4, key="one")
            population.work(there, 4, key="other")
            await population.until(3.0)
            return here.started(1.0, 3.0), there.started(1.0, 3.0)

        assert all(count >= 390 for count in shared(main, fixed(200.0)))


class TestTokens:
    def test_members_ask_for_what_answers_are_long_not_for_all_that_they_may_be(self, shared, fullest_window):
        """Answers of 200 tokens where 4,000 are allowed, and 60,000 a minute: 300 calls a minute for both together."""
        limits = RateLimitConfig(limits={"output_tokens": "60000/min"})
        said = {"status_code": 200, "cost": {"requests": 1, "input_tokens": 100, "output_tokens": 200}}

        async def main(population):
            for _ in range(2):
                cost = admitted("anthropic", Usage(100, 4000))
                population.work(population.join(), 10, cost=cost, latency=3.0, answer=lambda at: said)
            await population.until(45.0)
            return population.starts(), population.fairness(15.0, 45.0)

        starts, fairness = shared(main, limits)
        assert len([at for at in starts if at >= BEGIN + 15.0]) >= 0.9 * 150
        assert fullest_window(starts, 60.0) <= 1.01 * 300
        assert fairness >= 0.8
