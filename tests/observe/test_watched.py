"""A run that is looked at: what a snapshot tells, why it waits, and what an operator may do."""

import asyncio
import json
import random
import threading

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.report import MOST_REASONS
from headgate.batch.runner import BatchRunner
from headgate.batch.standing import LaneStanding
from headgate.core.decision import Outcome
from headgate.core.signal import Signal
from headgate.core.words import brief
from headgate.credentials import Credential, CredentialCoordinator
from headgate.exchange import Answer
from headgate.identity import Identities
from headgate.observe.hub import Hub
from headgate.observe.of_limiter import KeysSeen
from headgate.observe.snapshot import (
    MOST_DEAD,
    MOST_KEYS,
    MOST_WAITS,
    Action,
    ProgressLine,
    RunSnapshot,
    WaitLine,
    plain,
)
from headgate.observe.source import ActionRefusedError
from headgate.observe.waiting import LastCauses, in_order, is_ordinary
from headgate.observe.watched import Watched
from headgate.resilience.crowd import Crowd
from headgate.sim.virtual import VirtualClock, run

KEY = "api.example.com"
SECRET = "sk-abcdefghijklmnopqrstuvwx"


class NoChance(random.Random):
    def random(self):
        return 0.0


def limiter_on(clock, rps=100.0, **more):
    return AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=rps, **more), clock=clock, rng=NoChance())


def keys_on(clock, count=3, **more):
    credentials = [Credential(f"key-{n}", f"{SECRET}{n}") for n in range(1, count + 1)]
    return CredentialCoordinator(credentials, clock=clock, identities=Identities(b"a test"), **more)


def watched_program(clock, **more):
    limiter = limiter_on(clock)
    return limiter, Watched(limiter=limiter, **more).start(alone=False)


def sentences(snapshot):
    return {line.scope: (line.sentence, line.behind) for line in snapshot.waits}


