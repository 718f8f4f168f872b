"""A page as a person or a program wants it: title, main text, links and what it says of itself.

    bytes ──charset──> markup ──markup_limits──> as much as can be parsed ──lexbor──> tree ─┬─ tree ────> links
                         │                                                                  ├─ metadata > title, ...
                         └──────main_text, or the visible text of the tree ──> text <───────┘

Pages come from any server, so nothing here raises, and nothing takes more time or memory than a page of its size may:
what is too deep, too long or no page at all is cut or left, and ``problem`` says so. Plain text and JSON are passed
on as they are.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

from ..url import canonical
from .charset import decode
from .markup_limits import parseable_prefix
from .metadata import PageMetadata, page_metadata, shortened
from .tree import Anchor, Walked, walk

log = logging.getLogger("headgate")

MOST_LINKS = 10_000
LARGEST = 16 * 1024 * 1024
"""Bytes that are looked at; fetching stops earlier unless ``max_size`` is larger."""
LONGEST_TEXT = 1_000_000
"""Characters that are kept."""

_MARKUP = re.compile(
    r"(?i)\s*(?:<\?xml[^>]{0,500}>\s*)?(?:<!--.{0,2000}?-->\s*){0,5}<(?:!doctype\s+html|html|head|body|title|meta)\b",
    re.DOTALL,
)
_TAG = re.compile(r"<[^<>]*>")
_MAGIC = (
    (b"%PDF-", "a PDF"), (b"\x89PNG", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"GIF8", "a GIF image"),
    (b"PK\x03\x04", "a ZIP archive"), (b"\x1f\x8b", "gzip"), (b"RIFF", "a media file"), (b"\x7fELF", "a program"),
    (b"MZ\x90", "a program"), (b"wOF", "a font"), (b"\0\0\0", "a media file"),
    (b"Rar!", "an archive"), (b"7z\xbc\xaf", "an archive"),
)  # fmt: skip
_BINARY_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Link:
    url: str
    """Absolute and in canonical form."""
    rel: str = ""
    """Relations in lower case (``nofollow ugc``), or ``refresh``, ``next``, ``prev`` from the page's head."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Extracted:
    title: str = ""
    text: str = ""
    links: tuple[Link, ...] = ()
    """Each URL once, in the page's order."""
    language: str = ""
    description: str = ""
    canonical: str = ""
    """Where the page says it belongs; absolute, empty if it does not say."""
    robots_meta: frozenset[str] = field(default_factory=frozenset)
    """``noindex``, ``nofollow``, both or neither."""
    published: str = ""
    """An ISO 8601 date or time, as the page has it."""
    author: str = ""
    problem: str = ""
    """What was wrong, in a sentence; empty if all was well. What could be read is there all the same."""


def extract(body: bytes, content_type: str, charset: str | None, url: str, *, agent: str = "headgate") -> Extracted:
    """What there is to read in an answer. Never raises.

    ``content_type`` and ``charset`` are the header's and may be empty; ``url`` is where it came from in the end.
    """
    if not body.strip():
        return Extracted(problem="page is empty")
    problems: list[str] = []
    if what := next((what for magic, what in _MAGIC if body.startswith(magic)), None):
        return Extracted(problem=f"page is {what} despite its Content-Type")
    if len(body) > LARGEST:
        problems.append(f"has {len(body):,} bytes; only the first {LARGEST:,} are read")
        body = body[:LARGEST]
    text, problem = decode(body, charset)
    if problem:
        problems.append(problem)
    if (unreadable := text[:4_096].count("\0") + text[:4_096].count("�")) > _BINARY_SHARE * min(len(text), 4_096):
        problems.append(
            f"is hardly text: {unreadable} of its first {min(len(text), 4_096):,} characters are unreadable"
        )
    kind = content_type.partition(";")[0].strip().lower()
    if "html" in kind or _MARKUP.match(text[:8_192]):
        found = _page(text, url, agent, problems)
    else:
        found = Extracted(text=_plain(text, kind, problems))
    return replace(found, problem=f"page {', '.join(problems)}") if problems else found


def _plain(text: str, kind: str, problems: list[str]) -> str:
    if "xml" in kind or text[:100].lstrip().startswith("<?xml"):
        text = "\n".join(line for part in _TAG.sub("\n", text).splitlines() if (line := part.strip()))
    if len(text) > LONGEST_TEXT:
        problems.append(f"has {len(text):,} characters; the first {LONGEST_TEXT:,} are kept")
    return text[:LONGEST_TEXT].replace("\0", "")


