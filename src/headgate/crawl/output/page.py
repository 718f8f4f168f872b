"""What a crawl writes: one record for each page, in a form that others read.

An output only says what a record looks like. The frontier appends it to the file together with the news
that the page is done (``page_file.py``), so that each page is in it exactly once.

| output      | a record                                                              |
|-------------|-----------------------------------------------------------------------|
| JsonlOutput | one line of JSON: text, title, links and what is known about the page |
| WarcOutput  | request and response as they were (``warc.py``)                       |
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

LINE_ENDS = {"\u2028": "\\u2028", "\u2029": "\\u2029", "\x85": "\\u0085"}
"""Some readers take these for the end of a line; JSON may write them otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page that was visited, as it goes into the output and to the caller's iteration."""

    url: str
    """The URL that was visited."""
    final_url: str
    """The URL the page gives for itself, or the same."""
    status: int
    fetched_at: float
    """Unix time."""
    depth: int
    content_type: str = ""
    title: str = ""
    text: str = ""
    links: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Language, description, author, ...: whatever JSON can hold."""
    found_on: str = ""
    wait: float = 0.0
    """Seconds until the permit was there."""
    fetch: float = 0.0
    """Seconds from the request to the end of the answer."""
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """The request and the response behind a page, for an output that keeps them."""

    request_headers: Sequence[tuple[str, str]] = ()
    status: int
    reason: str = ""
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    """Unpacked, whatever the headers say."""
    method: str = "GET"
    version: str = "HTTP/1.1"
    address: str = ""
    """The IP address that answered."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a visit has brought."""

    page: Page
    exchange: Exchange | None = None

    @property
    def size(self) -> int:
        """Roughly, in bytes: how long it takes to pack."""
        return len(self.page.text) + (len(self.exchange.body) if self.exchange is not None else 0)


class Output(Protocol):
    path: str
    """"-" is standard output: what was written cannot be taken back, so after a crash its last pages may come twice."""
    packs: bool
    """Whether records are packed already, where the file's name says that it is."""

    def head(self) -> bytes:
        """What the file begins with."""
        ...

    def record(self, result: Result) -> bytes: ...


class JsonlOutput:
    """A line for each page. ``.gz`` and ``.zst`` at the end of the name pack what is committed together."""

    packs = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def head(self) -> bytes:
        return b""

    def record(self, result: Result) -> bytes:
        return line_of(result.page)


def line_of(page: Page) -> bytes:
    """The page as one line of UTF-8; characters that are none are shown as ``?``."""
    fields = {
        "url": page.url,
        "final_url": page.final_url,
        "status": page.status,
        "fetched_at": instant(page.fetched_at),
        "depth": page.depth,
        "content_type": page.content_type,
        "title": page.title,
        "text": page.text,
        "links": list(page.links),
        "metadata": dict(page.metadata),
        "found_on": page.found_on,
        "wait": round(page.wait, 3),
        "fetch": round(page.fetch, 3),
        "attempts": page.attempts,
    }
    line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if not line.isascii():
        for character, escape in LINE_ENDS.items():
            line = line.replace(character, escape)
    return line.encode("utf-8", "replace") + b"\n"


def instant(at: float) -> str:
    """2031-05-04T03:02:01.000Z"""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
