"""A request and its answer as the gate sees them.

The request: its key, what it takes of the limits, whether it may be sent twice.

    GET, HEAD, OPTIONS, PUT, DELETE, TRACE            may be sent again: twice is the same as once
    any other with an Idempotency-Key                 likewise: the server knows that it is the same one
    any other                                         only if nothing was done for it: not sent, or turned away (429)
    a body that cannot be read again (a generator)    never

A body is parsed where limits on tokens are known, and nowhere else.

The answer of a language model, while it passes by: the tokens it took, an error in the middle of a stream.

    application/json     kept up to ``LARGEST_ANSWER`` and read when it has ended
    text/event-stream    line by line; of each only what is looked for is parsed

Nothing is held up: the client gets every piece when it comes. What is too large, or packed in a way that Python itself
cannot unpack, is not read, and then the estimate counts as what was taken.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .. import wire
from ..core.decision import Outcome, Signal
from ..limiter.permit import Cost
from ..wire.parse import FLEX
from ..wire.token_usage import (
    CHARACTERS_IN_A_TOKEN,
    USUAL_OUTPUT,
    Usage,
    admitted,
    estimate,
    output_limit,
    template_of,
    usage_of,
)
from ..wire.urls import host_key

IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))
LARGEST_PARSED = 8 << 20
"""Bytes of a body that are parsed to count its tokens; a larger one is judged by its size."""
LONGEST_MODEL = 100
"""Characters of a model's name that are part of a key."""
_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_GEMINI = (":generateContent", ":streamGenerateContent")
_MODELS = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", *_GEMINI)
"""Ends of paths where language models answer, and say in ``usage`` what it took."""


@dataclass(slots=True)
class OutgoingRequest:
    """One request, before it is sent. Made by the file of each client."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By names in lower case."""
    body: bytes | None = field(default=None, repr=False)
    """Where it is in memory."""
    can_repeat_body: bool = True
    """Whether the body can be sent a second time; a generator or a file under way cannot."""
    vendor: str = field(default="", init=False)
    """Whose way of counting tokens the API has; empty if that is not known."""
    output_limit: int | None = field(default=None, init=False)
    """The tokens that the body allows its answer, if it was looked at and says so."""
    tier: str = field(default="", init=False)
    """"flex", if the body was looked at and asks for that service tier."""
    _json: Any = field(default=None, init=False, repr=False)
    _is_parsed: bool = field(default=False, init=False, repr=False)

    @property
    def path(self) -> str:
        return self.url.partition("?")[0].partition("#")[0]

    @property
    def for_model(self) -> bool:
        """Whether a language model answers there."""
        return self.method == "POST" and self.path.endswith(_MODELS)

    @property
    def is_repeated(self) -> bool:
        """Whether the vendor's client sends it again by itself: openai's and anthropic's say so."""
        return self.headers.get("x-stainless-retry-count", "0") != "0"

    @property
    def account(self) -> tuple[str, int]:
        """Who pays for it: the host, and the key that it carries, which is not kept."""
        keys = [self.headers[name] for name in _KEY_HEADERS if name in self.headers]
        return host_key(self.url), hash(tuple(keys))

    def parsed(self) -> Any:
        """The body as JSON; None if it is none, or too large to look at."""
        if not self._is_parsed:
            self._is_parsed = True
            if self.body is not None and len(self.body) <= LARGEST_PARSED:
                with suppress(ValueError, RecursionError):
                    self._json = json.loads(self.body)
        return self._json

    def drop_parsed(self) -> None:
        """Give up what was parsed, which may take ten times the body's memory, before it waits in a queue."""
        if self._json is not None:
            self.output_limit = output_limit(self._json)
        self._json, self._is_parsed = None, False


Key = Callable[[OutgoingRequest], str]
CostOf = Callable[[OutgoingRequest], Cost]
Repeatable = Callable[[OutgoingRequest], bool]


def by_host(request: OutgoingRequest) -> str:
    """One key for each host: the default."""
    return host_key(request.url)


def by_model(request: OutgoingRequest) -> str:
    """One key for each model of a host, since vendors of language models limit each model on its own.

    Requests of its flex tier have a key of their own: that may be full while the usual one is not.
    """
    host = host_key(request.url)
    if not request.for_model:
        return host
    body = request.parsed()
    model = body.get("model") if isinstance(body, dict) else None
    if request.path.endswith(_GEMINI):
        model = request.path.rpartition("/")[2].partition(":")[0]
    if not (isinstance(model, str) and model):
        return host
    key = f"{host}/{model[:LONGEST_MODEL]}"
    if not isinstance(body, dict) or body.get("service_tier") != FLEX:
        return key
    request.tier = FLEX
    return f"{key}/{FLEX}"


def with_tokens(request: OutgoingRequest) -> Cost:
    """One request and, where a language model answers, the tokens it will likely take."""
    if not request.for_model:
        return 1
    if request.body is not None and len(request.body) > LARGEST_PARSED:
        likely = Usage(len(request.body) // CHARACTERS_IN_A_TOKEN, USUAL_OUTPUT)
    else:
        body = request.parsed()
        if body is None:
            return 1
        likely = estimate(body, request.path)
    return admitted(request.vendor, likely, template_of(request.parsed()))


def is_idempotent(request: OutgoingRequest) -> bool:
    """Whether sending it twice does no more than sending it once."""
    return request.method in IDEMPOTENT or "idempotency-key" in request.headers


def is_idempotent_or_generates(request: OutgoingRequest) -> bool:
    """The same, and what language models are asked: their vendors' clients repeat that too."""
    return request.for_model or is_idempotent(request)


LARGEST_ANSWER = 4 << 20
"""Bytes, unpacked, that are kept of one answer, and that a line of a stream may have."""
STEP = 1 << 18
"""Bytes that are unpacked at a time."""
LARGEST_ERROR = 1 << 16
"""Bytes of the body of an error that are read before the client sees it."""
MOST_UNPACKED = 64 << 20
"""Bytes of a stream that are unpacked to look for its usage; from there on it is not read."""
_WBITS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
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
        self._zlib = zlib.decompressobj(_WBITS[encoding]) if encoding in _WBITS else None
        self._gave_up = bool(encoding) and self._zlib is None

    def feed(self, data: bytes) -> None:
        if self._gave_up:
            return
        if self._zlib is None:
            self._take(data)
            return
        while data and not self._gave_up:
            try:
                out = self._zlib.decompress(data, STEP)
            except zlib.error:
                self._give_up()
                return
            data = self._zlib.unconsumed_tail
            self._unpacked += len(out)
            if self._unpacked > MOST_UNPACKED:
                self._give_up()
            else:
                self._take(out)

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
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    try:
        return zlib.decompressobj(_WBITS[name]).decompress(body, STEP) if name in _WBITS else None
    except zlib.error:
        return None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