class TestProgram:
    def test_a_key_is_told_with_all_that_is_known_of_it(self):
        clock = VirtualClock()
        limiter, watched = watched_program(clock)
        headers = {"ratelimit-policy": '"default";q=120;w=60', "ratelimit": '"default";r=119;t=60'}
        limiter.acquire(KEY).report(status_code=200, headers=headers, latency=0.5)
        limiter.acquire(KEY).report(status_code=429, headers={"retry-after": "30"})
        limiter.acquire("other").report(status_code=500)
        snapshot = watched.snapshot()
        line = next(line for line in snapshot.keys if line.key == KEY)
        assert (line.sent, line.done, line.refused, line.failed) == (2, 1, 1, 0)
        assert (line.rate, line.said, line.latency) == (100.0, 2.0, 0.5)
        assert line.not_before == pytest.approx(30.0)
        assert line.reason.startswith("told to wait by the server, 30")
        assert snapshot.counters["calls"] == 3

    def test_a_key_without_a_pace_has_none(self):
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=lambda _: Crowd()))
        limiter.acquire(KEY).report(status_code=200)
        assert [line.rate for line in KeysSeen(limiter).look()] == [0.0]

    def test_what_a_server_says_without_a_window_is_learned_from_its_longest_reset(self):
        clock = VirtualClock()
        limiter, watched = watched_program(clock)
        for reset in (60, 45, 10):
            headers = {"x-ratelimit-limit": "300", "x-ratelimit-remaining": "200", "x-ratelimit-reset": str(reset)}
            limiter.acquire(KEY).report(status_code=200, headers=headers)
            clock.advance(1.0)
            (line,) = watched.snapshot().keys
            assert line.said == 5.0

    def test_who_waits_is_told_with_the_reason(self):
        async def main(clock):
            limiter, watched = watched_program(clock)
            limiter.pause(KEY, 41.0)
            waiting = [asyncio.ensure_future(limiter.acquire_async(KEY)) for _ in range(7)]
            await asyncio.sleep(0)
            found = sentences(watched.snapshot())
            assert found == {KEY: (f"{KEY}: told to wait by the server, 41.0 s to go", 7)}
            for task in waiting:
                task.cancel()
            watched.close()

        run(main)

    def test_callers_that_are_only_paced_have_their_sentence_at_every_instant(self):
        """Also at that at which the first of them may go and has not gone yet, where nothing objects any more."""

        async def main():
            clock = VirtualClock()
            limiter = limiter_on(clock, 40.0, token_bucket_capacity=1.0)
            watched = Watched(limiter=limiter).start(alone=False)
            waiting = [asyncio.ensure_future(limiter.acquire_async(KEY)) for _ in range(113)]
            await asyncio.sleep(0)
            found = set()
            for _ in range(50):
                found.add((sentences(watched._make())[KEY], watched._make().waits[0].seconds))
                clock.advance(0.0015)  # which wakes nobody
            assert found == {((f"{KEY}: paced at 40 calls/s, at a fixed rate", 112), None)}
            for task in waiting:
                task.cancel()
            watched.close()

        asyncio.run(main())

    def test_callers_that_wait_for_a_credential_are_told_when_the_first_is_back(self):
        async def main(clock):
            keys = keys_on(clock, 2, provider="openai")
            for seconds in (90.0, 41.0):
                lease = keys.acquire()
                lease.report(signal=Signal(outcome=Outcome.QUOTA_EXHAUSTED, retry_after=seconds))
            watched = Watched(credentials=keys)
            waiting = [asyncio.ensure_future(keys.acquire_async()) for _ in range(3)]
            await asyncio.sleep(0)
            assert sentences(watched.snapshot()) == {
                "openai": ("key-2 of openai rests 41.0 s: its quota is used up", 3)
            }
            for task in waiting:
                task.cancel()

        run(main)

    def test_a_secret_in_a_key_is_not_shown_and_the_key_can_still_be_limited(self):
        clock = VirtualClock()
        limiter, watched = watched_program(clock)
        limiter.acquire(f"api/{SECRET}").report(status_code=200)
        (line,) = watched.snapshot().keys
        assert SECRET not in json.dumps(plain(watched.snapshot()))
        watched.act(Action(kind="limit", target=line.key, value=5.0))
        assert limiter.look(f"api/{SECRET}").limit == 5.0
        said = watched.act(Action(kind="limit", target=f"api/{SECRET}", value=6.0))
        assert limiter.look(f"api/{SECRET}").limit == 6.0
        assert SECRET not in said + repr(watched.events(0))

    def test_it_is_small_however_many_keys_there_are(self):
        clock = VirtualClock()
        limiter, watched = watched_program(clock)
        for number in range(MOST_KEYS + 50):
            limiter.acquire(f"key-{number}").report(status_code=200)
        snapshot = watched.snapshot()
        assert (len(snapshot.keys), snapshot.more_keys) == (MOST_KEYS, 50)

    def test_a_program_may_tell_its_own_progress(self):
        watched = Watched(progress=lambda: ProgressLine(total=10, done=4), kind="demo", title="a demo")
        snapshot = watched.snapshot()
        assert (snapshot.kind, snapshot.title, snapshot.progress.done) == ("demo", "a demo", 4)
        assert snapshot.run.startswith("demo-")

    def test_what_a_program_cannot_know_yet_hides_it_from_nobody(self):
        told = ProgressLine(done=4, rate=float("nan"), eta=float("inf"), cost=float("inf"))
        progress = Watched(progress=lambda: told).snapshot().progress
        assert progress == ProgressLine(done=4)
        assert json.dumps(plain(progress), allow_nan=False)

    def test_a_look_that_fails_is_complained_about_once(self, caplog):
        def broken():
            raise OSError("gone")

        watched = Watched(limiter=limiter_on(VirtualClock()))
        for _ in range(5):
            watched._try(broken)
        assert [record.levelname for record in caplog.records] == ["ERROR"]

    def test_a_snapshot_is_made_once_for_all_who_ask_at_once(self):
        clock = VirtualClock()
        _, watched = watched_program(clock)
        first = watched.snapshot()
        assert watched.snapshot() is first
        clock.advance(0.3)
        assert watched.snapshot() is not first

    def test_a_snapshot_that_takes_long_is_made_seldom(self):
        clock = VirtualClock()
        watched = Watched(progress=lambda: clock.advance(0.04) or ProgressLine(), clock=clock)
        first = watched.snapshot()
        clock.advance(3.9)
        assert watched.snapshot() is first
        clock.advance(0.2)
        assert watched.snapshot() is not first

    def test_lines_in_time_are_kept_and_a_user_who_listens_goes_on_hearing(self):
        clock = VirtualClock()
        heard = []
        limiter = limiter_on(clock)
        limiter.on_event = heard.append
        with Watched(limiter=limiter).start(alone=False) as watched:
            pass
        watched = Watched(limiter=limiter).start(alone=False)
        for _ in range(5):
            limiter.acquire(KEY).report(status_code=200)
            watched.look()
            clock.advance(1.0)
        limiter.pause(KEY, 5.0)
        (line,) = watched.timelines([KEY], 0.0)
        assert line.done[1:] == (1.0,) * 4
        assert [event.kind for event in watched.events(0)] == ["held"]
        watched.close()
        limiter.pause(KEY, 50.0)
        assert [event.kind for event in heard] == ["held", "held"]
        assert limiter.on_event == heard.append
        assert len(watched.events(0)) == 1
        assert watched.snapshot().state == "ended"


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
            watched = Watched(job=runner, rows=lambda: rows).start(alone=False)
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
        assert last.sentence == f"key-2 of {KEY} is retired: it is no longer valid"

    def test_rows_wait_for_a_key_that_rests_and_not_for_one_that_never_comes_back(self):
        resting, retired = self.parked("key-1", retired=["key-2"]).waits
        assert resting.scope == f"key-1 of {KEY}"
        assert (resting.behind > 50, retired.behind) == (True, 0)

    def test_where_all_keys_rest_that_is_the_first_thing_one_sees(self):
        snapshot = self.parked("key-1", "key-2")
        first, second = snapshot.waits
        assert first.scope == f"key-2 of {KEY}"
        assert first.sentence == f"key-2 of {KEY} rests 41.0 s: parked by hand"
        assert first.behind == second.behind > 50
        assert first.seconds == pytest.approx(41.0, abs=0.5)
        assert first.key == "", "it is no matter of the key"
        assert snapshot.blocked == first.behind, "rows that could go with either key are counted once"
        assert [line.state for line in snapshot.credentials] == ["resting", "resting"]

    @pytest.mark.parametrize("rps", [40.0, 3_000.0])
    def test_rows_that_are_only_paced_have_their_sentence_at_every_instant(self, rps):
        async def act(watched, clock, runner):
            looks = []
            for number in range(1, 60):
                await clock.sleep_async(0.0301 + number * 1e-5)
                looks.append(watched._make())
            runner.stop(now=True)
            return looks

        def paced(clock):
            return limiter_on(clock, rps, token_bucket_capacity=1.0)

        looks = self.play(self.quick, act, rows=9_000, limiter=paced, workers=1_000)
        assert {one.waits[0].sentence for one in looks} == {f"{KEY}: paced at {brief(rps)} calls/s, at a fixed rate"}
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
        assert first.sentence == f"key-1 of {KEY}: told to wait by the server, 29.0 s to go"
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
        assert sentence.startswith(f"{KEY}: its circuit is open after failures, ")
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

        watched = self.play(picky, act, rows=100)
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
            "paused: nothing new starts; what is under way is finished",
            "it was paused already",
            "resumed",
            "it was not paused",
        ]
        assert [one.reason for one in told] == said

    def test_looking_from_another_thread_disturbs_nothing(self):
        """In real time: threads have no other."""
        runner = BatchRunner(
            lambda item, ctx: None,
            workers=8,
            limiter=AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6)),
            key=lambda item: f"key-{item % 50}",
        )
        watched = Watched(job=runner).start(alone=False)
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
        report = runner.run_sync(range(3_000))
        over.set()
        thread.join()
        watched.close()
        assert not faults
        assert report.done == 3_000
        assert seen
        assert watched.snapshot().progress.done == 3_000


