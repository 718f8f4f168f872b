"""What a crawl writes: one record for each page, as JSON lines or as a web archive.

An output only says what a record looks like. The frontier appends it to the file in the transaction that marks the page
as done (``PageFile`` in ``frontier/session.py``), so each page is in it exactly once.

| output      | a record                                                              |
|-------------|-----------------------------------------------------------------------|
| JsonlOutput | one line of JSON: text, title, links and what is known about the page |
| WarcOutput  | request and response as they were                                     |
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any, Protocol

from .._version import __version__
from ..errors import ConfigError
from .url import host_of

if TYPE_CHECKING:
    from types import ModuleType

    from .fetch.response import FetchResponse

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


@dataclass(frozen=True, slots=True)
class Result:
    """What a visit has brought."""

    page: Page
    response: FetchResponse | None = None
    """The answer behind the page, for an output that keeps it."""

    @property
    def size(self) -> int:
        """Roughly, in bytes: how long it takes to pack."""
        return len(self.page.text) + (0 if self.response is None else len(self.response.body))


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


# ---------------------------------------------------------------------- web archives
# WARC 1.1: a request and a response record for each page, with digests, after one that says what wrote it. In a
# ``.warc.gz`` each record is compressed by itself, as readers of archives expect.
#
# The body is stored decompressed. Headers that describe how it was sent are renamed: a reader that believed them would
# try to decompress it again. Of the request it has nothing that could hold a secret.

ABOUT_THE_WAY = frozenset(("content-encoding", "content-length", "transfer-encoding"))
RENAMED = "X-Crawler-"
"""Before the name of a header that was true of the answer as it came."""


class WarcOutput:
    """Needs the package ``warcio``, which ``pip install 'headgate[crawl]'`` brings along."""

    packs = True

    def __init__(self, path: str | os.PathLike[str], *, description: str = "", agent: str = "headgate") -> None:
        """``agent`` is the User-Agent of the requests."""
        self.path = os.fspath(path)
        self._gzip = self.path.endswith(".gz")
        self._description, self._agent = description, agent
        self._headers = _warcio("statusandheaders").StatusAndHeaders
        self._warc_writer = _warcio("warcwriter").WARCWriter

    def head(self) -> bytes:
        """The warcinfo record."""
        about = {
            "software": f"headgate/{__version__}",
            "format": "WARC File Format 1.1",
            **({"description": self._description} if self._description else {}),
        }
        buffer, writer = self._writer()
        writer.write_record(writer.create_warcinfo_record(os.path.basename(self.path), about))
        return buffer.getvalue()

    def record(self, result: Result) -> bytes:
        page, response = result.page, result.response
        assert response is not None  # the crawl keeps it for this output
        target = "/" + page.url.split("/", 3)[3] if page.url.count("/") > 2 else "/"
        asked_with = [("User-Agent", _one_line(self._agent)), ("Host", host_of(page.url))]
        headers = [*_true_of_the_body(response.headers.items()), ("Content-Length", str(len(response.body)))]
        about = {"WARC-Date": instant(page.fetched_at)}
        buffer, writer = self._writer()
        writer.write_request_response_pair(
            writer.create_warc_record(
                page.url,
                "request",
                http_headers=self._headers(f"GET {target} HTTP/1.1", asked_with, is_http_request=True),
                warc_headers_dict=about.copy(),
            ),
            writer.create_warc_record(
                page.url,
                "response",
                payload=BytesIO(response.body),
                length=len(response.body),
                http_headers=self._headers(str(response.status), headers, "HTTP/1.1"),
                warc_headers_dict=about.copy(),
            ),
        )
        return buffer.getvalue()

    def _writer(self) -> tuple[BytesIO, Any]:
        buffer = BytesIO()
        return buffer, self._warc_writer(buffer, gzip=self._gzip, warc_version="1.1")


def _true_of_the_body(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [
        (f"{RENAMED}{_one_line(name)}" if name.lower() in ABOUT_THE_WAY else _one_line(name), _one_line(value))
        for name, value in headers
    ]


def _one_line(text: str) -> str:
    """A header that broke the line would become two."""
    return " ".join(text.split()) if not text.isprintable() else text


def _warcio(part: str) -> ModuleType:
    try:
        return importlib.import_module(f"warcio.{part}")
    except ImportError:
        raise ConfigError("a web archive needs warcio: pip install 'headgate[crawl]'") from None
