"""One stream for all events: who hears, what it costs where nobody does, and what becomes of a listener that raises."""

import logging

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.events import Event
from headgate.observe.hub import MOST_FAULTS, MOST_LISTENERS, Hub
from headgate.sim.virtual import VirtualClock

KEY = "api.example.com"


def event(kind="held", reason="told to wait"):
    return Event(at=0.0, kind=kind, key=KEY, reason=reason, rate=1.0, state="closed")


def fails(_):
    raise ValueError("a secret sk-abcdefghijklmnop")


def test_everybody_hears_until_removed():
    hub, one, other = Hub(), [], []
    hub.add(one.append)
    hub.add(other.append)
    hub(event("held"))
    hub.remove(one.append)
    hub(event("refused"))
    assert [heard.kind for heard in one] == ["held"]
    assert [heard.kind for heard in other] == ["held", "refused"]


def test_adding_twice_is_adding_once():
    hub, heard = Hub(), []
    hub.add(heard.append)
    hub.add(heard.append)
    hub(event())
    assert len(heard) == 1


def test_listeners_are_bounded():
    hub = Hub()
    for number in range(MOST_LISTENERS):
        hub.add(lambda _, number=number: None)
    with pytest.raises(ValueError, match="listeners"):
        hub.add(print)


def test_a_listener_that_raises_costs_the_others_nothing_and_is_left_out_in_the_end(caplog):
    hub, heard = Hub(), []
    hub.add(fails)
    hub.add(heard.append)
    for _ in range(MOST_FAULTS + 5):
        hub(event())
    assert len(heard) == MOST_FAULTS + 5
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * MOST_FAULTS + [logging.ERROR]
    assert "sk-abcdefghijklmnop" not in caplog.text


def test_one_that_raises_now_and_then_stays():
    hub, times = Hub(), []

    def sometimes(_):
        times.append(1)
        if len(times) % 3:
            raise ValueError

    hub.add(sometimes)
    for _ in range(100):
        hub(event())
    assert len(times) == 100


def test_one_that_fails_every_other_time_does_not_fill_the_log(caplog):
    hub, times = Hub(), []

    def every_other(_):
        times.append(1)
        if len(times) % 2:
            raise ValueError

    hub.add(every_other)
    for _ in range(1_000):
        hub(event())
    assert len(times) == 1_000
    assert len(caplog.records) == MOST_FAULTS


def test_one_that_cannot_say_what_it_wants_is_left_out_and_harms_no_call(caplog):
    class Broken:
        def wants(self, kind):
            raise KeyError(kind)

        def __call__(self, event):
            raise AssertionError("it wanted nothing")

    hub = Hub()
    hub.add(Broken())
    limiter = AdaptiveRateLimiter(clock=VirtualClock(), on_event=hub)
    for number in range(1, 2 * MOST_FAULTS):
        limiter.pause(KEY, 30.0 * number)
    assert not hub.is_heard


class TestLimiter:
    def test_a_limiter_makes_no_events_while_nobody_listens(self):
        hub, heard = Hub(), []
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="aimd"), clock=VirtualClock(), on_event=hub)
        assert not limiter.tell.is_watched
        limiter.acquire(KEY).report(status_code=429)
        hub.add(heard.append)
        assert limiter.tell.is_watched
        assert not heard
        limiter.pause(KEY, 30.0)
        assert [one.kind for one in heard] == ["held"]
        hub.remove(heard.append)
        assert not limiter.tell.is_watched

    def test_a_limiter_that_listens_to_another_by_now_is_left_alone(self):
        hub = Hub()
        limiter = AdaptiveRateLimiter(clock=VirtualClock(), on_event=hub)
        limiter.on_event = None
        hub.add(lambda _: None)
        assert not limiter.tell.is_watched

    def test_a_hub_keeps_no_limiter_alive(self):
        hub = Hub()
        limiter = AdaptiveRateLimiter(clock=VirtualClock(), on_event=hub)
        assert len(hub._tellers) == 1
        del limiter
        import gc

        gc.collect()
        assert not len(hub._tellers)
