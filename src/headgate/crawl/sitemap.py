"""Which pages a site says it has: XML, packed or plain, an index of further ones, a feed, or a list of lines.

    <urlset>        pages: each <url> with its <loc>
    <sitemapindex>  further sitemaps: each <sitemap> with its <loc>
    <rss>, <feed>   pages: each <item> or <entry> with its link
    plain lines     pages: one URL to a line

A sitemap comes from outside and may be fifty megabytes, so it is read as a stream and never held as a tree. A document
type is refused as soon as it is met: it is the door for entities that unfold to billions. What is broken in the middle
(an ``&`` that is not escaped is the usual thing) is read on by its ``<loc>`` alone.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from xml.parsers import expat

from ..wire.decompress import DecompressError, Decompressor
from .url import LONGEST_URL, canonical

LARGEST = 50 * 1024 * 1024
"""Bytes, unpacked: the protocol's own bound, as is the next."""
MOST_URLS = 50_000
DEEPEST = 32
"""Elements in elements; honest ones have five."""
MOST_ELEMENTS = 1_000_000
LONGEST_TOKEN = 1 << 20
"""Bytes of a single tag or comment."""

LONGEST_LOC = 8_192
"""Bytes of a URL as it is written, with all that may stand around it."""

_STEP = 1 << 16
_LOC = re.compile(rb"(?i)<(?!image:|video:)(?:\w{1,20}:)?loc\s*>\s*(?:<!\[CDATA\[)?([^<>\]]{1,4096})")
_INDEX = re.compile(rb"(?i)<(?:\w{1,20}:)?sitemapindex[\s>]")
_MARKUP = re.compile(rb"(?i)\s*<(?:!doctype\s+html|html|head|body)[\s>]")
_ROOTS = frozenset(("urlset", "sitemapindex", "rss", "feed", "rdf"))
_ENTRIES = frozenset(("url", "sitemap", "item", "entry"))


@dataclass(frozen=True, slots=True)
class Sitemap:
    pages: tuple[str, ...] = ()
    sitemaps: tuple[str, ...] = ()
    """Where to read on."""
    problem: str = ""
    """What was wrong, in a sentence; empty if all was well. What could be read is there all the same."""


def read_sitemap(body: bytes, url: str) -> Sitemap:
    """What the sitemap at ``url`` lists, each URL once and in canonical form. Never raises."""
    problems: list[str] = []
    found = _Found(url)
    pieces = _unpacked(body, problems)
    start = next((begin for piece in pieces if (begin := piece.lstrip())), b"")
    if not start:
        problems.append("is empty")
    elif _MARKUP.match(start):
        problems.append("is a web page")
    elif start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") or start.startswith((b"\xff\xfe", b"\xfe\xff")):
        if not _read_xml(chain((start,), pieces), found, problems):
            _read_on(_unpacked(body, []), found, is_index=bool(_INDEX.search(start)))
    else:
        _read_lines(chain((start,), pieces), found)
    if found.strange:
        problems.append(f"has {found.strange:,} entries that are not URLs")
    if found.full:
        problems.append(f"lists more than {MOST_URLS:,} URLs; the rest was not read")
    return Sitemap(tuple(found.pages), tuple(found.sitemaps), f"sitemap {', '.join(problems)}" if problems else "")


class _Found:
    """What has been read so far."""

    def __init__(self, url: str) -> None:
        self._base = url
        self.pages: dict[str, None] = {}
        self.sitemaps: dict[str, None] = {}
        self.strange = self._read = 0
        self.full = False

    def add(self, written: str, *, is_sitemap: bool = False) -> None:
        written = written.strip()
        if not written:
            return
        if self._read == MOST_URLS:
            self.full = True
            raise _StopError
        self._read += 1
        url = canonical(written, self._base) if len(written) <= LONGEST_URL else None
        if url is None:
            self.strange += 1
        else:
            (self.sitemaps if is_sitemap else self.pages).setdefault(url)


class _StopError(Exception):
    """Nothing more is to be read; the message is a clause about the sitemap, or empty."""


