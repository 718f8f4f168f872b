"""Servers that want to hurt: none holds a fetch for longer than it may, none fills the memory, each gets its name.

Real sockets and real time, since it is time that most of them are about; the limit that strikes is tenths of a second,
so that all of it takes seconds.
"""

import asyncio
import base64
import gzip
import importlib.util
import random
import tracemalloc
import zlib
from dataclasses import replace
from functools import cache

import pytest

from headgate.crawl.fetch.http import fetch, new_session
from headgate.crawl.fetch.response import FetchError, FetchLimits
from headgate.crawl.fetch.ssrf_guard import SsrfGuard

try:
    from compression import zstd
except ImportError:
    zstd = pytest.importorskip("backports.zstd")

HAS_BROTLI = importlib.util.find_spec("brotli") is not None
LIMITS = FetchLimits(total=0.6, connect=0.3, first_byte=0.3, silence=0.2, slowest=5_000.0, largest=2_000_000)
PATIENT = replace(LIMITS, total=20.0, connect=10.0, first_byte=10.0, silence=10.0, slowest=0.0)
ABOUT_TIME = {
    "": LIMITS,
    "bytes per second": replace(PATIENT, silence=1.5, slowest=LIMITS.slowest),  # who is slow is so for that long
    "invalid chunked data": replace(PATIENT, silence=1.5),  # it is seen when no more comes
    "did not answer within": replace(PATIENT, first_byte=LIMITS.first_byte),
    "sent nothing for": replace(PATIENT, silence=LIMITS.silence),
}
"""What strikes where that is said; nothing else does where a machine stands still for a moment."""
LATE = 1.0
"""Seconds of the server's pauses that this may add. On a busy machine pauses only get longer, so fewer fit."""
MOST_SENT = 64 << 20
"""Bytes sent to a fetch that reads 2 MB: the rest is in the buffers of sockets."""
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def packed(encoding, body):
    return OK + f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@cache
def gzipped_zeros():
    return gzip.compress(bytes(64 << 20), 1)


def raw_deflate(data):
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def wide_window():
    """A zstd frame that asks for a window of 128 MiB."""
    wanted = zstd.CompressionParameter
    return zstd.compress(
        random.Random(1).randbytes(1000) * 10_000,
        options={wanted.window_log: 27, wanted.enable_long_distance_matching: 1, wanted.content_size_flag: 0},
    )


BROTLI = base64.b85decode(
    "%m4pB_$L73u|OdA{*V9vfACKL#9<MD?)@MC|Nr2h0Eoi^0NwjP{{R2MKLHSj1pvDDfBgUdgMR`b4hsNu@BjG!{|EmBKpYkT=-&VF|Nj"
    "sE34k~(0MNbv<NyC3{1X6iSOB1V|2F"
)
"""64 MiB of zeros."""
NOISE = random.Random(2).randbytes(1 << 16)


def made(piece):
    return piece() if callable(piece) else piece


class Bomb:
    """What begins like this, goes on like that if at all, and pauses between two pieces."""

    def __init__(self, *pieces, pause=0.0, forever=None):
        self._pieces, self.pause, self._forever = pieces, pause, forever

    def __iter__(self):
        yield from map(made, self._pieces)
        while self._forever is not None:
            yield self._forever

    def instead(self, old, new):
        first, *rest = self._pieces
        return Bomb(made(first).replace(old, new), *rest, pause=self.pause, forever=self._forever)


class HonestGzip(Bomb):
    """Noise without an end."""

    def __iter__(self):
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        yield OK + b"Content-Encoding: gzip\r\n\r\n"
        while True:
            yield packer.compress(NOISE)


def endless(start, piece, pause=0.0):
    return Bomb(start, forever=piece, pause=pause)


def then_silent(answer):
    return Bomb(answer, forever=b"", pause=0.05)


