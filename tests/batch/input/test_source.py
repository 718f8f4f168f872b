"""Lines out of chunks, whatever the chunks."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from headgate.batch.input.source import LongLine, lines_of


class Dripping:
    """A pipe that gives its text in the pieces it is told."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    def read1(self, size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def close(self) -> None:
        pass


texts = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b'{"x": 1}', b"", b"\xc3\xa9"]), max_size=40)


@given(pieces=texts)
def test_lines_do_not_depend_on_how_the_text_comes_in(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    expected = whole.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert list(lines_of(Dripping(pieces), longest=1000)) == expected


@given(pieces=texts, longest=st.integers(1, 6))
def test_a_line_that_is_too_long_keeps_its_place_length_and_digest(pieces: list[bytes], longest: int) -> None:
    expected = b"".join(pieces).split(b"\n")
    if not expected[-1]:
        expected.pop()
    found = list(lines_of(Dripping(pieces), longest=longest))
    assert len(found) == len(expected)
    for line, truth in zip(found, expected, strict=True):
        if len(truth) <= longest:
            assert line == truth
        else:
            assert isinstance(line, LongLine)
            assert line.length == len(truth)
            assert line.digest == hashlib.blake2b(truth, digest_size=16).digest()


def test_an_endless_line_is_never_held() -> None:
    class Endless:
        left = 400

        def read1(self, size: int) -> bytes:
            self.left -= 1
            return b"x" * size if self.left else b""

        def close(self) -> None:
            pass

    import tracemalloc

    tracemalloc.start()
    (line,) = lines_of(Endless(), longest=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(line, LongLine)
    assert line.length > 100_000_000
    assert peak < 8 << 20
