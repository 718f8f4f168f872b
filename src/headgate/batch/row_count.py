"""How many rows an input has, found out beside the run, so that a time to go can be told."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from .formats.compression import Compression
from .formats.shapes import CsvRecords

if TYPE_CHECKING:
    from .job import Job

CHUNK = 1 << 20


class RowCount:
    """How many rows a plain file has, counted by its line ends; blank lines are counted along."""

    def __init__(self, job: Job) -> None:
        self.rows: int | None = None
        self._has_header = isinstance(job.rows.shape, CsvRecords)
        path = job.rows.name
        if job.rows.can_be_read_again and os.path.isfile(path):
            threading.Thread(target=self._count, args=(path,), name="headgate-count", daemon=True).start()

    def _count(self, path: str) -> None:
        ends, last = 0, b"\n"
        try:
            with open(path, "rb") as file:
                if Compression.of_start(file.read(4)) is not Compression.NONE:
                    return
                file.seek(0)
                while chunk := file.read(CHUNK):
                    ends += chunk.count(b"\n")
                    last = chunk[-1:]
        except OSError:
            return
        self.rows = max(0, ends + (last != b"\n") - self._has_header)
