"""A store that is down, slow, stalled, lossy or empty again: calls go on at a share, and all come back in step."""

import asyncio

import pytest

from headgate import RateLimitConfig
from headgate.errors import CircuitOpenError

pytestmark = pytest.mark.no_cover

KEY = "api.example.com"
BEGIN = 1000.0


def fixed(rate, **more):
    return RateLimitConfig(strategy="fixed", initial_rps=rate, **more)


def task(coroutine):
    return asyncio.get_running_loop().create_task(coroutine)


def p99(waits):
    return sorted(waits)[int(0.99 * (len(waits) - 1))]


class TestDown:
    @pytest.mark.parametrize("members", [2, pytest.param(5, marks=pytest.mark.chaos)])
    def test_calls_go_on_at_the_share_of_each(self, shared, most_over, members):
        async def main(population):
            for _ in range(members):
                population.work(population.join(), 4)
            await population.until(3.0)
            population.store.is_down = True
            await population.until(7.0)
            population.store.is_down = False
            await population.until(10.0)
            shares = [member.started(3.2, 7.0) / 3.8 for member in population.members]
            return shares, population.starts(), population.started(7.5, 10.0) / 2.5

        shares, starts, after = shared(main, fixed(200.0), seed=members)
        assert shares == pytest.approx([200.0 / members] * members, rel=0.05)
        assert most_over(starts, 200.0) <= 4 + members * (0.03 * 200 / members + 1)
        assert after == pytest.approx(200.0, rel=0.03)

    def test_added_latency_is_at_most_60_ms_for_nearly_all(self, shared):
        async def main(population):
            for _ in range(4):
                population.work(population.join(), 3, pause=0.3)
            await population.until(5.0)
            for member in population.members:
                member.waits.clear()
            population.store.is_down = True
            await population.until(30.0)
            return [wait for member in population.members for wait in member.waits]

        waits = shared(main, fixed(200.0))
        assert len(waits) > 500
        assert p99(waits) <= 0.06
        assert max(waits) <= 0.1

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 10))])
    def test_everyone_is_back_in_step_within_5_s(self, shared, most_over, seed):
        async def main(population):
            for _ in range(6):
                population.work(population.join(), 4)
            await population.until(2.0)
            population.store.is_down = True
            await population.until(20.0)
            population.store.is_down = False
            back_at = population.clock.now()
            while any(member.entry.client.alone for member in population.members):
                await population.clock.sleep_async(0.05)
            took = population.clock.now() - back_at
            await population.until(25.0)
            since = back_at - BEGIN + took
            return took, population.starts(since), population.fairness(since, 25.0)

        took, starts, fairness = shared(main, fixed(200.0), seed=seed)
        assert took <= 5.0
        assert most_over(starts, 200.0) <= 4
        assert fairness >= 0.8

    def test_an_event_and_a_counter_say_so(self, shared):
        async def main(population):
            member, other = population.join(), population.join()
            population.work(member, 2)
            population.work(other, 2)
            await population.until(2.0)
            before = member.limiter.snapshot()
            population.store.is_down = True
            await population.until(4.0)
            during = member.limiter.snapshot()
            population.store.is_down = False
            await population.until(9.0)
            kinds = [kind for kind in member.kinds() if kind.startswith("store")]
            return before, during, kinds, member.limiter.key_status(KEY)

        before, during, kinds, after = shared(main)
        assert before.sharing.failures == 0
        assert before.keys[0].shared_by == 2
        assert during.sharing.failures >= 3
        assert "cannot be reached" in during.keys[0].reason
        assert kinds == ["store_lost", "store_back"]
        assert after.shared_by == 2
        assert "cannot be reached" not in after.reason

    @pytest.mark.parametrize("members", [1, 2])
    def test_a_pace_says_with_whom_it_is_shared_if_there_is_anybody(self, shared, members):
        async def main(population):
            joined = [population.join() for _ in range(members)]
            for member in joined:
                population.work(member, 20)
            await population.until(2.0)
            seen = set()
            for step in range(200):
                await population.until(2.0 + step * 0.0013)
                seen.add(joined[0].limiter.key_status(KEY).reason)
            return seen - {""}

        told = shared(main, fixed(40.0))
        assert told
        assert all(("shared by 2 processes" in one) == (members > 1) for one in told), told

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 3))])
    def test_who_alone_was_cut_off_has_its_share_again_within_a_second(self, shared, most_over, seed):
        """The others had the whole rate meanwhile. What it sent beyond that is owed only so far."""

        async def main(population):
            for _ in range(3):
                population.work(population.join(), 4)
            await population.until(2.0)
            cut_off = population.members[0]
            population.store.cut_off.add(cut_off.sharing.member)
            await population.until(12.0)
            population.store.cut_off.clear()
            await population.until(16.0)
            return cut_off.started(13.0, 14.0), population.started(13.0, 14.0), population.starts(12.0)

        its_own, all_of_them, after = shared(main, fixed(200.0), seed=seed)
        assert its_own >= 0.85 * 200 / 3
        assert all_of_them == pytest.approx(200, rel=0.05)
        assert most_over(after, 200.0) <= 4 + 0.25 * 200 / 3  # what it does before it notices that it is back

    def test_a_floor_that_is_known_is_kept_alone(self, shared):
        async def main(population):
            one, other = population.join(), population.join()
            population.work(one, 2)
            population.work(other, 2)
            await population.until(1.0)
            one.limiter.pause(KEY, 5.0)
            await population.until(1.5)
            population.store.is_down = True
            await population.until(8.0)
            return [min(at for at in member.starts if at > BEGIN + 1.2) for member in (one, other)]

        for first_at in shared(main):
            assert first_at >= BEGIN + 6.0 - 0.01

    def test_a_floor_that_one_was_told_alone_holds_all_when_the_store_is_back(self, shared):
        async def main(population):
            one, other = population.join(), population.join()
            population.work(one, 2)
            population.work(other, 2)
            await population.until(1.0)
            population.store.is_down = True
            await population.until(2.0)
            one.limiter.pause(KEY, 6.0)
            population.store.is_down = False
            await population.until(12.0)
            return [max(at for at in member.starts if at < BEGIN + 7.5) for member in (one, other)]

        one, other = shared(main)
        assert one <= BEGIN + 2.1
        assert other <= BEGIN + 2.0 + 1.2

    def test_known_limits_are_kept_alone_and_around_it_but_for_a_burst(self, shared):
        limits = fixed(1000.0, limits={"requests": "60000/min", "tokens": "6000/10s"}, burst={"tokens": 600})

        async def main(population):
            spent = []

            async def call(member):
                while True:
                    permit = await member.limiter.acquire_async(KEY, cost={"tokens": 30})
                    spent.append(population.clock.now() - BEGIN)
                    permit.report(status_code=200)

            for _ in range(4):
                member = population.join()
                member.tasks += [task(call(member)) for _ in range(4)]
            await population.until(15.0)
            population.store.is_down = True
            await population.until(30.0)
            population.store.is_down = False
            await population.until(45.0)
            return spent

        spent = shared(main, limits)
        for begin in spent[::7]:
            assert sum(begin <= at < begin + 10.0 for at in spent) * 30 <= 6000 + 600
        for begin in [at for at in spent if at < 19.0][::7]:
            assert sum(begin <= at < begin + 10.0 for at in spent) * 30 <= 1.01 * 6000
        alone = sum(17.0 <= at < 30.0 for at in spent) * 30 / 13.0
        assert 0.85 * 600 <= alone <= 1.01 * 600

    def test_refusing_instead_lets_nothing_start(self, shared):
        async def main(population):
            member, refused = population.join(), []

            async def call():
                while True:
                    try:
                        permit = await member.limiter.acquire_async(KEY)
                    except CircuitOpenError as refusal:
                        refused.append(refusal.reason)
                        await population.clock.sleep_async(0.1)
                        continue
                    member.starts.append(population.clock.now())
                    permit.report(status_code=200)

            member.tasks += [task(call()) for _ in range(4)]
            await population.until(2.0)
            population.store.is_down = True
            await population.until(6.0)
            assert member.limiter.try_acquire(KEY) is None
            population.store.is_down = False
            await population.until(10.0)
            return refused[0], member.started(2.2, 6.0), member.started(8.0, 10.0)

        reason, alone, after = shared(main, fixed(100.0, without_store="refuse"))
        assert "cannot be reached" in reason
        assert alone == 0
        assert after >= 190

    def test_a_key_that_is_new_while_it_is_down_starts_at_once(self, shared):
        async def main(population):
            member = population.join()
            population.work(member, 2)
            await population.until(1.0)
            population.store.is_down = True
            await population.until(2.0)
            asked_at = population.clock.now()
            (await member.limiter.acquire_async("another.example.com")).report(status_code=200)
            return population.clock.now() - asked_at

        assert shared(main) <= 0.06

    def test_a_member_that_idled_through_it_comes_back_too(self, shared):
        async def main(population):
            member = population.join()
            population.work(member, 2)
            await population.until(1.0)
            population.store.is_down = True
            await population.until(2.0)
            member.idle()
            await population.until(30.0)
            population.store.is_down = False
            population.work(member, 2)
            await population.until(33.0)
            return member.entry.client.alone, member.started(30.0, 33.0)

        alone, started = shared(main)
        assert not alone
        assert started >= 290

    def test_a_store_that_was_never_there_harms_nobody(self, shared):
        async def main(population):
            population.store.is_down = True
            member = population.join()
            population.work(member, 4)
            await population.until(5.0)
            return member.started(0.5, 5.0)

        assert shared(main) == pytest.approx(450, rel=0.05)

    def test_what_was_taken_before_is_not_given_back_to_what_never_gave_it(self, shared, most_over):
        """Permits from before an outage that are abandoned after it, and the other way round, make no new ones."""

        async def main(population):
            member = population.join()
            kept = [await member.limiter.acquire_async(KEY) for _ in range(20)]
            population.store.is_down = True
            await population.clock.sleep_async(2.0)
            for permit in kept:
                permit.abandon()
            kept = [await member.limiter.acquire_async(KEY) for _ in range(20)]
            population.store.is_down = False
            await population.clock.sleep_async(5.0)
            for permit in kept:
                permit.abandon()
            population.work(member, 20)
            await population.clock.sleep_async(3.0)
            return member.starts

        starts = shared(main)
        assert most_over(starts, 100.0, permits=100) <= 4


