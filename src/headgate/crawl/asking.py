"""How a crawl asks for a page: one session for all hosts, within the guard, the limits and the types that are set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from .address import origin_of
from .config import CrawlConfig
from .fetch import ANYTHING, fetch, new_session
from .fetched import Fetched, FetchLimits
from .frontier_records import Visit
from .guard import Guard
from .manners import is_named_sitemap, is_rulebook

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver

STAY_CONNECTED = 512
"""Hosts in memory up to which connections are kept for the next page; many systems allow a thousand."""


class Asking:
    """``async with`` it, then call it with a visit. Raises ``FetchProblem``."""

    def __init__(
        self,
        config: CrawlConfig,
        headers: Mapping[str, Mapping[str, str]] | None,
        resolver: AbstractResolver | None,
        hosts: Callable[[], int],
    ) -> None:
        """``hosts`` says how many are in memory."""
        self._config, self._headers, self._resolver, self._hosts = config, headers, resolver, hosts
        self._guard = Guard(allow_private=config.allow_private, allowed_hosts=config.allowed_hosts)
        self._limits = FetchLimits(
            total=config.timeout, first_byte=min(config.first_byte, config.timeout), largest=config.max_size
        )
        largest = max(config.max_size, FetchLimits().largest)
        self._limits_of_listings = replace(self._limits, largest=largest)
        """For what is no page: a host whose robots.txt is not read is lost, however small its pages should be."""
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        config = self._config
        self._session = new_session(
            self._guard, agent=config.agent, connections=config.workers, resolver=self._resolver
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def __call__(self, visit: Visit) -> Fetched:
        is_named = is_rulebook(visit) or is_named_sitemap(visit)
        is_listing = is_named or visit.url.endswith((".xml", ".xml.gz"))
        return await fetch(
            self._session,
            visit.url,
            limits=self._limits_of_listings if is_named else self._limits,
            guard=self._guard,
            accept=ANYTHING if is_listing else self._config.types,
            headers_by_origin=self._headers_for(origin_of(visit.url)),
        )

    def _headers_for(self, origin: str) -> Mapping[str, Mapping[str, str]] | None:
        """The caller's own; of very many hosts none stays connected, or there would soon be no more connections."""
        given = self._headers
        if self._hosts() <= STAY_CONNECTED:
            return given
        return {origin: {"Connection": "close", **({} if given is None else given.get(origin, {}))}}
