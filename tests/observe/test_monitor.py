"""A run with a monitor: what a snapshot shows, and how seldom it is made."""

import asyncio
import json

import pytest
from tests.observe.monitored import KEY, SECRET, keys_on, limiter_on, refreshed, sentences, watched_program

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.core.decision import Outcome
from headgate.core.signal import Signal
from headgate.lab.virtual_time import VirtualClock, run
from headgate.limiter.key_lines import KeySource
from headgate.observe.hub import Hub
from headgate.observe.monitor import RunMonitor
from headgate.observe.snapshot import (
    MOST_KEYS,
    Action,
    ProgressLine,
    RunSnapshot,
    plain,
)
from headgate.resilience.recovery import ObservedRateCap


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
        assert line.reason.startswith("rate limited by the server, 30")
        assert snapshot.counters["calls"] == 3

    def test_a_key_without_a_pace_has_none(self):
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy=lambda _: ObservedRateCap()))
        limiter.acquire(KEY).report(status_code=200)
        assert [line.rate for line in refreshed(KeySource(limiter, 10)).lines] == [0.0]

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
            assert found == {KEY: (f"{KEY}: rate limited by the server, 41.0 s to go", 7)}
            for task in waiting:
                task.cancel()
            watched.close()

        run(main)

    def test_callers_that_are_only_paced_have_their_sentence_at_every_instant(self):
        """Also at that at which the first of them may go and has not gone yet, where nothing objects any more."""

        async def main():
            clock = VirtualClock()
            limiter = limiter_on(clock, 40.0, token_bucket_capacity=1.0)
            watched = RunMonitor(limiter=limiter).start(alone=False)
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
            watched = RunMonitor(credentials=keys)
            waiting = [asyncio.ensure_future(keys.acquire_async()) for _ in range(3)]
            await asyncio.sleep(0)
            assert sentences(watched.snapshot()) == {"openai": ("key-2 of openai rests for 41.0 s: out of quota", 3)}
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
        assert limiter.key_status(f"api/{SECRET}").limit == 5.0
        said = watched.act(Action(kind="limit", target=f"api/{SECRET}", value=6.0))
        assert limiter.key_status(f"api/{SECRET}").limit == 6.0
        assert SECRET not in said + repr(watched.events(0))

    @pytest.mark.no_cover
    def test_it_is_small_however_many_keys_there_are(self):
        clock = VirtualClock()
        limiter, watched = watched_program(clock)
        for number in range(MOST_KEYS + 50):
            limiter.acquire(f"key-{number}").report(status_code=200)
        snapshot = watched.snapshot()
        assert (len(snapshot.keys), snapshot.more_keys) == (MOST_KEYS, 50)

    def test_a_program_may_tell_its_own_progress(self):
        watched = RunMonitor(progress=lambda: ProgressLine(total=10, done=4), kind="demo", title="a demo")
        snapshot = watched.snapshot()
        assert (snapshot.kind, snapshot.title, snapshot.progress.done) == ("demo", "a demo", 4)
        assert snapshot.run.startswith("demo-")

    def test_what_a_program_cannot_know_yet_hides_it_from_nobody(self):
        told = ProgressLine(done=4, rate=float("nan"), eta=float("inf"), cost=float("inf"))
        progress = RunMonitor(progress=lambda: told).snapshot().progress
        assert progress == ProgressLine(done=4)
        assert json.dumps(plain(progress), allow_nan=False)

    def test_a_look_that_fails_is_complained_about_once(self, caplog):
        def broken():
            raise OSError("gone")

        watched = RunMonitor(limiter=limiter_on(VirtualClock()))
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
        watched = RunMonitor(progress=lambda: clock.advance(0.04) or ProgressLine(), clock=clock)
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
        with RunMonitor(limiter=limiter).start(alone=False) as watched:
            pass
        watched = RunMonitor(limiter=limiter).start(alone=False)
        for _ in range(5):
            limiter.acquire(KEY).report(status_code=200)
            watched.record()
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


def test_a_hub_that_is_given_hears_too():
    clock, heard = VirtualClock(), []
    hub = Hub()
    hub.add(heard.append)
    limiter = limiter_on(clock)
    RunMonitor(limiter=limiter, hub=hub).start(alone=False)
    limiter.pause(KEY, 5.0)
    assert [event.kind for event in heard] == ["held"]


def test_a_snapshot_is_plain_data():
    clock = VirtualClock()
    limiter, watched = watched_program(clock)
    limiter.acquire(KEY).report(status_code=200)
    told = json.loads(json.dumps(plain(watched.snapshot()), allow_nan=False))
    assert told["schema"] == 1
    assert set(told) == set(RunSnapshot.__dataclass_fields__)
