"""What a what-if says of itself: how far it can be trusted, and what its picture shows."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from headgate.cli.commands.simulate_whatif import AS_RECORDED, RECORDED_WITH, as_it_was, caveats, known_from_below
from headgate.lab.traces.analysis import KeySeen, Stretch, analyze_trace
from headgate.lab.traces.reader import read_trace
from headgate.lab.traces.trace import Call, Heading, Trace, TraceWriter

pytestmark = pytest.mark.no_cover


@pytest.fixture
def recording(tmp_path, monkeypatch):
    """200 calls under 20/s, refused twice."""
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "run.jsonl"
    writer = TraceWriter(path, Heading(calls=200, workers=4))
    for number in range(200):
        writer.call("api", number / 20, 0.05, 200, 0.1, None)
    for at in (3.0, 8.0):
        writer.call("api", at, 0.002, 429, 0.1, None)
    writer.end(10.0)
    return path


@pytest.mark.parametrize("strategy", ["adaptive", "aimd"])
def test_the_check_is_made_with_adaptive_whatever_is_asked(headgate, recording, strategy):
    result = headgate("simulate", "--trace", recording, "--strategy", strategy, "--seeds", "1")
    assert result.code == 0, result.err
    assert "Check: simulated as recorded, the run takes" in result.out
    assert "Expect at least this error; with another quota or more workers it can be larger." in result.out


@pytest.mark.parametrize(("again", "words"), [(10.02, "(less than 1% off)"), (10.4, "(4% off)"), (15.0, "with care")])
def test_the_check_says_how_far_off_it_is(recording, again, words):
    trace = read_trace(recording)
    seen = analyze_trace(trace)
    outlook = replace(as_it_was(seen), seconds=again * seen.seconds / 10)
    assert words in next(caveats(trace, seen, AS_RECORDED, {(AS_RECORDED, RECORDED_WITH): outlook}))


@pytest.fixture
def two_keys(tmp_path, monkeypatch):
    """Two keys of 30/s and 10/s, each refused twice; 400 calls."""
    monkeypatch.setenv("COLUMNS", "300")
    path = tmp_path / "keys.jsonl"
    writer = TraceWriter(path, Heading(calls=400, workers=8, keys=2))
    for label, rate in (("key-1", 30), ("key-2", 10)):
        for number in range(10 * rate):
            writer.call(label, number / rate, 0.05, 200, 0.1, None, label)
        for at in (3.0, 8.0):
            writer.call(label, at, 0.002, 429, 0.1, None, label)
    writer.end(10.0)
    return path


def test_two_more_keys_have_the_budget_of_an_average_one_and_it_says_so(headgate, two_keys):
    result = headgate("simulate", "--trace", two_keys, "--keys", "+2", "--seeds", "1", "--json")
    assert result.code == 0, result.err
    really, again, asked = [json.loads(line) for line in result.out.splitlines()]
    assert [line["keys"] for line in (really, again, asked)] == [2, 2, 4]
    assert asked["what"] == "simulated 2 more keys"
    assert asked["seconds"] < 0.8 * again["seconds"]
    assert "Each of the 2 added keys has the budget of an average one of the 2" in result.err
    assert "recorded keys: 20/s on average" in result.err


def test_keys_combine_with_a_rate_and_workers(headgate, two_keys):
    options = ["--keys", "3", "--rate", "80/s", "--workers", "50", "--seeds", "1"]
    result = headgate("simulate", "--trace", two_keys, *options)
    assert result.code == 0, result.err
    assert "simulated quota 80/s, 3 keys, 50 workers" in result.out
    assert "The added key has the budget of an average one of the 2 recorded keys: 40/s" in result.out
    assert "quota as seen: on average key-1 30/s, key-2 10/s" in result.out


def test_fewer_keys_are_average_ones(headgate, two_keys):
    result = headgate("simulate", "--trace", two_keys, "--keys", "1", "--seeds", "1")
    assert "The key has the budget of an average one of the 2 recorded keys: 20/s on average." in result.out


def test_a_recording_without_labels_counts_as_one_key(headgate, recording):
    result = headgate("simulate", "--trace", recording, "--keys", "+1", "--seeds", "1")
    assert result.code == 0, result.err
    assert "simulated 1 more key" in result.out
    assert "The added key has the budget of the recorded key: 20" in result.out


@pytest.mark.parametrize(
    ("options", "quota"),
    [
        ([], "quota as seen"),
        (["--rate", "x2"], "quota as seen, x2"),
        (["--rate", "30/s"], "quota as requested"),
        (["--keys", "+2"], "quota as seen, 2 more keys"),
    ],
)
def test_the_picture_says_which_quota_and_seed_it_shows(headgate, recording, tmp_path, options, quota):
    picture = tmp_path / "what-if.svg"
    result = headgate("simulate", "--trace", recording, "--seeds", "1", "--seed", "7", "--picture", picture, *options)
    assert result.code == 0, result.err
    drawn = list(ElementTree.parse(picture).getroot().itertext())
    assert {quota, "calls waiting"} <= set(drawn)
    assert "true quota" not in drawn
    assert ", seed 7" in "".join(drawn)


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ("MM", None),
        ("..", ""),
        (".M", " before 1.0 s"),
        ("M..", " after 1.0 s"),
        ("M..M", " from 1.0 s to 3.0 s"),
        (".M.", " at times"),
    ],
)
def test_it_is_told_when_the_quota_is_uncertain(measured, words):
    stretches = tuple(Stretch(float(at), at + 1.0, 10.0, mark == "M") for at, mark in enumerate(measured))
    seen = analyze_trace(Trace(Heading(calls=1, workers=1), [Call(0.0, 0.1, 200)], [], 2.0))
    assert known_from_below(replace(seen, keys=(KeySeen(stretches=stretches, burst=4.0),))) == words


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0", b'{"name": "package"}\n', b"hello", b""])
def test_what_is_no_recording_is_told_how_to_get_one(headgate, tmp_path, content):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    result = headgate("simulate", "--trace", path)
    assert result.code == 2
    assert "run.jsonl is not a recording; `headgate demo --trace FILE` makes one." in result.err


def test_a_broken_last_line_is_passed_over_with_a_note(headgate, recording):
    recording.write_text(recording.read_text().replace('{"ended_at": 10.0}', '{"sent_at": 10.0, "lat'))
    result = headgate("simulate", "--trace", recording, "--seeds", "1")
    assert result.code == 0, result.err
    assert "The recording is incomplete" in result.out
