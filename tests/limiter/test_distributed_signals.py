"""What one member is told by the server, all of them go by: refusals, floors, open circuits and how much at once."""

import asyncio
from itertools import pairwise

import pytest

from headgate import RateLimitConfig
from headgate.controllers.fixed import Fixed
from headgate.errors import CircuitOpenError

pytestmark = pytest.mark.no_cover

KEY = "api.example.com"
BEGIN = 1000.0
AIMD = RateLimitConfig(strategy="aimd", initial_rps=100.0, aimd_increase=0.001, max_rps=100.0)


async def one_call(member, **report):
    permit = await member.limiter.acquire_async(KEY)
    permit.report(**report)
    return permit


class TestRefusals:
    def test_a_silent_429_of_one_slows_all_within_100_ms(self, shared):
        async def main(population):
            members = [population.join() for _ in range(6)]
            refused_at = BEGIN + 2.0
            told = []

            def answer(at):
                if at >= refused_at and not told:
                    told.append(at)
                    return 429
                return 200

            for number, member in enumerate(members):
                population.work(member, 4, latency=0.01, answer=answer if number == 5 else None)
            await population.until(2.5)
            population.rates = [member.limiter.key_status(KEY).rate for member in members]
            slowed = [[event.at for event in member.events if event.kind == "rate_changed"] for member in members]
            after = told[0] + 0.005
            return [min(at for at in times if at >= told[0]) - after for times in slowed]

        for delay in shared(main, AIMD, seed=3):
            assert delay <= 0.1

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 4))])
    def test_refusals_of_many_at_once_cut_the_rate_once(self, shared, seed):
        async def main(population):
            members = [population.join() for _ in range(6)]
            for member in members:
                population.work(member, 4, latency=0.02, answer=lambda at: 429 if 1002.0 <= at < 1002.02 else 200)
            await population.until(2.0)
            before = population.coordinator().rate
            await population.until(2.5)
            return before, population.coordinator().rate

        before, after = shared(main, AIMD, seed=seed)
        assert before == pytest.approx(100.0, rel=0.02)
        assert after == pytest.approx(before * AIMD.aimd_decrease, rel=0.03)

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 3))])
    def test_a_floor_told_to_one_holds_all_within_100_ms(self, shared, seed):
        async def main(population):
            members = [population.join() for _ in range(6)]
            told = []

            def answer(at):
                if at >= BEGIN + 2.0 and not told:
                    told.append(at)
                    return {"status_code": 429, "headers": {"Retry-After": "3"}}
                return 200

            for number, member in enumerate(members):
                population.work(member, 4, latency=0.002, answer=answer if number == 3 else None)
            await population.until(8.0)
            told_at = told[0] + 0.001
            return [at - told_at for at in population.starts() if at > told_at]

        after = shared(main, RateLimitConfig(strategy="fixed", initial_rps=400.0), seed=seed)
        early = [at for at in after if at < 3.0]
        assert max(early, default=0.0) <= 0.1
        assert len(early) <= 0.05 * 400
        assert min(at for at in after if at > 0.2) >= 3.0

    def test_after_a_floor_nobody_starts_what_was_saved_up(self, shared, fullest_window):
        async def main(population):
            for _ in range(8):
                population.work(population.join(), 8)
            await population.until(1.0)
            population.members[0].limiter.pause(KEY, 2.0)
            await population.until(5.0)
            return population.starts(2.0)

        starts = shared(main, RateLimitConfig(strategy="fixed", initial_rps=200.0))
        assert min(starts) >= 1003.0 - 0.01
        assert fullest_window(starts, 0.1) <= 0.1 * 200 + 4 + 2

    def test_a_floor_that_is_told_twice_is_kept_for_as_long_as_the_later_says(self, shared):
        async def main(population):
            one, other = population.join(), population.join()
            population.work(one, 2)
            population.work(other, 2)
            await population.until(1.0)
            one.limiter.pause(KEY, 1.0)
            await population.until(1.5)
            other.limiter.pause(KEY, 2.0)
            await population.until(6.0)
            return min(at for at in population.starts(1.2))

        assert shared(main) == pytest.approx(1003.5, abs=0.05)


TRIPS = RateLimitConfig(strategy="fixed", initial_rps=200.0, consecutive_fail_threshold=5, open_state_duration=2.0)


