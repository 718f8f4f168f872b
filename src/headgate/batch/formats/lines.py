"""Cut a stream into lines without ever holding more of it than the longest line may be.

A line ends with ``\\n``; the last may do without. A line that is too long is not kept, only counted and
hashed to its end, so that it still has its place, its number and its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from .compression import CHUNK, Readable

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
    """The stream's lines without their ``\\n``.

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
