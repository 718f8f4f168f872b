"""The lines of an input with their numbers, from a file or a pipe, compressed or not; and the records in them."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import NamedTuple, cast

from ...engine.output_file import CHUNK, Compression, Readable, is_damage, unpacked
from ...errors import InputError

DIGEST_BYTES = 16


class LongLine:
    """What is left of a line that was too long."""

    __slots__ = ("_hash", "length")

    def __init__(self) -> None:
        self.length = 0
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, piece: bytes | bytearray) -> None:
        self.length += len(piece)
        self._hash.update(piece)

    @property
    def digest(self) -> bytes:
        return self._hash.digest()


def lines_of(
    stream: Readable, longest: int, before_reading: Callable[[], object] = lambda: None
) -> Iterator[bytes | LongLine]:
    """The stream's lines without their ``\\n``, never holding more of it than the longest line may be.

    The last line may do without its ``\\n``. A line that is too long is not kept, only counted and hashed to its end,
    so that it still has its place, its number and its digest.

    ``before_reading`` is called before each read, which may take long: the time to hand on what there is.
    """
    begun = bytearray()  # the line that goes on in the next chunk
    overlong: LongLine | None = None  # what takes its place once it is too long
    while True:
        before_reading()
        chunk = stream.read1(CHUNK)
        if not chunk:
            break
        first, *lines = chunk.split(b"\n")
        if overlong is None and len(begun) + len(first) > longest:
            overlong = LongLine()
            overlong.add(begun)
            begun = bytearray()
        if overlong is not None:
            overlong.add(first)
        else:
            begun += first
        if lines:
            yield bytes(begun) if overlong is None else overlong
            begun, overlong = bytearray(lines.pop()), None
            yield from lines if longest >= CHUNK else (_checked(line, longest) for line in lines)
    if overlong is not None:
        yield overlong
    elif begun:
        yield _checked(bytes(begun), longest)


def _checked(line: bytes, longest: int) -> bytes | LongLine:
    if len(line) <= longest:
        return line
    overlong = LongLine()
    overlong.add(line)
    return overlong


STDIN = "-"
MOST_AHEAD = 20
"""Lines that are looked at before anything is done with them; a slow pipe is waited for until then."""
MOST_BYTES_AHEAD = 1 << 20
_BOM = b"\xef\xbb\xbf"
_WIDE_BOMS = (b"\xff\xfe", b"\xfe\xff")

Line = bytes | LongLine


class Source:
    """An open input, read once from its beginning to its end."""

    def __init__(self, path: str, longest: int, stdin: io.BufferedReader | None = None) -> None:
        """``path`` may be "-" for standard input. Raises ``InputError``."""
        self.name = "standard input" if path == STDIN else path
        self.longest = longest
        """Bytes of the longest line that is kept."""
        self.line = 0
        """The number of the line that was read last, from 1."""
        self.before_reading: Callable[[], object] | None = None
        """Called before each read, which may take long where the input is a pipe."""
        self._file: io.BufferedReader | None = None
        try:
            self._stream = self._open(path, stdin)
        except BaseException:
            if self._file is not None:
                self._file.close()
            raise
        self.lines: Iterator[Line] = self._read()

    def ahead(self, enough: Callable[[Line], bool]) -> list[Line]:
        """The first lines that are not blank, up to the one that is enough, and not many; all are read again later."""
        seen: list[tuple[int, Line]] = []
        rest, held = self.lines, 0
        for line in rest:
            if not isinstance(line, bytes) or line.strip():
                seen.append((self.line, line))
                held += len(line) if isinstance(line, bytes) else 0
                if enough(line) or len(seen) >= MOST_AHEAD or held >= MOST_BYTES_AHEAD:
                    break
        self.lines = chain(self._again(seen), rest)
        return [line for _, line in seen]

    def close(self) -> None:
        """Close a file; standard input stays open."""
        if self._file is not None:
            self._stream.close()
            self._file.close()

    def _open(self, path: str, stdin: io.BufferedReader | None) -> Readable:
        try:
            if path == STDIN:
                stream = stdin or cast("io.BufferedReader", sys.stdin.buffer)
            else:
                stream = self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
            start = stream.peek(4)[:4]
        except OSError as error:
            raise InputError(f"cannot read {self.name} ({error.strerror or error})") from None
        if start.startswith(_WIDE_BOMS):
            raise InputError(f"{self.name} is UTF-16; save it as UTF-8")
        return unpacked(stream, Compression.of_start(start), self.name)

    def _read(self) -> Iterator[Line]:
        try:
            for line in lines_of(self._stream, self.longest, self._wait):
                self.line += 1
                yield line.removeprefix(_BOM) if self.line == 1 and isinstance(line, bytes) else line
        except Exception as error:
            damaged = is_damage(error)
            if not damaged and not isinstance(error, OSError):
                raise
            what = "is damaged or truncated" if damaged else f"cannot be read ({error})"
            safe = f"after line {self.line:,}; the rows before are safe" if self.line else "before its first line"
            raise InputError(f"{self.name} {what} {safe}. Repair the file first") from None

    def _wait(self) -> None:
        if self.before_reading is not None:
            self.before_reading()

    def _again(self, seen: list[tuple[int, Line]]) -> Iterator[Line]:
        for self.line, line in seen:
            yield line


# ---------------------------------------------------------------------- records
#
# A record is a line, or in a CSV several: a quoted field may hold line breaks. Where a record ends is for ``csv`` to
# say, but only a line with a quote in it can be the beginning of several, and most of those show at a glance that they
# are complete.

_ONE_LINE = {
    delimiter: re.compile(
        rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^"%b\r\n]*+)(?:%b(?:"[^"]*+(?:""[^"]*+)*+"|[^"%b\r\n]*+))*+\r?'
        % (3 * (re.escape(delimiter.encode()),))
    )
    for delimiter in (",", ";", "\t")
}
"""A record whose quotes are all in their places and closed on its line."""


class RawRecord(NamedTuple):
    line: int
    """Where it begins."""
    raw: Line
    problem: str = ""


def records_of(source: Source, delimiter: str | None) -> Iterator[RawRecord]:
    """The records of a CSV with this delimiter, or the lines of any other input; blank lines are no records."""
    usual = None if delimiter is None else _ONE_LINE.get(delimiter)
    is_one_line = usual.fullmatch if usual else None
    for line in source.lines:
        began = source.line
        if not isinstance(line, bytes):
            yield RawRecord(began, line, too_long(line.length, source))
        elif delimiter is not None and b'"' in line and not (is_one_line and is_one_line(line)):
            raw, problem = _whole(line, source, delimiter)
            yield RawRecord(began, raw.removesuffix(b"\r"), problem)
        elif line and not line.isspace():
            yield RawRecord(began, line.removesuffix(b"\r"))


def too_long(length: int, source: Source) -> str:
    return f"{length:,} bytes long; the limit is {source.longest:,}"


def _whole(first: bytes, source: Source, delimiter: str) -> tuple[bytes, str]:
    """The record that begins with this line, with as many more lines as its quotes ask for."""
    pieces = [first]
    length, problem = len(first), ""

    def feed() -> Iterator[str]:
        nonlocal length, problem
        yield first.decode("latin-1") + "\n"  # quotes and delimiters are the same in UTF-8
        for line in source.lines:
            length += 1 + (len(line) if isinstance(line, bytes) else line.length)
            if length > source.longest or not isinstance(line, bytes):
                problem = f"{too_long(length, source)}, and continues to line {source.line:,}; is a quote not closed?"
                return
            pieces.append(line)
            yield line.decode("latin-1") + "\n"
        problem = "a quote is never closed"

    with suppress(csv.Error):  # raised when its request is asked for
        next(csv.reader(feed(), delimiter=delimiter), None)
    return b"\n".join(pieces), problem