class TestCircuit:
    def broken_until(self, when):
        return lambda at: 503 if at < BEGIN + when else 200

    @pytest.mark.parametrize("strategy", ["fixed", pytest.param("aimd", marks=pytest.mark.chaos), "adaptive"])
    def test_it_opens_for_all_when_some_fail_and_closes_for_all(self, shared, strategy):
        config = RateLimitConfig(strategy=strategy, initial_rps=50.0, open_state_duration=2.0)

        async def main(population):
            failing, *others = [population.join() for _ in range(4)]
            for member in [failing, *others]:
                await one_call(member, status_code=200)
            await population.clock.sleep_async(0.1)  # those who were well are heard of before those who fail
            for _ in range(5):
                await one_call(failing, status_code=503)
            await population.clock.sleep_async(0.1)
            for member in others:  # whoever asks hears of it at the latest with its next request
                with pytest.raises(CircuitOpenError):
                    for _ in range(3):
                        (await member.limiter.acquire_async(KEY, max_wait=1.0)).abandon()
                        await population.clock.sleep_async(0.1)
            await population.clock.sleep_async(2.0)
            await one_call(others[0], status_code=200)
            await population.clock.sleep_async(0.1)
            for member in [failing, *others]:
                await one_call(member, status_code=200)
            return [member.limiter.key_status(KEY).state for member in population.members]

        assert shared(main, config) == ["closed"] * 4

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 3))])
    def test_half_open_lets_exactly_one_probe_through_over_all_members(self, shared, seed):
        async def main(population):
            probes = []

            async def knock(member):
                while True:
                    try:
                        permit = await member.limiter.acquire_async(KEY)
                    except CircuitOpenError:
                        await population.clock.sleep_async(population.rng.uniform(0.001, 0.02))
                        continue
                    at = population.clock.now()
                    await population.clock.sleep_async(0.3)
                    permit.report(status_code=503 if at < BEGIN + 6.0 else 200)
                    probes.append((at, population.clock.now()))

            for _ in range(8):
                member = population.join()
                member.tasks += [asyncio.get_running_loop().create_task(knock(member)) for _ in range(3)]
            await population.until(6.0)
            return sorted(probes)

        probes = shared(main, TRIPS, seed=seed)
        after_first = [probe for probe in probes if probe[0] > probes[0][1] + 0.1]
        assert len(after_first) >= 2
        for (_, ended_at), (next_at, _) in pairwise(after_first):
            assert next_at >= ended_at + TRIPS.open_state_duration

    def test_a_probe_that_is_abandoned_makes_room_for_another_at_once(self, shared):
        async def main(population):
            one, other = await self.open_circuit(population)
            permit = await one.limiter.acquire_async(KEY)
            permit.abandon()
            await population.clock.sleep_async(0.1)
            return await one_call(other, status_code=200)

        assert shared(main, TRIPS)

    def test_a_probe_nobody_waits_for_any_more_makes_room_for_another(self, shared):
        async def main(population):
            one, other = await self.open_circuit(population)
            waiting = asyncio.get_running_loop().create_task(one.limiter.acquire_async(KEY))
            await asyncio.sleep(0)
            waiting.cancel()
            await population.clock.sleep_async(0.3)
            return await one_call(other, status_code=200)

        assert shared(main, TRIPS)

    def test_a_prober_that_crashes_makes_room_for_another(self, shared):
        async def main(population):
            one, other = await self.open_circuit(population)
            await one.limiter.acquire_async(KEY)
            one.crash()
            await population.clock.sleep_async(1.5)
            return await one_call(other, status_code=200)

        assert shared(main, TRIPS)

    async def open_circuit(self, population):
        one, other = population.join(), population.join()
        await one_call(other, status_code=200)
        for _ in range(5):
            await one_call(one, status_code=503)
        await population.clock.sleep_async(TRIPS.open_state_duration + 0.1)
        return one, other


class Narrow(Fixed):
    """No more than three at once."""

    cap = 3.0


class TestDepth:
    def test_no_more_are_in_the_air_than_the_strategy_says_over_all_members(self, shared):
        config = RateLimitConfig(strategy=Narrow(200.0))

        async def main(population):
            flying, most = [0], [0]

            async def call(member):
                while True:
                    permit = await member.limiter.acquire_async(KEY)
                    flying[0] += 1
                    most[0] = max(most[0], flying[0]) if population.clock.now() > BEGIN + 0.5 else 0
                    await population.clock.sleep_async(0.05)
                    flying[0] -= 1
                    permit.report(status_code=200)
                    member.starts.append(population.clock.now())

            for _ in range(6):
                member = population.join()
                member.tasks += [asyncio.get_running_loop().create_task(call(member)) for _ in range(4)]
            await population.until(6.0)
            return most[0], population.started(1.0, 6.0), population.fairness(1.0, 6.0)

        most, started, fairness = shared(main, config)
        assert most <= 3
        assert started >= 0.6 * 5 * 3 / 0.05
        assert fairness >= 0.7
