"""Pages as a web archive (WARC 1.1): a request and a response record for each, with digests, after one that says what
wrote it. In a ``.warc.gz`` each record is packed by itself, as readers of archives want it.

The body is kept unpacked. Headers that say how it came are renamed, for a reader that believed them would try to unpack
it again; secrets in the request are left out.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ..._version import __version__
from ...errors import ConfigError
from .page import Exchange, Page, Result, instant

if TYPE_CHECKING:
    from types import ModuleType

ABOUT_THE_WAY = frozenset(("content-encoding", "content-length", "transfer-encoding"))
RENAMED = "X-Crawler-"
"""Before the name of a header that was true of the answer as it came."""
SECRET = frozenset(("authorization", "proxy-authorization", "cookie"))


class WarcOutput:
    """Needs the package ``warcio``, which ``pip install 'headgate[crawl]'`` brings along."""

    packs = True

    def __init__(self, path: str | os.PathLike[str], *, description: str = "") -> None:
        self.path = os.fspath(path)
        self._gzip = self.path.endswith(".gz")
        self._description = description
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
        page, exchange = result.page, result.exchange
        if exchange is None:
            raise ConfigError(f"a web archive needs request and response, and {page.url} came without them")
        buffer, writer = self._writer()
        response = self._response(writer, page, exchange)
        writer.write_request_response_pair(self._request(writer, page, exchange), response)
        return buffer.getvalue()

    def _response(self, writer: Any, page: Page, exchange: Exchange) -> Any:
        headers = [*_true_of_the_body(exchange.headers), ("Content-Length", str(len(exchange.body)))]
        return writer.create_warc_record(
            page.url,
            "response",
            payload=BytesIO(exchange.body),
            length=len(exchange.body),
            http_headers=self._headers(
                f"{exchange.status} {_one_line(exchange.reason)}".rstrip(), headers, exchange.version
            ),
            warc_headers_dict=_said(page, exchange),
        )

    def _request(self, writer: Any, page: Page, exchange: Exchange) -> Any:
        target = "/" + page.url.split("/", 3)[3] if page.url.count("/") > 2 else "/"
        headers = [
            (_one_line(name), _one_line(value))
            for name, value in exchange.request_headers
            if name.lower() not in SECRET
        ]
        return writer.create_warc_record(
            page.url,
            "request",
            http_headers=self._headers(f"{exchange.method} {target} {exchange.version}", headers, is_http_request=True),
            warc_headers_dict=_said(page, exchange),
        )

    def _writer(self) -> tuple[BytesIO, Any]:
        buffer = BytesIO()
        return buffer, self._warc_writer(buffer, gzip=self._gzip, warc_version="1.1")


def _true_of_the_body(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [
        (f"{RENAMED}{_one_line(name)}" if name.lower() in ABOUT_THE_WAY else _one_line(name), _one_line(value))
        for name, value in headers
    ]


def _said(page: Page, exchange: Exchange) -> dict[str, str]:
    about = {"WARC-Date": instant(page.fetched_at)}
    if exchange.address:
        about["WARC-IP-Address"] = exchange.address
    return about


def _one_line(text: str) -> str:
    """A header that broke the line would become two."""
    return " ".join(text.split()) if not text.isprintable() else text


def _warcio(part: str) -> ModuleType:
    try:
        return importlib.import_module(f"warcio.{part}")
    except ImportError:
        raise ConfigError("a web archive needs warcio: pip install 'headgate[crawl]'") from None
