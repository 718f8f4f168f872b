"""How many URLs of one host, and of one shape there, a crawl accepts: the bound on calendars that never end.

The file has every count, and a few of them are remembered. URLs are only ever added, and by one process, so what is
remembered stays true as long as every addition is counted here too. The decision is part of the transaction that adds
the URLs: however many pages end at the same moment, no bound is exceeded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from ..url import trap_shape
from . import FoundUrl, schema

MOST_COUNTED = 100_000
"""Hosts and shapes whose counts are remembered."""
MOST_SITEMAPS = 10_000
"""Of one host; an index may name more, but each of them may list tens of thousands of pages."""

Kind = tuple[str, int | None]
"""A host and a shape; None is all of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many of the URLs that pages link to are added. What is beyond is left out and reported."""

    per_host: int | None = None
    per_shape: int = 10_000
    """Of one host that differ in nothing but numbers (see ``trap_shape``)."""
    sitemaps: int = MOST_SITEMAPS
    """Of one host."""

    def refuses(self, one: FoundUrl, on_host: int, of_shape: int) -> str | None:
        """Why it is left out, in a clause about it, or None; so many are known of its host, and of its shape there."""
        if self.per_host is not None and on_host >= self.per_host:
            return f"exceeds the limit of {self.per_host:,} URLs per host"
        if of_shape < (self.sitemaps if one.is_sitemap else self.per_shape):
            return None
        if one.is_sitemap:
            return f"exceeds the limit of {self.sitemaps:,} sitemaps per host"
        return f"exceeds the limit of {self.per_shape:,} URLs per host that differ only in numbers"


def digest_of(text: str) -> int:
    """64 bits: of a hundred million URLs two are taken for one with a chance of one in four thousand."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big", signed=True)


SITEMAPS = digest_of("sitemaps")
"""No URL has this shape."""


def shape_of(one: FoundUrl) -> int:
    """0 for a URL without numbers: nothing else looks like it. All sitemaps of a host have one shape."""
    if one.is_sitemap:
        return SITEMAPS
    shape = trap_shape(one.url)
    return 0 if one.url.endswith(shape) else digest_of(shape)


class UrlCounts:
    def __init__(self, ask: Callable[..., list[list[Any]]]) -> None:
        """``ask`` asks the file."""
        self._ask = ask
        self._known: dict[Kind, int] = {}
        self._unwritten: Counter[Kind] = Counter()
        """How many of those the file does not have yet."""

    def learn(self, kinds: Iterable[tuple[str, int]]) -> None:
        """What has to be known to judge URLs of these hosts and shapes."""
        if len(self._known) > MOST_COUNTED:
            self._known.clear()
        asked = list({kind for kind in kinds if kind not in self._known})
        if not asked:
            return
        for (host, shape), (of_host, of_shape) in zip(
            asked, self._ask(schema.COUNTS_OF, json.dumps(asked)), strict=True
        ):
            self._known.setdefault((host, None), of_host + self._unwritten[host, None])
            self._known[host, shape] = of_shape + self._unwritten[host, shape]

    def refuses(self, one: FoundUrl, host: str, shape: int, bounds: Bounds) -> str | None:
        """Why there are enough of its kind; ``learn`` comes first, if there is a bound for it."""
        of_shape = self._known[host, shape] if shape else 0
        return bounds.refuses(one, self._known.get((host, None), 0), of_shape)

    def add(self, host: str, shape: int) -> None:
        for kind in ((host, None), (host, shape)):
            self._unwritten[kind] += 1
            if kind in self._known:
                self._known[kind] += 1

    def written(self) -> None:
        """The file has all of them."""
        self._unwritten.clear()

    def forget(self) -> None:
        self._known.clear()
        self._unwritten.clear()
