"""The output grows, is cut back, and says what is wrong."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.batch.formats import OutputError, OutputFile, answer_line, dead_line, error_line, row_id, writing


def test_what_is_synced_is_in_the_file_and_its_offset_is_the_length(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with OutputFile(str(path)) as output:
        output.append(b"one\n")
        assert path.read_bytes() == b""
        assert output.sync() == 4
        assert path.read_bytes() == b"one\n"
        output.append(b"two\n")
        assert output.sync() == output.sync() == 8


def test_it_is_cut_back_to_the_checkpoint_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"one\ntwo\nhalf a li")
    with OutputFile(str(path), 4, ours=True) as output:
        assert path.read_bytes() == b"one\n"
        output.append(b"two\n")
        assert output.sync() == 8
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"precious")
    with pytest.raises(OutputError, match="was not written by this run"):
        OutputFile(str(path))
    assert path.read_bytes() == b"precious"


def test_a_file_that_has_become_shorter_is_told(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"one\n")
    with pytest.raises(OutputError, match=r"has 4 bytes, but 1,000 were written"):
        OutputFile(str(path), 1000, ours=True)
    assert path.read_bytes() == b"one\n"


def test_many_lines_are_written_before_anybody_asks(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with OutputFile(str(path)) as output:
        for _ in range(5):
            output.append(b"x" * (1 << 20))
        assert path.stat().st_size >= writing.LARGEST_PIECE
        assert output.sync() == 5 << 20


def test_a_full_disk_is_told_and_leaves_what_was_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"
    output = OutputFile(str(path))
    output.append(b"one\n")
    output.sync()
    real = os.write

    def full(file: int, data: memoryview) -> int:
        if len(data) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[:3])

    monkeypatch.setattr(os, "write", full)
    output.append(b"two!\n")
    with pytest.raises(OutputError, match=r"the disk is full.*safe in the ledger; run the same command again"):
        output.sync()
    assert path.read_bytes() == b"one\n"
    output.append(b"three\n")
    with pytest.raises(OutputError, match="is closed"):
        output.sync()


def test_a_disk_that_fails_to_sync_is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = OutputFile(str(tmp_path / "out.jsonl"))
    output.append(b"one\n")
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(errno.EDQUOT, "quota")))
    with pytest.raises(OutputError, match="quota is used up"):
        output.sync()


@pytest.mark.parametrize(
    ("number", "said"), [(errno.EROFS, "read-only"), (errno.EACCES, "may not be written"), (errno.EIO, "Input/output")]
)
def test_a_folder_that_cannot_be_written_to_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(number, os.strerror(number))))
    with pytest.raises(OutputError, match=f"out.jsonl: cannot be written .*{said}"):
        OutputFile(str(tmp_path / "out.jsonl"))


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="its folder does not exist"):
        OutputFile(str(tmp_path / "none" / "out.jsonl"))
    with pytest.raises(OutputError, match="it is a folder"):
        OutputFile(str(tmp_path))


def test_a_pipe_is_written_without_being_cut_or_synced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with OutputFile(str(path), 100) as output:
        output.append(b"one\n")
        assert output.sync() == 104
        assert os.read(reader, 100) == b"one\n"
        os.close(reader)
        output.append(b"two\n")
        with pytest.raises(OutputError, match="whoever read it has gone"):
            output.sync()


def test_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with OutputFile("-") as output:
        output.append(b"one\n")
        output.sync()
    assert capfdbinary.readouterr().out == b"one\n"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(body=json_values, name=st.text(), ascii_only=st.booleans(), indent=st.sampled_from([None, 2, "\t"]))
def test_an_answers_line_is_one_line_and_means_what_the_server_said(
    body: object, name: str, ascii_only: bool, indent: int | str | None
) -> None:
    written = json.dumps(body, ensure_ascii=ascii_only, indent=indent)
    raw = written.replace("\n", "\r\n" if indent == 2 else "\n").encode("utf-8", "replace")
    line = answer_line("batch_req_1", name, 200, "req_1", raw)
    assert line.count(b"\n") == 1
    assert b"\r" not in line
    assert json.loads(line) == {
        "id": "batch_req_1",
        "custom_id": name,
        "response": {"status_code": 200, "request_id": "req_1", "body": json.loads(raw)},
        "error": None,
    }


def test_the_servers_numbers_are_not_rewritten() -> None:
    assert b'{"x": 1.10, "y": 1E400}' in answer_line("i", "n", 200, "", b'{"x": 1.10, "y": 1E400}')


def test_a_row_without_an_answer_has_an_error() -> None:
    line = error_line("batch_req_1", "a", "deadline", 'not done\n in "time"')
    assert json.loads(line) == {
        "id": "batch_req_1",
        "custom_id": "a",
        "response": None,
        "error": {"code": "deadline", "message": 'not done\n in "time"'},
    }
    assert json.loads(dead_line("i", "a", "invalid: line 3: no JSON"))["error"] == {
        "code": "invalid",
        "message": "line 3: no JSON",
    }


def test_an_id_is_the_same_for_the_same_row_and_another_for_any_other() -> None:
    ids = {row_id(0, b"a" * 16), row_id(1, b"a" * 16), row_id(0, b"b" * 16), row_id(0, b"a" * 16)}
    assert len(ids) == 3
    assert all(one.startswith("batch_req_") for one in ids)
