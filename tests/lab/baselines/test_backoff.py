import random

import pytest

from headgate.lab.baselines.backoff import Backoff, BackoffBefore


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