class TestOtherFaults:
    @pytest.mark.parametrize("loss", [0.1, pytest.param(0.01, marks=pytest.mark.chaos)])
    def test_messages_that_get_lost_do_not_break_the_limit(self, shared, most_over, loss):
        async def main(population):
            for _ in range(4):
                population.work(population.join(), 4)
            await population.until(10.0)
            return population.starts(), population.started(1.0, 10.0)

        starts, started = shared(main, fixed(200.0), seed=7, loss=loss, timeout=0.25)
        assert most_over(starts, 200.0) <= (4 if loss == 0.01 else 40)
        assert started >= (0.92 if loss == 0.01 else 0.85) * 9 * 200

    @pytest.mark.parametrize("members", [12, pytest.param(64, marks=pytest.mark.chaos)])
    def test_processes_that_start_while_it_stalls_keep_the_limit(self, shared, fullest_window, members):
        """They do not know yet how many there are: none of them takes the whole limit meanwhile."""

        async def main(population):
            near, clock = population.store._delay, population.clock
            population.store._delay = lambda rng: (
                near(rng) + (BEGIN + 1.2 - clock.now() if 0.3 <= clock.now() - BEGIN < 1.2 else 0.0)
            )
            for number in range(members):
                await population.until(0.6 * number / members)
                population.work(population.join(), 2)
            await population.until(4.0)
            return population.starts(), population.started(2.0, 4.0)

        starts, started = shared(main, fixed(200.0))
        assert fullest_window(starts, 1.0) <= 1.15 * 200
        assert started >= 0.95 * 2 * 200

    def test_a_slow_store_adds_no_more_than_its_own_way(self, shared):
        async def main(population):
            for _ in range(3):
                population.work(population.join(), 2, pause=0.5)
            await population.until(20.0)
            return [wait for member in population.members for wait in member.waits]

        waits = shared(main, fixed(100.0), delay=lambda rng: rng.uniform(0.008, 0.012))
        assert p99(waits) <= 0.06

    @pytest.mark.parametrize("limits", [{}, {"limits": {"requests": "200/s"}}], ids=["rate", "known limit"])
    def test_a_store_that_holds_up_an_exchange_of_one_key_holds_up_no_call(self, shared, fullest_window, limits):
        """As a file does that another process has locked: an exchange waits for it for up to 2 s."""

        calm = []

        async def call_calmly(member, clock):
            while True:
                asked_at = clock.now()
                with await member.limiter.acquire_async("calm.example.com"):
                    calm.append((asked_at, clock.now() - asked_at))
                await clock.sleep_async(0.066)

        async def main(population):
            for _ in range(4):
                member = population.join()
                population.work(member, 4, pause=0.01)
                member.tasks.append(task(call_calmly(member, population.clock)))
            await population.until(3.0)
            answer = population.store._answer

            async def held_up(due, patience):
                if [client.key for client, _ in due] == ["calm.example.com"] and population.clock.now() < BEGIN + 3.3:
                    await population.clock.sleep_async(1.0)
                return await answer(due, patience)

            population.store._answer = held_up
            await population.until(5.0)
            return population.starts()

        starts = shared(main, fixed(200.0, **limits), timeout=2.0)
        assert max(wait for asked_at, wait in calm if asked_at >= BEGIN + 2.9) <= 0.06
        assert sum(BEGIN + 3.3 <= at < BEGIN + 4.0 for at in starts) >= 0.8 * 0.7 * 200
        assert fullest_window(starts, 1.0) <= 1.02 * 200 + 4 * (0.03 * 50 + 1)

    def test_a_late_store_gives_no_more_of_a_known_limit(self, shared, fullest_window):
        """One member has used up a minute's tokens when the others come: how much is left only the store knows."""

        async def main(population):
            first, *others = [population.join() for _ in range(8)]
            for member in others:
                (await member.limiter.acquire_async(KEY, cost={"tokens": 1})).report(status_code=200)
            population.work(first, 4, cost={"tokens": 5000})
            await population.until(65.0)
            for member in others:
                population.work(member, 2, cost={"tokens": 5000})
            await population.until(66.0)
            answer, until = population.store._answer, population.clock.now() + 0.3

            async def late(due, patience):
                await population.clock.sleep_async(max(0.0, until - population.clock.now()))
                return await answer(due, patience)

            population.store._answer = late
            await population.until(90.0)
            return population.starts()

        starts = shared(main, fixed(1000.0, limits={"tokens": "100000/60s"}))
        assert 5000 * fullest_window(starts, 60.0) <= 100_000

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 3))])
    def test_a_store_that_stalls_now_and_then_keeps_nobody_waiting(self, shared, seed):
        async def main(population):
            for _ in range(4):
                population.work(population.join(), 3, pause=0.2)
            for second in range(1, 12):
                await population.until(second)
                population.store.is_down = population.rng.random() < 0.5
            return [wait for member in population.members for wait in member.waits]

        waits = shared(main, fixed(200.0), seed=seed)
        assert p99(waits) <= 0.06

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 3))])
    def test_a_store_that_restarts_empty_changes_little(self, shared, most_over, seed):
        async def main(population):
            for _ in range(5):
                population.work(population.join(), 4)
            await population.until(3.0)
            population.store.wipe()
            await population.until(6.0)
            population.store.is_down = True
            population.store.wipe()
            await population.until(6.3)
            population.store.is_down = False
            await population.until(10.0)
            return (
                population.starts(),
                population.fairness(7.0, 10.0),
                population.started(4.0, 6.0),
                population.started(8.0, 10.0),
            )

        starts, fairness, *started = shared(main, fixed(200.0), seed=seed)
        assert most_over(starts, 200.0) <= 4 + 5 * 3
        assert fairness >= 0.8
        assert all(count >= 390 for count in started)

    def test_a_floor_outlives_a_wiped_store(self, shared):
        """The store has forgotten it, but those who were told have not."""

        async def main(population):
            one, other = population.join(), population.join()
            population.work(one, 2)
            population.work(other, 2)
            await population.until(1.0)
            one.limiter.pause(KEY, 5.0)
            await population.until(2.0)
            population.store.is_down = True
            await population.until(2.5)
            population.store.wipe()
            population.store.is_down = False
            await population.until(9.0)
            return min(at for at in population.starts(1.2))

        assert shared(main) >= BEGIN + 6.0 - 0.01

    def test_a_clock_that_is_set_forward_or_back_changes_nothing(self, shared, most_over):
        async def main(population):
            off = [0.0]

            class Jumpy:
                def now(self):
                    return population.clock.now() + off[0]

                def wall(self):
                    return population.clock.wall() + off[0]

            sync = population.store.sync

            def with_another_clock(requests):
                clock, population.store._clock = population.store._clock, Jumpy()
                try:
                    return sync(requests)
                finally:
                    population.store._clock = clock

            population.store.sync = with_another_clock
            for _ in range(4):
                population.work(population.join(), 4)
            for second, jump in enumerate((30.0, -30.0, 3600.0, -86_400.0, 0.0), start=2):
                await population.until(second)
                off[0] = jump
            await population.until(9.0)
            return population.starts(), population.started(1.0, 9.0)

        starts, started = shared(main, fixed(200.0))
        assert most_over(starts, 200.0) <= 4
        assert started >= 0.97 * 8 * 200
