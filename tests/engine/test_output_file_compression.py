"""Packed input and output."""

from __future__ import annotations

import gzip
import importlib.util
import io
import sys
from pathlib import Path

import pytest

from headgate.batch.input import InputError, Rows
from headgate.engine.output_file import Compression, OutputFile, packer
from headgate.errors import ConfigError

LINES = [b'{"custom_id": "%d", "body": {}}\n' % number for number in range(3_000)]


def _has_zstd() -> bool:
    if sys.version_info >= (3, 14):
        return True
    try:
        return importlib.util.find_spec("backports.zstd") is not None
    except ModuleNotFoundError:
        return False


needs_zstd = pytest.mark.skipif(not _has_zstd(), reason="backports.zstd is not installed")
KINDS = [Compression.NONE, Compression.GZIP, pytest.param(Compression.ZSTD, marks=needs_zstd)]
NAME = {Compression.NONE: "rows.jsonl", Compression.GZIP: "rows.jsonl.gz", Compression.ZSTD: "rows.jsonl.zst"}


@pytest.mark.parametrize("kind", KINDS)
def test_packed_rows_are_known_by_their_first_bytes(kind: Compression, tmp_path: Path) -> None:
    packed = packer(kind, "x")(b"".join(LINES))
    path = tmp_path / "rows"  # no name that would tell
    path.write_bytes(packed)
    with Rows(str(path)) as rows:
        assert [row.key for row in rows] == [str(number) for number in range(3_000)]
    piped = Rows("-", stdin=io.BufferedReader(io.BytesIO(packed)))
    assert sum(1 for _ in piped) == 3_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_in_pieces_and_cut_back_is_whole(kind: Compression, tmp_path: Path) -> None:
    path = str(tmp_path / NAME[kind])
    offsets = [0]
    with OutputFile(path) as output:
        for piece in range(3):
            for line in LINES[piece * 1000 : (piece + 1) * 1000]:
                output.append(line)
            offsets.append(output.sync())
    assert offsets[-1] == Path(path).stat().st_size
    for pieces in (2, 1, 0):
        OutputFile(path, offsets[pieces], ours=True).close()
        with Rows(path) as rows:
            assert [row.key for row in rows] == [str(number) for number in range(pieces * 1000)]


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_packed_file_that_is_cut_off_is_not_taken_for_a_whole_one(kind: Compression, tmp_path: Path) -> None:
    path = tmp_path / NAME[kind]
    path.write_bytes(packer(kind, "x")(LINES[0] * 10) + packer(kind, "x")(b"".join(LINES))[:-20])
    with pytest.raises(InputError, match=r"damaged or truncated after line .*safe"), Rows(str(path)) as rows:
        list(rows)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_damaged_file_is_told(kind: Compression, tmp_path: Path) -> None:
    packed = bytearray(packer(kind, "x")(b"".join(LINES)))
    packed[len(packed) // 2] ^= 0xFF
    packed[len(packed) // 2 + 1] ^= 0xFF
    path = tmp_path / NAME[kind]
    path.write_bytes(packed)
    with pytest.raises(InputError, match="damaged or truncated"), Rows(str(path)) as rows:
        list(rows)


@pytest.mark.no_cover
def test_a_small_file_that_unpacks_to_a_huge_line_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"x" * (64 << 20)))
    import tracemalloc

    tracemalloc.start()
    with Rows(str(path), longest=1 << 20) as rows:
        (row,) = rows
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "67,108,864 bytes" in row.problem
    assert peak < 16 << 20


def test_without_zstd_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("compression.zstd", "backports.zstd", "compression", "backports"):
        monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "rows.jsonl.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    for open_it in (Rows, OutputFile):
        with pytest.raises(ConfigError, match=r"rows.jsonl.zst: zstd needs Python 3.14 or later, or: pip install"):
            open_it(str(path))
