"""One stream for all events: who hears, what it costs where nobody does, and what becomes of a listener that raises."""

import logging
import threading
from collections import Counter

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.events import Event, is_wanted
from headgate.lab.virtual_time import VirtualClock
from headgate.observe.event_buffer import EventBuffer
from headgate.observe.hub import MOST_FAULTS, MOST_LISTENERS, Hub, ListenerPair

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


class Choosy:
    """Wants what it is told to want; counts what it missed."""

    def __init__(self, *wanted):
        self.wanted, self.heard, self.lost = set(wanted), [], Counter()

    def wants(self, kind):
        return kind in self.wanted

    def missed(self, kind, count):
        self.lost[kind] += count

    def __call__(self, event):
        self.heard.append(event.kind)


class TestRefusal:
    @pytest.fixture
    def one(self):
        return Choosy()

    @pytest.fixture
    def hub(self, one):
        hub = Hub()
        hub.add(one)
        return hub

    def test_one_that_wants_it_is_enough(self, hub):
        assert not hub.wants("item_done")
        hub.add(new := Choosy("item_done"))
        assert hub.wants("item_done")
        assert not hub.wants("held")
        hub.remove(new)
        assert not hub.wants("item_done")

    def test_asking_counts_nothing_and_what_was_not_made_is_counted(self, hub, one):
        hub.wants("item_done")
        for kind in ["item_done"] * 7 + ["page"]:
            assert not is_wanted(hub, kind)
        assert one.lost == {"item_done": 7, "page": 1}

    def test_each_is_told_what_it_missed_while_it_listened(self, hub, one):
        is_wanted(hub, "item_done")
        hub.add(other := Choosy())
        is_wanted(hub, "item_done")
        hub.remove(one)
        is_wanted(hub, "item_done")
        assert (one.lost["item_done"], other.lost["item_done"]) == (2, 2)

    @pytest.mark.parametrize("between", [lambda inner: inner, lambda inner: ListenerPair(Choosy(), inner)])
    def test_through_another_hub_or_a_pair_none_is_lost_or_counted_twice(self, hub, one, between):
        outer = Hub()
        outer.add(between(hub))
        for _ in range(1_000):
            assert not is_wanted(outer, "item_done")
        assert one.lost["item_done"] == 1_000

    def test_what_another_wanted_was_not_missed(self, hub, one):
        heard = []
        both = ListenerPair(heard.append, hub)
        for _ in range(100):
            assert is_wanted(both, "item_done")
            both(event("item_done"))
        assert len(heard) == len(one.heard) == 100
        assert not one.lost

    def test_one_that_cannot_count_is_left_out_and_the_other_counts(self, hub, one, caplog):
        class Broken(Choosy):
            def missed(self, kind, count):
                raise KeyError(kind)

        hub.add(Broken())
        for _ in range(MOST_FAULTS + 5):
            is_wanted(hub, "item_done")
        assert one.lost["item_done"] == MOST_FAULTS + 5
        assert len(hub._subscriptions) == 1
        assert [record.levelname for record in caplog.records].count("ERROR") == 1

    @pytest.mark.parametrize("missed", [0, lambda *_: 1 / 0])
    def test_nor_does_it_harm_anybody_without_a_hub(self, missed, one):
        broken = Choosy()
        broken.missed = missed
        assert not is_wanted(ListenerPair(broken, one), "item_done")
        assert one.lost["item_done"] == 1

    def test_nor_does_one_that_cannot_say_what_it_wants(self, caplog):
        broken = Choosy()
        broken.wants = lambda kind: 1 / 0
        assert not is_wanted(broken, "item_done")
        assert "failed in wants(item_done)" in caplog.text

    @pytest.mark.no_cover
    def test_threads_lose_none_though_others_come_and_go(self, hub):
        ring = EventBuffer(VirtualClock())
        ring.wants = lambda kind: False
        hub.add(ring)

        def ask():
            for _ in range(5_000):
                is_wanted(hub, "item_done")

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            hub.add(passing := Choosy())
            hub.remove(passing)
        for thread in threads:
            thread.join()
        assert ring.number == ring.left_out == 20_000

    def test_the_lock_of_a_hub_is_not_needed_to_ask(self, hub):
        """A collection of garbage in the middle of ``add`` may end a permit, and that one asks."""
        with hub._lock:
            asked = threading.Thread(target=is_wanted, args=(hub, "item_done"))
            asked.start()
            asked.join(timeout=60)
            assert not asked.is_alive()


