"""A recording says what happened, survives being broken off, and names the line that is wrong."""

import errno
import json

import pytest

from headgate.lab.traces import reader
from headgate.lab.traces import trace as traces
from headgate.lab.traces.reader import TraceError, read_trace
from headgate.lab.traces.trace import Call, Heading, Learned, TraceWriter
from headgate.lab.traffic import MOST_QUEUED

HEAD = '{"headgate_trace": 1, "calls": 3, "workers": 2, "keys": 1}'
NO_RECORDING = "run.jsonl is not a recording; `headgate demo --trace FILE` makes one"


def written(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def recorded(path, *, end=True):
    writer = TraceWriter(path, Heading(calls=3, workers=2, recorded_at="2026-11-15T08:45:22Z"))
    writer.call("https://api.example.com/?key=abc", 0.5, 0.04, 200, 0.0, None)
    writer.learned("https://api.example.com/?key=abc", 0.6, 12.5)
    writer.call("other", 0.7, 0.002, 429, 0.1, 2.0)
    if end:
        writer.end(1.25)
    return writer


def test_what_is_written_can_be_read(tmp_path):
    recorded(tmp_path / "run.jsonl")
    trace = read_trace(tmp_path / "run.jsonl")
    assert trace.heading == Heading(calls=3, workers=2, recorded_at="2026-11-15T08:45:22Z")
    assert trace.calls == [Call(0.5, 0.04, 200), Call(0.7, 0.002, 429, 0.1, key=2, retry_after=2.0)]
    assert trace.learned == [Learned(0.6, 12.5)]
    assert (trace.ended_at, trace.is_whole) == (1.25, True)


def test_keys_become_numbers_and_nothing_of_them_is_written(tmp_path):
    recorded(tmp_path / "run.jsonl")
    text = (tmp_path / "run.jsonl").read_text()
    assert "example" not in text
    assert "abc" not in text
    assert "other" not in text


def test_a_call_tells_the_label_of_its_credential(tmp_path):
    path = tmp_path / "run.jsonl"
    writer = TraceWriter(path, Heading(calls=2, workers=1, keys=2))
    writer.call("mock-api/alice", 0.1, 0.04, 200, 0.0, None, "alice")
    writer.call("mock-api/bob", 0.2, 0.04, 200, 0.0, None, "bob")
    writer.end(1.0)
    trace = read_trace(path)
    assert trace.labels == {1: "alice", 2: "bob"}
    assert "mock-api" not in path.read_text()


@pytest.mark.parametrize("label", ['"' + "x" * 500 + '"', "7", "null", '"\\u001b[2J"'])
def test_a_label_from_elsewhere_is_short_and_printable_or_none(tmp_path, label):
    line = f'{{"sent_at": 0, "latency": 0.1, "status": 200, "credential": {label}}}'
    assert read_trace(written(tmp_path / "run.jsonl", HEAD, line)).labels in ({}, {1: "x" * 64})


def test_each_line_is_in_the_file_before_the_next_is_made(tmp_path):
    writer = recorded(tmp_path / "run.jsonl", end=False)
    trace = read_trace(tmp_path / "run.jsonl")
    writer.end(9.0)
    assert len(trace.calls) == 2
    assert not trace.is_whole
    assert trace.ended_at == pytest.approx(0.702)


def test_a_last_line_torn_in_the_middle_is_passed_over(tmp_path):
    path = tmp_path / "run.jsonl"
    recorded(path)
    whole = path.read_bytes()
    for length in range(whole.index(b"\n") + 1, len(whole) + 1):
        path.write_bytes(whole[:length])
        trace = read_trace(path)
        assert len(trace.calls) <= 2
        assert trace.is_whole == (length >= len(whole) - 1)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"sent_at": -1, "latency": 0, "status": 200}', "line 2: sent_at is '-1'; expected a number from 0 to"),
        ('{"sent_at": 0, "latency": "x", "status": 200}', "line 2: latency is 'x'"),
        ('{"sent_at": 0, "latency": 0}', "line 2: status is missing"),
        ('{"sent_at": 0, "latency": 0, "status": 200.5}', "line 2: status is 200.5; expected a whole number"),
        ('{"sent_at": 0, "latency": true, "status": 200}', "line 2: latency is 'True'"),
        ('{"sent_at": 0, "latency": 1e999, "status": 200}', "line 2: latency is 'inf'"),
        ('{"sent_at": NaN, "latency": 0, "status": 200}', "line 2: not JSON"),
        ('{"sent_at": 0, "latency": 0, "status": 200, "retry_after": []}', "line 2: retry_after is '[]'"),
        ('{"at": 1, "learned": -5}', "line 2: learned is '-5'"),
        ('{"hello": 1}', "line 2: not a call, a learned rate or the end"),
        ('{"ended_at": 1}\n{"ended_at": 2}', "line 3: the line with ended_at must be the last"),
        ("[1, 2]", "line 2: not a JSON object"),
        ("sent", "line 2: not JSON"),
        ("[" * 900 + "1", "line 2: not JSON"),
        ('{"sent_at": ' + " " * 1000 + "1}", "line 2: longer than 1,000 bytes"),
        ("\udce9".encode("utf-8", "surrogatepass").decode("latin-1"), "line 2: not JSON"),
    ],
)
def test_a_wrong_line_is_named_with_its_field_and_range(tmp_path, line, told):
    with pytest.raises(TraceError) as error:
        read_trace(written(tmp_path / "run.jsonl", HEAD, line, '{"ended_at": 3}'))
    assert told in str(error.value)
    assert "run.jsonl" in str(error.value)


