"""What a what-if says of itself: how far it can be trusted, and what its picture shows."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from headgate.cli.simulate_whatif import known_from_below
from headgate.sim.hindsight import KeySeen, Stretch, look_back
from headgate.sim.trace import Call, Heading, Trace, TraceWriter


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
    assert "That is the least error to expect: with another quota or more workers it can be larger." in result.out


@pytest.mark.parametrize(
    ("options", "quota"),
    [([], "quota as seen"), (["--rate", "x2"], "quota as seen, x2"), (["--rate", "30/s"], "quota as asked")],
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
    seen = look_back(Trace(Heading(calls=1, workers=1), [Call(0.0, 0.1, 200)], [], 2.0))
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
    assert "The recording breaks off before its end" in result.out