def _page(text: str, url: str, agent: str, problems: list[str]) -> Extracted:
    from selectolax.lexbor import LexborHTMLParser  # an extra, loaded when the first page has come

    markup, cut = parseable_prefix(text.encode("utf-8", "replace"))
    if cut:
        problems.append(f"{cut}; the rest was not read")
    tree = LexborHTMLParser(markup)
    root = tree.root
    if root is None:
        problems.append("has no elements")
        return Extracted()
    facts = page_metadata(tree, agent)
    walked = walk(root)
    words = "" if cut else main_text(text, walked)
    is_longer = len(words) > LONGEST_TEXT
    if not words:
        words = walked.visible_text()
        is_longer = walked.is_cut or len(words) > LONGEST_TEXT
    if is_longer:
        problems.append(f"has more than {LONGEST_TEXT:,} characters of text; the rest is dropped")
    if not words:
        problems.append("has no readable text")
    base = canonical(facts.base, url) or url
    links = _links(walked.anchors, facts, base)
    if len(links) > MOST_LINKS:
        problems.append(f"has more than {MOST_LINKS:,} links; the first are kept")
    return Extracted(
        title=facts.title,
        text=words[:LONGEST_TEXT],
        links=tuple(list(links.values())[:MOST_LINKS]),
        language=facts.language,
        description=facts.description,
        canonical=(canonical(facts.canonical, base) or "") if facts.canonical else "",
        robots_meta=facts.robots_meta,
        published=facts.published,
        author=facts.author,
    )


def _links(anchors: list[Anchor], facts: PageMetadata, base: str) -> dict[str, Link]:
    """Of the same URL the first; but with a text if any has one, and followed if any may be."""
    written = [(anchor.href, anchor.rel, shortened("".join(anchor.text))[:200]) for anchor in anchors]
    written += [(href, rel, "") for href, rel in facts.onward]
    links: dict[str, Link] = {}
    for href, rel, text in written:
        url = None if href.startswith("#") else canonical(href, base)
        if url is None:
            continue
        known = links.get(url)
        if known is None:
            links[url] = Link(url, rel, text)
            if len(links) > MOST_LINKS:
                break
        elif (text and not known.text) or ("nofollow" in known.rel and "nofollow" not in rel):
            followed = rel if "nofollow" in known.rel else known.rel
            links[url] = Link(url, followed, known.text or text)
    return links


# ---------------------------------------------------------------------- the main text, by trafilatura
# The article, without navigation, asides, footers and notices. Pages come from any server and trafilatura was written
# for honest ones, so it is called only within bounds, and never trusted to answer:
#
#     too long, too many tags, too deep     not called: its time grows with these, and no clock can end it halfway
#     it raises, or finds next to nothing   the visible text is used instead: of a list of entries it finds one
#
# The bounds are of the page and not of time, so the same page always has the same text. Within them the worst page that
# was found takes two seconds; news pages take 10 to 100 ms (``bench/READABLE.md``). It fetches nothing, and may be
# called from several threads.

LONGEST_MARKUP = 4_000_000
"""Characters."""
MOST_TAGS = 50_000
"""Beginnings and ends of elements together."""
DEEPEST = 200
"""Elements within one another; its parser leaves out what is deeper than 256."""
MOST_TOTAL_DEPTH = 1_000_000
"""Of all elements and texts together: it looks at what is around each of them."""

SMALLEST_SHARE = 0.35
"""Of the visible text outside of links. Articles have 0.38 to 1.0 of it; what has less is one entry of several."""

_thread = threading.local()
"""``is_extracting``: whether this thread is inside of ``main_text``."""


def main_text(markup: str, walked: Walked) -> str:
    """Empty if there is none, it is too small a part of the page, or the page is out of bounds. Never raises."""
    if len(markup) > LONGEST_MARKUP or markup.count("<") > MOST_TAGS:
        return ""
    if walked.deepest > DEEPEST or walked.total_depth > MOST_TOTAL_DEPTH:
        return ""
    find = _trafilatura()
    _thread.is_extracting = True
    try:
        found = find(markup, fast=True) or ""
    except Exception as error:  # its message may hold anything, so it is not logged
        log.debug("No main text was found: trafilatura raised %s", type(error).__name__)
        return ""
    finally:
        _thread.is_extracting = False
    return found if len(found) >= SMALLEST_SHARE * walked.unlinked else ""


def is_loaded() -> bool:
    """Whether asking takes no longer than the page does: loading trafilatura takes most of a second."""
    return "trafilatura" in sys.modules


@cache
def _trafilatura() -> Callable[..., str | None]:
    from trafilatura import extract  # an extra, loaded when the first page has come

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "trafilatura"]
    for name in names:
        logging.getLogger(name).addFilter(_is_not_ours)
    return extract


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Its warnings of empty and broken pages are no news in a crawl; the program's own use of it stays as it is."""
    return not getattr(_thread, "is_extracting", False)
