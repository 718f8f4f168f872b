"""The output: a file that only grows, packed or not, and that can be cut back to where it was surely whole.

    append(line) ...   kept until there is enough of them
    sync() -> offset   all of it is on disk; the file is this long
                       (now the ledger notes number and offset: that is the checkpoint)

A process that goes on after a crash opens the file with the last checkpoint's offset. What follows is
cut off, for the ledger has those rows and they are written again; that it is theirs and nothing else is for the
caller to see to first. A packed file is a row of members, one for each ``sync``, so that it is whole at every offset.

Nothing is lost when the disk is full or the folder may not be written to: the ledger has every result.
Calls block; an event loop should make them from a thread.

gzip and zstd, both ways: input is known by its first bytes, not by its name (``curl | headgate run -`` has none),
output by its name.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import PurePath
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self, cast

from ..errors import ConfigError, OutputError

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


LARGEST_PIECE = 1 << 22
"""Bytes of lines that are kept at most before they are written."""
STDOUT = "-"

_SAFE = "Every result is safe in the ledger."
_WORDS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file has reached its largest allowed size",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENOENT: "its folder does not exist",
    errno.ENOTDIR: "its folder is not a folder",
    errno.EISDIR: "it is a folder",
    errno.EPIPE: "it was closed by the reader",
}


class OutputFile:
    """An open output. ``with`` closes it; what was not synced by then is not promised."""

    def __init__(
        self, path: str, offset: int = 0, *, ours: bool = False, is_packed: bool = False, advice: str = _SAFE
    ) -> None:
        """``path`` may be "-" for standard output. ``offset`` is the last checkpoint's.

        ``ours`` says that what is in the file was written by this run's ledger and may be cut back; otherwise
        only a file that is new or empty is taken. A file that is gone must be started again, at offset 0.

        ``is_packed``: what is appended is compressed already, if the name says so. ``advice`` ends an error's message.
        """
        self._is_stdout = path == STDOUT
        self.path = "stdout" if self._is_stdout else path
        self._pack = bytes if is_packed else packer(Compression.of_name(path), self.path)
        self._advice = advice
        self._lines: list[bytes] = []
        self._held = 0
        self._file = -1
        try:
            self._file = sys.stdout.fileno() if path == STDOUT else _opened(path)
            self._whole_file = path != STDOUT and stat.S_ISREG(os.fstat(self._file).st_mode)
            if self._whole_file:
                self._cut_back(offset, ours)
        except (OSError, ValueError) as error:
            self.close()
            raise OutputError(f"cannot write {self.path} ({_told(error)})") from None
        except OutputError:
            self.close()
            raise
        self._synced = offset
        self._length = offset

    def append(self, line: bytes) -> None:
        """Raises ``OutputError``, as ``sync`` does; then open it again from the last checkpoint."""
        self._lines.append(line)
        self._held += len(line)
        if self._held >= LARGEST_PIECE:
            self._write()

    def sync(self) -> int:
        """Put everything on disk; returns the offset of its end. A pipe's is how much went into it."""
        self._write()
        if self._whole_file and self._length != self._synced:
            try:
                os.fsync(self._file)
            except OSError as error:
                raise self._failed(error) from None
        self._synced = self._length
        return self._synced

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cut_back(self, offset: int, ours: bool) -> None:
        length = os.fstat(self._file).st_size
        if length and not ours:
            raise OutputError(f"{self.path} exists and was not written by this run; choose another name or remove it")
        if length < offset:
            raise OutputError(
                f"{self.path} has {length:,} bytes, but {offset:,} were written to it. Restore it, or remove it and it "
                "is rewritten"
            )
        if length > offset:
            os.ftruncate(self._file, offset)
            os.fsync(self._file)
        os.lseek(self._file, offset, os.SEEK_SET)

    def _write(self) -> None:
        if not self._lines:
            return
        if self._file < 0:
            raise OutputError(f"{self.path} is closed")
        rest = memoryview(self._pack(b"".join(self._lines)))
        try:
            if self._whole_file and os.fstat(self._file).st_size != self._length:
                self.close()
                raise OutputError(f"{self.path} was changed by another program during the run. {_SAFE}")
            while rest:
                written = os.write(self._file, rest)
                self._length += written
                rest = rest[written:]
        except OSError as error:
            raise self._failed(error) from None
        self._lines = []
        self._held = 0

    def _failed(self, error: OSError) -> OutputError:
        """The file goes back to what is whole, which also frees what little space a half-written piece took."""
        if self._whole_file:
            with suppress(OSError):
                os.ftruncate(self._file, self._synced)
        self.close()
        if error.errno == errno.EPIPE:
            return OutputError(f"{self.path} was closed by the reader. {self._advice}")
        return OutputError(f"cannot write {self.path} ({_told(error)}). {self._advice}")

    def close(self) -> None:
        if self._file >= 0 and not self._is_stdout:
            with suppress(OSError):
                os.close(self._file)
        self._file = -1


def length_of(path: str) -> int | None:
    """Bytes of a file; None for what is not a file, or cannot be read."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size if path != STDOUT and stat.S_ISREG(status.st_mode) else None


def _opened(path: str) -> int:
    """A file's descriptor; a new file is in its folder's list before anything is in it."""
    flags = os.O_WRONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
    if hasattr(os, "O_DIRECTORY"):
        with suppress(OSError):
            folder = os.open(os.path.dirname(path) or ".", os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    return descriptor


def _told(error: Exception) -> str:
    number = getattr(error, "errno", None)
    return _WORDS.get(number, getattr(error, "strerror", None) or str(error)) if number else "not a file"
