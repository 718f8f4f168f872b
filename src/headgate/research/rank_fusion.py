"""Which results are the same work, and in which order works are ranked.

| two results are the same work if they have              | for example                                        |
|---------------------------------------------------------|----------------------------------------------------|
| the same address, but for scheme, ``www.``, tracking,   | ``http://www.example.org/a/?utm_source=x#top``     |
| fragment, escapes and the last slash                    | and ``https://example.org/a``                      |
| the same DOI or arXiv number, wherever it stands        | ``arxiv.org/pdf/1706.03762v5``, ``abs/1706.03762`` |
| the same title, but for case, accents, punctuation,     | ``[PDF] The Déjà-Vu Effect``, ``Déjà vu effect``   |
| articles, ``[PDF]`` and the site's name; one of them is |                                                    |
| a published work; and nothing contradicts it            |                                                    |

Years more than one apart contradict it, and so do other authors, or another DOI where authors are not known. Web pages
of the same title on two sites stay two.

The order is reciprocal rank fusion: a work gets ``1 / (60 + rank)`` from each provider that found it, and the highest
sum comes first. Ranks are used because scores of different APIs are not comparable. No provider counts more than
another, two that agree beat one that is sure, and the 60 keeps one provider's first rank from outweighing that
agreement. The same results give the same order, in whichever order providers answer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import fsum
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from ..providers.results import SearchResult
from ..wire.urls import LONGEST_URL, host_key

FUSION = 60
"""The constant of reciprocal rank fusion, as usual."""
SHORTEST_TITLE = 16
"""Letters and digits; a shorter title ("Introduction") is not distinctive."""
LONGEST_TITLE = 1000
MOST_NAMESAKES = 20
"""Works of one title that are compared, further ones stay apart; and results of each that are used."""

_TRACKING = re.compile(r"(?i)utm_\w+|(?:gcl|fbcl|msclk|dcl|gbra|wbra|yclk|twcl|igsh)id|mc_[ce]id|_ga|_gl|ref_src|igsh")
_DOI = re.compile(r"\b10\.\d{4,9}/\S+")
_ARXIV = re.compile(r"(?:10\.48550/arxiv\.|arxiv\.org/(?:abs|pdf|html)/)(\d{4}\.\d{4,5}|[a-z.-]{2,20}/\d{7})")
_SITE = re.compile(r"\s[|–—·-]\s")
_LABEL = re.compile(r"^\s*(?:\[[^\]]{0,40}\]\s*)+")
_ARTICLES = frozenset({"a", "an", "the"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One work, however many providers found it."""

    results: tuple[SearchResult, ...]
    """The results for it, best rank first."""
    places: Mapping[str, int]
    """Its rank, from 1, among the results of each provider that found it."""
    score: float
    """Higher where more providers rank it early."""

    @property
    def title(self) -> str:
        return next((result.title for result in self.results if result.title), self.url)

    @property
    def url(self) -> str:
        return self.results[0].url

    @property
    def snippet(self) -> str:
        return next((result.snippet for result in self.results if result.snippet), "")

    @property
    def content(self) -> str | None:
        """The text itself, from the first that has it."""
        return next((result.content for result in self.results if result.content), None)

    @property
    def published_at(self) -> datetime | None:
        return next((result.published_at for result in self.results if result.published_at), None)


def merge(lists: Sequence[Sequence[SearchResult]]) -> list[Finding]:
    """The works in these results, best first; each list is what one provider found, best first."""
    seen = list(_in_turn(lists))
    works = [[number] for number in range(len(seen))]
    """The work of each result, as the numbers of all its results; results of one work share one list."""

    def join(one: int, other: int) -> None:
        kept, gone = works[one], works[other]
        if kept is not gone:
            kept += gone
            for number in gone:
                works[number] = kept

    def said_of(number: int) -> list[SearchResult]:
        return [seen[each][1] for each in works[number][:MOST_NAMESAKES]]

    first: dict[str, int] = {}
    for number, (_, result) in enumerate(seen):
        for identity in identities(result):
            join(first.setdefault(identity, number), number)

    namesakes: dict[str, list[int]] = {}
    for number, (_, result) in enumerate(seen):
        title = title_key(result)
        if len(title) < SHORTEST_TITLE:
            continue
        others = namesakes.setdefault(title, [])
        for other in others:
            if works[other] is works[number] or _may_be_one(said_of(other), said_of(number)):
                join(other, number)
                break
        else:
            if len(others) < MOST_NAMESAKES:
                others.append(number)

    distinct = {id(work): work for work in works}.values()
    findings = [_finding([seen[number] for number in sorted(work)]) for work in distinct]
    return sorted(findings, key=lambda finding: (-finding.score, min(finding.places.values())))


