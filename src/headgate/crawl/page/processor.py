"""What a page holds and where it leads: from bytes to a page and the URLs it names.

    answer ─┬─ sitemap ──> URLs
            └─ page ─────> text, title, links ─> hooks ─> in scope, not too many of a kind ─> URLs

Nothing a page holds can stop the crawl: what cannot be read is named in the page's ``metadata``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from ...events import call_hook
from ..fetch.gated_fetcher import Fetched
from ..fetch.response import FetchResponse
from ..frontier import FoundUrl, Visit
from ..output import Page, Result
from ..sitemap import Sitemap, read_sitemap
from ..url import DEEPEST_SITEMAP, Scope, host_of, trap_shape
from .extract import Extracted, Link, extract, is_loaded
from .metadata import robots_words

READ_ASIDE = 16 * 1024
"""Bytes of a body above which it is read in another thread, to keep the event loop free."""
MOST_FULL = 100_000
"""Kinds of URLs that are known to be full."""
SITEMAPS = " sitemaps"
"""What sitemaps are counted as: all of a host together."""
SITEMAP_STARTS = (b"<urlset", b"<sitemapindex")
LOOKED_AT = 1024
"""Bytes in which a sitemap shows that it is one."""
WITH_VALUES = ("max-", "unavailable_after")
"""Beginnings of what has a colon in ``X-Robots-Tag`` without being the name of an agent."""
XML = frozenset(("application/xml", "text/xml", "application/rss+xml"))

Follow = Callable[[Page, Link], bool]
"""Whether to follow a link that is in scope."""
Extract = Callable[[Page, FetchResponse], Mapping[str, Any] | None]
"""What else to keep of a page: goes into its ``metadata``."""


class PageProcessor:
    def __init__(
        self,
        scope: Scope,
        *,
        agent: str,
        follow: Follow | None,
        extract: Extract | None,
        keeps_response: bool,
    ) -> None:
        """``agent``: robots rules are read for it. ``keeps_response``: whether an output wants the whole answer."""
        self._scope, self._follow, self._extract = scope, follow, extract
        self._agent, self._keeps_response = agent, keeps_response
        self._full: set[tuple[str, str]] = set()
        """Hosts and kinds of which no more URLs are taken."""

    async def read(
        self, visit: Visit, fetched: Fetched, fetched_at: float
    ) -> tuple[Result | None, list[FoundUrl], str]:
        """The page and what it leads to. For a sitemap None in place of the page, and what is wrong with it."""
        response = fetched.response
        if is_sitemap(visit, response):
            sitemap: Sitemap = await _aside(response, read_sitemap, response.body, visit.url)
            listed = [one for one in self._listed(visit, sitemap) if self._is_in_scope(one)]
            problem = sitemap.problem
            if sitemap.sitemaps and visit.depth <= -DEEPEST_SITEMAP:
                problem = f"sitemap is nested {DEEPEST_SITEMAP} levels deep; the sitemaps it lists are not read"
            return None, listed, problem
        read = await _aside(response, self._extracted, response)
        robots = read.robots_meta | robots_header(response, self._agent)
        page = self._page(visit, fetched, read, robots, fetched_at)
        links = () if "nofollow" in robots else read.links
        followed = [
            one
            for link in links
            if "nofollow" not in link.rel.split()
            and self._is_in_scope(one := FoundUrl(link.url, visit.depth + 1, visit.url))
            and self._is_followed(page, link)
        ]
        return Result(page, response if self._keeps_response else None), followed, ""

    def _listed(self, visit: Visit, sitemap: Sitemap) -> list[FoundUrl]:
        """Pages are a link further than their sitemap; further sitemaps stand behind it."""
        depth = max(visit.depth, 0) + 1
        if self._scope.max_depth is not None and depth > self._scope.max_depth:
            return []
        listed = [FoundUrl(url, min(visit.depth, 0) - 1, visit.url) for url in sitemap.sitemaps]
        return listed + [FoundUrl(url, depth, visit.url) for url in sitemap.pages]

    def _extracted(self, fetched: FetchResponse) -> Extracted:
        return extract(fetched.body, fetched.content_type, fetched.charset, fetched.url, agent=self._agent)

    def _page(self, visit: Visit, fetched: Fetched, read: Extracted, robots: frozenset[str], fetched_at: float) -> Page:
        response = fetched.response
        metadata: dict[str, Any] = {
            name: value
            for name in ("language", "description", "author", "published", "problem")
            if (value := getattr(read, name))
        }
        if robots:
            metadata["robots"] = sorted(robots)
        page = Page(
            url=visit.url,
            final_url=read.canonical or visit.url,
            status=response.status,
            fetched_at=fetched_at,
            depth=visit.depth,
            content_type=response.content_type,
            title=read.title,
            text=read.text,
            links=[link.url for link in read.links],
            metadata=metadata,
            found_on=visit.found_on,
            wait=fetched.waited,
            fetch=response.took,
            attempts=fetched.attempts,
        )
        if self._extract is not None:
            metadata.update(call_hook(self._kept, dict, page, response) or {})
        return page

    def _kept(self, page: Page, fetched: FetchResponse) -> dict[str, Any]:
        """What the hook says, if it can be written down; raises if not."""
        assert self._extract is not None
        said = dict(self._extract(page, fetched) or {})
        json.dumps(said, allow_nan=False)
        return said

    def _is_followed(self, page: Page, link: Link) -> bool:
        return self._follow is None or bool(call_hook(self._follow, bool, page, link))

    def note_full(self, one: FoundUrl) -> None:
        """There are too many of its kind; further ones need not be looked at."""
        if len(self._full) < MOST_FULL:
            self._full.add((host_of(one.url), kind_of(one)))

    def _is_in_scope(self, one: FoundUrl) -> bool:
        if self._scope.refuses(one.url, one.depth) is not None:
            return False
        return not self._full or (host_of(one.url), kind_of(one)) not in self._full


def kind_of(one: FoundUrl) -> str:
    """What it is counted with."""
    return SITEMAPS if one.is_sitemap else trap_shape(one.url)


def is_sitemap(visit: Visit, fetched: FetchResponse) -> bool:
    """Whether it was named as one, or looks like one."""
    if visit.is_sitemap:
        return True
    start = fetched.body[:LOOKED_AT]
    if start.startswith(b"\x1f\x8b"):
        return True
    return fetched.content_type in XML and any(mark in start for mark in SITEMAP_STARTS)


def robots_header(fetched: FetchResponse, agent: str) -> frozenset[str]:
    """What ``X-Robots-Tag`` asks of all agents or of this one (``agent: nofollow``); it may come more than once."""
    words: frozenset[str] = frozenset()
    for name, value in fetched.headers.items():
        if name.lower() != "x-robots-tag":
            continue
        name, colon, rest = value.partition(":")
        is_for_one = bool(colon) and "," not in name and not name.strip().lower().startswith(WITH_VALUES)
        if is_for_one and name.strip().lower() not in ("*", agent.lower()):
            continue
        words |= robots_words(rest if is_for_one else value)
    return words


async def _aside(fetched: FetchResponse, read: Callable[..., Any], *arguments: Any) -> Any:
    if len(fetched.body) > READ_ASIDE or not is_loaded():
        return await asyncio.to_thread(read, *arguments)
    return read(*arguments)