@pytest.mark.parametrize(
    "line", ['{"sent_at": 0.7, "lat', '{"sent_at": 0.7}', '{"hello": 1}', "[]", "\0" * 5000, '{"ended_at": -1}']
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_broken_last_line_is_where_the_recording_breaks_off(tmp_path, line, end):
    path = tmp_path / "run.jsonl"
    recorded(path)
    path.write_text(path.read_text().replace('{"ended_at": 1.25}\n', line + end))
    trace = read_trace(path)
    assert len(trace.calls) == 2
    assert not trace.is_whole


def test_no_more_calls_are_read_than_a_simulation_has_room_for(tmp_path, monkeypatch):
    assert reader.MOST_SERVED <= MOST_QUEUED
    monkeypatch.setattr(reader, "MOST_SERVED", 2)
    served, refused = (f'{{"sent_at": 1, "latency": 1, "status": {status}}}' for status in (200, 429))
    assert len(read_trace(written(tmp_path / "run.jsonl", HEAD, served, served, refused)).calls) == 3
    with pytest.raises(TraceError, match=r"more than 2 served calls; simulate a shorter recording"):
        read_trace(written(tmp_path / "run.jsonl", HEAD, served, served, served))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], NO_RECORDING),
        (["hello"], NO_RECORDING),
        (["[1]"], NO_RECORDING),
        (["x" * 5000], NO_RECORDING),
        (["\x89PNG\x00\x1a"], NO_RECORDING),
        (['{"sent_at": 1}'], NO_RECORDING),
        (['{"headgate_trace": 2, "calls": 1, "workers": 1}'], "line 1: a recording of version 2"),
        (['{"headgate_trace": 1, "workers": 1}'], "line 1: calls is missing"),
        (['{"headgate_trace": 1, "calls": 1, "workers": 0}'], "line 1: workers is '0'"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path, lines, told):
    with pytest.raises(TraceError, match=told):
        read_trace(written(tmp_path / "run.jsonl", *lines))


def test_an_empty_file_is_no_recording(tmp_path):
    (tmp_path / "run.jsonl").touch()
    with pytest.raises(TraceError, match="not a recording"):
        read_trace(tmp_path / "run.jsonl")


def test_fields_of_later_versions_are_passed_over(tmp_path):
    line = '{"sent_at": 0, "latency": 0.1, "status": 200, "colour": "green"}'
    assert read_trace(written(tmp_path / "run.jsonl", HEAD, line)).calls == [Call(0.0, 0.1, 200)]


def test_no_more_lines_are_read_or_written_than_the_bound(tmp_path, monkeypatch):
    for module in (traces, reader):
        monkeypatch.setattr(module, "MOST_LINES", 3)
    recorded(tmp_path / "run.jsonl")
    trace = read_trace(tmp_path / "run.jsonl")
    assert (len(trace.calls), trace.is_whole) == (1, True)
    with pytest.raises(TraceError, match="more than 3 lines"):
        read_trace(written(tmp_path / "long.jsonl", HEAD, *['{"at": 1, "learned": 1}'] * 3))


def test_a_full_disk_is_kept_for_the_end_and_does_not_raise(tmp_path):
    class FullFile:
        closed = False

        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    writer = recorded(tmp_path / "run.jsonl", end=False)
    writer._file.close()
    writer._file = FullFile()
    writer.learned("other", 0.9, 1.0)
    writer.learned("other", 1.0, 1.0)
    writer.end(2.0)
    assert writer.trouble.errno == errno.ENOSPC


def test_nothing_is_written_after_the_end(tmp_path):
    writer = recorded(tmp_path / "run.jsonl")
    writer.learned("other", 2.0, 1.0)
    assert json.loads((tmp_path / "run.jsonl").read_text().splitlines()[-1]) == {"ended_at": 1.25}