class TestLimiter:
    def test_a_limiter_makes_no_events_while_nobody_listens(self):
        hub, heard = Hub(), []
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="aimd"), clock=VirtualClock(), on_event=hub)
        assert not limiter.events.is_heard
        limiter.acquire(KEY).report(status_code=429)
        hub.add(heard.append)
        assert limiter.events.is_heard
        assert not heard
        limiter.pause(KEY, 30.0)
        assert [one.kind for one in heard] == ["held"]
        hub.remove(heard.append)
        assert not limiter.events.is_heard

    def test_a_limiter_that_listens_to_another_by_now_is_left_alone(self):
        hub = Hub()
        limiter = AdaptiveRateLimiter(clock=VirtualClock(), on_event=hub)
        limiter.on_event = None
        hub.add(lambda _: None)
        assert not limiter.events.is_heard

    def test_a_pace_nobody_wants_to_hear_of_is_asked_about_ten_times_a_second(self):
        clock, listener = VirtualClock(), Choosy()
        config = RateLimitConfig(strategy="aimd", initial_rps=2_000.0)
        limiter = AdaptiveRateLimiter(config, clock=clock, on_event=listener)
        for _ in range(1_000):
            clock.advance(0.001)
            limiter.acquire(KEY).report(status_code=200)
        assert not listener.heard
        assert 9 <= listener.lost["rate_changed"] <= 11
        listener.wanted.add("rate_changed")
        clock.advance(0.1)
        limiter.acquire(KEY).report(status_code=200)
        assert listener.heard == ["rate_changed"]

    def test_somebody_new_is_asked_at_once(self):
        clock, hub = VirtualClock(), Hub()
        hub.add(Choosy())
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="aimd"), clock=clock, on_event=hub)
        limiter.acquire(KEY).report(status_code=200)
        hub.add(new := Choosy("rate_changed"))
        limiter.acquire(KEY).report(status_code=200)
        assert new.heard == ["rate_changed"]

    def test_who_is_asked_or_told_may_ask_the_limiter(self):
        class Curious(Choosy):
            def wants(self, kind):
                return bool(limiter.totals()) and super().wants(kind)

            def missed(self, kind, count):
                limiter.pause(KEY, 1.0)
                super().missed(kind, count)

        listener = Curious()
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="aimd"), clock=VirtualClock(), on_event=listener)
        limiter.acquire(KEY).report(status_code=200)
        assert listener.lost == {"rate_changed": 1}
        assert listener.heard == ["held"]

    def test_nobody_hears_what_was_before_he_came(self):
        hub, heard = Hub(), []

        def leave(_):
            hub.remove(leave)

        hub.add(leave)
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="aimd"), clock=VirtualClock(), on_event=hub)
        limiter.acquire(KEY).report(status_code=429, retry_after=30.0)  # a lower pace and a pause
        hub.add(heard.append)
        limiter.try_acquire(KEY)
        assert "held" not in [one.kind for one in heard]

    @pytest.mark.no_cover
    def test_a_hub_keeps_no_limiter_alive(self):
        hub = Hub()
        limiter = AdaptiveRateLimiter(clock=VirtualClock(), on_event=hub)
        assert len(hub._emitters) == 1
        del limiter
        import gc

        gc.collect()
        assert not len(hub._emitters)