BOMBS = {
    "gzip of 64 MiB of zeros": (Bomb(lambda: packed("gzip", gzipped_zeros())), "bomb", "decompress to more than"),
    "x-gzip, the old name": (Bomb(lambda: packed("X-GZIP", gzipped_zeros())), "bomb", "decompress to more than"),
    "deflate of 64 MiB": (
        Bomb(lambda: packed("deflate", zlib.compress(bytes(64 << 20), 1))),
        "bomb",
        "decompress to more than",
    ),
    "raw deflate of 64 MiB": (
        Bomb(lambda: packed("deflate", raw_deflate(bytes(64 << 20)))),
        "bomb",
        "decompress to more than",
    ),
    "zstd of 64 MiB": (Bomb(lambda: packed("zstd", zstd.compress(bytes(64 << 20)))), "bomb", "decompress to more than"),
    "brotli of 64 MiB": (
        Bomb(packed("br", BROTLI)),
        *(("bomb", "decompress to more than") if HAS_BROTLI else ("bad_encoding", "not requested")),
    ),
    "a bomb on the second line": (
        Bomb(lambda: packed("gzip", gzip.compress(b"<html>") + gzipped_zeros())),
        "bomb",
        "decompress to more than",
    ),
    "gzip in a thousand pieces": (Bomb(packed("gzip", gzip.compress(b"") * 1000)), "bad_encoding", "more than 100"),
    "zstd with a window of 128 MiB": (
        Bomb(lambda: packed("zstd", wide_window())),
        "bad_encoding",
        "invalid zstd data",
    ),
    "gzip in gzip": (
        Bomb(lambda: packed("gzip, gzip", gzip.compress(gzipped_zeros()))),
        "bad_encoding",
        "more than one Content-Encoding",
    ),
    "gzip in gzip, in two headers": (
        Bomb(OK + b"Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n\r\n", lambda: gzip.compress(gzipped_zeros())),
        "bad_encoding",
        "more than one Content-Encoding",
    ),
    "ten encodings": (
        Bomb(packed(", ".join(["deflate"] * 10), b"x")),
        "bad_encoding",
        "more than one Content-Encoding",
    ),
    "an unknown encoding": (Bomb(packed("middle-out", b"x")), "bad_encoding", "not requested"),
    "gzip that is none": (Bomb(packed("gzip", b"<html>hello</html>")), "bad_encoding", "invalid gzip data"),
    "gzip with a wrong sum": (
        Bomb(packed("gzip", gzip.compress(b"hello")[:-8] + b"\0" * 8)),
        "bad_encoding",
        "invalid gzip data",
    ),
    "gzip cut off": (Bomb(packed("gzip", gzip.compress(NOISE)[:-100])), "bad_encoding", "truncated"),
    "gzip as a transfer encoding": (
        Bomb(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        "bad_encoding",
        "not requested",
    ),
    "honest gzip without end": (HonestGzip(), "too_large", "more than 2,000,000 bytes"),
    "a body without end": (endless(OK + b"\r\n", NOISE), "too_large", "more than 2,000,000 bytes"),
    "chunks without end": (endless(CHUNKED, b"10000\r\n" + NOISE + b"\r\n"), "too_large", "more than 2,000,000"),
    "chunks of one byte without end": (endless(CHUNKED, b"1\r\nx\r\n" * 9000), ("timeout", "too_large"), ""),
    "a length of a terabyte": (
        endless(OK + b"Content-Length: 1000000000000\r\n\r\n", NOISE),
        "too_large",
        "announced more than 2,000,000 bytes",
    ),
    "a length that is too long": (Bomb(OK + b"Content-Length: 9\r\n\r\nhalf"), "hung_up", "in the middle"),
    "a length below zero": (Bomb(OK + b"Content-Length: -1\r\n\r\n"), "bad_headers", "invalid HTTP response"),
    "two lengths": (
        Bomb(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
        "bad_headers",
        "invalid HTTP response",
    ),
    "a length and chunks": (
        Bomb(OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        "bad_headers",
        "invalid HTTP response",
    ),
    "a body that trickles": (endless(OK + b"\r\n", b"x", 0.02), "timeout", "bytes per second"),
    "chunks that trickle": (endless(CHUNKED, b"1\r\nx\r\n", 0.02), "timeout", "bytes per second"),
    "a body that falls silent": (then_silent(OK + b"Content-Length: 9\r\n\r\nhalf"), "timeout", "sent nothing for"),
    "headers that trickle": (endless(OK, b"X-A: b\r\n", 0.02), "timeout", "did not answer within"),
    "one header that trickles": (endless(OK + b"X-A: ", b"b", 0.02), "timeout", "did not answer within"),
    "headers without end": (endless(OK, b"X-A: b\r\n" * 100), "bad_headers", "over the limits"),
    "one header without end": (endless(OK + b"X-A: ", b"b" * 10_000), "bad_headers", "over the limits"),
    "a first line without end": (endless(b"HTTP/1.1 200 ", b"O" * 10_000), "bad_headers", "over the limits"),
    "a hundred continues a second": (
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.01),
        "timeout",
        "did not answer within",
    ),
    "another protocol": (
        then_silent(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
        "bad_headers",
        "unexpected 101",
    ),
    "a chunk beyond 64 bits": (Bomb(CHUNKED + b"F" * 30 + b"\r\nx"), "bad_headers", "invalid HTTP response"),
    "a chunk of 8 exabytes": (then_silent(CHUNKED + b"7FFFFFFFFFFFFFFF\r\nx"), "timeout", "sent nothing for"),
    "a chunk size that is none": (Bomb(CHUNKED + b"zz\r\nx"), "bad_headers", "invalid HTTP response"),
    "a chunk size that is none, later": (
        Bomb(CHUNKED + b"1\r\nx\r\n", b"zz\r\nx", pause=0.05),
        "bad_encoding",
        "invalid chunked data",
    ),
    "a chunk that is cut off": (Bomb(CHUNKED + b"9\r\nhalf"), "hung_up", "in the middle"),
    "chunks without an end": (Bomb(CHUNKED + b"4\r\nhalf\r\n"), "hung_up", "in the middle"),
    "a chunk extension without end": (endless(CHUNKED + b"1;", b"x" * 10_000), "timeout", "sent nothing for"),
    "trailers without end": (
        endless(CHUNKED + b"1\r\nx\r\n0\r\n", b"X-A: b\r\n" * 100),
        "bad_headers",
        "over the limits",
    ),
    "trailers that trickle": (
        endless(CHUNKED + b"1\r\nx\r\n0\r\n", b"X-A: b\r\n", 0.02),
        "timeout",
        "sent nothing for",
    ),
    "no word at all": (then_silent(b""), "timeout", "did not answer within"),
    "no word, and gone": (Bomb(b""), "hung_up", "without a response"),
    "another language": (Bomb(b"220 mail.example ESMTP\r\n"), "bad_headers", "invalid HTTP response"),
}


class Bomber:
    """Sends one bomb to each client; counts its bytes and the seconds between them; knows when it was hung up on."""

    def __init__(self, bomb):
        self._bomb, self.hung_up = bomb, asyncio.Event()
        self.sent, self.paused = 0, 0.0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _serve(self, reader, writer):
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in self._bomb:
                writer.write(piece)
                await writer.drain()
                self.sent += len(piece)
                if reader.at_eof():
                    break
                await asyncio.sleep(self._bomb.pause)
                self.paused += self._bomb.pause
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.hung_up.set()
            writer.transport.abort()


async def ask(bomb, limits=PATIENT):
    """The problem, and the bytes and the seconds of pauses that the server spent on it before it was left alone."""
    guard = SsrfGuard(allow_private=True)
    async with Bomber(bomb) as server, new_session(guard, agent="test") as session:
        with pytest.raises(FetchError) as caught:
            await fetch(session, server.url, limits=limits)
        sent, paused = server.sent, server.paused
        await asyncio.wait_for(server.hung_up.wait(), 20.0)
    return caught.value, sent, paused


def test_there_are_the_bombs_we_speak_of():
    assert len(BOMBS) >= 20


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_named_and_neither_hangs_nor_stays_connected(name):
    bomb, kinds, says = BOMBS[name]
    limits = ABOUT_TIME.get(says, PATIENT)
    problem, sent, paused = asyncio.run(ask(bomb, limits))
    assert problem.kind in ((kinds,) if isinstance(kinds, str) else kinds)
    assert says in problem.sentence
    struck = min(limits.total, limits.first_byte, limits.silence) if limits is not PATIENT else 0.0
    assert paused < struck + LATE
    assert problem.kind != "too_large" or sent < MOST_SENT


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_bomb_takes_little_memory(encoding):
    """With the limits that users have, 64 MiB in one answer."""
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}[encoding]
    bomb = Bomb(packed(encoding, pack(bytes(64 << 20))))
    tracemalloc.start()
    try:
        problem, _, _ = asyncio.run(ask(bomb, FetchLimits()))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert problem.kind == "bomb"
    assert peak < 8 << 20


@pytest.mark.parametrize("name", ["gzip of 64 MiB of zeros", "a body without end", "a body that falls silent"])
def test_a_refusal_counts_though_its_body_is_a_bomb(name):
    """Or a host could hide its 429 behind one."""

    async def main():
        refusal = BOMBS[name][0].instead(b"200 OK", b"429 Too Many Requests\r\nRetry-After: 7")
        guard = SsrfGuard(allow_private=True)
        async with Bomber(refusal) as server, new_session(guard, agent="test") as session:
            fetched = await fetch(session, server.url, limits=ABOUT_TIME["sent nothing for"])
            await asyncio.wait_for(server.hung_up.wait(), 20.0)
            return fetched, server.paused

    fetched, paused = asyncio.run(main())
    assert (fetched.status, fetched.retry_after, fetched.body) == (429, 7.0, b"")
    assert paused < LIMITS.silence + LATE
