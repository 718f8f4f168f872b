"""A batch for a monitor: progress, what lanes wait for, and what has died."""

import asyncio
import json
import threading

import pytest
from tests.observe.monitored import KEY, NoChance, keys_on, limiter_on, sentences

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.report import MOST_REASONS
from headgate.batch.runner import BatchRunner
from headgate.core.decision import Outcome
from headgate.core.signal import Signal
from headgate.exchange import Answer
from headgate.formatting import format_number
from headgate.lab.virtual_time import run
from headgate.observe.monitor import RunMonitor
from headgate.observe.snapshot import MOST_DEAD, Action
from headgate.observe.sources import is_ordinary


class TestBatch:
    def play(self, worker, act, rows=500, config=None, credentials=None, limiter=None, workers=8):
        """``act(watched, clock, runner)`` runs beside a batch; its result is returned."""

        async def main(clock):
            runner = BatchRunner(
                lambda item, ctx: worker(item, ctx, clock),
                workers=workers,
                limiter=limiter(clock) if limiter else limiter_on(clock, 1e6),
                credentials=credentials(clock) if credentials else None,
                config=config or BatchConfig(),
                key=KEY,
                rng=NoChance(),
            )

            async def asked(item, ctx):
                return await worker(item, ctx, clock)

            runner._worker, runner._is_async = asked, True
            watched = RunMonitor(job=runner, rows=lambda: rows).start(alone=False)
            acting = asyncio.ensure_future(act(watched, clock, runner))
            try:
                await runner.run(range(rows))
                return await acting
            finally:
                acting.cancel()
                watched.close()

        return run(main)

    @staticmethod
    async def quick(item, ctx, clock):
        await clock.sleep_async(0.1)

    @pytest.mark.no_cover
    def test_progress_rate_and_time_to_go(self):
        async def act(watched, clock, runner):
            watched.snapshot()
            await clock.sleep_async(2.05)
            return watched.snapshot().progress

        progress = self.play(self.quick, act, rows=1_000)
        assert progress.total == 1_000
        assert progress.done == 160
        assert progress.in_flight == 8
        assert progress.rate == pytest.approx(80.0, rel=0.05)
        assert progress.eta == pytest.approx(10.5, rel=0.05)

    def parked(self, *labels, retired=()):
        """A look at a batch with two keys after this was done to them."""

        async def act(watched, clock, runner):
            await clock.sleep_async(1.0)
            for label in retired:
                lease = runner.credentials.try_acquire(label, only=True)
                lease.report(signal=Signal(outcome=Outcome.KEY_DEAD))
            for seconds, label in enumerate(labels, 41):
                runner.credentials.park(label, float(seconds))
            await clock.sleep_async(1.0)
            snapshot = watched.snapshot()
            runner.stop(now=True)
            return snapshot

        def paced(clock):
            return limiter_on(clock, 5.0, token_bucket_capacity=1.0)

        return self.play(
            self.quick, act, rows=200, credentials=lambda clock: keys_on(clock, 2, at_once=None), limiter=paced
        )

    def test_a_key_that_another_gets_round_stands_last_and_holds_nobody_back(self):
        for snapshot in (self.parked("key-2"), self.parked(retired=["key-2"])):
            first, last = snapshot.waits
            assert (first.scope, last.scope) == (f"key-1 of {KEY}", f"key-2 of {KEY}")
            assert is_ordinary(first)
            assert (snapshot.blocked, last.behind) == (first.behind, 0)
            assert first.behind > 50
        assert last.sentence == f"key-2 of {KEY} is disabled: no longer valid"

    def test_rows_wait_for_a_key_that_rests_and_not_for_one_that_never_comes_back(self):
        resting, retired = self.parked("key-1", retired=["key-2"]).waits
        assert resting.scope == f"key-1 of {KEY}"
        assert (resting.behind > 50, retired.behind) == (True, 0)

    def test_where_all_keys_rest_that_is_the_first_thing_one_sees(self):
        snapshot = self.parked("key-1", "key-2")
        first, second = snapshot.waits
        assert first.scope == f"key-2 of {KEY}"
        assert first.sentence == f"key-2 of {KEY} rests for 41.0 s: parked by an operator"
        assert first.behind == second.behind > 50
        assert first.seconds == pytest.approx(41.0, abs=0.5)
        assert first.key == "", "it is no matter of the key"
        assert snapshot.blocked == first.behind, "rows that could go with either key are counted once"
        assert [line.state for line in snapshot.credentials] == ["resting", "resting"]

    @pytest.mark.no_cover
    @pytest.mark.parametrize("rps", [40.0, 600.0])
    def test_rows_that_are_only_paced_have_their_sentence_at_every_instant(self, rps):
        async def act(watched, clock, runner):
            looks = []
            for number in range(1, 15):
                await clock.sleep_async(0.0301 + number * 1e-5)
                looks.append(watched._make())
            runner.stop(now=True)
            return looks

        def paced(clock):
            return limiter_on(clock, rps, token_bucket_capacity=1.0)

        looks = self.play(self.quick, act, rows=9_000, limiter=paced, workers=1_000)
        assert {one.waits[0].sentence for one in looks} == {
            f"{KEY}: paced at {format_number(rps)} calls/s, at a fixed rate"
        }
        assert all(one.waits[0].behind > 100 for one in looks)

    def test_a_key_that_was_told_to_wait_says_for_how_long_and_which_it_is(self):
        async def act(watched, clock, runner):
            await clock.sleep_async(1.0)
            runner.limiter.pause(f"{KEY}/key-1", 30.0)
            await clock.sleep_async(1.0)
            snapshot = watched._make()
            runner.stop(now=True)
            return snapshot

        snapshot = self.play(
            self.quick, act, credentials=lambda clock: keys_on(clock, 1), limiter=lambda clock: limiter_on(clock, 5.0)
        )
        first = snapshot.waits[0]
        assert first.sentence == f"key-1 of {KEY}: rate limited by the server, 29.0 s to go"
        assert first.seconds == pytest.approx(29.0)
        assert first.key in {line.key for line in snapshot.keys}

    def test_rows_that_wait_for_workers_are_counted_together(self):
        async def act(watched, clock, runner):
            await clock.sleep_async(0.55)
            return watched.snapshot()

        snapshot = self.play(self.quick, act, rows=300, workers=4)
        scope, (sentence, behind) = next(iter(sentences(snapshot).items()))
        assert (scope, sentence) == ("workers", "all 4 workers are busy")
        assert behind > 100

    def test_an_outage_says_that_the_circuit_is_open(self):
        async def sick(item, ctx, clock):
            await clock.sleep_async(0.1)
            raise ConnectionError("lost")

        async def act(watched, clock, runner):
            await clock.sleep_async(3.0)
            snapshot = watched.snapshot()
            runner.stop(now=True)
            return snapshot, watched.events(0)

        snapshot, events = self.play(sick, act, config=BatchConfig(max_attempts=50))
        sentence, behind = sentences(snapshot)[KEY]
        assert sentence.startswith(f"{KEY}: circuit open after too many failures, ")
        assert behind > 0
        assert snapshot.keys[0].circuit in ("open", "half_open")
        assert "circuit_changed" in {event.kind for event in events}

    def test_the_dead_have_a_reason_a_number_and_an_example(self):
        async def picky(item, ctx, clock):
            if item % 10 == 3:
                raise ValueError("no")

        async def act(watched, clock, runner):
            await clock.sleep_async(0.0)
            return watched

        watched = self.play(picky, act, rows=100, limiter=lambda clock: limiter_on(clock, 100.0))
        (dead,) = watched.snapshot().dead
        assert (dead.reason, dead.count, dead.example) == ("invalid: ValueError: no", 10, "row 4")

    def test_the_dead_are_told_apart_by_status_and_by_the_words_of_the_server(self):
        async def picky(item, ctx, clock):
            status, words = (404, "No such model.") if item % 2 else (400, f"Row {item} is bad, {ctx.credential}.")
            ctx.report(Answer(status, {}, json.dumps({"error": {"message": words}}).encode()))

        async def act(watched, clock, runner):
            await clock.sleep_async(0.0)
            return watched

        watched = self.play(picky, act, rows=9, credentials=lambda clock: keys_on(clock, 1))
        assert [(one.reason, one.count, one.example) for one in watched.snapshot().dead] == [
            ("invalid: 400 Row 0 is bad, ***.", 5, "row 1"),
            ("invalid: 404 No such model.", 4, "row 2"),
        ]

    @pytest.mark.no_cover
    def test_however_many_reasons_there_are_few_are_shown_and_all_are_counted(self):
        async def picky(item, ctx, clock):
            raise ValueError("x" * item)

        async def act(watched, clock, runner):
            await clock.sleep_async(0.0)
            return watched, runner

        watched, runner = self.play(picky, act, rows=500, config=BatchConfig(hopeless_after=None))
        dead = watched.snapshot().dead
        assert (len(dead), sum(one.count for one in dead)) == (MOST_DEAD, 500)
        assert (dead[0].reason, dead[0].count) == ("invalid", 500 - MOST_REASONS)
        assert dead[-1].reason.endswith(" other reasons")
        assert len(runner.report.deaths.all()) == MOST_REASONS + 1

    def test_an_operator_pauses_and_resumes(self):
        async def act(watched, clock, runner):
            await clock.sleep_async(1.05)
            watched.snapshot()
            said = [watched.act(Action(kind="pause"))]
            await clock.sleep_async(10.0)
            paused = watched.snapshot()
            said += [watched.act(Action(kind="pause")), watched.act(Action(kind="resume"))]
            said.append(watched.act(Action(kind="resume")))
            watched.snapshot()
            await clock.sleep_async(1.0)
            return paused, watched.snapshot(), said, [one for one in watched.events(0) if one.kind == "operator"]

        paused, after, said, told = self.play(self.quick, act, rows=400)
        assert (paused.state, paused.progress.in_flight) == ("paused", 0)
        assert (paused.progress.rate, paused.progress.eta) == (0.0, None), "it promises nothing"
        behind = 400 - paused.progress.done
        assert sentences(paused) == {"run": ("the run is paused by an operator", behind)}
        assert paused.blocked == behind
        assert after.state == "running"
        assert after.progress.rate == pytest.approx(80.0, rel=0.1), "the pause is not counted against it"
        assert said == [
            "paused: calls in flight finish, no new call starts",
            "already paused",
            "resumed",
            "not paused",
        ]
        assert [one.reason for one in told] == said

    @pytest.mark.no_cover
    def test_looking_from_another_thread_disturbs_nothing(self):
        """In real time: threads have no other."""
        runner = BatchRunner(
            lambda item, ctx: None,
            workers=8,
            limiter=AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6)),
            key=lambda item: f"key-{item % 50}",
        )
        watched = RunMonitor(job=runner).start(alone=False)
        seen, faults, over = [], [], threading.Event()

        def look():
            while not over.is_set():
                try:
                    watched._fresh_until = float("-inf")
                    seen.append(watched.snapshot())
                except Exception as error:  # what is looked for
                    faults.append(error)

        thread = threading.Thread(target=look)
        thread.start()
        report = runner.run_sync(range(600))
        over.set()
        thread.join()
        watched.close()
        assert not faults
        assert report.done == 600
        assert seen
        assert watched.snapshot().progress.done == 600
