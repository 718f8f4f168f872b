"""Rate limits in a batch: one pause for all lanes that share one, and rows that wait it out without being lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from headgate.batch.config import BatchConfig
from headgate.batch.ledger import RowState
from headgate.core.cooldown import ExponentialCooldown, FixedCooldown

SEED = 20261115


@pytest.mark.parametrize("workers", [1, 2])
def test_a_refused_row_is_sent_again_after_the_pause(play, http_error, workers):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429) if nth == 1 else item)
        report = await lab.runner(api, workers=workers, cooldown=FixedCooldown(5.0)).run(range(workers))
        assert (report.done, report.calls, report.rate_limit_generations) == (workers, 2 * workers, 1)
        assert api.started_at[workers] == pytest.approx(0.1 + 5.0)

    play(scenario)


def test_ten_workers_that_are_all_refused_once_pause_once(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429) if nth == 1 else item)
        report = await lab.runner(api, workers=10, cooldown=FixedCooldown(5.0)).run(range(10))
        assert report.done == 10
        assert report.calls == len(api.calls) == 20
        assert report.rate_limits() == {
            "rate_limited_items_stored": 10,
            "rate_limited_items_redistributed": 10,
            "rate_limit_generations": 1,
            "rate_limit_participants": 10,
        }
        assert len(lab.told("cooldown_started")) == 1
        assert report.waits["cooldown"] + report.waits["pace"] == pytest.approx(50.0, rel=0.01)

    play(scenario)


def test_fifteen_rows_of_five_workers_survive_two_waves(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429) if nth <= 2 else item)
        report = await lab.runner(api, workers=5, cooldown=FixedCooldown(1.0)).run(range(15))
        assert report.done == 15
        assert set(api.times.values()) == {3}

    play(scenario)


def test_with_half_of_the_calls_refused_no_row_is_lost_or_done_twice_and_all_workers_resume(play, http_error):
    async def scenario(lab):
        chance = random.Random(SEED)
        api = lab.api(lambda item, _: http_error(429) if chance.random() < 0.5 else item)
        runner = lab.runner(api, workers=20, cooldown=FixedCooldown(0.5), max_rate_limit_retries=100)
        results = [result async for result in runner.stream(range(100))]
        assert Counter(result.value for result in results) == Counter(range(100)), f"seed {SEED}"
        first_pause_over = lab.told("cooldown_started")[0].at + 0.5
        together = Counter(round(at, 2) for at, _ in api.calls if at >= first_pause_over)
        assert max(together.values()) == 20, f"seed {SEED}"

    play(scenario)


def test_ten_refusals_of_one_burst_that_come_one_after_the_other_are_one_cooldown(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: (0.15 * (item + 1), http_error(429)) if nth == 1 else item)
        report = await lab.runner(api, workers=10, cooldown=FixedCooldown(0.2)).run(range(10))
        assert (report.done, report.calls) == (10, 20)
        assert (report.rate_limit_generations, report.rate_limit_participants) == (1, 10)

    play(scenario)


def test_a_joiner_that_asks_for_longer_extends_the_pause(play, http_error):
    async def scenario(lab):
        late = (0.15, http_error(429, {"retry-after": "5"}))
        api = lab.api(lambda item, nth: item if nth > 1 else late if item else http_error(429))
        report = await lab.runner(api, workers=2, cooldown=FixedCooldown(0.2)).run(range(2))
        assert report.rate_limit_generations == 1
        assert api.started_at[2] == pytest.approx(0.15 + 5.0)
        assert lab.told("cooldown_extended")[0].seconds == pytest.approx(5.0)

    play(scenario)


def test_what_the_server_asks_for_outlasts_a_shorter_cooldown(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429, {"retry-after": "30"}) if nth == 1 else item)
        await lab.runner(api, workers=1, cooldown=ExponentialCooldown(base=5.0)).run([0])
        assert api.started_at[1] == pytest.approx(0.1 + 30.0)

    play(scenario)


def test_refused_again_after_each_pause_a_growing_cooldown_grows_once_for_each(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429) if nth <= 3 else item)
        report = await lab.runner(api, workers=3, cooldown=ExponentialCooldown(base=2.0)).run(range(3))
        assert report.rate_limit_generations == 3
        assert sorted({round(at, 3) for at in api.started_at}) == [0.0, 2.1, 6.2, 14.3]

    play(scenario)


def test_nothing_of_any_kind_starts_inside_a_pause(play, http_error):
    """New rows, rows that failed and are due, refused rows: all wait."""

    async def scenario(lab):
        def plan(item, nth):
            if item == 3 and nth == 1:
                return 0.2, http_error(429, {"retry-after": "10"})
            return http_error(500) if nth == 1 and item % 2 else item

        api = lab.api(plan)
        report = await lab.runner(api, workers=8, base_delay=0.5).run(range(40))
        assert report.done == 40
        assert not [at for at in api.started_at if 0.2 < at < 0.2 + 10.0]

    play(scenario)


def test_after_a_pause_a_hundred_waiters_follow_the_ramp(play, http_error):
    """Half of the pace at first, up to all of it within a tenth of the pause, and no burst before that."""

    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429, {"retry-after": "20"}) if nth == 1 else item)
        limiter = lab.limiter(rate=50.0, at_once=100.0)
        report = await lab.runner(api, workers=100, limiter=limiter).run(range(100))
        assert report.done == 100
        after = sorted(at - 20.1 for at in api.started_at if at >= 20.0)
        for seconds, most in ((0.0, 1), (0.5, 1 + 16), (1.0, 1 + 37.5), (2.0, 1 + 75)):
            assert len([at for at in after if at <= seconds + 1e-6]) <= most + 1, (seconds, after[:50])
        assert after[-1] < 3.0

    play(scenario)


def test_a_reporter_that_is_cancelled_leaves_the_pause_as_it_is(play):
    async def scenario(lab):
        async def worker(item, ctx):
            started.append(lab.clock.now())
            if item == 0 and len(started) == 1:
                ctx.report(status_code=429, retry_after=10.0)
                raise asyncio.CancelledError
            return item

        started: list[float] = []
        report = await lab.runner(worker, workers=1).run(range(5))
        assert report.done == 5
        assert started[1] >= 10.0

    play(scenario)


@pytest.mark.parametrize("now", [False, True])
def test_stopping_inside_a_long_pause_takes_no_time(play, http_error, now):
    async def scenario(lab):
        api = lab.api(lambda item, _: http_error(429, {"retry-after": "30"}))
        runner = lab.runner(api, workers=5)
        running = asyncio.ensure_future(runner.run(range(50)))
        await asyncio.sleep(3.0)
        runner.stop(now=now)
        report = await running
        assert lab.clock.now() < 4.0
        assert (report.open, report.stopped) == (50, "stopped")

    play(scenario)


class Broken:
    def pause(self, _: int) -> float:
        raise RuntimeError("a cooldown of your own that fails")


def test_a_cooldown_step_that_raises_costs_no_row(play, http_error, caplog):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429, {"retry-after": "2"}) if nth == 1 else item)
        report = await lab.runner(api, workers=5, cooldown=Broken()).run(range(10))
        assert report.done == 10
        assert not [at for at in api.started_at if 0.1 < at < 2.1]

    play(scenario)
    assert "the cooldown policy raised an exception" in caplog.text


def test_a_listener_that_raises_costs_no_row(play, http_error, caplog):
    async def scenario(lab):
        def listener(_):
            raise RuntimeError("no")

        api = lab.api(lambda item, nth: http_error(429) if nth == 1 else item)
        report = await lab.runner(api, workers=5, on_event=listener, cooldown=FixedCooldown(1.0)).run(range(10))
        assert report.done == 10

    play(scenario)
    assert "a listener failed" in caplog.text


def test_being_refused_uses_up_no_attempt(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429) if nth <= 5 else item)
        runner = lab.runner(api, workers=1, max_attempts=3, cooldown=FixedCooldown(1.0))
        (result,) = [result async for result in runner.stream([7])]
        assert (result.state, result.attempts, result.rate_limited) == (RowState.DONE, 1, 5)
        assert api.attempts == [1] * 6

    play(scenario)


def test_the_cap_on_refusals_ends_a_row_on_the_refusal_after(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda *_: http_error(429))
        runner = lab.runner(api, workers=1, max_rate_limit_retries=2, cooldown=FixedCooldown(1.0))
        (result,) = [result async for result in runner.stream([7])]
        assert len(api.calls) == 3
        assert (result.state, result.category, result.attempts) == (RowState.DEAD, "rate_limited", 0)

    play(scenario)


def test_a_refused_probe_does_not_count_towards_the_cap(play, http_error):
    """The strategy probes a blocked server with one call at a time; whose row that is, is chance."""

    async def scenario(lab):
        api = lab.api(lambda item, _: http_error(429) if lab.clock.now() < 120.0 else item)
        limiter = lab.limiter(rate=10.0, at_once=4.0, strategy="adaptive")
        report = await lab.runner(api, workers=4, limiter=limiter, max_rate_limit_retries=6).run(range(20))
        assert report.done == 20
        assert max(api.times.values()) > 1 + 6 + 1

    play(scenario)


def test_where_the_server_is_silent_the_strategy_decides_how_long_to_hold(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429) if nth == 1 and item < 4 else item, takes=0.05)
        limiter = lab.limiter(rate=20.0, at_once=4.0, strategy="adaptive")
        report = await lab.runner(api, workers=4, limiter=limiter).run(range(20))
        assert report.done == 20
        assert report.elapsed < 10.0

    play(scenario)


def test_a_parked_row_holds_no_worker_and_other_keys_go_on(play, http_error):
    async def scenario(lab):
        def plan(item, nth):
            return http_error(429, {"retry-after": "60"}) if item[0] == "a" and nth == 1 else item

        api = lab.api(plan)
        rows = [f"a{n}" for n in range(5)] + [f"b{n}" for n in range(20)]
        report = await lab.runner(api, workers=1, key=lambda item: item[0]).run(rows)
        assert report.done == 25
        assert max(at for at, item in api.calls if item[0] == "b") < 5.0
        assert [item for at, item in api.calls if 0.0 < at < 60.0 and item[0] == "a"] == []

    play(scenario)


def refused_with(http_error, label):
    """A server that refuses one credential, once."""

    async def worker(item, ctx):
        worker.calls.append((ctx.credential_label, worker.clock.now()))
        await asyncio.sleep(0.1)
        if ctx.credential_label == label and not worker.refused:
            worker.refused = True
            raise http_error(429, {"retry-after": "60"})
        return item

    worker.calls, worker.refused = [], False
    return worker


def test_a_refused_credential_rests_alone_and_its_row_goes_by_another(play, http_error):
    async def scenario(lab):
        worker = refused_with(http_error, "key-1")
        worker.clock = lab.clock
        report = await lab.runner(worker, workers=2, credentials=["secret-a", "secret-b"]).run(range(50))
        assert report.done == 50
        assert lab.clock.now() < 60.0
        refused_at = next(at for label, at in worker.calls if label == "key-1") + 0.1
        assert [label for label, at in worker.calls if at >= refused_at] == ["key-2"] * 49

    play(scenario)


def test_only_when_all_credentials_rest_does_everything_pause(play, http_error):
    async def scenario(lab):
        refused: set[str] = set()

        async def worker(item, ctx):
            started.append(lab.clock.now())
            await asyncio.sleep(0.1)
            if ctx.credential_label not in refused:
                refused.add(ctx.credential_label)
                raise http_error(429, {"retry-after": "30"})
            return item

        started: list[float] = []
        report = await lab.runner(worker, workers=1, credentials=["secret-a", "secret-b"]).run(range(10))
        assert report.done == 10
        assert not [at for at in started if 0.2 <= at < 30.0]

    play(scenario)


@pytest.mark.parametrize(
    ("scope", "a2_goes_on", "b_goes_on"), [("credential", 1, 1), ("key", 0, 1), ("provider", 0, 0)]
)
def test_the_scope_says_what_pauses(play, http_error, scope, a2_goes_on, b_goes_on):
    async def scenario(lab):
        async def worker(item, ctx):
            calls.append((ctx.key, ctx.credential_label, lab.clock.now()))
            await asyncio.sleep(0.1)
            if (ctx.key, ctx.credential_label) == ("a", "key-1") and len(calls) < 5:
                raise http_error(429, {"retry-after": "60"})
            return item

        calls: list[tuple[str, str, float]] = []
        rows = [("a", 0), ("b", 0)] * 20
        runner = lab.runner(
            worker,
            workers=4,
            key=lambda item: item[0],
            credentials=["secret-a", "secret-b"],
            cooldown_scope=scope,
        )
        report = await runner.run(rows)
        assert report.done == 40
        meanwhile = {(key, label) for key, label, at in calls if 0.1 < at < 59.0}
        assert ("a", "key-1") not in meanwhile
        assert (("a", "key-2") in meanwhile) is bool(a2_goes_on)
        assert any(key == "b" for key, _ in meanwhile) is bool(b_goes_on)

    play(scenario)


def test_an_unknown_scope_is_refused_by_its_field():
    with pytest.raises(ValueError, match="cooldown_scope=str must be one of credential, key, provider"):
        BatchConfig(cooldown_scope="planet")


def test_a_pause_goes_on_after_a_restart(play, http_error):
    async def scenario(lab):
        ledger = lab.ledger()
        api = lab.api(lambda item, _: http_error(429, {"retry-after": "600"}))
        runner = lab.runner(api, workers=2, ledger=ledger)
        running = asyncio.ensure_future(runner.run(range(10)))
        await asyncio.sleep(100.0)
        runner.stop()
        await running

        api = lab.api(lambda item, _: item)
        report = await lab.runner(api, workers=2, ledger=ledger).run(range(10))
        assert report.done == 10
        assert min(api.started_at) == pytest.approx(600.1)

    play(scenario)
