"""How a crawl behaves: every setting with its default, its range and its reason."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from .._version import __version__
from ..checks import check_field, is_whole, number
from ..config import RateLimitConfig
from ..core.decision import LONGEST_WAIT
from .fetch.http import PAGES

AGENT = f"headgate/{__version__} (+https://pypi.org/project/headgate/)"
FIRST_RATE = 2.0
"""Calls a second to a host about which nothing is known yet."""
LOOK_AGAIN = 15.0
"""Seconds after which a host that has been failing is tried again."""
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0
"""Seconds before a URL is fetched again, where neither the crawl nor its limiter is given others."""
MOST_WORKERS = 10_000
MOST_KEYS = 200_000
"""Hosts whose pace is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawlConfig:
    """Settings of a ``Crawler``. The defaults are polite to an unknown host."""

    hosts: tuple[str, ...] = ()
    """Where it may go: hosts, or ``*`` for everywhere. By default the hosts of the seeds."""
    subdomains: bool = False
    """Whether subdomains of those hosts belong to them."""
    include: tuple[str, ...] = ()
    """Only URLs that fit one of these patterns: globs, or regular expressions written ``re:...``."""
    exclude: tuple[str, ...] = ()
    """... and none that fits one of these."""
    max_depth: int | None = None
    """Links from a seed at most; 0 is the seeds alone."""
    max_pages: int | None = None
    """Stop once so many pages are written."""
    max_per_host: int | None = None
    max_per_shape: int = 10_000
    """URLs of one host that differ in nothing but numbers: bounds calendars that never end. The report names what
    was not followed because of it."""
    sitemaps: bool = True
    """Whether to read the sitemaps that robots.txt names."""

    agent: str = AGENT
    """The User-Agent header: which program asks, and where to complain."""
    robots_agent: str = "headgate"
    """The name robots.txt is read for."""
    rate: float | None = 8.0
    """Calls a second to one host at most, even where it would take more; None leaves that to what is learned."""
    delay: float = 0.0
    """Seconds between two calls to one host at least; a longer crawl-delay of its robots.txt wins."""
    workers: int = 256
    """Fetches at once."""
    per_host: int = 8
    """... of one host."""

    types: tuple[str, ...] = PAGES
    """Content types that are read; ``application/json`` may be added, ``*/*`` is all."""
    max_size: int = 10_000_000
    """Bytes of one answer, unpacked."""
    max_held: int = 256_000_000
    """... and of all that are in memory; beyond, 64 kB of each page, and one answer in whole."""
    timeout: float = 30.0
    """Seconds for one answer."""
    first_byte: float = 15.0
    """... and until it begins."""
    max_redirects: int = 5
    """Redirects in a row; each is a visit of its own, with a permit of the host it goes to."""
    allow_private: bool = False
    """Whether private, loopback and link-local addresses may be connected to."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that may have such addresses all the same."""

    max_attempts: int | None = None
    """Fetches of one URL in all; being rate limited does not count. None leaves this and the delays to the limiter
    (``retry_max_attempts``, ``retry_base_delay`` and ``retry_max_delay`` of each host's ``RateLimitConfig``)."""
    max_rate_limit_retries: int = 20
    """How often one URL may be told to come back later."""
    base_delay: float | None = None
    max_delay: float | None = None
    """The ceiling of the backoff after a failure; only what the server asks for is longer."""
    retry_budget: float = 0.2
    """Which share of a host's calls may be retries of failures; three at a time always may."""
    standstill: float | None = None
    """Stop once nothing can start for so many seconds; the frontier stays. None waits for as long as it takes."""
    deadline: float | None = None
    """Seconds for the whole crawl; what is not visited by then stays in the frontier."""

    def __post_init__(self) -> None:
        for name in ("hosts", "include", "exclude", "allowed_hosts", "types"):
            check_field(self, name, _are_texts, "a list of non-empty strings")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("max_pages", "max_per_host", "max_attempts"):
            check_field(self, name, lambda value: value is None or is_whole(value), "None or a whole number, 1 or more")
        check_field(
            self, "max_depth", lambda value: value is None or is_whole(value, 0), "None or a whole number, 0 or more"
        )
        for name in ("max_per_shape", "per_host", "max_size", "max_held"):
            check_field(self, name, is_whole, "a whole number, 1 or more")
        for name in ("max_redirects", "max_rate_limit_retries"):
            check_field(self, name, lambda value: is_whole(value, 0), "a whole number, 0 or more")
        check_field(
            self, "workers", lambda n: is_whole(n) and n <= MOST_WORKERS, f"a whole number from 1 to {MOST_WORKERS:,}"
        )
        for name in ("agent", "robots_agent"):
            check_field(self, name, _is_field, "a line of printable ASCII characters")
        check_field(
            self, "rate", lambda rate: rate is None or 0 < number(rate) < inf, "None or a rate in calls/s above 0"
        )
        check_field(self, "delay", lambda seconds: 0 <= number(seconds) <= LONGEST_WAIT, "seconds from 0 to 31 days")
        for name in ("timeout", "first_byte"):
            check_field(self, name, lambda seconds: 0 < number(seconds) < inf, "a finite number of seconds above 0")
        most = LONGEST_WAIT if self.max_delay is None else self.max_delay
        check_field(
            self,
            "max_delay",
            lambda s: s is None or 0 < number(s) <= LONGEST_WAIT,
            "None or seconds above 0, at most 31 days",
        )
        check_field(self, "base_delay", lambda s: s is None or 0 < number(s) <= most, f"in (0, max_delay={most:g}]")
        check_field(self, "retry_budget", lambda share: 0 <= number(share) < inf, "a fraction, 0 or more")
        for name in ("standstill", "deadline"):
            check_field(self, name, lambda value: value is None or 0 < number(value) < inf, "None or seconds above 0")

    def pace(self) -> RateLimitConfig:
        """How the limiter of a crawl treats each host, where the caller brings none."""
        most = self.rate
        return RateLimitConfig(
            initial_rps=FIRST_RATE if most is None else min(FIRST_RATE, most),
            max_rps=most,
            min_rps=0.01 if most is None else min(0.01, most),
            open_state_duration=LOOK_AGAIN,
            retry_base_delay=FIRST_BACKOFF,
            retry_max_delay=LONGEST_BACKOFF,
            max_keys=MOST_KEYS,
        )


def _are_texts(value: Any) -> bool:
    return not isinstance(value, str) and all(isinstance(word, str) and word for word in value)


def _is_field(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable() and bool(value.strip())
