"""A crawl's output during its transactions: it grows before the frontier knows, and shrinks if the frontier never does.

    write ─> on disk ─> the frontier's COMMIT ─> write ...
                              └─ fails: close ─> opened again, and cut to what the frontier knows

A page cannot be written again from the frontier, which has URLs and no pages. So an output that is gone, or
shorter than the frontier knows it, is an error and not mended. Nor is one that is longer, unless the last process has
died or could not commit: only then may what follows be a crawl's own, whose pages are fetched again.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable

from ...engine.output_file import STDOUT, OutputFile, length_of
from ...errors import LedgerError, OutputError
from .page import Output

log = logging.getLogger("headgate")

_SAFE = "Every page up to the last that was done is in it"


class PageFile:
    """One output's file. ``ours`` says that this frontier has begun it; otherwise only a new or empty one is taken.

    ``died`` says that the last process at it has not left it in order: what is behind ``length`` is then cut off.
    """

    def __init__(self, output: Output, length: int, *, ours: bool, died: bool, frontier: str) -> None:
        self.name = name_of(output)
        self._output = output
        if length and output.path != STDOUT:
            _check_length(output.path, length, frontier)
        behind = (length_of(output.path) or 0) - length
        if ours and behind > 0:
            if not died:
                raise OutputError(
                    f"{output.path}: what follows byte {length:,} was not written by this crawl; nothing was changed. "
                    "Move it into a file of its own first"
                )
            log.warning(
                "%s: cutting off %d bytes that a crawl wrote before it died; their pages are fetched again",
                output.path,
                behind,
            )
        self._file: OutputFile | None = self._open(length, ours=ours)

    def write(self, records: Iterable[bytes], known: int) -> int:
        """Append these to the length that the frontier knows, and have them on disk; returns how long it is then.

        Raises ``OutputError``.
        """
        file = self._file = self._file or self._open(known, ours=True)
        if not known:
            file.append(self._output.head())
        for record in records:
            file.append(record)
        return file.sync()

    def _open(self, length: int, *, ours: bool) -> OutputFile:
        output = self._output
        return OutputFile(output.path, length, ours=ours, is_packed=output.packs, advice=_SAFE)

    def close(self) -> None:
        """Whatever stands behind the length that the frontier knows is cut off when it is next written to."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def name_of(output: Output) -> str:
    """What the frontier knows it by: both may be moved to another folder together."""
    return STDOUT if output.path == STDOUT else os.path.basename(output.path)


def _check_length(path: str, length: int, frontier: str) -> None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        there = "is gone"
    except OSError:
        return  # opening it will say why
    else:
        if not stat.S_ISREG(status.st_mode) or status.st_size >= length:
            return
        there = f"has {status.st_size:,} bytes"
    raise LedgerError(
        f"{path} {there}, but {length:,} bytes of pages were written to it. Put it back as it was, or remove "
        f"{frontier} and what is left of the output, and the crawl begins anew"
    )
