"""A crawl's output during its transactions: it grows before the frontier knows, and shrinks if the frontier never does.

    write ─> on disk ─> the frontier's COMMIT ─> write ...
                              └─ fails: close ─> opened again, and cut to what the frontier knows

A page cannot be written again from the frontier, which has addresses and no pages. So an output that is gone, or
shorter than the frontier knows it, is told and not mended. Nor is one that is longer, unless the last process has died
or could not commit: only then may what follows be a crawl's own, whose pages are fetched again.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable

from ..batch.formats import OutputFile
from ..batch.formats.problems import OutputError
from ..batch.formats.writing import STDOUT
from ..batch.ledger import LedgerError
from ..batch.output import length_of
from .output import Output

log = logging.getLogger("headgate")


class Pages:
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
                    "Put it into a file of its own, then run the same command again"
                )
            log.warning(
                "%s: cutting off %d bytes that a crawl wrote before it died; their pages are fetched again",
                output.path,
                behind,
            )
        self._file: OutputFile | None = _Appended(output, length, ours=ours)

    def write(self, records: Iterable[bytes], known: int) -> int:
        """Append these to the length that the frontier knows, and have them on disk; returns how long it is then.

        Raises ``OutputError``.
        """
        file = self._file = self._file or _Appended(self._output, known, ours=True)
        if not known:
            file.append(self._output.head())
        for record in records:
            file.append(record)
        return file.sync()

    def close(self) -> None:
        """Whatever stands behind the length that the frontier knows is cut off when it is next written to."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class _Appended(OutputFile):
    """An output file with our words, whose records may come packed."""

    def __init__(self, output: Output, length: int, *, ours: bool) -> None:
        super().__init__(output.path, length, ours=ours)
        if output.packs:
            self._pack = bytes

    def _failed(self, error: OSError) -> OutputError:
        what_happened = str(super()._failed(error)).rpartition("). ")[0]
        return OutputError(
            f"{what_happened}). Every page up to the last that was done is in it; run the same command again to go on"
        )


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
