"""Which URLs belong to a crawl.

A refusal is a clause for people, so that a page that is missing can be explained. How many URLs of a kind there
may be is bounded by the frontier, which has every one on disk.

Patterns are globs, over the whole URL or, if they begin with a slash, over path and query: ``*`` is any
text, ``?`` any one character. ``re:`` before one makes it a regular expression that is searched for in the URL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import translate

from ..checks import check, is_whole
from ..errors import ConfigError
from .url import host_of, origin_of

DEEPEST_PATH = 20
"""Segments; real sites stay far below, folders that link to themselves do not."""
MOST_HOSTS = 1_000_000
MOST_PATTERNS = 1_000
LONGEST_PATTERN = 2_048
DEEPEST_SITEMAP = 5
"""Sitemaps in a row that name one another; the protocol knows two."""

_CYCLE = re.compile(r"((?:/[^/]+){1,5}?)\1\1(?=/|$)")
"""/a/b/a/b/a/b: a relative link that should have been absolute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Hosts, patterns and bounds. Whatever it ``refuses`` is not fetched."""

    hosts: frozenset[str] | None = None
    """``host`` or ``host:port``; with and without ``www.`` they are one. None: every host."""
    subdomains: bool = False
    """Whether hosts below these count too."""
    include: tuple[str, ...] = ()
    """Where there are any, a URL must match one; seeds (depth 0) need not."""
    exclude: tuple[str, ...] = ()
    max_depth: int | None = None
    """Links from a seed."""
    _wanted: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)
    _unwanted: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.hosts is not None:
            check("hosts", len(self.hosts), 1 <= len(self.hosts) <= MOST_HOSTS, f"1 to {MOST_HOSTS:,} hosts, or None")
            object.__setattr__(self, "hosts", frozenset(_plain(host_of(host)) for host in self.hosts))
        fine = self.max_depth is None or is_whole(self.max_depth, 0)
        check("max_depth", self.max_depth, fine, "a whole number, 0 or more, or None")
        object.__setattr__(self, "_wanted", _compiled("include", self.include))
        object.__setattr__(self, "_unwanted", _compiled("exclude", self.exclude))

    def refuses(self, url: str, depth: int) -> str | None:
        """Why this canonical URL is left out, in a clause about it, or None. Of a sitemap the depth is below 0."""
        if not self._has(host_of(url)):
            return "is on another host"
        if self.max_depth is not None and depth > self.max_depth:
            return f"is {depth} links from a start URL (limit {self.max_depth})"
        if any(pattern.search(url) for pattern in self._unwanted):
            return "matches an exclude pattern"
        if depth > 0 and self._wanted and not any(pattern.search(url) for pattern in self._wanted):
            return "matches no include pattern"
        if depth < -DEEPEST_SITEMAP:
            return f"is a sitemap nested more than {DEEPEST_SITEMAP} levels deep"
        return _trapped(url)

    def _has(self, host: str) -> bool:
        if self.hosts is None or _plain(host) in self.hosts:
            return True
        if not self.subdomains:
            return False
        labels = host.split(".")
        return any(".".join(labels[first:]) in self.hosts for first in range(1, len(labels)))


def _trapped(url: str) -> str | None:
    path = url[len(origin_of(url)) :].partition("?")[0]
    if path.count("/") > DEEPEST_PATH:
        return f"is more than {DEEPEST_PATH} folders deep"
    if _CYCLE.search(path):
        return "repeats the same folders three times in a row"
    return None


def _plain(host: str) -> str:
    return host.removeprefix("www.")


def _compiled(name: str, patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    check(
        name,
        len(patterns),
        not isinstance(patterns, str) and len(patterns) <= MOST_PATTERNS,
        f"at most {MOST_PATTERNS:,} patterns",
    )
    return tuple(_pattern(name, pattern) for pattern in patterns)


def _pattern(name: str, pattern: str) -> re.Pattern[str]:
    if not 1 <= len(pattern) <= LONGEST_PATTERN:
        raise ConfigError(f"{name}: pattern of {len(pattern):,} characters; expected 1 to {LONGEST_PATTERN:,}")
    if not pattern.startswith("re:"):
        anywhere = r"\Ahttps?://[^/]*" if pattern.startswith("/") else r"\A"
        return re.compile(anywhere + translate(pattern.replace("[", "[[]")))
    try:
        return re.compile(pattern[3:])
    except re.error as error:
        raise ConfigError(f"{name}: {pattern!r} is not a valid regular expression: {error}") from None
