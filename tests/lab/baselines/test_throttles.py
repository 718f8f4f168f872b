"""The SRE book's adaptive throttling and failsafe-go's."""

import random

import pytest

from headgate.lab.baselines.sre import FAILSAFE, Throttle, ThrottledWorker, ThrottlePolicy

SRE = ThrottlePolicy()


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