class TestActing:
    def acted(self, action, **more):
        clock = VirtualClock()
        limiter = limiter_on(clock)
        limiter.acquire(KEY).report(status_code=200)
        keys = keys_on(clock)
        watched = Watched(limiter=limiter, credentials=keys, **more)
        return watched.act(action), limiter, keys

    def test_a_credential_is_parked_freed_and_retired_by_its_label_and_mark(self):
        clock = VirtualClock()
        keys = keys_on(clock)
        watched = Watched(credentials=keys)
        mark = {line.label: line.mark for line in watched.snapshot().credentials}
        assert "rests for 60.0 s" in watched.act(Action(kind="park", target=f"key-2/{mark['key-2']}", value=60.0))
        assert keys.back_in("key-2") == 60.0
        watched.act(Action(kind="free", target="key-2"))
        assert keys.back_in("key-2") == 0.0
        watched.act(Action(kind="retire", target="key-3"))
        assert keys.back_in("key-3") is None
        assert [line.state for line in watched.snapshot().credentials] == ["free", "free", "retired"]

    def test_two_of_one_label_need_their_digits(self):
        clock = VirtualClock()
        one = CredentialCoordinator([Credential("a", "secret-1")], clock=clock, identities=Identities(b"x"))
        two = CredentialCoordinator([Credential("a", "secret-2")], clock=clock, identities=Identities(b"x"))
        watched = Watched(credentials={"one": one, "two": two})
        with pytest.raises(ActionRefusedError, match="six digits"):
            watched.act(Action(kind="park", target="a", value=5.0))
        mark = next(line.mark for line in watched.snapshot().credentials if line.provider == "two")
        watched.act(Action(kind="park", target=f"a/{mark}", value=5.0))
        assert (one.back_in("a"), two.back_in("a")) == (0.0, 5.0)

    def test_a_limit_is_set_and_lifted(self):
        said, limiter, _ = self.acted(Action(kind="limit", target=KEY, value=5.0))
        assert (said, limiter.look(KEY).limit) == (f"{KEY}: 5 calls a second at most", 5.0)
        watched = Watched(limiter=limiter)
        assert watched.act(Action(kind="limit", target=KEY)) == f"the limit of {KEY} is lifted"
        assert limiter.look(KEY).limit is None

    def test_a_whole_limiter_is_paused(self):
        _, limiter, _ = self.acted(Action(kind="pause"))
        assert limiter.is_paused
        watched = Watched(limiter=limiter, progress=lambda: ProgressLine(total=10, done=4, rate=2.0, eta=3.0))
        paused = watched.snapshot()
        assert (paused.state, paused.progress) == ("paused", ProgressLine(total=10, done=4))
        assert sentences(paused) == {"run": ("the program is paused by an operator", 6)}
        watched.act(Action(kind="resume"))
        assert watched.snapshot().progress.rate == 2.0
        assert not limiter.is_paused

    @pytest.mark.parametrize(
        "action",
        [
            Action(kind="explode"),
            Action(kind="limit", target="nobody.example.com", value=5.0),
            Action(kind="limit", target="", value=5.0),
            Action(kind="limit", target="x" * 5_000, value=5.0),
            Action(kind="limit", target=KEY, value=0.0),
            Action(kind="limit", target=KEY, value=float("nan")),
            Action(kind="limit", target=KEY, value=float("inf")),
            Action(kind="park", target="key-1", value=-1.0),
            Action(kind="park", target="key-1"),
            Action(kind="park", target="key-1", value=True),
            Action(kind="park", target="key-9", value=5.0),
            Action(kind="free", target=""),
            Action(kind="free", target=SECRET + "1"),
        ],
    )
    def test_what_cannot_be_done_is_refused_in_a_sentence_without_what_was_asked_for(self, action):
        with pytest.raises(ActionRefusedError) as refusal:
            self.acted(action)
        assert SECRET not in str(refusal.value)
        assert "x" * 100 not in str(refusal.value)

    def test_a_run_that_is_over_takes_no_orders(self):
        watched = Watched(limiter=limiter_on(VirtualClock())).start(alone=False)
        watched.close()
        with pytest.raises(ActionRefusedError, match="ended"):
            watched.act(Action(kind="pause"))


