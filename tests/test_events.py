"""One internal record, the public classes made of it, and how both reach a listener."""

from datetime import UTC, datetime

import pytest

from headgate import VirtualClock
from headgate.events import (
    BatchEvent,
    CrawlEvent,
    Event,
    EventDispatcher,
    EventRecord,
    ResilienceEvent,
    deliver,
    is_wanted,
    record_of,
    split_reason,
)


class Recorder:
    """A listener that remembers what it hears."""

    def __init__(self, wanted=None):
        self.heard, self.not_made, self._wanted = [], {}, wanted

    def __call__(self, event):
        self.heard.append(event)

    def wants(self, kind):
        return self._wanted is None or kind in self._wanted

    def missed(self, kind, count):
        self.not_made[kind] = self.not_made.get(kind, 0) + count


class RecordTaker(Recorder):
    takes_records = True


def dispatcher(listener, form=BatchEvent):
    return EventDispatcher(form, VirtualClock(start=100.0), lambda: listener)


@pytest.mark.parametrize(
    ("record", "public"),
    [
        (
            EventRecord(Event, "circuit_changed", 5.0, 1e9, "api", fields={"rate": 2.0, "state": "open"}),
            Event(at=5.0, kind="circuit_changed", key="api", reason="", rate=2.0, state="open"),
        ),
        (
            EventRecord(BatchEvent, "item_dead", 5.0, 1e9, "api", "invalid", "HTTP 400", {"index": 3}),
            BatchEvent(at=5.0, kind="item_dead", key="api", index=3, reason="invalid: HTTP 400"),
        ),
        (
            EventRecord(CrawlEvent, "failed", 5.0, 1e9, "a.test", "dns", fields={"url": "https://a.test/"}),
            CrawlEvent(at=5.0, kind="failed", host="a.test", reason="dns", url="https://a.test/"),
        ),
        (
            EventRecord(ResilienceEvent, "retry_attempt", 5.0, 1e9, "openai", fields={"attempt": 2}),
            ResilienceEvent(
                event_type="retry_attempt", provider="openai", timestamp=datetime.fromtimestamp(1e9, UTC), attempt=2
            ),
        ),
    ],
)
def test_a_record_becomes_the_public_event_and_back(record, public):
    clock = VirtualClock(start=5.0)
    assert record.public() == public
    again = record_of(public, clock)
    assert (again.form, again.kind, again.scope) == (record.form, record.kind, record.scope)
    assert (again.reason, again.detail) == (record.reason, record.detail)
    assert again.public() == public
    assert record_of(record, clock) is record


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("invalid: HTTP 400: no: such", ("invalid", "HTTP 400: no: such")),
        ("stopped", ("stopped", "")),
        ("paced at 5 calls/s, searching for the limit", ("", "paced at 5 calls/s, searching for the limit")),
        ("", ("", "")),
    ],
)
def test_a_public_reason_begins_with_its_code(text, parts):
    assert split_reason(text) == parts


def test_a_listener_gets_what_it_reads():
    users, ours = Recorder(), RecordTaker()
    for listener in (users, ours):
        assert dispatcher(listener).dispatch("item_parked", "api", "rate_limited", seconds=3.0)
    assert users.heard == [BatchEvent(at=100.0, kind="item_parked", key="api", reason="rate_limited", seconds=3.0)]
    (record,) = ours.heard
    assert (record.kind, record.scope, record.reason, record.fields) == (
        "item_parked",
        "api",
        "rate_limited",
        {"seconds": 3.0},
    )


def test_without_a_listener_nothing_is_made():
    assert dispatcher(None).dispatch("item_dead", make=lambda: pytest.fail("made for nothing"))


def test_what_is_not_wanted_is_not_made_but_counted():
    listener = Recorder(wanted=("item_dead",))
    assert not dispatcher(listener).dispatch("item_done", make=lambda: pytest.fail("made for nothing"))
    assert listener.heard == []
    assert listener.not_made == {"item_done": 1}


def test_many_at_once_are_asked_about_once():
    asked = []
    listener = Recorder(wanted=())
    listener.wants = lambda kind: asked.append(kind) is not None
    events = dispatcher(listener)
    for _ in range(50):
        events.dispatch_in_batch("item_done", "api", "", "", dict)
    assert asked == ["item_done"]
    events.end_batch()
    assert listener.not_made == {"item_done": 50}
    events.dispatch_in_batch("item_done", "api", "", "", dict)
    assert len(asked) == 2


def test_what_was_missed_is_told_before_what_comes_next():
    listener = Recorder(wanted=("stopped",))
    events = dispatcher(listener)
    for _ in range(3):
        events.dispatch_in_batch("item_done", "api", "", "", dict)
    events.dispatch("stopped", reason="stopped")
    assert listener.not_made == {"item_done": 3}
    assert [event.kind for event in listener.heard] == ["stopped"]


def test_a_listener_that_raises_is_logged_and_otherwise_ignored(caplog):
    def broken(event):
        raise RuntimeError("a secret")

    deliver(broken, EventRecord(BatchEvent, "stopped", 0.0, 0.0))
    assert "broken" in caplog.text


def test_a_listener_that_cannot_say_what_it_wants_gets_nothing(caplog):
    class Unsure(Recorder):
        def wants(self, kind):
            raise RuntimeError

    listener = Unsure()
    assert not is_wanted(listener, "page")
    assert listener.not_made == {"page": 1}
    assert "Unsure" in caplog.text
