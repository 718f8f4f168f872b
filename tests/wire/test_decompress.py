"""Unpacking gives back what was packed, in steps, and takes noise for what it is."""

import contextlib
import gzip
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.wire.decompress import BITE, STEP, DecompressError, Decompressor, accepted


def packers():
    found = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "raw deflate": lambda data: (one := zlib.compressobj(9, zlib.DEFLATED, -15)).compress(data) + one.flush(),
    }
    if "zstd" in accepted():
        try:
            from compression import zstd
        except ImportError:
            from backports import zstd
        found["zstd"] = zstd.compress
    if "br" in accepted():
        import brotli

        found["br"] = brotli.compress
    return found


@settings(max_examples=30)
@given(data=st.binary(max_size=300), times=st.integers(1, 5000), sizes=st.lists(st.integers(1, 70_000), min_size=1))
@pytest.mark.parametrize("encoding", packers())
def test_what_was_packed_is_unpacked_however_it_is_cut(encoding, data, times, sizes):
    packed = packers()[encoding](data * times)
    decompressor = Decompressor(encoding.removeprefix("raw "))
    out = b""
    for size in sizes * (len(packed) // sum(sizes) + 1):
        for part in decompressor.feed(packed[:size]):
            assert len(part) <= STEP or encoding == "br"
            out += part
        packed = packed[size:]
    decompressor.finish()
    assert out == data * times


@pytest.mark.parametrize("cut", range(25))
def test_gzip_in_two_pieces_is_one_text_wherever_it_is_cut(cut):
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    middle = len(packed) // 2 - 12 + cut
    decompressor = Decompressor("gzip")
    assert b"".join([*decompressor.feed(packed[:middle]), *decompressor.feed(packed[middle:])]) == b"one two"


def test_what_comes_after_the_end_is_passed_over():
    decompressor = Decompressor("gzip")
    assert b"".join([*decompressor.feed(gzip.compress(b"x") + b"padding"), *decompressor.feed(b"more" * BITE)]) == b"x"
    decompressor.finish()


@given(st.binary(min_size=1, max_size=200))
@pytest.mark.parametrize("encoding", [name for name in packers() if name != "raw deflate"])
def test_noise_is_damage_and_nothing_else(encoding, noise):
    decompressor = Decompressor(encoding)
    with contextlib.suppress(DecompressError):
        list(decompressor.feed(noise))
        decompressor.finish()
