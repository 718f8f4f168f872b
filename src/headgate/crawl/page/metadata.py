"""What a page says of itself: in its head, in its language attribute and in its JSON for search engines.

Each fact is looked for where sites really put it, the surest place first. All of it is a claim from outside: it is
bounded in length, dates and languages are kept only if they look like such, and JSON is read only if it is small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

LONGEST_FACT = 1_000
"""Characters."""
LARGEST_JSON = 65_536
MOST_JSON = 20
"""Pieces of JSON read in a page."""
MOST_METAS = 500

_DATE = re.compile(r"\d{4}-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?\s?(?:Z|[+-]\d\d:?\d\d)?)?)?")
_LANGUAGE = re.compile(r"([A-Za-z]{2,3})((?:[-_][A-Za-z0-9]{2,8}){0,3})")
_REFRESH = re.compile(r"(?i)\s*[\d.]*\s*[;,]?\s*url\s*=\s*[\"']?([^\"'>]+)")
_PUBLISHED = (
    "article:published_time", "datepublished", "og:article:published_time", "dc.date.issued", "dcterms.issued",
    "dc.date", "dcterms.created", "citation_publication_date", "parsely-pub-date", "sailthru.date", "pubdate",
    "publishdate", "date",
)  # fmt: skip
_AUTHORS = ("author", "article:author", "dc.creator", "citation_author", "parsely-author", "sailthru.author", "byl")
_DESCRIPTIONS = ("description", "og:description", "twitter:description", "dc.description")
_TITLES = ("og:title", "twitter:title", "dc.title", "citation_title")


@dataclass(frozen=True, slots=True)
class PageMetadata:
    title: str = ""
    language: str = ""
    description: str = ""
    canonical: str = ""
    """As it is written."""
    robots_meta: frozenset[str] = frozenset()
    published: str = ""
    author: str = ""
    base: str = ""
    """What links are relative to, as it is written."""
    onward: tuple[tuple[str, str], ...] = ()
    """URLs that the head links to (next, prev, refresh) and their relations."""


def page_metadata(tree: LexborHTMLParser, agent: str) -> PageMetadata:
    metas = _metas(tree)
    searched = _from_json(tree)
    published = next((date for date in (_date(metas.get(name, "")) for name in _PUBLISHED) if date), "")
    author = next((name for name in (metas.get(field, "") for field in _AUTHORS) if name and "://" not in name), "")
    links = list(_head_links(tree))
    refresh = _REFRESH.match(metas.get("http:refresh", ""))
    onward = [(href, rel) for rel, href in links if rel in ("next", "prev")]
    if refresh:
        onward.append((refresh[1].strip(), "refresh"))
    return PageMetadata(
        title=_title(tree, metas) or searched.get("headline", ""),
        language=_language(tree, metas),
        description=next((metas[name] for name in _DESCRIPTIONS if metas.get(name)), ""),
        canonical=next((href for rel, href in links if rel == "canonical"), ""),
        robots_meta=robots_words(metas.get("robots", "")) | robots_words(metas.get(agent.lower(), "")),
        published=published or _date(searched.get("datePublished", "")) or _date(_first_time(tree)),
        author=author or searched.get("author", "") or _first_text(tree, '[rel~="author"], [itemprop~="author"]'),
        base=_attribute(tree.css_first("base[href]"), "href"),
        onward=tuple(onward),
    )


def robots_words(value: str) -> frozenset[str]:
    """``noindex`` and ``nofollow``, where a robots meta element or an ``X-Robots-Tag`` says so."""
    directives = {part.strip().lower() for part in value[:LONGEST_FACT].split(",")}
    if "none" in directives:
        return frozenset(("noindex", "nofollow"))
    return frozenset(directives & {"noindex", "nofollow"})


def shortened(text: str) -> str:
    """On one line, and not endless."""
    return " ".join(text[: 4 * LONGEST_FACT].split())[:LONGEST_FACT]


def _metas(tree: LexborHTMLParser) -> dict[str, str]:
    """The first of each name counts."""
    found: dict[str, str] = {}
    for node in tree.css("meta[content]")[:MOST_METAS]:
        attributes = node.attributes
        content = shortened(attributes.get("content") or "")
        for key in ("name", "property", "itemprop"):
            name = (attributes.get(key) or "").lower()
            if name and content:
                found[name] = (
                    f"{found[name]},{content}" if name == "robots" and name in found else found.get(name, content)
                )
        if equivalent := (attributes.get("http-equiv") or "").lower():
            found.setdefault(f"http:{equivalent}", content)
    return found


def _title(tree: LexborHTMLParser, metas: dict[str, str]) -> str:
    for node in tree.css("title")[:5]:
        parent = node.parent
        if (parent is None or parent.tag != "svg") and (title := shortened(node.text(deep=False))):
            return title
    return next((metas[name] for name in _TITLES if metas.get(name)), "") or _first_text(tree, "h1")


def _language(tree: LexborHTMLParser, metas: dict[str, str]) -> str:
    root = tree.css_first("html")
    claims = (
        _attribute(root, "lang"),
        _attribute(root, "xml:lang"),
        metas.get("http:content-language", ""),
        metas.get("og:locale", ""),
    )
    for claim in claims:
        found = _LANGUAGE.fullmatch(claim.strip().split(",")[0])
        if found:
            return found[1].lower() + found[2].replace("_", "-")
    return ""


def _head_links(tree: LexborHTMLParser) -> Iterator[tuple[str, str]]:
    for node in tree.css("link[rel][href]")[:MOST_METAS]:
        href = (_attribute(node, "href")).strip()
        for rel in _attribute(node, "rel").lower().split()[:5]:
            if href:
                yield rel, href


def _first_time(tree: LexborHTMLParser) -> str:
    node = tree.css_first("time[pubdate], time[itemprop~=datePublished], article time[datetime], main time[datetime]")
    return _attribute(node, "datetime") or _attribute(node, "content")


def _first_text(tree: LexborHTMLParser, selector: str) -> str:
    node = tree.css_first(selector)
    return "" if node is None else shortened(node.text(separator=" ", strip=True))[:200]


def _attribute(node: LexborNode | None, name: str) -> str:
    return "" if node is None else (node.attributes.get(name) or "")[: 4 * LONGEST_FACT]


def _date(text: str) -> str:
    found = _DATE.match(text.strip())
    return found[0] if found else ""


def _from_json(tree: LexborHTMLParser) -> dict[str, str]:
    """Headline, date and author of the first thing described that has a date or a headline."""
    for node in tree.css('script[type="application/ld+json"]')[:MOST_JSON]:
        source = node.text(deep=False)
        if len(source) > LARGEST_JSON:
            continue
        try:
            described = json.loads(source)
        except (ValueError, RecursionError):
            continue
        for thing in _things(described):
            if "datePublished" in thing or "headline" in thing:
                facts = {
                    key: shortened(value)
                    for key in ("headline", "datePublished")
                    if isinstance(value := thing.get(key), str)
                }
                return facts | {"author": _name(thing.get("author"))}
    return {}


def _things(described: Any) -> Iterator[dict[str, Any]]:
    graph = described.get("@graph", described) if isinstance(described, dict) else described
    for thing in graph[:100] if isinstance(graph, list) else [graph]:
        if isinstance(thing, dict):
            yield thing


def _name(author: Any) -> str:
    if isinstance(author, list):
        return ", ".join(name for one in author[:10] if not isinstance(one, list) and (name := _name(one)))
    text = author.get("name") if isinstance(author, dict) else author
    return shortened(text) if isinstance(text, str) and "://" not in text else ""