def identities(result: SearchResult) -> list[str]:
    """Names that belong to this work only."""
    given = result.extra.get("doi")
    found = [address_key(result.url)]
    if isinstance(given, str) and (doi := doi_key(given)):
        found.append(doi)
    return found


def address_key(url: str) -> str:
    """One spelling for all addresses of the same page."""
    if len(url) > LONGEST_URL:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    host = host_key(url).removeprefix("www.")
    if host in ("doi.org", "dx.doi.org") or host.endswith("arxiv.org"):
        name = doi_key(unquote(f"{host}{parts.path}"))
        if name:
            return name
    path = quote(unquote(parts.path), safe="/~!$&'()*+,;=:@").rstrip("/")
    kept = sorted(pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not _TRACKING.fullmatch(pair[0]))
    return f"{host}{path}?{urlencode(kept)}" if kept else host + path


def doi_key(text: str) -> str:
    """``doi:10...`` or ``arxiv:...`` for a text that holds one, else nothing."""
    text = text[:LONGEST_URL].lower()
    if arxiv := _ARXIV.search(text):
        return f"arxiv:{arxiv[1]}"
    found = _DOI.search(text)
    return f"doi:{found[0].rstrip('.,;)')}" if found else ""


def title_key(result: SearchResult) -> str:
    """The letters and digits of a title without the parts that vary."""
    title = _LABEL.sub("", result.title[:LONGEST_TITLE])
    *rest, last = _SITE.split(title)
    if rest and (name := _squeezed(last)) and name in _squeezed(host_key(result.url)):
        title = " - ".join(rest)
    return _squeezed(title)


def _squeezed(text: str) -> str:
    plain = "".join(each for each in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(each))
    return "".join(word for word in re.findall(r"[^\W_]+", plain) if word not in _ARTICLES)


def _in_turn(lists: Sequence[Sequence[SearchResult]]) -> Iterator[tuple[int, SearchResult]]:
    """All first places, then all second places, ..."""
    for place in range(max(map(len, lists), default=0)):
        for results in lists:
            if place < len(results):
                yield place + 1, results[place]


def _may_be_one(some: list[SearchResult], others: list[SearchResult]) -> bool:
    """Whether works of the same title can be the same."""
    years, other_years = _years(some), _years(others)
    if years and other_years and min(abs(one - other) for one in years for other in other_years) > 1:
        return False
    authors, other_authors = _authors(some), _authors(others)
    if authors and other_authors:
        return not authors.isdisjoint(other_authors)
    dois, other_dois = _dois(some), _dois(others)
    if dois and other_dois:
        return not dois.isdisjoint(other_dois)
    return bool(authors or other_authors or dois or other_dois)


def _years(results: list[SearchResult]) -> set[int]:
    return {result.published_at.year for result in results if result.published_at}


def _authors(results: list[SearchResult]) -> set[str]:
    """The family names: the last words, since given names are often initials."""
    named = (result.extra.get("authors") for result in results)
    names = (name for authors in named if isinstance(authors, list) for name in authors if isinstance(name, str))
    return {_squeezed(words[-1]) for name in names if (words := name.split())}


def _dois(results: list[SearchResult]) -> set[str]:
    return {name for result in results for name in identities(result) if name.startswith(("doi:", "arxiv:"))}


def _finding(sightings: list[tuple[int, SearchResult]]) -> Finding:
    """A provider that has a work twice counts with the better rank."""
    places: dict[str, int] = {}
    for place, result in sightings:
        places.setdefault(result.provider, place)
    score = fsum(1 / (FUSION + place) for place in places.values())
    return Finding(results=tuple(result for _, result in sightings), places=places, score=score)