def _unpacked(body: bytes, problems: list[str]) -> Iterator[bytes]:
    """The sitemap piece by piece, as far as it counts; what came packed is never unpacked as a whole."""
    is_packed = body.startswith(b"\x1f\x8b")
    unpacker, came = Decompressor("gzip"), 0
    pieces = unpacker.feed(body) if is_packed else (body[at : at + _STEP] for at in range(0, len(body), _STEP))
    try:
        for piece in pieces:
            yield piece[: LARGEST - came]
            came += len(piece)
            if came > LARGEST:
                problems.append(
                    f"{'unpacks to' if is_packed else 'has'} more than {LARGEST:,} bytes; the rest was not read"
                )
                return
        unpacker.finish()
    except DecompressError:
        problems.append("cannot be decompressed completely")


def _read_xml(pieces: Iterable[bytes], found: _Found, problems: list[str]) -> bool:
    """False if it is broken."""
    reader, fed = _XmlReader(found), 0
    try:
        for piece in pieces:
            reader.parser.Parse(piece, False)
            if fed - reader.parser.CurrentByteIndex > LONGEST_TOKEN:
                raise _StopError(f"has a tag or comment of more than {LONGEST_TOKEN:,} bytes; the rest was not read")
            fed += len(piece)
        reader.parser.Parse(b"", True)
    except _StopError as why:
        if str(why):
            problems.append(str(why))
    except (expat.ExpatError, LookupError, ValueError) as error:
        why_not = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else "unknown charset"
        problems.append(f"is invalid XML ({why_not})")
        return False
    return True


def _read_on(pieces: Iterable[bytes], found: _Found, *, is_index: bool) -> None:
    """Every ``<loc>``, wherever it is; those read already are known."""
    text = b""
    try:
        for piece in chain(pieces, (b"<",)):  # whatever is open at the end is closed by that
            text += piece
            read = 0
            for loc in _LOC.finditer(text):
                if loc.end() == len(text):
                    break  # it may go on in the next piece
                found.add(html.unescape(loc[1].decode("utf-8", "replace")), is_sitemap=is_index)
                read = loc.end()
            text = text[max(read, len(text) - LONGEST_LOC) :]
    except _StopError:
        pass


def _read_lines(pieces: Iterable[bytes], found: _Found) -> None:
    rest = b""
    try:
        for piece in chain(pieces, (b"\n",)):
            *lines, rest = (rest + piece).replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                if line.lstrip(b"\xef\xbb\xbf \t").startswith((b"http://", b"https://")):
                    found.add(line.decode("utf-8-sig", "replace"))
                elif line.strip():
                    found.strange += 1
            if len(rest) > LONGEST_LOC:
                rest = b"..."  # no URL is as long as that
    except _StopError:
        pass


class _XmlReader:
    """The stream's handlers: the text of the few elements that matter, one entry at a time."""

    def __init__(self, found: _Found) -> None:
        self._found = found
        self._depth = self._elements = 0
        self._entry = self._address = self._inside = ""
        self._entry_depth = 0
        self._text: list[str] = []
        self._characters = 0
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters_came

    def _refuse(self, *_: object) -> None:
        raise _StopError("has a document type declaration, which can expand without end; it was not read")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._elements > MOST_ELEMENTS:
            raise _StopError(f"has more than {MOST_ELEMENTS:,} elements; the rest was not read")
        name = tag.rpartition(":")[2].lower()
        if self._depth == 1 and name not in _ROOTS:
            raise _StopError(f"is not a sitemap (<{tag[:40]}>)")
        if self._depth > DEEPEST:
            raise _StopError(f"has elements nested more than {DEEPEST} deep; the rest was not read")
        if name in _ENTRIES and not self._entry:
            self._entry, self._entry_depth = name, self._depth
            self._address = ""
        elif self._entry and self._depth == self._entry_depth + 1:
            self._inside, self._characters = name, 0
            self._text.clear()
            if name == "link" and attributes.get("rel", "alternate") == "alternate":
                self._address = self._address or attributes.get("href", "")

    def _characters_came(self, text: str) -> None:
        if self._inside and self._characters <= LONGEST_URL:
            self._characters += len(text)
            self._text.append(text)

    def _end(self, tag: str) -> None:
        if self._entry and self._depth == self._entry_depth:
            self._found.add(self._address, is_sitemap=self._entry == "sitemap")
            self._entry = ""
        elif self._entry and self._depth == self._entry_depth + 1:
            if self._inside == "loc" or (self._inside == "link" and not self._address):
                self._address = "".join(self._text)
            self._inside = ""
        self._depth -= 1
