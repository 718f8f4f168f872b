"""The output grows, is cut back, and says what is wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headgate.engine import output_file
from headgate.engine.output_file import OutputFile
from headgate.errors import OutputError


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


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
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
        assert path.stat().st_size >= output_file.LARGEST_PIECE
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
    with pytest.raises(OutputError, match=r"the disk is full.*safe in the ledger"):
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
    ("number", "said"), [(errno.EROFS, "read-only"), (errno.EACCES, "permission denied"), (errno.EIO, "Input/output")]
)
def test_a_folder_that_cannot_be_written_to_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(number, os.strerror(number))))
    with pytest.raises(OutputError, match=f"cannot write .*out.jsonl .*{said}"):
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
        with pytest.raises(OutputError, match="was closed by the reader"):
            output.sync()


def test_standard_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with OutputFile("-") as output:
        output.append(b"one\n")
        output.sync()
    assert capfdbinary.readouterr().out == b"one\n"
