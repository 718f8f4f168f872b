"""gzip and zstd, both ways.

Input is known by its first bytes, not by its name: ``curl | headgate run -`` has none. Output is
known by its name. Each piece of it is a member (gzip) or a frame (zstd) of its own, so that
a file may be cut back to any of its pieces' ends and still be whole; both formats define such a
row of pieces as the same text in one.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from enum import Enum
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Protocol, cast

from ..errors import ConfigError

if TYPE_CHECKING:
    from types import ModuleType

CHUNK = 1 << 18
"""Bytes that are read at a time."""
GZIP_LEVEL = 6
ZSTD_LEVEL = 3


class Compression(Enum):
    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"

    @classmethod
    def of_name(cls, name: str) -> Compression:
        return {".gz": cls.GZIP, ".zst": cls.ZSTD, ".zstd": cls.ZSTD}.get(PurePath(name).suffix.lower(), cls.NONE)

    @classmethod
    def of_start(cls, start: bytes) -> Compression:
        if start.startswith(b"\x1f\x8b"):
            return cls.GZIP
        return cls.ZSTD if start.startswith((b"\x28\xb5\x2f\xfd", _SKIPPABLE_FRAME)) else cls.NONE


class Readable(Protocol):
    """What lines are read from: ``read1`` gives what there is, and waits only while there is nothing."""

    def read1(self, size: int, /) -> bytes: ...
    def close(self) -> None: ...


_SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18"
"""What pzstd writes first."""

_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)


def unpacked(stream: IO[bytes], kind: Compression, name: str) -> Readable:
    """The stream's text, whatever it is packed in, as soon as it comes."""
    if kind is Compression.GZIP:
        return gzip.GzipFile(fileobj=stream, mode="rb")
    if kind is Compression.ZSTD:
        opened: Readable = _zstd(name).ZstdFile(stream)
        return opened
    return cast("Readable", stream)


def packer(kind: Compression, name: str) -> Callable[[bytes], bytes]:
    """A function that makes one whole member or frame of what it is given. Raises ``ConfigError`` at once, if ever."""
    if kind is Compression.GZIP:
        return lambda data: gzip.compress(data, GZIP_LEVEL, mtime=0)
    if kind is Compression.ZSTD:
        module = _zstd(name)
        wanted = module.CompressionParameter
        options = {wanted.compression_level: ZSTD_LEVEL, wanted.checksum_flag: 1}
        return lambda data: bytes(module.compress(data, options=options))
    return lambda data: data


def is_damage(error: BaseException) -> bool:
    """Whether reading failed because of what is in the file, not because of the disk it is on."""
    return isinstance(error, _DAMAGE) or type(error).__name__ == "ZstdError"


def _zstd(name: str) -> ModuleType:
    """Python's own module, or its twin for versions before 3.14.

    Not the package ``zstandard``, whose reader takes a file that was cut off for a whole one.
    """
    import importlib

    for module in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(module)
        except ImportError:
            continue
    raise ConfigError(f"{name}: zstd needs Python 3.14 or later, or: pip install 'headgate[zstd]'")
