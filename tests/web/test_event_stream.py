"""The stream: what a page that is open hears, at its own speed and at no cost to anybody else."""

import json
import time
from dataclasses import replace

import pytest

from headgate import AdaptiveRateLimiter
from headgate.observe.monitor import RunMonitor
from headgate.web import app, event_stream, view_cache
from headgate.web.event_stream import Place

JSON = "Content-Type: application/json"


class Listener:
    """Reads server-sent events off a socket."""

    def __init__(self, connection):
        self.connection = connection
        self.file = connection.makefile("rb")
        self.head = b""
        while (line := self.file.readline()) not in (b"\r\n", b""):
            self.head += line

    def chunks(self):
        while size := int(self.file.readline() or b"0", 16):
            yield self.file.read(size)
            self.file.readline()

    def messages(self):
        """(kind, data, id) of each."""
        kept = b""
        for chunk in self.chunks():
            kept += chunk
            *whole, kept = kept.split(b"\n\n")
            for one in whole:
                fields = dict(line.split(": ", 1) for line in one.decode().splitlines())
                if "event" in fields:
                    yield fields["event"], json.loads(fields["data"]), fields.get("id")

    def first(self, *kinds):
        """The first message of each kind."""
        found = {}
        for kind, data, place in self.messages():
            found.setdefault(kind, (data, place))
            if set(kinds) <= set(found):
                return found
        raise AssertionError(f"it ended with {sorted(found)}")

    def close(self):
        self.file.close()
        self.connection.close()


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """What is new is sent ten times as often as it is in the product."""
    for module in (app, event_stream, view_cache):
        monkeypatch.setattr(module, "SHORTEST_INTERVAL", 0.05)


@pytest.fixture
def listen():
    opened = []

    def open_one(page, query="", *fields):
        listener = Listener(page.listen(query, *fields))
        opened.append(listener)
        return listener

    yield open_one
    for one in opened:
        one.close()


def test_at_first_everything_that_there_is(page, listen):
    found = listen(page, "?keys=key-0&keys=key-1").first("snapshot", "events", "timelines")
    assert found["snapshot"][0]["runs"][0]["run"] == "run-1"
    assert [one["number"] for one in found["events"][0]["events"]] == [1, 2, 3, 4, 5]
    lines = found["timelines"][0]["timelines"]
    assert [(one["key"], one["at"]) for one in lines] == [
        ("key-0", [1001.0, 1002.0, 1003.0]),
        ("key-1", [1001.0, 1002.0, 1003.0]),
    ]


def test_then_only_what_is_new(page, listen):
    messages = listen(page).messages()
    assert [next(messages)[0], next(messages)[0]] == ["snapshot", "events"]
    page.run.newest = 7
    news = next(data for kind, data, _ in messages if kind == "events")
    assert [one["number"] for one in news["events"]] == [6, 7]


def test_a_browser_that_comes_back_goes_on_where_it_was(page, listen):
    found = listen(page, "?keys=key-0").first("snapshot", "events", "timelines")
    place = found["timelines"][1]
    page.run.newest = 6
    back = listen(page, "?run=run-1&keys=key-0", f"Last-Event-ID: {place}").first("snapshot", "events")
    assert [one["number"] for one in back["events"][0]["events"]] == [6]
    assert "timelines" not in back


@pytest.mark.parametrize(
    "said", ["", "5", "x~y~run-1", "-1~0.0~run-1", "9" * 20 + "~1.0~run-1", "3~1.0~other", "3~nan~run-1", "~~", "\xff"]
)
def test_a_place_that_is_not_ours_is_as_good_as_none(said):
    place = Place(run="run-1")
    place.resume(said)
    assert (place.event, place.since) == (0, 0.0)


@pytest.mark.parametrize("run", ["run-1", "a~b", "with space\n", "\u00fcml\u00e4ut", "%41"])
def test_a_place_is_read_back_as_it_was_written(run):
    written = str(Place(run=run, event=12, since=1_700_000_000.125))
    assert written.isprintable()
    again = Place(run=run)
    again.resume(written)
    assert (again.event, again.since) == (12, 1_700_000_000.125)


def test_the_place_may_also_stand_in_the_address(page, listen):
    found = listen(page, "?after=4").first("events")
    assert [one["number"] for one in found["events"][0]["events"]] == [5]


