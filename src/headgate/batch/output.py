"""The output of a batch, written by one process at a time: the one that holds the output role in the ledger.

    take the role ─> cut the file back to the checkpoint ─> [ final rows ─> file ─> disk ─> checkpoint ] ...

What is in the ledger and not yet in the file is written by the next process that takes the role, so a process may end
at any moment. A file that is gone is written again from its first line.

A crash leaves lines behind the checkpoint, the last of them torn. They are cut off only where the ledger would write
the very same bytes again, or where the whole file is the one that ``headgate retry`` has replaced. Anything else there
is the user's: the run refuses to begin, and the file stays as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable
from typing import IO, cast

from ..core.row_state import FailureReason
from ..engine.output_file import STDOUT, Compression, OutputFile, is_damage, length_of, unpacked
from ..errors import OutputError
from .ledger import Ledger, Written

ROWS_AT_ONCE = 5_000
WRITE_EVERY = 0.5
"""Seconds between two writes ..."""
PACK_EVERY = 5.0
"""... and where each is a member of a packed file, which should not be too small."""
RETRY_ROLE_EVERY = 1.0
"""Seconds after which a process without the role asks whether it is free."""
REPLACED = "replaced_output"
"""The ledger's note of an output that is to be replaced: its present fingerprint."""


class OutputWriter:
    def __init__(self, ledger: Ledger, path: str, on_step: Callable[[str], None] | None = None) -> None:
        self.path = path
        self.written = 0
        """Rows that are in the output, as far as this process knows."""
        self._ledger = ledger
        self._on_step = on_step
        self.has_role = False
        self._file: OutputFile | None = None
        self._ended = asyncio.Event()
        self._every = WRITE_EVERY if Compression.of_name(path) is Compression.NONE else PACK_EVERY

    async def take_role(self) -> bool:
        """Take the role and open the file. False while another living process has it. Raises ``OutputError``."""
        place = await self._ledger.output()
        if place is None:
            return False
        self.has_role = True
        number, offset = place
        if await asyncio.to_thread(_is_missing, self.path):
            number = offset = 0
        if (await asyncio.to_thread(length_of, self.path) or 0) > offset:
            if not number and not (await self._ledger.counts()).seen:
                raise OutputError(
                    f"{self.path} exists and was not written by this run; choose another name or move it away. If it "
                    "is this run's output and the ledger is lost, --recover rebuilds the ledger from it"
                )
            await self._reject_foreign_tail(number, offset)
        self._file = await asyncio.to_thread(OutputFile, self.path, offset, ours=True)
        self.written = number
        if await self._ledger.noted(REPLACED):
            await self._ledger.note(REPLACED, "")
        return True

    async def _reject_foreign_tail(self, number: int, offset: int) -> None:
        """Raise ``OutputError`` unless what follows the checkpoint may be cut off."""
        with await asyncio.to_thread(open, self.path, "rb") as file:
            file.seek(offset)
            tail = cast("IO[bytes]", unpacked(file, Compression.of_name(self.path), self.path))
            matches = None
            while matches is None:
                rows = await self._ledger.final(number, ROWS_AT_ONCE)
                matches = await asyncio.to_thread(_matches, tail, rows)
                number = rows[-1].number if rows else number
        replaced = "" if matches else await self._ledger.noted(REPLACED)
        if not matches and replaced != await asyncio.to_thread(fingerprint, self.path):
            raise OutputError(
                f"{self.path} has lines after byte {offset:,} that this run did not write; nothing was changed. "
                "headgate verify lists them: remove them, or move the file away and it is rewritten from the ledger"
            )

    async def run(self) -> None:
        """Write until ``end`` is called, and then what is left. Raises ``OutputError`` and ``LedgerError``."""
        try:
            while not self._ended.is_set():
                if self._file is None and not await self.take_role():
                    await self._pause(RETRY_ROLE_EVERY)
                elif await self._write() < ROWS_AT_ONCE:
                    await self._pause(self._every)
            if self._file is not None or await self.take_role():
                while await self._write():
                    pass
        finally:
            self.close()

    def end(self) -> None:
        self._ended.set()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        except TimeoutError:
            pass

    async def _write(self) -> int:
        """How many rows were written."""
        rows = await self._ledger.final(self.written, ROWS_AT_ONCE)
        if not rows or self._file is None:
            return 0
        offset = await asyncio.to_thread(_put, self._file, rows)
        if self._on_step is not None:
            self._on_step("write")
        if not await self._ledger.checkpoint(rows[-1].number, offset):  # another process took this one for dead
            self.has_role = False
            self.close()
            return 0
        self.written = rows[-1].number
        return len(rows)


