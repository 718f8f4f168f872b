"""Events in the log: for people or as JSON, at a level that fits, without a secret."""

import json
import logging
from datetime import UTC, datetime

from headgate.events import BatchEvent, CrawlEvent, Event, ResilienceEvent
from headgate.lab.virtual_time import VirtualClock
from headgate.observe.exporters.logs import LogListener

SECRET = "sk-abcdefghijklmnopqrstuvwx"


def event(kind, reason="", key="api.example.com", state="closed"):
    return Event(at=0.0, kind=kind, key=key, reason=reason, rate=1.0, state=state)


def listener(**more):
    return LogListener(clock=VirtualClock(), **more)


def test_a_line_for_people(caplog):
    caplog.set_level(logging.DEBUG)
    hear = listener()
    hear(event("circuit_changed", "closed to open", state="open"))
    hear(event("rate_changed", "1 to 2 calls/s"))
    hear(BatchEvent(at=0.0, kind="stopped", reason="stopped"))
    hear(BatchEvent(at=0.0, kind="ramp_started"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "api.example.com circuit_changed: closed to open"),
        ("DEBUG", "api.example.com rate_changed: 1 to 2 calls/s"),
        ("INFO", "stopped: stopped"),
        ("INFO", "ramp_started"),
    ]
    assert {record.name for record in caplog.records} == {"headgate.events"}


def test_an_object_for_machines_has_the_numbers_too(caplog):
    caplog.set_level(logging.DEBUG)
    hear = listener(as_json=True)
    hear(BatchEvent(at=0.0, kind="item_done", key="api/key-1", index=4, attempts=2, tokens=17, waited={"pace": 1.5}))
    at = datetime.fromtimestamp(0, UTC)
    hear(ResilienceEvent(event_type="retry_attempt", provider="openai", timestamp=at, attempt=2, max_attempts=3))
    first, second = (json.loads(record.getMessage()) for record in caplog.records)
    assert first == {
        "at": 1_800_000_000.0,
        "level": "debug",
        "kind": "item_done",
        "key": "api/key-1",
        "reason": "row 5",
        "index": 4,
        "attempts": 2,
        "tokens": 17,
        "waited": {"pace": 1.5},
    }
    assert (second["kind"], second["attempt"], second["max_attempts"]) == ("retry_attempt", 2, 3)


def test_what_happens_all_the_time_is_not_even_worded_where_nobody_reads_it(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("headgate.observe.exporters.logs.describe", None)
    listener()(event("rate_changed"))
    assert not caplog.records


def test_no_secret_gets_in(caplog):
    caplog.set_level(logging.DEBUG)
    told = CrawlEvent(
        at=0.0, kind="failed", host="a.test", url=f"https://a.test/?key={SECRET}", reason=f"said {SECRET}"
    )
    for as_json in (False, True):
        listener(as_json=as_json)(told)
    assert len(caplog.records) == 2
    assert SECRET not in caplog.text
