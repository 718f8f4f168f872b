"""Coming back: after a pause or an outage all rows pass the ramp, also over a restart."""

from __future__ import annotations

import asyncio

import pytest

from headgate import RecoveryRateLimiter

pytestmark = pytest.mark.no_cover


def per_second(started_at, begin, end):
    return len([at for at in started_at if begin <= at < end]) / (end - begin)


def test_a_batch_follows_the_ramp_it_is_given_from_the_end_of_a_pause(play, http_error):
    """5 calls a second at first, 20 after 300 seconds: 3,750 in all, within 1 %."""

    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429, {"retry-after": "30"}) if item == 0 and nth == 1 else item)
        limiter = lab.limiter(rate=1000.0)
        await lab.runner(api, limiter=limiter, workers=10, ramp=RecoveryRateLimiter()).run(range(3900))
        after = [at - 30.1 for at in api.started_at if at > 30.0]
        assert len([at for at in after if at < 300.0]) == pytest.approx(3750, rel=0.01)
        for at, rate in ((0.0, 5.0), (60.0, 8.0), (150.0, 12.5), (240.0, 17.0)):
            assert per_second(after, at, at + 10.0) == pytest.approx(rate, rel=0.1)

    play(scenario)


def test_the_ramp_holds_for_rows_that_are_sent_again_too(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429, {"retry-after": "10"}) if nth == 1 else item)
        await lab.runner(api, workers=100, ramp=RecoveryRateLimiter()).run(range(100))
        again = sorted(at for at in api.started_at if at >= 10.0)
        assert len(again) == 100
        assert per_second(again, 10.1, 20.1) == pytest.approx(5.25, abs=0.3)

    play(scenario)


def test_the_ramp_begins_when_a_circuit_closes(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, _: http_error(500) if lab.clock.now() < 40.0 else item)
        limiter = lab.limiter(open_state_duration=15.0)
        runner = lab.runner(api, workers=20, limiter=limiter, max_attempts=99, ramp=RecoveryRateLimiter())
        report = await runner.run(range(200))
        assert report.done == 200
        (started,) = lab.told("ramp_started")
        assert started.at > 40.0
        assert per_second(api.started_at, started.at + 0.1, started.at + 10.1) == pytest.approx(5.25, abs=0.4)
        assert len(lab.told("circuit_open")) == 1

    play(scenario)


def test_while_a_circuit_is_open_rows_wait_and_lose_nothing(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, _: http_error(500) if lab.clock.now() < 20.0 else item)
        limiter = lab.limiter(open_state_duration=15.0)
        report = await lab.runner(api, workers=5, limiter=limiter, max_attempts=3).run(range(100))
        assert report.done + report.dead == 100
        assert report.dead <= 5
        assert len([at for at in api.started_at if 1.0 < at < 15.0]) == 0

    play(scenario)


def test_an_outage_of_minutes_uses_no_row_up(play, http_error):
    """Each probe of the open circuit is another row's, so that none has spent its attempts when it closes."""

    async def scenario(lab):
        api = lab.api(lambda item, _: http_error(503) if lab.clock.now() < 600.0 else item)
        limiter = lab.limiter(open_state_duration=15.0)
        report = await lab.runner(api, workers=5, limiter=limiter, max_attempts=3).run(range(100))
        assert (report.done, report.dead) == (100, 0)
        assert len([at for at in api.started_at if 1.0 < at < 600.0]) == pytest.approx(40, abs=2)

    play(scenario)


def test_a_rerun_with_other_ramp_settings_takes_them_and_goes_on_where_it_was(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429, {"retry-after": "10"}) if item == 0 and nth == 1 else item)
        ledger = lab.ledger()
        runner = lab.runner(api, workers=1, ledger=ledger, ramp=RecoveryRateLimiter())
        running = asyncio.ensure_future(runner.run(range(600)))
        await asyncio.sleep(10.1 + 60.0)
        runner.stop()
        await running
        began_at, slow = lab.clock.now(), RecoveryRateLimiter(initial_rate=1.0, target_rate=3.0, ramp_duration=600.0)
        runner = lab.runner(api, workers=10, ledger=ledger, ramp=slow)
        running = asyncio.ensure_future(runner.run(range(600)))
        await asyncio.sleep(30.0)
        runner.stop()
        await running
        after = [at for at in api.started_at if at > began_at]
        assert per_second(after, began_at + 1.0, began_at + 21.0) == pytest.approx(1.4, abs=0.15)

    play(scenario)


def test_the_ramp_goes_on_after_a_restart(play, http_error):
    async def scenario(lab):
        ledger = lab.ledger()
        api = lab.api(lambda item, nth: http_error(429, {"retry-after": "10"}) if item == 0 and nth == 1 else item)
        runner = lab.runner(api, workers=1, ledger=ledger, ramp=RecoveryRateLimiter())
        running = asyncio.ensure_future(runner.run(range(1000)))
        await asyncio.sleep(10.1 + 60.0)
        runner.stop()
        await running

        api = lab.api(lambda item, _: item)
        runner = lab.runner(api, workers=10, ledger=ledger, ramp=RecoveryRateLimiter())
        running = asyncio.ensure_future(runner.run(range(1000)))
        await asyncio.sleep(20.0)
        runner.stop()
        await running
        assert per_second(api.started_at, 71.0, 81.0) == pytest.approx(8.3, rel=0.05)

    play(scenario)


def test_errors_on_the_way_back_slow_it_down(play, http_error):
    async def scenario(lab):
        def plan(item, nth):
            if item == 0 and nth == 1:
                return http_error(429, {"retry-after": "10"})
            return http_error(500) if item % 2 and lab.clock.now() < 60.0 else item

        api = lab.api(plan)
        limiter = lab.limiter(consecutive_fail_threshold=999, min_samples_to_trip=10**6)
        runner = lab.runner(api, workers=1, limiter=limiter, ramp=RecoveryRateLimiter(), max_attempts=1)
        running = asyncio.ensure_future(runner.run(range(1000)))
        await asyncio.sleep(50.0)
        assert runner.report.calls < 0.6 * (5.0 + 8.0) / 2 * 40
        runner.stop()
        await running

    play(scenario)