def _is_missing(path: str) -> bool:
    return path != STDOUT and not os.path.exists(path)


def fingerprint(path: str) -> str:
    """A digest of the content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def _matches(tail: IO[bytes], rows: list[Written]) -> bool | None:
    """Whether the rest of a file is what these rows make, torn perhaps at its end; None if it may go on after them."""
    try:
        if not rows:
            return not _read(tail, 1)
        for row in rows:
            found = b""
            while len(found) < len(row.result):
                more = _read(tail, len(row.result) - len(found))
                if not more:
                    return row.result.startswith(found)
                found += more
            if found != row.result:
                return False
    except Exception as error:
        if not is_damage(error):
            raise
        return False
    return None


def _read(tail: IO[bytes], size: int) -> bytes:
    """Empty where the file ends, or where a packed piece is torn."""
    try:
        return tail.read(size)
    except EOFError:
        return b""


def _put(file: OutputFile, rows: list[Written]) -> int:
    for row in rows:
        file.append(row.result)
    return file.sync()


# ---------------------------------------------------------------------- lines
#
#     {"id": "batch_req_...", "custom_id": "...", "response": {"status_code", "request_id", "body"}, "error": null}
#     {"id": "batch_req_...", "custom_id": "...", "response": null, "error": {"code", "message"}}
#
# As OpenAI's batch API writes them. An answer that is an error is still an answer: ``error`` is for rows that never had
# one. The body is the server's own bytes: no number is rounded and no key reordered on the way.

_quoted = json.encoder.encode_basestring_ascii
"""A text as JSON has it, without asking first what it is."""
_LINE_BREAKS = re.compile(rb"[\r\n][ \t\r\n]*")


def row_id(index: int, digest: bytes) -> str:
    """The same for the same row, whenever it is asked for."""
    return "batch_req_" + hashlib.blake2b(b"%d:%b" % (index, digest), digest_size=12).hexdigest()


def answer_line(row_id: str, name: str, status_code: int, request_id: str, body: bytes) -> bytes:
    """``body`` must be JSON; it may be written over several lines."""
    front = (
        f'{{"id": {_quoted(row_id)}, "custom_id": {_quoted(name)}, "response": '
        f'{{"status_code": {status_code}, "request_id": {_quoted(request_id)}, "body": '
    )
    return b'%b%b}, "error": null}\n' % (front.encode(), on_one_line(body))


def error_line(row_id: str, name: str, code: str, message: str) -> bytes:
    """``code`` is a word for programs, ``message`` a sentence for people."""
    return b'{"id": %b, "custom_id": %b, "response": null, "error": {"code": %b, "message": %b}}\n' % (
        _text(row_id),
        _text(name),
        _text(code),
        _text(message),
    )


def dead_line(row_id: str, name: str, reason: FailureReason) -> bytes:
    """The output line of a row that had no answer."""
    return error_line(row_id, name, reason.category, reason.detail or reason.category)


def on_one_line(body: bytes) -> bytes:
    """JSON without line breaks: they may stand between its parts only, never inside of a text."""
    body = body.strip()
    return _LINE_BREAKS.sub(b"", body) if b"\n" in body or b"\r" in body else body


def _text(value: str) -> bytes:
    return _quoted(value).encode()
