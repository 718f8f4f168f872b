"""Unpack what a server sends packed, and never more of it at a time than can be looked at.

A thousand bytes of gzip can stand for a million, and of brotli for a thousand million. So unpacking goes in steps
of bounded size, and the caller judges each before it takes the next. Encodings on top of each other are not
unpacked: honest servers hardly send them, and every layer multiplies.

    ``BITE`` packed bytes ──> at most ``STEP`` bytes ──judged──> at most ``STEP`` bytes ──judged──> ...
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any, Protocol

BITE = 1 << 12
"""Bytes that go in at a time."""
STEP = 1 << 18
"""Bytes that come out at a time."""
MOST_MEMBERS = 100
"""Packed streams in one answer; servers send one."""
ZSTD_WINDOW_LOG = 23
"""8 MiB, the most that HTTP allows a sender (RFC 9659)."""


class DecompressError(Exception):
    """What came cannot be unpacked; the message is a clause about the server."""


class _Stream(Protocol):
    """One packed stream."""

    magic: bytes
    """What another one would begin with; empty if there can be none."""
    damage: tuple[type[Exception], ...]

    def steps(self, data: bytes) -> Iterator[bytes]: ...
    @property
    def ended(self) -> bool: ...
    @property
    def left(self) -> bytes: ...


class Decompressor:
    """Bytes in, bytes out. One for each answer."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._new = _codecs()[encoding]
        self._stream: _Stream | None = None
        self._members = 0
        self.taken = 0
        """Bytes that have been taken in so far; what has come out is to be compared with these."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What these bytes unpack to, step by step. Raises ``DecompressError``. Ignores what comes after the end."""
        for start in range(0, len(data), BITE):
            bite = data[start : start + BITE]
            self.taken += len(bite)
            yield from self._unpack(bite)

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None or self._stream.ended:
                if self._stream is not None and not _begins(data, self._stream.magic):
                    return
                self._members += 1
                if self._members > MOST_MEMBERS:
                    raise DecompressError(f"sent more than {MOST_MEMBERS} compressed streams in one response")
                self._stream = self._new()
            try:
                yield from self._stream.steps(data)
            except self._stream.damage:
                raise DecompressError(f"sent invalid {self._encoding} data") from None
            data = self._stream.left

    def finish(self) -> None:
        """Raises ``DecompressError`` if the end has not come."""
        if self._stream is not None and not self._stream.ended:
            raise DecompressError(f"sent truncated {self._encoding} data")


@cache
def accepted() -> str:
    """What can be unpacked here, as ``Accept-Encoding`` says it."""
    return ", ".join(name for name in _codecs() if not name.startswith("x-"))


def decompressor(encodings: str) -> Decompressor | None:
    """For a ``Content-Encoding``, whose value it is; None where nothing is packed. Raises ``DecompressError``."""
    names = [name for part in encodings.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if not names:
        return None
    if len(names) > 1:
        raise DecompressError("used more than one Content-Encoding")
    if names[0] not in _codecs():
        raise DecompressError("used a Content-Encoding that was not requested")
    return Decompressor(names[0])


def _begins(data: bytes, magic: bytes) -> bool:
    """Whether another stream begins here, as far as can be seen."""
    return bool(magic) and data[: len(magic)] == magic[: len(data)]


class _Zlib:
    magic = b""
    damage: tuple[type[Exception], ...] = (zlib.error,)

    def __init__(self, wbits: int) -> None:
        self._zlib = zlib.decompressobj(wbits)

    @property
    def ended(self) -> bool:
        return self._zlib.eof

    @property
    def left(self) -> bytes:
        return self._zlib.unused_data

    def steps(self, data: bytes) -> Iterator[bytes]:
        while True:
            out = self._zlib.decompress(data, STEP)
            yield out
            data = self._zlib.unconsumed_tail
            if self._zlib.eof or not (data or len(out) == STEP):
                return


class _Gzip(_Zlib):
    magic = b"\x1f\x8b"

    def __init__(self) -> None:
        super().__init__(zlib.MAX_WBITS | 16)


class _Deflate(_Zlib):
    """With zlib's two bytes in front, as the standard has it, or without, as many have read it."""

    def __init__(self) -> None:
        super().__init__(zlib.MAX_WBITS)
        self._start: bytes | None = b""

    def steps(self, data: bytes) -> Iterator[bytes]:
        if self._start is not None:
            data = self._start + data
            self._start = data
            if len(data) < 2:
                return
            if data[0] & 0x0F != 8 or int.from_bytes(data[:2], "big") % 31:
                super().__init__(-zlib.MAX_WBITS)
            self._start = None
        yield from super().steps(data)


class _Zstd:
    magic = b"\x28\xb5\x2f\xfd"

    def __init__(self, module: ModuleType) -> None:
        self.damage: tuple[type[Exception], ...] = (module.ZstdError,)
        window = {module.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
        self._zstd = module.ZstdDecompressor(options=window)

    @property
    def ended(self) -> bool:
        return bool(self._zstd.eof)

    @property
    def left(self) -> bytes:
        return bytes(self._zstd.unused_data)

    def steps(self, data: bytes) -> Iterator[bytes]:
        while True:
            yield self._zstd.decompress(data, STEP)
            data = b""
            if self._zstd.eof or self._zstd.needs_input:
                return


class _Brotli:
    magic = b""
    left = b""

    def __init__(self, module: ModuleType) -> None:
        self.damage: tuple[type[Exception], ...] = (module.error,)
        self._brotli = module.Decompressor()

    @property
    def ended(self) -> bool:
        return bool(self._brotli.is_finished())

    def steps(self, data: bytes) -> Iterator[bytes]:
        while True:
            yield self._brotli.process(data, output_buffer_limit=STEP)
            data = b""
            if self._brotli.is_finished() or self._brotli.can_accept_more_data():
                return


@cache
def _codecs() -> dict[str, Callable[[], Any]]:
    """What Python brings, and of the rest what is installed and can be bounded."""
    found: dict[str, Callable[[], Any]] = {"gzip": _Gzip, "x-gzip": _Gzip, "deflate": _Deflate}
    brotli = _module("brotli")
    if brotli is not None and hasattr(brotli.Decompressor, "can_accept_more_data"):
        found["br"] = lambda: _Brotli(brotli)
    zstd = _module("compression.zstd") or _module("backports.zstd")
    if zstd is not None:
        found["zstd"] = lambda: _Zstd(zstd)
    return found


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