def test_the_chosen_run_is_whole_and_the_others_are_heads(open_page, fake_run, listen):
    page = open_page(fake_run("a"), fake_run("b"))
    a, b = listen(page, "?run=b").first("snapshot")["snapshot"][0]["runs"]
    assert "keys" not in a
    assert len(b["keys"]) == 3


def test_a_run_that_is_gone_leaves_the_others(open_page, fake_run, listen):
    page = open_page(fake_run("a"), fake_run("b"))
    messages = listen(page, "?run=a").messages()
    assert len(next(messages)[1]["runs"]) == 2
    del page.sources.all[0]
    left = next(data for kind, data, _ in messages if kind == "snapshot" and len(data["runs"]) == 1)
    assert left["runs"][0]["run"] == "b"


def test_a_run_that_comes_later_is_taken_up(page, fake_run, listen):
    page.sources.all = []
    messages = listen(page).messages()
    assert next(messages)[1]["runs"] == []
    page.sources.all = [fake_run("late")]
    assert next(data for kind, data, _ in messages if data.get("runs"))["runs"][0]["keys"]


def test_what_has_not_changed_is_not_sent_again_and_silence_is_a_heartbeat(page, listen, monkeypatch):
    monkeypatch.setattr(event_stream, "HEARTBEAT", 0.3)
    still = page.run.snapshot()
    page.run.snapshot = lambda: still
    kinds = []
    for kind, _, _ in listen(page).messages():
        kinds.append(kind)
        if len(kinds) == 4:
            break
    assert kinds == ["snapshot", "events", "heartbeat", "heartbeat"]


def test_a_run_that_hangs_for_a_while_is_heard_of_again(page, listen, monkeypatch):
    monkeypatch.setattr(view_cache, "TIMEOUT", 0.2)
    messages = listen(page).messages()
    next(messages)
    page.run.hangs.clear()
    time.sleep(0.6)
    before = page.run.looks
    page.run.hangs.set()
    assert next(data["runs"][0]["progress"]["done"] for kind, data, _ in messages if kind == "snapshot") >= before


def test_streams_beyond_the_bound_are_refused_and_places_come_free(page, listen, monkeypatch):
    monkeypatch.setattr(app, "MOST_STREAMS", 3)
    three = [listen(page) for _ in range(3)]
    assert all(b"200 OK" in one.head for one in three)
    fourth = page.ask("GET /api/stream", page.bearer)
    assert (fourth.status, b"Too many open streams (limit 3)" in fourth.body) == (503, True)
    three[0].close()
    deadline = time.monotonic() + 30
    while b"200 OK" not in (again := listen(page)).head and time.monotonic() < deadline:
        again.close()
        time.sleep(0.05)
    assert b"200 OK" in again.head


def test_at_the_end_listeners_are_told_and_let_go(page, listen):
    messages = listen(page).messages()
    next(messages)
    last = replace(page.run.snapshot(), title="the last")
    page.run.snapshot = lambda: last
    page.close()
    *_, (before, snapshot, _), (kind, closing, _) = messages
    assert (before, snapshot["runs"][0]["title"]) == ("snapshot", "the last")
    assert (kind, closing) == ("closing", {"by": "viewer"})


def test_a_run_that_ends_closes_its_own_page_with_its_last_word(open_page, listen):
    watched = RunMonitor(limiter=AdaptiveRateLimiter())
    page = open_page(watched)
    messages = listen(page).messages()
    assert next(messages)[1]["runs"][0]["ending"] == ""
    watched.close()
    page.close()
    *_, (_, snapshot, _), (kind, closing, _) = messages
    assert (snapshot["runs"][0]["state"], snapshot["runs"][0]["ending"]) == ("ended", "done")
    assert (kind, closing) == ("closing", {"by": "run"})


def test_a_run_that_is_gone_says_how_it_ended(open_page, fake_run, listen):
    page = open_page(fake_run("a"), fake_run("b"))
    messages = listen(page, "?run=a").messages()
    next(messages)
    gone = page.sources.all.pop(0)
    last = replace(gone.snapshot(), state="ended", ending="done")
    gone.snapshot = lambda: last
    left = next(data["runs"] for kind, data, _ in messages if kind == "snapshot" and data["runs"][-1]["ending"])
    assert [(one["run"], one["ending"]) for one in left] == [("b", ""), ("a", "done")]
    assert page.ask("POST /api/act", page.bearer, JSON, body=b'{"kind": "pause"}').status == 200