class TestWaits:
    def test_what_is_shut_comes_before_what_is_paced(self):
        lines = [
            WaitLine(scope="a", sentence="a: paced at 5 calls/s, as configured, 200 ms to go", behind=9_000),
            WaitLine(scope="b", sentence="b rests 41.0 s: its quota is used up", behind=12, seconds=41.0),
            WaitLine(scope="c", sentence="c: its circuit is open after failures", behind=80),
        ]
        assert [line.scope for line in in_order(lines)] == ["c", "b", "a"]

    def test_what_does_not_fit_is_counted(self):
        lines = [WaitLine(scope=f"{n}", sentence=f"{n}: shut", behind=n) for n in range(100)]
        shown = in_order(lines)
        assert len(shown) == MOST_WAITS
        assert sum(line.behind for line in shown) == sum(range(100))
        assert shown[-1].sentence == "81 others wait too"

    def test_a_lane_between_two_rows_waits_for_what_it_waited_for_last(self):
        def lane(waits_for, reason):
            return LaneStanding(
                key=KEY, credential=None, rate=7.0, in_flight=1, waiting=9, opens_in=None, reason=reason,
                gate_key=KEY, waits_for=waits_for,
            )  # fmt: skip

        causes = LastCauses(lambda one: one.gate_key)
        told = []
        for waits_for, reason in [("", ""), ("workers", "all busy"), ("", ""), ("cooldown", "pausing"), ("", "")]:
            (one,) = causes.of([lane(waits_for, reason)])
            told.append((one.waits_for, one.reason))
        usual = ("pace", "paced at 7 calls/s")
        assert told == [usual, ("workers", "all busy"), ("workers", "all busy"), ("cooldown", "pausing"), usual]

    def test_the_limiters_own_words_for_an_ordinary_wait_are_known(self):
        limiter = limiter_on(VirtualClock(), 5.0)
        while limiter.try_acquire(KEY):
            pass
        assert is_ordinary(WaitLine(scope=KEY, sentence=f"{KEY}: {limiter.look(KEY).reason}"))
        limiter.pause(KEY, 30.0)
        assert not is_ordinary(WaitLine(scope=KEY, sentence=f"{KEY}: {limiter.look(KEY).reason}"))


def test_a_hub_that_is_given_hears_too():
    clock, heard = VirtualClock(), []
    hub = Hub()
    hub.add(heard.append)
    limiter = limiter_on(clock)
    Watched(limiter=limiter, hub=hub).start(alone=False)
    limiter.pause(KEY, 5.0)
    assert [event.kind for event in heard] == ["held"]


def test_a_snapshot_is_plain_data():
    clock = VirtualClock()
    limiter, watched = watched_program(clock)
    limiter.acquire(KEY).report(status_code=200)
    told = json.loads(json.dumps(plain(watched.snapshot()), allow_nan=False))
    assert told["schema"] == 1
    assert set(told) == set(RunSnapshot.__dataclass_fields__)
