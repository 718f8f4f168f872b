"""What a crawl is made from, checked and in one spelling: seeds, headers, scope, and what it is known by.

A crawl goes on where it stopped only as the same crawl: with other seeds, another scope, the rules for another agent or
another login its pages would be mixed with others. What only says how fast, how long or how much may change.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from ..clock import Clock
from ..errors import ConfigError
from ..limiter import AdaptiveRateLimiter
from .config import CrawlConfig
from .fetch.credentials import OriginCredentials, origin_named
from .fetch.gated_fetcher import Fetch
from .output.page import Output
from .page.processor import Extract, Follow
from .scope import Scope
from .url import canonical, host_of, unfit

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

MOST_SEEDS = 1_000_000
MOST_NAMED = 10
"""Seeds by which a crawl is known; of more, a digest."""
EVERYWHERE = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlSetup:
    """Everything that stays the same from one run of a crawl to the next."""

    config: CrawlConfig
    seeds: tuple[str, ...]
    scope: Scope
    limiter: AdaptiveRateLimiter
    clock: Clock
    rng: random.Random
    outputs: tuple[Output, ...]
    follow: Follow | None
    extract: Extract | None
    headers: Mapping[str, Mapping[str, str]]
    """By origin."""
    credentials: Mapping[str, OriginCredentials]
    resolver: AbstractResolver | None
    fetch: Fetch | None
    """In place of the crawl's own HTTP client."""

    @property
    def identity(self) -> dict[str, str]:
        """What must be the same for a crawl to be resumed."""
        return identity_of(self.config, self.seeds, {*self.headers, *self.credentials})


def seeds_of(given: Iterable[str]) -> tuple[str, ...]:
    seeds: dict[str, None] = {}
    for number, text in enumerate(given, 1):
        written = text if "://" in text else f"https://{text}"
        url = canonical(written)
        if url is None:
            raise ConfigError(f"seeds: number {number} {unfit(written)}")
        seeds[url] = None
    if not 1 <= len(seeds) <= MOST_SEEDS:
        raise ConfigError(f"seeds: {len(seeds):,} URLs must be from 1 to {MOST_SEEDS:,}")
    return tuple(seeds)


def headers_by_origin(
    given: Mapping[str, Mapping[str, str]], credentials: Mapping[str, OriginCredentials]
) -> dict[str, Mapping[str, str]]:
    found: dict[str, Mapping[str, str]] = {}
    for number, (text, headers) in enumerate(given.items(), 1):
        origin = origin_named("headers", number, text)
        if origin in credentials and credentials[origin].header.lower() in map(str.lower, headers):
            raise ConfigError(f"headers: number {number} sets {credentials[origin].header}, as the credentials do")
        found[origin] = headers
    return found


def scope_of(config: CrawlConfig, seeds: tuple[str, ...]) -> Scope:
    hosts = frozenset(config.hosts) or frozenset(map(host_of, seeds))
    return Scope(
        hosts=None if EVERYWHERE in hosts else hosts,
        subdomains=config.subdomains,
        include=config.include,
        exclude=config.exclude,
        max_depth=config.max_depth,
    )


def identity_of(config: CrawlConfig, seeds: tuple[str, ...], signed_in: Collection[str]) -> dict[str, str]:
    """What must be the same for a crawl to be gone on with; ``signed_in`` are origins with headers of their own."""
    named = " ".join(sorted(seeds))
    if len(seeds) > MOST_NAMED:
        digest = sha256(named.encode()).hexdigest()[:16]
        named = f"{' '.join(seeds[:MOST_NAMED])} and {len(seeds) - MOST_NAMED:,} more ({digest})"
    return {
        "seeds": named,
        "hosts": " ".join(sorted(config.hosts)),
        "subdomains": str(config.subdomains),
        "include": " ".join(config.include),
        "exclude": " ".join(config.exclude),
        "depth": str(config.max_depth),
        "private": str(config.allow_private) + "".join(f" {host}" for host in sorted(config.allowed_hosts)),
        "robots agent": config.robots_agent,
        "sitemaps": str(config.sitemaps),
        "types": " ".join(sorted(config.types)),
        "signed in at": " ".join(sorted(signed_in)),
    }
