"""Strategies that rest: backoff, a pause of all workers, dropping by chance."""

import random

import pytest

from headgate.lab.baselines import BASELINES
from headgate.lab.baselines.backoff import FAILSAFE, Backoff, BackoffBefore, Throttle, ThrottledWorker, ThrottleSettings

SRE = ThrottleSettings()


# -- backoff of each worker


def rests(worker, failures):
    """How long the worker rests after each of so many failures in a row."""
    now, times = 0.0, []
    for _ in range(failures):
        worker.on_response(now, 429, 0.1, None)
        times.append(worker.on_send(now))
        now += times[-1]
    return times


class Unlimited:
    def __init__(self):
        self.learned = []

    def acquire(self, now):
        return 0.25

    def learn(self, now, status, latency):
        self.learned.append((now, status, latency))


def test_tenacity_rests_between_one_second_and_a_ceiling_that_doubles_to_60(setup):
    assert rests(Backoff(setup(draw=0.0).rng), 8) == [1.0] * 8
    assert rests(Backoff(setup(draw=1.0).rng), 8) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_full_jitter_rests_from_nothing_to_20(setup):
    assert rests(BackoffBefore(setup(draw=1.0).rng, Unlimited()), 6) == [1, 2, 4, 8, 16, 20]


def test_a_success_starts_over(setup):
    worker = Backoff(setup(draw=1.0).rng)
    assert rests(worker, 3)[-1] == 4
    worker.on_response(100.0, 200, 0.1, None)
    worker.on_response(100.0, 503, 0.1, None)
    assert worker.on_send(100.0) == 1.0


def test_one_worker_knows_nothing_of_another():
    chance = random.Random(3)
    refused, other = Backoff(chance), Backoff(chance)
    refused.on_response(0.0, 429, 0.1, {"retry-after": "30"})
    assert 1.0 <= refused.on_send(0.0) < 30.0, "Retry-After is not heeded"
    assert other.on_send(0.0) == 0.0


def test_the_shared_limiter_is_asked_after_the_rest_and_learns_from_every_answer(setup):
    limiter = Unlimited()
    worker = BackoffBefore(setup(draw=1.0).rng, limiter)
    worker.on_response(5.0, 429, 0.1, None)
    assert worker.on_send(5.5) == 0.5
    assert worker.on_send(6.0) == 0.25
    assert limiter.learned == [(5.0, 429, pytest.approx(0.1))]


# -- a pause of all workers


def workers(setup, name="pause-60"):
    return [controllers[0] for controllers, _ in BASELINES[name].make(setup)]


def test_one_429_pauses_everybody(setup):
    for name, pause in [("pause-60", 60.0), ("pause-5", 5.0)]:
        refused, other, _ = workers(setup(), name)
        refused.on_response(1.0, 429, 0.1, None)
        assert refused.on_send(1.0) == other.on_send(1.0) == pause


def test_ten_429s_of_one_burst_are_one_pause_and_a_later_one_doubles_it(setup):
    worker, *_ = workers(setup())
    for late in range(10):
        worker.on_response(1.0 + late / 10, 429, 0.5, None)
    assert worker.on_send(2.0) == 59.0
    worker.on_response(62.0, 429, 2.0, None)  # sent at 60, before the pause was over
    assert worker.cooldown.until == 61.0
    worker.on_response(62.0, 429, 0.5, None)
    assert worker.on_send(62.0) == 120.0


def test_the_pause_ends_at_ten_minutes_and_a_success_starts_it_over(setup):
    worker, *_ = workers(setup())
    pauses = []
    for _ in range(6):
        now = worker.cooldown.until + 1.0
        worker.on_response(now, 429, 0.1, None)
        pauses.append(worker.cooldown.until - now)
    assert pauses == [60, 120, 240, 480, 600, 600]
    worker.on_response(worker.cooldown.until, 200, 0.1, None)
    worker.on_response(10_000.0, 429, 0.1, None)
    assert worker.on_send(10_000.0) == 60.0


def test_retry_after_is_a_floor(setup):
    worker, *_ = workers(setup())
    worker.on_response(0.0, 429, 0.0, {"retry-after": "90"})
    assert worker.on_send(0.0) == 90.0


def test_fifty_items_after_a_pause_are_held_back_from_2_s_down(setup):
    crowd = workers(setup(workers=52), "pause-5")
    crowd[0].on_response(0.0, 429, 0.0, None)
    holds = [worker.on_send(5.0) for worker in crowd]
    assert holds[0] == 2.0
    assert holds[49] == pytest.approx(0.1, abs=0.04)
    assert holds == sorted(holds, reverse=True)
    assert holds[50:] == [0.0, 0.0]
    assert crowd[0].on_send(7.0) == 0.0, "an item is held back once"


def test_a_5xx_rests_one_worker_alone(setup):
    failed, other, _ = workers(setup(draw=0.0))
    failed.on_response(1.0, 503, 0.1, None)
    assert failed.on_send(1.0) == 0.5
    assert other.on_send(1.0) == 0.0


# -- dropping by chance: the SRE book and failsafe-go


def dropped(throttle, asks, accept, now=0.0):
    """How many of so many asks are dropped when every ``accept``-th of those sent is accepted (0: none)."""
    count = sent = 0
    for _ in range(asks):
        if throttle.acquire(now):
            count += 1
        else:
            sent += 1
            throttle.learn(now, 200 if accept and sent % accept == 0 else 429)
    return count


def test_nothing_is_dropped_while_half_is_accepted():
    throttle = Throttle(random.Random(5), SRE)
    assert dropped(throttle, 1000, accept=2) < 20
    assert dropped(Throttle(random.Random(5), SRE), 1000, accept=1) == 0


def test_the_server_sees_twice_what_it_accepts():
    throttle = Throttle(random.Random(5), SRE)
    sent = accepted = 0
    for tick in range(24_000):  # 100 asks a second for four minutes; the server accepts 10 of them
        now = tick / 100
        if tick % 10 == 0:
            room = True
        if not throttle.acquire(now):
            sent, accepted = sent + 1, accepted + room
            throttle.learn(now, 200 if room else 429)
            room = False
    assert sent == pytest.approx(2 * accepted, rel=0.05)


def test_two_minutes_later_all_is_forgotten():
    throttle = Throttle(random.Random(5), SRE)
    assert dropped(throttle, 1000, accept=0) > 900
    throttle.turn(119.0)
    assert throttle.all_requests == 1000
    throttle.turn(120.0)
    assert throttle.all_requests == 0
    assert throttle.acquire(120.0) == 0.0


def test_a_dropped_item_comes_back_after_its_rest(setup):
    throttle = Throttle(setup(draw=0.5).rng, SRE)
    dropped(throttle, 10, accept=0)
    worker = ThrottledWorker(throttle)
    assert worker.on_send(1.0) == pytest.approx(0.4)
    asked = throttle.all_requests
    assert worker.on_send(1.1) == pytest.approx(0.3)
    assert throttle.all_requests == asked, "it was not asked for again"


def test_failsafe_drops_once_a_tenth_fails_and_lets_a_tenth_through():
    assert dropped(Throttle(random.Random(5), FAILSAFE), 1000, accept=1) == 0
    down = dropped(Throttle(random.Random(5), FAILSAFE), 10_000, accept=0)
    assert down == pytest.approx(9000, rel=0.02)


def test_failsafe_counts_answers_where_the_book_counts_asks():
    for policy, counted in [(SRE, 1), (FAILSAFE, 0)]:
        throttle = Throttle(random.Random(5), policy)
        throttle.acquire(0.0)
        assert throttle.all_requests == counted
