"""The last events: bounded, numbered, sampled, readable, and without a secret."""

import threading
from datetime import UTC, datetime

import pytest

from headgate.batch.report import BatchEvent
from headgate.events import CrawlEvent, Event, ResilienceEvent, is_wanted
from headgate.lab.virtual_time import VirtualClock
from headgate.observe.event_buffer import MOST_A_SECOND, MOST_KEPT, MOST_KINDS, MOST_NEW, EventBuffer, chosen, describe
from headgate.observe.hub import Hub
from headgate.observe.snapshot import EventLine

SECRET = "sk-abcdefghijklmnopqrstuvwx"


@pytest.fixture
def clock():
    return VirtualClock(start=50.0, wall=1_800_000_000.0)


def event(kind="held", at=50.0, reason="told to wait", key="api.example.com"):
    return Event(at=at, kind=kind, key=key, reason=reason, rate=1.0, state="closed")


def test_an_event_is_told_in_words_and_by_the_time_of_day(clock):
    ring = EventBuffer(clock)
    clock.advance(10.0)
    ring(event(at=55.0))
    (line,) = ring.after(0)
    assert (line.number, line.kind, line.key, line.reason) == (1, "held", "api.example.com", "told to wait")
    assert line.at == 1_800_000_005.0


def test_only_what_is_new_is_given_the_oldest_first(clock):
    ring = EventBuffer(clock)
    for number in range(10):
        ring(event(kind=f"kind-{number}"))
    assert [line.number for line in ring.after(7)] == [8, 9, 10]
    assert [line.number for line in ring.after(0, most=2)] == [9, 10]


def test_a_flood_of_one_kind_is_sampled_and_leaves_a_gap_in_the_numbers(clock):
    ring = EventBuffer(clock)
    for _ in range(1_000):
        ring(event("rate_changed"))
    ring(event("circuit_changed"))
    lines = ring.after(0, most=2_000)
    assert len(lines) == MOST_A_SECOND + 1
    assert (lines[-1].kind, lines[-1].number) == ("circuit_changed", 1_001)
    assert ring.left_out == 1_000 - MOST_A_SECOND
    assert ring.kinds["rate_changed"] == 1_000


def test_the_next_second_has_room_again(clock):
    ring = EventBuffer(clock)
    for _ in range(3):
        for _ in range(100):
            ring(event())
        clock.advance(1.0)
    assert len(ring.after(0, most=2_000)) == 3 * MOST_A_SECOND


@pytest.mark.no_cover
def test_it_is_bounded_however_long_it_goes_on_and_however_many_kinds_there_are(clock):
    ring = EventBuffer(clock)
    for second in range(300):
        for number in range(50):
            ring(event(f"kind-{second}-{number}"))
        clock.advance(1.0)
    assert len(ring.after(0, most=10**6)) == MOST_KEPT
    assert len(ring.kinds) <= MOST_KINDS + 1


def test_what_is_rare_is_not_pushed_out_by_an_hour_of_what_is_not(clock):
    ring = EventBuffer(clock)
    ring(event("circuit_changed"))
    ring(event("credential_retired"))
    for _ in range(3_600):
        ring(event("rate_changed"))
        clock.advance(1.0)
    lines = ring.after(0, most=200)
    assert [line.kind for line in lines[:3]] == ["circuit_changed", "credential_retired", "rate_changed"]
    assert len(lines) == 200
    assert lines[-1].number == ring.number == 3_602
    assert len(ring.after(0, most=10**6)) == MOST_KEPT + 2


def test_what_is_rare_has_half_of_the_places_and_no_more():
    assert chosen([1, 2, 3, 4, 5, 6, 7, 8], 4, lambda one: one > 4) == [3, 4, 7, 8]
    assert chosen([1, 2, 3, 4, 5, 6, 7, 8], 4, lambda one: one < 5) == [5, 6, 7, 8]
    assert chosen([1, 2, 3, 4, 5, 6, 7, 8], 4, lambda one: one > 1) == [1, 6, 7, 8]
    assert chosen([1, 2, 3], 0, lambda one: False) == []


def test_threads_lose_no_number(clock):
    ring = EventBuffer(clock)

    def tell(kind):
        for _ in range(500):
            ring(event(kind))

    threads = [threading.Thread(target=tell, args=(f"kind-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [line.number for line in ring.after(0, most=10**6)]
    assert ring.number == 4_000
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            BatchEvent(at=50.0, kind="item_dead", key="api/key-1", index=41, reason="invalid: HTTP 400"),
            ("item_dead", "api/key-1", "row 42, invalid: HTTP 400"),
        ),
        (
            BatchEvent(at=50.0, kind="cooldown_started", key="api/key-1", seconds=30.0),
            ("cooldown_started", "api/key-1", "for 30.0 s"),
        ),
        (
            CrawlEvent(at=50.0, kind="failed", host="a.test", url=f"https://a.test/?key={SECRET}", reason="dns: gone"),
            ("failed", "a.test", "dns: gone, https://a.test/?key=***"),
        ),
        (
            ResilienceEvent(
                event_type="credential_rested",
                provider="openai",
                timestamp=datetime.fromtimestamp(1_800_000_000.0, UTC),
                wait_ms=41_000,
                error_type="quota_exhausted",
                credential="key-2",
            ),
            ("credential_rested", "openai/key-2", "quota_exhausted, for 41.0 s"),
        ),
    ],
)
def test_every_kind_of_event_reads_well(clock, told, expected):
    ring = EventBuffer(clock)
    ring(told)
    (line,) = ring.after(0)
    assert (line.kind, line.key, line.reason) == expected
    assert line.at == 1_800_000_000.0


