"""What the answer of a language model says while it passes by: the tokens it took, an error in the middle of a stream.

    application/json     kept up to ``LARGEST_ANSWER`` and read when it has ended
    text/event-stream    line by line; of each only what is looked for is parsed

Nothing is held up: the client gets every piece when it comes. What is too large, or packed in a way that cannot be
unpacked here, is not read, and then the estimate counts as what was taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .. import wire
from ..core.decision import Outcome
from ..core.signal import Signal
from ..wire.decompress import STEP, DecompressError, Decompressor, decompressor
from ..wire.token_usage import CHARACTERS_IN_A_TOKEN, Usage, usage_of

LARGEST_ANSWER = 4 << 20
"""Bytes, unpacked, that are kept of one answer, and that a line of a stream may have."""
LARGEST_ERROR = 1 << 16
"""Bytes of the body of an error that are read before the client sees it."""
MOST_UNPACKED = 64 << 20
"""Bytes of a stream that are unpacked to look for its usage; from there on it is not read."""
_WRITTEN = re.compile(rb'"(?:content|text|delta|partial_json)":\s*"((?:[^"\\]|\\.)*)"')


class ResponseReader:
    """Bytes in; ``usage`` and ``error`` out, when ``finish`` was called or sooner."""

    def __init__(self, *, streams: bool, encoding: str = "", wall: float = 0.0) -> None:
        self.usage: Usage | None = None
        self.written = 0
        """Characters of text that have streamed by, where no usage says what they were."""
        self.error: Signal | None = None
        """What went wrong inside of an answer that began well."""
        self._streams = streams
        self._wall = wall
        self._kept = bytearray()
        self._unpacked = 0
        self._decompressor: Decompressor | None = None
        self._gave_up = False
        try:
            self._decompressor = decompressor(encoding)
        except DecompressError:
            self._gave_up = True

    def feed(self, data: bytes) -> None:
        if self._gave_up:
            return
        if self._decompressor is None:
            self._take(data)
            return
        try:
            for part in self._decompressor.feed(data):
                self._unpacked += len(part)
                if self._unpacked > MOST_UNPACKED:
                    self._give_up()
                if self._gave_up:
                    return
                self._take(part)
        except DecompressError:
            self._give_up()

    def finish(self) -> None:
        """All has come."""
        if self._streams:
            self._line(bytes(self._kept))
        elif not self._gave_up:
            read = _parsed(bytes(self._kept))
            self.usage = usage_of(read)
        self._kept.clear()

    @property
    def written_tokens(self) -> int:
        return -(-self.written // CHARACTERS_IN_A_TOKEN)

    # ------------------------------------------------------------------ inside

    def _take(self, data: bytes) -> None:
        self._kept += data
        if self._streams and b"\n" in data:
            *lines, rest = bytes(self._kept).split(b"\n")
            self._kept = bytearray(rest)
            for line in lines:
                self._line(line)
        if len(self._kept) > LARGEST_ANSWER:
            self._give_up()

    def _give_up(self) -> None:
        self._gave_up = True
        self._kept.clear()

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        if b'"usage"' in line or b'"usageMetadata"' in line:
            self._note_usage(_parsed(line[5:]))
        if self.usage is None or not self.usage.output:
            self.written += sum(map(len, _WRITTEN.findall(line)))
        if self.error is None and (b'"error"' in line or b"failed" in line):
            signal = wire.read(200, None, line[5:].strip(), wall=self._wall)
            self.error = None if signal.outcome is Outcome.OK else signal

    def _note_usage(self, event: Any) -> None:
        """OpenAI tells it all at the end; Anthropic the input at the start, and the output, growing, with each part."""
        if not isinstance(event, dict):
            return
        if "usageMetadata" in event:  # Gemini's, with every chunk
            self.usage = usage_of(event) or self.usage
        for place in (event, event.get("message"), event.get("response")):
            usage = place.get("usage") if isinstance(place, dict) else None
            if not isinstance(usage, dict):
                continue
            known, output = usage_of(place), usage.get("output_tokens")
            if known is None and type(output) is int and self.usage is not None:
                known = self.usage._replace(output=max(0, output))
            self.usage = known or self.usage


def has_readable_error(status: int, headers: Mapping[str, str]) -> bool:
    """Whether this is an error whose body is worth reading before the client does: JSON, or short.

    Read to its end it keeps no connection busy during a wait. Of a long one only the start is read.
    """
    if status < 400:
        return False
    length = headers.get("content-length", "")
    return "json" in headers.get("content-type", "").lower() or (
        length.isdecimal() and len(length) < 10 and int(length) <= LARGEST_ERROR
    )


def unpacked_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers of a response whose body the client has unpacked."""
    return [(name, value) for name, value in headers.items() if name.lower() != "content-encoding"]


def unpacked(body: bytes, encoding: str) -> bytes | None:
    """The body of an error, at most ``STEP`` bytes of it; None if it is packed in a way that is not read here."""
    try:
        packed = decompressor(encoding)
        if packed is None:
            return body
        found = bytearray()
        for part in packed.feed(body):
            found += part
            if len(found) >= STEP:
                break
    except DecompressError:
        return None
    return bytes(found[:STEP])


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
