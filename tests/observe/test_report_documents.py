"""A run's report: one file with the pictures and the numbers, whatever names and words there are in it."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.lab.virtual_time import VirtualClock
from headgate.observe.event_buffer import MOST_KEPT
from headgate.observe.monitor import RunMonitor
from headgate.observe.report import (
    MOST_EVENTS,
    MOST_NOTES,
    Note,
    Notes,
    RunReport,
    facts,
    queue_waits,
    report_of,
    sheets,
    times_in_states,
    write_report,
)
from headgate.observe.report_documents import as_html, as_markdown, key_chart, sparkline
from headgate.observe.snapshot import CredentialLine, DeadLine, EventLine, KeyLine, ProgressLine, RunSnapshot, Timeline

EVIL = "<script>alert(1)</script>|`x`\x1b[31m"
LINE = Timeline(
    key="api.example.com",
    at=(100.0, 101.0, 102.0, 103.0, 104.0),
    rate=(2.0, 8.0, 20.0, 10.0, 10.0),
    said=(None, None, 12.0, 12.0, 12.0),
    done=(0.0, 5.0, 10.0, 4.0, 9.0),
    refused=(0.0, 0.0, 2.0, 0.0, 0.0),
    latency=(0.1, 0.2, 0.3, 0.2, 0.1),
    waiting=(1, 2, 5, 4, 0),
    state=("open", "open", "held", "circuit", "ramp"),
)


def a_report(**more):
    snapshot = RunSnapshot(
        run="run-1-abcdef",
        title=more.pop("title", "rows.jsonl to out.jsonl"),
        kind="run",
        pid=1,
        host="here",
        started_at=100.0,
        at=104.0,
        state="ended",
        progress=ProgressLine(total=40, done=30, dead=2, open=8, tokens=5000, cost=1.25),
        keys=(KeyLine(key="api.example.com", rate=10.0, said=12.0, known=2.5, sent=43, done=30, refused=4, failed=6),),
        credentials=(CredentialLine(label="work", mark="12ab34", state="resting", rests=60.0, reason="rate limited"),),
        dead=(DeadLine(reason="invalid", count=2, example="row 7"),),
        waited={"pace": 12.0, "cooldown": 36.0},
    )
    return RunReport(
        snapshot=snapshot,
        notes=[Note(100.0, 0, 0), Note(104.0, 30, 2)],
        timelines=more.pop("timelines", [LINE]),
        events=[EventLine(number=1, at=102.0, kind="circuit_changed", key="api.example.com", reason="closed to open")],
        ending="30 done, 2 dead.",
        **more,
    )


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("form", [as_html, as_markdown])
def test_the_numbers_are_there(form):
    text = form(a_report())
    for words in (
        "30 of 40 rows",
        "8.0 rows/s",
        "4 (10.00%)",
        "5,000",
        "1.25",
        "36.0 s",
        "75%",
        "invalid",
        "row 7",
        "work",
        "12ab34",
        "resting for 60.0 s",
        "30 done, 2 dead.",
        "closed to open",
        "12.0/s",
        "2.5/s",
    ):
        assert words in text.replace("\\", ""), words


def test_html_is_whole_and_needs_nothing_from_anywhere():
    text = as_html(a_report(title=EVIL, timelines=[Timeline(**{**as_dict(LINE), "key": EVIL})]))
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags.seen}
    assert not [one for _, given in tags.seen for one in given if one.startswith("on") or one in ("src", "href")]
    assert "default-src 'none'" in text
    assert re.findall("@media.*prefers-color-scheme: dark", text) == ["@media screen and (prefers-color-scheme: dark"]
    assert "url(" not in text
    assert "http:" not in text


def test_calls_are_counted_in_one_way_throughout():
    """What was let through and never sent is no call: three of 43 here."""
    report = a_report()
    assert dict(facts(report))["calls"] == "40"
    (keys,) = [sheet for sheet in sheets(report) if sheet.title == "Keys"]
    assert keys.rows[0][keys.columns.index("calls")] == "40"


def test_pacing_pushes_nothing_out_of_what_happened_last():
    clock = VirtualClock()
    watched = RunMonitor(limiter=AdaptiveRateLimiter(clock=clock)).start(alone=False)
    watched.buffer.add("credential_retired", "api", "auth")
    for code in ["pace"] * MOST_KEPT + ["floor"] * 100:
        watched.buffer.add("held", "api", "a sentence", code)
    for number in range(MOST_EVENTS):
        watched.buffer.add("item_dead", "api", f"row {number}")
    watched.buffer.add("held", "api", "told to wait", "floor")
    watched.close()
    events = report_of(watched, Notes(watched)).events
    assert len(events) == MOST_EVENTS
    assert [line.kind for line in events] == ["credential_retired", *["item_dead"] * (MOST_EVENTS - 2), "held"]


def test_a_limit_that_was_known_is_told_of_its_key():
    for limits, known in (({"requests": "120/min"}, 2.0), ({"tokens": "100/s"}, None)):
        limiter = AdaptiveRateLimiter(RateLimitConfig(limits=limits), clock=VirtualClock())
        limiter.acquire("api").report(status_code=200)
        assert [line.known for line in RunMonitor(limiter=limiter).snapshot().keys] == [known]


def as_dict(line):
    return {name: getattr(line, name) for name in Timeline.__dataclass_fields__}


def test_markdown_shows_hostile_words_as_they_are():
    text = as_markdown(a_report(title=EVIL, timelines=[Timeline(**{**as_dict(LINE), "key": EVIL})]))
    assert "\x1b" not in text
    outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert "\\<script\\>" in outside
    assert not re.search(r"(?<!\\)<", outside)
    assert outside.count("```") == 0


def test_a_picture_shows_the_rate_the_servers_word_429s_and_states():
    svg = ElementTree.fromstring(key_chart(LINE, 100.0, 104.0))
    classes = {one.get("class") for one in svg.iter() if one.get("class")}
    assert classes >= {"learned", "said", "done", "refused", "held", "circuit", "ramp"}
    for points in (one.get("points") for one in svg.iter("polyline")):
        for place in points.split():
            x, y = map(float, place.split(","))
            assert 0 <= x <= 760
            assert 0 <= y <= 190


def test_a_run_of_no_time_and_no_key_can_be_told_too():
    empty = RunSnapshot(run="r", title="t", kind="run", pid=1, host="h", started_at=5.0, at=5.0)
    lonely = Timeline(**{name: value[:1] if name != "key" else value for name, value in as_dict(LINE).items()})
    for timelines in ([], [lonely], [Timeline(key="none")]):
        report = RunReport(snapshot=empty, timelines=timelines)
        assert "0 rows" in as_html(report)
        assert "0 rows" in as_markdown(report)
    assert sparkline([]) == ""
    assert key_chart(Timeline(key="none"), 0.0, 0.0).startswith("<svg")


def test_waits_are_added_up():
    assert queue_waits([LINE]) == {
        "the rate limit": 2.0,
        "a hold after a 429": 5.0,
        "an open circuit": 4.0,
        "the ramp after a pause": 0.0,
    }
    assert times_in_states(LINE) == {"open": 1.0, "ramp": 1.0, "held": 1.0, "circuit": 1.0}


@pytest.mark.no_cover
def test_a_run_is_noted_as_it_goes_and_told_at_its_end(tmp_path):
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=50.0), clock=clock)
    done = 0
    watched = RunMonitor(
        limiter=limiter, progress=lambda: ProgressLine(total=2000, done=done), kind="demo", title="a demo"
    )
    watched.start(alone=False)
    notes = Notes(watched)
    for _ in range(2000):
        limiter.acquire("api.example.com").report(status_code=200)
        done += 1
        clock.advance(1.0)
        watched.record()
        notes.take()
    watched.close()
    assert MOST_NOTES / 4 < len(notes.kept) < MOST_NOTES
    report = report_of(watched, notes)
    assert report.notes[-1].done == 2000
    assert report.pace == pytest.approx(1.0, rel=0.05)
    for name in ("run.html", "run.md"):
        write_report(report, str(tmp_path / name))
        assert "2,000 of 2,000 calls" in (tmp_path / name).read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.html", "run.md"]
    with pytest.raises(ValueError, match="does not end in"):
        write_report(report, str(tmp_path / "run.pdf"))
