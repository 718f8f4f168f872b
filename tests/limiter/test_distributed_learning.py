"""What is learned together: about as well as by one process, kept when its leader goes, remembered for the next run."""

import pytest

from headgate import RateLimitConfig
from headgate.distributed.protocol import Note

pytestmark = pytest.mark.no_cover

KEY = "api.example.com"
BEGIN = 1000.0
AIMD = RateLimitConfig(strategy="aimd", initial_rps=100.0, aimd_increase=0.001, max_rps=100.0)


class Server:
    """A token bucket that refuses what does not fit, silently."""

    def __init__(self, rate, burst):
        self.rate, self.burst = rate, burst
        self.tokens, self.at = burst, BEGIN
        self.good = []

    def answer(self, at):
        self.tokens, self.at = min(self.burst, self.tokens + (at - self.at) * self.rate), at
        if self.tokens < 1.0:
            return 429
        self.tokens -= 1.0
        self.good.append(at)
        return 200


def goodput(shared, members, workers, seed, rate=100.0, seconds=30.0):
    async def main(population):
        server = Server(rate, 20.0)
        for _ in range(members):
            population.work(population.join(), workers, latency=0.05, answer=server.answer)
        await population.until(seconds)
        return sum(at >= BEGIN + 10.0 for at in server.good) / (seconds - 10.0) / rate

    return shared(main, RateLimitConfig(), seed=seed)


@pytest.mark.parametrize("seeds", [(0,), pytest.param((0, 1, 2), marks=pytest.mark.chaos)])
def test_four_processes_learn_about_as_well_as_one(shared, seeds):
    together = sum(goodput(shared, 4, 8, seed) for seed in seeds) / len(seeds)
    alone = sum(goodput(shared, 1, 32, seed) for seed in seeds) / len(seeds)
    assert together >= alone - 0.05, (together, alone)


@pytest.mark.parametrize("fate", ["leave", "crash", "idle"])
def test_what_was_learned_outlives_its_leader(shared, fate):
    async def main(population):
        members = [population.join() for _ in range(4)]
        for member in members:
            population.work(member, 4, latency=0.02, answer=lambda at: 429 if 1002.0 <= at < 1002.01 else 200)
        await population.until(4.0)
        leader = next(member for member in members if member.sharing.member == population.coordinator().leader)
        before = population.coordinator().rate
        if fate == "leave":
            await leader.leave()
        else:
            getattr(leader, fate)()
        await population.until(16.0)  # whoever idles leads for a while yet
        return before, population.coordinator().rate, leader.sharing.member == population.coordinator().leader

    before, after, still_leads = shared(main, AIMD, seed=2)
    assert before < 80.0
    assert after == pytest.approx(before, rel=0.05)
    assert not still_leads


@pytest.mark.parametrize(("pause", "remembered"), [(3600.0, True), (25 * 3600.0, False)])
def test_what_was_learned_is_remembered_for_the_next_run_for_a_day(shared, pause, remembered):
    async def main(population):
        member = population.join()
        population.work(member, 4, latency=0.02, answer=lambda at: 429 if 1002.0 <= at < 1002.01 else 200)
        await population.until(4.0)
        before = population.coordinator().rate
        await member.leave()
        await population.clock.sleep_async(pause)
        (view,) = population.store.snapshot()
        heir = population.join()
        permit = await heir.limiter.acquire_async(KEY)
        permit.report(status_code=200)
        await population.clock.sleep_async(0.5)
        return before, population.coordinator().rate, view.learned_ago

    before, after, ago = shared(main, AIMD)
    assert ago == pytest.approx(pause, abs=1.0)
    assert before < 80.0
    assert after == pytest.approx(before if remembered else 100.0, rel=0.05)


@pytest.mark.parametrize("text", ["", "garbage", "[" * 50_000, "00000000[[],[]]"])
def test_a_learned_text_that_is_none_harms_nobody(shared, text):
    async def main(population):
        member = population.join()
        population.work(member, 4, latency=0.02)
        await population.until(2.0)
        member.limiter.close()
        population.store._keys[KEY].learned = text
        await population.until(5.0)
        return member.started(3.0, 5.0)

    assert shared(main, AIMD) >= 180


def test_notes_that_are_none_harm_nobody(shared):
    texts = ["garbage", "[" * 60_000, '{"s":[1e999,0],"a":[],"v":[0,0,0]}', '{"s":[],"a":[[]],"v":[0,0,0]}']
    texts.append(
        '{"s":[],"a":[[1,0,0,"ok",null,[["requests",-1,-1,0,0,""],["tokens",1e300,0,0,1,""]],"x"]],"v":[0,0,0]}'
    )

    async def main(population):
        for _ in range(3):
            population.work(population.join(), 4, latency=0.02)
        for number, text in enumerate(texts):
            await population.until(1.0 + 0.2 * number)
            place = population.store._keys[KEY]
            place.coordinator.noted += 1
            place.notes.append(
                Note(number=place.coordinator.noted, at=place.coordinator.at, member="stranger", text=text)
            )
        await population.until(4.0)
        return population.started(2.5, 4.0)

    assert shared(main, AIMD) >= 0.9 * 1.5 * 100
