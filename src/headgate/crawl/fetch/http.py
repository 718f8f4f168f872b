"""The crawl's HTTP client: one GET at a time, to servers that may be hostile.

``HttpFetcher`` has one session for all hosts, and gives each visit the limits and content types that are set for its
kind. The request is sent once. No redirect is followed (each hop needs a permit of its own host), no cookie is kept, no
referrer is sent, and headers meant for one origin go to no other. What comes back is an answer within its limits
(``response.py``), or an error with a name.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import aiohttp
from aiohttp.http_exceptions import BadHttpMessage, PayloadEncodingError
from yarl import URL

from ...errors import ConfigError
from ...exchange import sent_once
from ...wire.decompress import accepted
from .. import sitemap
from ..frontier import Visit
from ..url import host_of, origin_of, unfit
from .memory_budget import MemoryBudget, MemoryShare
from .response import FetchError, FetchLimits, FetchProblem, FetchResponse, ResponseReader
from .ssrf_guard import GuardedConnector, RefusedAddress, SsrfGuard

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

    from ..config import CrawlConfig

PAGES = ("text/html", "application/xhtml+xml", "application/xml", "text/xml", "text/plain")
ANYTHING = ("*/*",)

STAY_CONNECTED = 512
"""Hosts in memory up to which connections are kept for the next page; many systems allow a thousand."""
_WRITTEN = re.compile(r"[!-~]+")


class HttpFetcher:
    """``async with`` it, then call it with a visit. Raises ``FetchError``."""

    def __init__(
        self,
        config: CrawlConfig,
        headers: Mapping[str, Mapping[str, str]],
        resolver: AbstractResolver | None,
        room: MemoryBudget,
        hosts: Callable[[], int],
    ) -> None:
        """``headers`` are by origin; ``hosts`` says how many are in memory."""
        self._config, self._headers, self._resolver, self._room, self._hosts = config, headers, resolver, room, hosts
        self._guard = SsrfGuard(allow_private=config.allow_private, allowed_hosts=config.allowed_hosts)
        self._limits = FetchLimits(
            total=config.timeout, first_byte=min(config.first_byte, config.timeout), largest=config.max_size
        )
        self._limits_of_rules = replace(self._limits, largest=max(config.max_size, FetchLimits().largest))
        """Without its robots.txt no page of a host is fetched, so a small ``max_size`` does not count for it."""
        self._limits_of_sitemaps = replace(self._limits, largest=sitemap.LARGEST)
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        config = self._config
        guard = self._guard
        self._session = new_session(guard, agent=config.agent, connections=config.workers, resolver=self._resolver)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def __call__(self, visit: Visit, headers: Mapping[str, str] | None = None) -> FetchResponse:
        """``headers`` go along with this one request."""
        is_named = visit.is_robots or visit.is_sitemap
        is_listing = is_named or visit.url.endswith((".xml", ".xml.gz"))
        with MemoryShare(self._room) as share:
            return await fetch(
                self._session,
                visit.url,
                limits=self._limits_for(visit),
                accept=ANYTHING if is_listing else self._config.types,
                headers={**self._headers_for(origin_of(visit.url)), **(headers or {})},
                share=share,
            )

    def _limits_for(self, visit: Visit) -> FetchLimits:
        if visit.is_sitemap:
            return self._limits_of_sitemaps
        return self._limits_of_rules if visit.is_robots else self._limits

    def _headers_for(self, origin: str) -> Mapping[str, str]:
        """The caller's own; of very many hosts none stays connected, or there would soon be no more connections."""
        given = self._headers.get(origin, {})
        return given if self._hosts() <= STAY_CONNECTED else {"Connection": "close", **given}


def new_session(
    guard: SsrfGuard, *, agent: str, connections: int = 100, resolver: AbstractResolver | None = None
) -> aiohttp.ClientSession:
    """A session without cookies that goes where ``guard`` lets it. To be made inside of an event loop."""
    return aiohttp.ClientSession(
        connector=GuardedConnector(guard, connections, resolver),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": agent},
    )


async def fetch(
    session: aiohttp.ClientSession,
    url: str,
    *,
    limits: FetchLimits,
    accept: Collection[str] = PAGES,
    headers: Mapping[str, str] | None = None,
    share: MemoryShare | None = None,
) -> FetchResponse:
    """GET a canonical URL, once. Raises ``FetchError``, and nothing else that the other side could cause.

    ``accept`` are the content types that are read (``text/*`` and ``*/*`` too); of others only the headers are taken.
    ``headers`` go along with this request, a credential say. ``share``: of the memory for all.
    """
    if not isinstance(session.connector, GuardedConnector):
        raise ConfigError("session must come from new_session(guard), which checks every address")
    why_not = unfit(url) or (None if _WRITTEN.fullmatch(url) else "is not in canonical form")
    if why_not is not None:
        raise FetchError(FetchProblem.BAD_ADDRESS, why_not, host="the URL")
    reading = ResponseReader(url, limits, accept, share)
    try:
        async with asyncio.timeout_at(reading.first_byte_at) as reading.alarm:
            async with session.get(
                URL(url, encoded=True),
                headers={"Accept": ", ".join(accept), "Accept-Encoding": accepted(), **(headers or {})},
                allow_redirects=False,
                auto_decompress=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect),
                max_line_size=limits.longest_header,
                max_field_size=limits.longest_header,
                max_headers=limits.most_headers,
                middlewares=sent_once("GET"),
            ) as response:
                return await reading.read(response)
    except FetchError:
        raise
    except (RefusedAddress, aiohttp.ClientError, OSError, ValueError) as error:
        kind, sentence = _named(error, reading)
    raise FetchError(kind, sentence, host=host_of(url))  # out of the handlers, so that no context quotes the server


def _named(error: Exception, reading: ResponseReader) -> tuple[FetchProblem, str]:
    """What kind of problem it is, in our own words: the library's may quote what the server sent."""
    if isinstance(error, RefusedAddress):
        return FetchProblem.REFUSED_ADDRESS, error.reason
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return FetchProblem.CONNECT, "did not accept a connection in time"
    if isinstance(error, TimeoutError):
        return reading.why_late()
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return FetchProblem.DNS, "cannot be resolved (DNS)"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return FetchProblem.TLS, "has an untrusted certificate"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return FetchProblem.TLS, "failed the TLS handshake"
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return FetchProblem.CONNECT, "refused the connection" if refused else "cannot be reached"
    cause = error.__cause__
    is_no_http = isinstance(cause, BadHttpMessage) and not isinstance(cause, PayloadEncodingError)
    if isinstance(error, aiohttp.ClientResponseError) or is_no_http:
        return FetchProblem.BAD_HEADERS, "sent an invalid HTTP response, or headers over the limits"
    if isinstance(error, ValueError):
        return FetchProblem.BAD_ADDRESS, "cannot be requested: the URL or a header is invalid"
    where = "in the middle of the response" if reading.has_begun else "without a response"
    return FetchProblem.HUNG_UP, f"closed the connection {where}"