def test_no_secret_gets_in_and_nothing_is_long(clock):
    ring = EventBuffer(clock)
    ring(event(reason=f"the server said {SECRET} " + 1_000 * "x "))
    (line,) = ring.after(0)
    assert SECRET not in line.reason
    assert len(line.reason) <= 300


@pytest.mark.parametrize(
    "told",
    [
        event(key=SECRET),
        BatchEvent(at=0.0, kind="item_dead", key="k", index=6, reason=f"invalid: {SECRET}"),
        BatchEvent(at=0.0, kind="item_done", key=f"https://me:{SECRET}@h/"),
        CrawlEvent(at=0.0, kind="page", host="h", url=f"https://h/?key={SECRET}"),
        ResilienceEvent(event_type="request_failure", provider=SECRET, timestamp=datetime.now(UTC), error_type=SECRET),
    ],
)
def test_no_event_of_any_kind_brings_one(told, clock):
    ring = EventBuffer(clock)
    ring(told)
    assert SECRET not in repr(ring.after(0))


def test_what_an_operator_did_is_always_kept(clock):
    ring = EventBuffer(clock)
    for _ in range(100):
        ring.add("operator", "", "paused")
    assert len(ring.after(0)) == 100


def test_an_event_that_cannot_be_described_hides_no_other(clock, caplog):
    ring = EventBuffer(clock)
    ring(event("first"))
    ring(BatchEvent(at=50.0, kind="item_parked", seconds=SECRET))
    ring(event("last"))
    assert [line.kind for line in ring.after(0)] == ["first", "last"]
    assert "cannot describe an event item_parked: TypeError" in caplog.text
    assert SECRET not in caplog.text


def test_lines_are_made_when_they_are_read_or_when_many_have_gathered(clock, monkeypatch):
    made = []

    def describe(record, number):
        made.append(number)
        return EventLine(number=number, at=0.0, kind=record.kind, key="", reason="")

    monkeypatch.setattr("headgate.observe.event_buffer.describe", describe)
    ring = EventBuffer(clock)
    ring(event())
    assert made == []
    ring.after(0)
    ring.after(0)
    assert made == [1]
    for number in range(MOST_NEW):
        ring(event(f"kind-{number % 50}"))
    assert len(made) == 1 + MOST_NEW


def test_a_reader_waits_for_the_lines_that_another_is_making(clock, monkeypatch):
    making, go_on, made = threading.Event(), threading.Event(), describe

    def slow_describe(record, number):
        making.set()
        assert go_on.wait(10.0)
        return made(record, number)

    monkeypatch.setattr("headgate.observe.event_buffer.describe", slow_describe)
    ring, read = EventBuffer(clock), []
    ring(event("first"))
    first = threading.Thread(target=ring.after, args=(0,))
    first.start()
    assert making.wait(10.0)
    ring(event("last"))
    second = threading.Thread(target=lambda: read.extend(ring.after(0)))
    second.start()
    go_on.set()
    for thread in (first, second):
        thread.join(10.0)
    assert [line.kind for line in read] == ["first", "last"]


def test_what_is_not_even_made_is_counted_as_left_out(clock):
    ring, hub, made = EventBuffer(clock), Hub(), 0
    hub.add(ring)
    for _ in range(1_000):
        if is_wanted(hub, "item_done"):
            made += 1
            hub(BatchEvent(at=50.0, kind="item_done"))
    assert made == MOST_A_SECOND
    assert (ring.number, ring.left_out, ring.kinds["item_done"]) == (1_000, 1_000 - MOST_A_SECOND, 1_000)


def test_another_listener_that_wants_all_gets_all(clock):
    ring, hub, heard = EventBuffer(clock), Hub(), []
    hub.add(ring)
    hub.add(heard.append)
    for _ in range(1_000):
        assert hub.wants("item_done")
        hub(BatchEvent(at=50.0, kind="item_done"))
    assert len(heard) == ring.number == 1_000
    assert ring.left_out == 1_000 - MOST_A_SECOND


def test_behind_a_hub_so_many_are_kept_of_each_second_of_its_own_clock(clock):
    ring, hub = EventBuffer(clock), Hub()
    hub.add(ring)
    for _ in range(10):
        for _ in range(30):
            if is_wanted(hub, "item_done"):
                hub(BatchEvent(at=clock.now(), kind="item_done"))
        clock.advance(1.0)
    assert (ring.number, ring.left_out) == (300, 10 * (30 - MOST_A_SECOND))
