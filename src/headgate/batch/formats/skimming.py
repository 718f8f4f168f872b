"""Rows in stretches, for whoever passes over most of them: read and hashed together, and made only where asked for.

A run that goes on with a million rows of which nearly all are done has to see that each is what it was. That takes its
digest, and nothing else of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import islice

from .lines import DIGEST_BYTES
from .problems import InputError
from .reading import InputRow, Rows
from .records import too_long
from .shapes import CsvRecords

MOST_BYTES = 8 << 20
"""Bytes of rows after which a stretch ends, however few they are."""
_CARRIAGE_RETURN = 13


class Stretch(Sequence[InputRow]):
    """Some rows that follow each other."""

    __slots__ = ("_first", "_lines", "_problems", "_raws", "_rows", "digests")

    def __init__(self, rows: Rows, first: int) -> None:
        self._rows = rows
        self._first = first
        self._raws: list[bytes] = []
        self._lines: list[int] = []
        self._problems: dict[int, str] = {}
        self.digests: list[bytes] = []

    def __len__(self) -> int:
        return len(self._raws)

    def __getitem__(self, place: int) -> InputRow:  # type: ignore[override]
        return InputRow(
            self._rows,
            self._first + place,
            self._lines[place],
            self._raws[place],
            self.digests[place],
            self._problems.get(place, ""),
        )

    def add(self, line: int, raw: bytes, digest: bytes) -> None:
        self._lines.append(line)
        self._raws.append(raw)
        self.digests.append(digest)

    def add_broken(self, line: int, digest: bytes, problem: str) -> None:
        self._problems[len(self)] = problem
        self.add(line, b"", digest)


class Skimming:
    """One reading of an input from its first row to its last."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._read = self._ahead = 0
        self._failure: InputError | None = None
        self._records = rows.read() if isinstance(rows.shape, CsvRecords) else None
        self._source = None if self._records is not None else rows.fresh_source()

    def take(self, most: int) -> Sequence[InputRow]:
        """The next rows, at most so many; none at the end. Raises ``InputError``, after the rows before it."""
        if self._failure is not None:
            raise self._failure
        if self._records is not None:
            return list(islice(self._records, most))
        stretch = Stretch(self._rows, self._read)
        try:
            self._fill(stretch, most)
        except InputError as error:
            self._failure = error
            if not stretch:
                raise
        self._read += len(stretch)
        return stretch

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def _fill(self, stretch: Stretch, most: int) -> None:
        source, blake2b, add = self._source, hashlib.blake2b, stretch.add
        assert source is not None
        index, ahead, end, held = self._read, self._ahead, self._read + most, 0
        for line in source.lines:
            if line and not (isinstance(line, bytes) and line.isspace()):
                number = source.line
                if number - index != ahead:
                    ahead = self._ahead = self._rows.mark(index, number)
                if isinstance(line, bytes):
                    raw = line[:-1] if line[-1] == _CARRIAGE_RETURN else line
                    add(number, raw, blake2b(raw, digest_size=DIGEST_BYTES).digest())
                    held += len(raw)
                else:
                    stretch.add_broken(number, line.digest, too_long(line.length, source))
                index += 1
                if index >= end or held >= MOST_BYTES:
                    return
