"""What becomes of rows: done, dead with a reason, tried again, or left open for the next run."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from itertools import count

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig, WaitTooLongError
from headgate.batch.config import BatchConfig
from headgate.batch.ledger import LedgerError, Row, RowState
from headgate.batch.runner import BatchRunner
from headgate.errors import ConfigError

UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6)


def states(results):
    return {result.index: (result.state.value, result.category) for result in results}


# ---------------------------------------------------------------------- in and out


def test_results_come_as_they_finish(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: (3.0 - item, item))
        runner = lab.runner(api, workers=3)
        assert [result.value async for result in runner.stream(range(3))] == [2, 1, 0]

    play(scenario)


def test_results_come_in_the_order_of_the_input_when_asked(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: ((7 * item) % 5, item))
        runner = lab.runner(api, workers=4, window=10)
        assert [result.value async for result in runner.stream(range(30), in_order=True)] == list(range(30))

    play(scenario)


def test_an_async_input_is_not_waited_for_until_a_block_is_full(play):
    async def scenario(lab):
        async def slowly():
            for item in range(5):
                await asyncio.sleep(10.0)
                yield item

        api = lab.api(lambda item, _: item)
        results = [(lab.clock.now(), r.value) async for r in lab.runner(api).stream(slowly())]
        assert results == [(pytest.approx(10.0 * n + 10.1), n) for n in range(5)]

    play(scenario)


def test_the_input_waits_while_the_window_is_full(play):
    async def scenario(lab):
        read = count()
        rows = (next(read) for _ in range(1000))
        api = lab.api(lambda item, _: item, takes=1.0)
        runner = lab.runner(api, workers=2, window=20)
        async for _ in runner.stream(rows):
            assert next(read) <= 20 + runner.report.done + runner.report.calls
            break

    play(scenario)


def test_a_slow_consumer_slows_the_run_down(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item, takes=0.0)
        runner = lab.runner(api, workers=5, window=10)
        taken = 0
        async for _ in runner.stream(range(200)):
            taken += 1
            await asyncio.sleep(1.0)
            assert runner.report.done - taken <= 10
        assert taken == 200

    play(scenario)


def test_an_input_that_raises_ends_the_run_with_that_error(play):
    async def scenario(lab):
        def rows():
            yield 1
            raise OSError("the file is gone")

        with pytest.raises(OSError, match="the file is gone"):
            await lab.runner(lab.api(lambda item, _: item)).run(rows())

    play(scenario)


def test_a_higher_priority_goes_first_and_equals_in_order(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item)
        await lab.runner(api, workers=1, priority=lambda item: item % 2).run(range(6))
        assert [item for _, item in api.calls] == [1, 3, 5, 0, 2, 4]

    play(scenario)


def test_plain_functions_work_in_threads():
    threads = set()

    def worker(item, ctx):
        threads.add(threading.current_thread().name)
        assert ctx.attempt == 1
        return item * 2

    runner = BatchRunner(worker, workers=4, limiter=AdaptiveRateLimiter(UNPACED))

    async def main():
        return sorted([result.value async for result in runner.stream(range(50))])

    assert asyncio.run(main()) == [2 * item for item in range(50)]
    assert all(name.startswith("headgate-batch") for name in threads)


def test_without_an_event_loop_there_is_run_sync():
    report = BatchRunner(lambda item, _: item, limiter=AdaptiveRateLimiter(UNPACED)).run_sync(range(20))
    assert (report.done, report.complete) == (20, True)


def test_the_worker_knows_its_row(play):
    async def scenario(lab):
        async def worker(item, ctx):
            seen.append((ctx.index, ctx.name, ctx.key, ctx.attempt, ctx.credential_label, ctx.remaining))
            assert ctx.permit.key == "api/key-1"
            assert ctx.credential == "secret-a"

        seen: list[object] = []
        runner = lab.runner(worker, key="api", credentials=["secret-a"], row_of=lambda n, _: Row(n, f"row-{n}", b""))
        await runner.run("x")
        assert seen == [(0, "row-0", "api", 1, "key-1", None)]

    play(scenario)


def test_a_slow_key_keeps_no_worker_from_the_others(play):
    async def scenario(lab):
        limiter = lab.limiter(overrides={"a": RateLimitConfig(strategy="fixed", initial_rps=0.001)})
        api = lab.api(lambda item, _: item)
        rows = [f"{key}{n}" for n in range(20) for key in "abc"]
        await lab.runner(api, workers=1, limiter=limiter, key=lambda item: item[0]).run(rows)
        assert max(at for at, item in api.calls if item[0] != "a") < 7.0
        assert api.most_at_once == 1

    play(scenario)


# ---------------------------------------------------------------------- outcomes


def test_every_outcome_has_its_fate(play, http_error):
    async def scenario(lab):
        answers = {0: 400, 1: 404, 2: 413, 3: 500, 4: 503, 5: 408}
        api = lab.api(lambda item, _: http_error(answers[item]))
        runner = lab.runner(api, workers=10, retry_budget=100.0, limiter=lab.limiter(consecutive_fail_threshold=99))
        results = [result async for result in runner.stream(answers)]
        assert states(results) == {
            0: ("dead", "invalid"),
            1: ("dead", "invalid"),
            2: ("dead", "too_large"),
            3: ("dead", "transient"),
            4: ("dead", "overloaded"),
            5: ("dead", "transient"),
        }
        spared = 20  # as many are not counted where nothing succeeds: it might be an outage
        assert api.times == Counter({0: 1, 1: 1, 2: 1, 3: 3 + spared, 4: 3 + spared, 5: 3 + spared})
        assert runner.report.reasons == Counter(invalid=2, transient=2, too_large=1, overloaded=1)

    play(scenario)


def test_a_failed_row_is_tried_again_after_its_backoff(play, http_error):
    async def scenario(lab):
        class Always(type(lab.runner(None).rng)):
            def random(self):
                return 0.999

        api = lab.api(lambda item, nth: http_error(500) if nth < 3 else item, takes=0.0)
        runner = lab.runner(api, rng=Always(), base_delay=1.0)
        (result,) = [result async for result in runner.stream([0])]
        assert (result.state, result.attempts) == (RowState.DONE, 3)
        assert api.started_at == [0.0, pytest.approx(0.999), pytest.approx(0.999 * 3)]
        assert result.waited["backoff"] == pytest.approx(0.999 * 3)
        assert api.attempts == [1, 2, 3]

    play(scenario)


def test_a_floor_of_an_overloaded_server_is_waited_out_once(play, http_error):
    """One wait, the longest of backoff, floor, cooldown and pace."""

    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(503, {"retry-after": "7"}) if nth == 1 else item, takes=0.0)
        await lab.runner(api).run([0])
        assert api.started_at == [0.0, pytest.approx(7.0)]

    play(scenario)


def test_an_error_inside_of_a_result_counts_as_one(play):
    async def scenario(lab):
        api = lab.api(lambda item, nth: {"error": {"code": 500, "status": "INTERNAL"}} if nth == 1 else {"fine": item})

        async def worker(item, ctx):
            value = await api(item, ctx)
            ctx.report(status_code=500 if "error" in value else 200)
            return value

        (result,) = [result async for result in lab.runner(worker).stream([5])]
        assert (result.value, result.attempts) == ({"fine": 5}, 2)

    play(scenario)


def test_a_call_that_takes_too_long_has_failed(play):
    async def scenario(lab):
        api = lab.api(lambda item, nth: (100.0 if nth == 1 else 0.1, item))
        report = await lab.runner(api, attempt_timeout=5.0).run([0])
        assert (report.done, report.attempts) == (1, 2)
        assert lab.clock.now() < 6.0

    play(scenario)


def test_a_refusal_of_another_gate_inside_of_the_worker_costs_no_attempt(play):
    async def scenario(lab):
        api = lab.api(lambda item, nth: WaitTooLongError("other", "no", 4.0) if nth == 1 else item, takes=0.0)
        (result,) = [result async for result in lab.runner(api).stream([0])]
        assert (result.state, result.attempts) == (RowState.DONE, 1)
        assert api.started_at == [0.0, pytest.approx(4.0)]

    play(scenario)


def test_reasons_hold_no_secret(play):
    async def scenario(lab):
        async def worker(item, ctx):
            raise ValueError(f"cannot log in with {ctx.credential}")

        runner = lab.runner(worker, credentials=["§"])
        (result,) = [result async for result in runner.stream([0])]
        assert "§" not in result.reason
        assert result.category == "invalid"
        assert not [event for event in lab.events if "§" in repr(event)]

    play(scenario)


# ---------------------------------------------------------------------- the retry budget


def test_when_the_retry_budget_is_spent_failed_rows_wait_and_first_calls_go_on(play, http_error):
    async def scenario(lab):
        out: list[int] = []

        async def worker(item, ctx):
            out.append(ctx.attempt)
            now_out.append(len([1 for attempt in flying.values() if attempt > 1]) + (ctx.attempt > 1))
            flying[item] = ctx.attempt
            await asyncio.sleep(1.0)
            del flying[item]
            if ctx.attempt == 1 and item < 50:
                raise http_error(500)
            return item

        flying: dict[int, int] = {}
        now_out: list[int] = []
        limiter = lab.limiter(consecutive_fail_threshold=999, min_samples_to_trip=999)
        report = await lab.runner(worker, workers=50, limiter=limiter, retry_budget=0.0).run(range(100))
        assert report.done == 100
        assert max(now_out) == 3
        assert report.retries_held > 0

    play(scenario)


# ---------------------------------------------------------------------- credentials


def test_a_credential_that_is_not_accepted_is_retired_and_its_row_goes_by_another(play, http_error):
    async def scenario(lab):
        async def worker(item, ctx):
            if ctx.credential_label == "key-1":
                raise http_error(401)
            return item

        runner = lab.runner(worker, workers=2, credentials=["secret-a", "secret-b"])
        results = [result async for result in runner.stream(range(10))]
        assert {result.state for result in results} == {RowState.DONE}
        assert {result.attempts for result in results} == {1}

    play(scenario)


def test_when_no_credential_is_left_the_run_stops_and_rows_stay_open(play, http_error):
    async def scenario(lab):
        async def worker(item, ctx):
            raise http_error(401)

        report = await lab.runner(worker, workers=2, credentials=["secret-a", "secret-b"]).run(range(10))
        assert report.stopped.startswith("no_credential")
        assert (report.open, report.dead) == (10, 0)

    play(scenario)


def test_a_quota_that_is_used_up_rests_its_credential_until_the_reset(play, http_error):
    async def scenario(lab):
        used: Counter[str] = Counter()

        async def worker(item, ctx):
            used[ctx.credential_label] += 1
            await asyncio.sleep(0.1)
            if ctx.credential_label == "key-1":
                ctx.report(status_code=432, retry_after=3600.0)
                return None
            return item

        report = await lab.runner(worker, workers=2, credentials=["secret-a", "secret-b"]).run(range(20))
        assert report.done == 20
        assert used["key-1"] <= 2
        assert lab.clock.now() < 60.0

    play(scenario)


def test_without_credentials_a_used_up_quota_pauses_the_key_until_its_reset(play):
    async def scenario(lab):
        async def worker(item, ctx):
            started.append(lab.clock.now())
            if len(started) == 1:
                ctx.report(status_code=432, retry_after=600.0)
            return item

        started: list[float] = []
        report = await lab.runner(worker, workers=1).run(range(3))
        assert report.done == 3
        assert started[1] == pytest.approx(600.0)

    play(scenario)


# ---------------------------------------------------------------------- time


def test_a_row_that_is_not_done_in_time_is_dead_and_counts_against_no_target(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: (100.0 if item == 0 else 0.1, item))
        limiter = lab.limiter()
        runner = lab.runner(api, limiter=limiter, item_deadline=5.0)
        results = [result async for result in runner.stream(range(2))]
        assert states(results) == {0: ("dead", "deadline"), 1: ("done", "")}
        assert lab.clock.now() == pytest.approx(5.0)
        assert limiter.key_status("batch").consecutive_failures == 0

    play(scenario)


def test_a_row_that_only_waits_is_dead_at_its_deadline(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item, takes=3.0)
        runner = lab.runner(api, workers=1, item_deadline=5.0)
        results = [(lab.clock.now(), r.index, r.state.value) async for r in runner.stream(range(3))]
        assert sorted(results) == [(3.0, 0, "done"), (5.0, 1, "dead"), (5.0, 2, "dead")]

    play(scenario)


def test_a_floor_beyond_the_deadline_ends_a_row_at_once(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, _: http_error(429, {"retry-after": "60"}))
        runner = lab.runner(api, item_deadline=30.0)
        (result,) = [result async for result in runner.stream([0])]
        assert (result.category, lab.clock.now()) == ("deadline", pytest.approx(0.1))
        assert "60.0 s" in result.reason

    play(scenario)


def test_at_the_end_of_its_time_a_batch_stops_and_rows_stay_open(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item, takes=4.0)
        ledger = lab.ledger()
        report = await lab.runner(api, workers=2, deadline=10.0, ledger=ledger).run(range(20))
        assert (report.done, report.open) == (4, 16)
        assert report.stopped.startswith("deadline")
        assert lab.clock.now() == pytest.approx(10.0)
        assert (await ledger.counts()).states == {RowState.DONE: 4, RowState.PENDING: 16}

    play(scenario)


def test_what_stands_still_for_too_long_stops_and_says_when_to_come_back(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, _: http_error(429, {"retry-after": "7200"}))
        report = await lab.runner(api, standstill=900.0).run(range(10))
        assert report.stopped.startswith("standstill")
        assert report.come_back_in == pytest.approx(7200.0)
        assert report.open == 10
        assert lab.clock.now() < 1.0

    play(scenario)


def test_so_does_what_stands_still_once_the_last_call_has_come_back(play, http_error):
    async def scenario(lab):
        async def worker(item, ctx):
            await lab.clock.sleep_async(0.1 if item else 5.0)
            if item:
                raise http_error(429, {"retry-after": "7200"})
            return item

        report = await lab.runner(worker, workers=2, standstill=900.0).run(range(10))
        assert (report.done, report.open) == (1, 9)
        assert report.come_back_in == pytest.approx(7200.0, abs=10.0)
        assert lab.clock.now() == pytest.approx(5.0, abs=0.5)

    play(scenario)


def test_so_does_what_already_stands_in_line_when_the_pause_comes(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, _: http_error(429, {"retry-after": "7200"}), takes=0.5)
        report = await lab.runner(api, limiter=lab.limiter(rate=1.0, at_once=1.0), standstill=900.0).run(range(10))
        assert report.come_back_in == pytest.approx(7200.0, abs=10.0)
        assert (len(api.calls), report.open) == (1, 10)
        assert lab.clock.now() < 2.0

    play(scenario)


# ---------------------------------------------------------------------- caps


def test_a_cap_on_tokens_is_not_overrun_by_what_is_in_flight(play):
    async def scenario(lab):
        async def worker(item, ctx):
            await asyncio.sleep(1.0)
            ctx.report(cost={"requests": 1, "tokens": 80})
            return item

        runner = lab.runner(worker, workers=50, cost={"tokens": 100}, max_tokens=1000)
        report = await runner.run(range(50))
        assert report.stopped.startswith("caps")
        assert report.tokens == 80 * 12  # ten at once; 800 leave room for two more, 960 for none
        assert report.open == 50 - report.done

    play(scenario)


def test_money_is_counted_by_the_prices_and_over_restarts(play):
    async def scenario(lab):
        async def worker(item, ctx):
            ctx.report(cost={"requests": 1, "input_tokens": 1000, "output_tokens": 100})
            return item

        ledger = lab.ledger()
        settings = {
            "cost": {"input_tokens": 1000, "output_tokens": 100},
            "prices": {"input_tokens": 1e-6, "output_tokens": 1e-5},
            "ledger": ledger,
            "workers": 1,
        }
        first = await lab.runner(worker, max_cost=0.01, **settings).run(range(20))
        assert (first.done, first.cost) == (5, pytest.approx(0.01))
        second = await lab.runner(worker, max_cost=0.02, **settings).run(range(20))
        assert (second.skipped, second.done) == (5, 5)
        assert (await ledger.counts()).tokens == 11_000

    play(scenario)


def test_what_a_worker_charges_itself_stands(play):
    async def scenario(lab):
        async def worker(item, ctx):
            ctx.charge(tokens=7, cost=0.5)

        runner = lab.runner(worker)
        results = [result async for result in runner.stream(range(2))]
        assert [(result.tokens, result.cost) for result in results] == [(7, 0.5), (7, 0.5)]
        assert (runner.report.tokens, runner.report.cost) == (14, 1.0)

    play(scenario)


# ---------------------------------------------------------------------- fail-fast, dead letters


def test_a_wrong_key_ends_the_run_at_once_and_costs_no_row(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda *_: http_error(401))
        report = await lab.runner(api, workers=1).run(range(1000))
        assert report.stopped.startswith("fail_fast: row 1: auth")
        assert (report.calls, report.dead, report.open) == (1, 0, report.seen)

    play(scenario)


def test_any_category_can_end_the_run(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, _: http_error(400) if item == 3 else item)
        report = await lab.runner(api, workers=1, fail_fast=("invalid",)).run(range(100))
        assert report.stopped.startswith("fail_fast: row 4: invalid")
        assert (report.done, report.dead) == (3, 1)

    play(scenario)


def test_a_row_that_can_never_fit_is_dead_at_once_with_the_limit(play):
    async def scenario(lab):
        limiter = lab.limiter(limits={"tokens": "1000/min"})
        api = lab.api(lambda item, _: item)
        runner = lab.runner(api, limiter=limiter, workers=1, cost=lambda item: {"tokens": item})
        results = [(r.item, r.state.value, lab.clock.now()) async for r in runner.stream([900, 900, 5000])]
        assert results[0][:2] == (5000, "dead")
        assert results[0][2] < 0.2
        assert runner.report.reasons == Counter(too_large=1)

    play(scenario)


def test_small_rows_pass_a_blocked_big_one_but_not_for_ever(play):
    async def scenario(lab):
        limiter = lab.limiter(limits={"tokens": "6000/min"}, burst={"tokens": 600})
        api = lab.api(lambda item, _: item, takes=0.0)
        rows = [50] * 12 + [5000] + [50] * 300  # twelve empty the bucket; then comes one that needs a full one
        await lab.runner(api, limiter=limiter, workers=10, cost=lambda item: {"tokens": item}).run(rows)
        order = [item for _, item in api.calls]
        assert 12 < order.index(5000) <= 12 + 100

    play(scenario)


# ---------------------------------------------------------------------- stopping and going on


def test_stop_finishes_what_is_in_flight_and_gives_back_the_rest(play):
    async def scenario(lab):
        ledger = lab.ledger()
        api = lab.api(lambda item, _: item, takes=10.0)
        runner = lab.runner(api, workers=5, ledger=ledger)
        running = asyncio.ensure_future(runner.run(range(100)))
        await asyncio.sleep(3.0)
        runner.stop()
        report = await running
        assert (report.done, report.open, lab.clock.now()) == (5, 95, 10.0)
        assert (await ledger.counts()).states == {RowState.DONE: 5, RowState.PENDING: 95}

    play(scenario)


@pytest.mark.parametrize("how", ["stop now", "cancel"])
def test_stopping_now_gives_back_what_is_in_flight_too(play, how):
    async def scenario(lab):
        ledger = lab.ledger()
        limiter = lab.limiter()
        api = lab.api(lambda item, _: item, takes=10.0)
        runner = lab.runner(api, workers=5, ledger=ledger, limiter=limiter)
        running = asyncio.ensure_future(runner.run(range(100)))
        await asyncio.sleep(3.0)
        if how == "cancel":
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            runner.stop(now=True)
            assert (await running).open == 100
        assert lab.clock.now() == 3.0
        assert (await ledger.counts()).states == {RowState.PENDING: 100}
        assert limiter.key_status("batch").in_flight == 0

    play(scenario)


def test_a_run_in_a_loop_of_its_own_can_be_stopped_from_another_thread():
    begun = threading.Event()

    async def worker(item, ctx):
        begun.set()
        await asyncio.sleep(3600.0)

    runner = BatchRunner(worker, workers=2, limiter=AdaptiveRateLimiter(UNPACED))
    stopper = threading.Thread(target=lambda: begun.wait() and runner.stop(now=True))
    stopper.start()
    report = runner.run_sync(range(10))
    stopper.join()
    assert (report.stopped, report.open) == ("stopped", 10)


def test_a_row_whose_cost_cannot_be_told_is_dead_and_the_others_go_on(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item)
        runner = lab.runner(api, cost=lambda item: {"tokens": 10 // item})
        assert states([r async for r in runner.stream([5, 0, 5])])[1] == ("dead", "invalid")
        assert runner.report.done == 2

    play(scenario)


def test_a_result_that_makes_no_line_is_dead_and_the_others_go_on(play):
    async def scenario(lab):
        runner = lab.runner(lab.api(lambda item, _: item), ledger=lab.ledger(), encode=lambda r: bytes(10 // r.value))
        assert states([r async for r in runner.stream([5, 0, 5])])[1] == ("dead", "unwritable")
        assert runner.report.done == 2

    play(scenario)


def test_a_row_of_an_earlier_run_that_waits_for_its_time_still_does_after_another_stop(play, http_error):
    async def scenario(lab):
        ledger = lab.ledger()
        api = lab.api(lambda *_: http_error(503, {"retry-after": "100"}))
        for _ in range(3):
            runner = lab.runner(api, workers=1, ledger=ledger)
            running = asyncio.ensure_future(runner.run([0]))
            await asyncio.sleep(10.0)
            runner.stop()
            assert (await running).open == 1
        assert len(api.calls) == 1
        api = lab.api(lambda *_: "fine")
        await lab.runner(api, workers=1, ledger=ledger).run([0])
        assert api.started_at == [pytest.approx(100.1)]

    play(scenario)


def test_who_stops_reads_no_further(play):
    async def scenario(lab):
        read = count()
        rows = (next(read) for _ in range(10_000))
        runner = lab.runner(lab.api(lambda item, _: item, takes=5.0), workers=100, window=200)
        running = asyncio.ensure_future(runner.run(rows))
        await asyncio.sleep(6.0)
        before = runner.report.seen
        runner.stop()
        report = await running
        assert (report.done, report.seen) == (200, before)

    play(scenario)


def test_leaving_a_stream_stops_it(play):
    async def scenario(lab):
        ledger = lab.ledger()
        api = lab.api(lambda item, _: item, takes=1.0)
        stream = lab.runner(api, workers=5, ledger=ledger).stream(range(100))
        async for _ in stream:
            break
        await stream.aclose()
        counts = (await ledger.counts()).states
        assert counts[RowState.DONE] + counts[RowState.PENDING] == 100
        assert RowState.LEASED not in counts

    play(scenario)


def test_stopped_at_any_moment_and_gone_on_with_no_row_is_lost_or_done_twice(play, http_error):
    async def scenario(lab):
        ledger = lab.ledger()
        done: Counter[int] = Counter()
        chance = lab.runner(None, rng=None).rng
        chance.seed(11)

        def plan(item, _):
            draw = chance.random()
            return http_error(429) if draw < 0.2 else http_error(500) if draw < 0.4 else item

        for stop_after in (0.0, 0.05, 0.3, 0.35, 1.0, 1.7, None):
            api = lab.api(plan, takes=0.13)
            limiter = lab.limiter(consecutive_fail_threshold=999, min_samples_to_trip=999)
            runner = lab.runner(api, workers=7, ledger=ledger, limiter=limiter, max_attempts=99, rng=None)

            async def consume(runner=runner):
                async for result in runner.stream(range(200)):
                    done[result.index] += 1

            consuming = asyncio.ensure_future(consume())
            if stop_after is not None:
                await asyncio.sleep(stop_after)
                runner.stop(now=True)
            await consuming
        assert done == Counter(range(200)), "seed 11"
        assert (await ledger.counts()).states == {RowState.DONE: 200}

    play(scenario)


def test_attempts_and_backoff_survive_a_restart(play, http_error):
    async def scenario(lab):
        ledger = lab.ledger()
        api = lab.api(lambda *_: http_error(503, {"retry-after": "100"}))
        runner = lab.runner(api, workers=1, ledger=ledger)
        running = asyncio.ensure_future(runner.run([0]))
        await asyncio.sleep(50.0)
        runner.stop()
        await running
        api = lab.api(lambda *_: "fine")
        runner = lab.runner(api, workers=1, ledger=ledger)
        (result,) = [result async for result in runner.stream([0])]
        assert api.attempts == [2]
        assert result.attempts == 2
        assert api.started_at == [pytest.approx(100.1)]

    play(scenario)


def test_a_row_that_has_changed_since_is_noticed(play):
    async def scenario(lab):
        ledger = lab.ledger()
        api = lab.api(lambda item, _: item)
        await lab.runner(api, ledger=ledger).run(["a", "b"])
        with pytest.raises(LedgerError, match="row 2"):
            await lab.runner(api, ledger=ledger).run(["a", "c"])

    play(scenario)


def test_a_ledger_that_fails_ends_the_run_with_its_error(play):
    async def scenario(lab):
        ledger = lab.ledger()

        async def full(_):
            raise LedgerError("the disk is full")

        ledger.record_all = full
        with pytest.raises(LedgerError, match="the disk is full"):
            await lab.runner(lab.api(lambda item, _: item), ledger=ledger).run(range(100))

    play(scenario)


def test_a_result_is_shown_only_once_it_is_written_down(play):
    async def scenario(lab):
        ledger = lab.ledger()
        record_all, written = ledger.record_all, set()

        async def slowly(changes):
            await asyncio.sleep(5.0)
            written.update(change.index for change in changes)
            return await record_all(changes)

        ledger.record_all = slowly
        api = lab.api(lambda item, _: item)
        async for result in lab.runner(api, workers=2, ledger=ledger).stream(range(10)):
            assert result.index in written
        assert lab.clock.now() < 6.0  # and no worker waits for that

    play(scenario)


def test_a_row_that_another_process_has_taken_over_is_left_to_it(play):
    async def scenario(lab):
        ledger = lab.ledger()

        async def refuse(changes):
            return [False for _ in changes]

        ledger.record_all = refuse
        runner = lab.runner(lab.api(lambda item, _: item), ledger=ledger)
        assert [result async for result in runner.stream(range(3), in_order=True)] == []
        assert (runner.report.elsewhere, runner.report.open) == (3, 0)

    play(scenario)


def test_what_others_have_left_behind_is_read_again(play):
    async def scenario(lab):
        ledger = lab.ledger()
        claim = ledger.claim
        taken: list[int] = []

        async def held_at_first(rows):
            if not taken:
                taken.append(1)
                return [RowState.LEASED for _ in rows]
            return await claim(rows)

        async def abandoned(_):
            return [1, 2] if len(taken) == 1 and taken.append(2) is None else []

        ledger.claim, ledger.abandoned = held_at_first, abandoned
        api = lab.api(lambda item, _: item)
        report = await lab.runner(api, ledger=ledger).run([10, 11, 12])
        assert sorted(item for _, item in api.calls) == [11, 12]
        assert (report.seen, report.done, report.elsewhere) == (3, 2, 1)

    play(scenario)


# ---------------------------------------------------------------------- looking


def test_lanes_say_why_they_wait(play, http_error):
    async def scenario(lab):
        api = lab.api(lambda item, nth: http_error(429, {"retry-after": "90"}) if nth == 1 else item)
        runner = lab.runner(api, workers=1, key="api")
        running = asyncio.ensure_future(runner.run(range(3)))
        await asyncio.sleep(30.0)
        (lane,) = runner.lanes()
        assert (lane.key, lane.waiting, lane.in_flight) == ("api", 3, 0)
        assert lane.opens_in == pytest.approx(60.1)
        assert lane.reason.startswith("waiting for the rate limit")
        runner.stop()
        await running
        assert runner.lanes() == []

    play(scenario)


@pytest.mark.no_cover
def test_many_keys_cost_no_more_lanes_than_are_in_use(play):
    async def scenario(lab):
        api = lab.api(lambda item, _: item, takes=0.0)
        runner = lab.runner(api, key=lambda item: f"host-{item}", workers=20, window=100)
        most = 0
        async for result in runner.stream(range(2500)):
            if result.index % 200 == 0:
                most = max(most, len(runner.lanes(10_000)))
        assert runner.report.done == 2500
        assert most <= 1300

    play(scenario)


def test_settings_out_of_range_are_named():
    with pytest.raises(ConfigError, match="max_attempts=0 must be a whole number, 1 or more"):
        BatchConfig(max_attempts=0)
    with pytest.raises(ConfigError, match="fail_fast=\\('weather',\\) must be a tuple with any of"):
        BatchConfig(fail_fast=("weather",))
    with pytest.raises(ConfigError, match="max_attempts=str must be a whole number") as refused:
        BatchConfig(max_attempts="Correct-Horse")  # a secret in the wrong place
    assert "Horse" not in str(refused.value)
    with pytest.raises(ConfigError, match="workers=0 must be a whole number from 1"):
        BatchRunner(lambda *_: None, workers=0)


def test_one_runner_runs_one_batch_at_a_time(play):
    async def scenario(lab):
        runner = lab.runner(lab.api(lambda item, _: item))
        running = asyncio.ensure_future(runner.run(range(5)))
        await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="is already running"):
            await runner.run(range(5))
        await running
        assert (await runner.run(range(5))).done == 5

    play(scenario)


def test_workers_run_no_further_ahead_of_the_ledger_than_they_may(play):
    """What is answered and not yet written down would be repeated after a crash: four rows for each worker at most."""

    async def scenario(lab):
        ledger, most, recorded = lab.ledger(), 0, 0
        record_all = ledger.record_all

        async def slowly(changes):
            nonlocal most, recorded
            await asyncio.sleep(1.0)
            most = max(most, len(api.calls) - recorded)
            recorded += len(changes)
            return await record_all(changes)

        ledger.record_all = slowly
        api = lab.api(lambda item, _: item, takes=0.01)
        runner = lab.runner(api, workers=3, ledger=ledger)
        report = await runner.run(range(200))
        assert (report.done, most) == (200, 3 + 4 * 3)

    play(scenario)


def test_changes_wait_for_company_no_longer_than_the_ledger_has_patience(play):
    async def scenario(lab):
        ledger, lots = lab.ledger(), []
        record_all = ledger.record_all

        async def counted(changes):
            lots.append((lab.clock.now(), len(changes)))
            return await record_all(changes)

        ledger.record_all, ledger.patience = counted, 0.05
        api = lab.api(lambda item, _: (0.01 * (item + 1) if item < 9 else 2.0, item))
        await lab.runner(api, workers=10, ledger=ledger).run(range(10))
        assert lots == [(pytest.approx(0.06), 6), (pytest.approx(0.12), 3), (pytest.approx(2.0), 1)]

    play(scenario)
