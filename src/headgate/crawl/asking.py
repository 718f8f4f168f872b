"""How a crawl asks for a page: one session for all hosts, within the guard, the limits and the types that are set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from . import sitemap
from .address import origin_of
from .config import CrawlConfig
from .fetch import ANYTHING, fetch, new_session
from .fetched import Fetched, FetchLimits
from .frontier_records import Visit
from .guard import Guard
from .manners import is_rulebook
from .room import Room, Share

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
        room: Room,
        hosts: Callable[[], int],
    ) -> None:
        """``hosts`` says how many are in memory."""
        self._config, self._headers, self._resolver, self._room, self._hosts = config, headers, resolver, room, hosts
        self._guard = Guard(allow_private=config.allow_private, allowed_hosts=config.allowed_hosts)
        self._limits = FetchLimits(
            total=config.timeout, first_byte=min(config.first_byte, config.timeout), largest=config.max_size
        )
        self._limits_of_rules = replace(self._limits, largest=max(config.max_size, FetchLimits().largest))
        """A host whose robots.txt is not read is lost, however small its pages should be."""
        self._limits_of_sitemaps = replace(self._limits, largest=sitemap.LARGEST)
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        config = self._config
        self._session = new_session(
            self._guard, agent=config.agent, connections=config.workers, resolver=self._resolver
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def __call__(self, visit: Visit, headers: Mapping[str, str] | None = None) -> Fetched:
        """``headers`` go along with this one request."""
        origin = origin_of(visit.url)
        is_named = is_rulebook(visit) or visit.is_sitemap
        is_listing = is_named or visit.url.endswith((".xml", ".xml.gz"))
        with Share(self._room) as share:
            return await fetch(
                self._session,
                visit.url,
                limits=self._limits_for(visit),
                guard=self._guard,
                accept=ANYTHING if is_listing else self._config.types,
                headers_by_origin={origin: {**self._headers_for(origin), **(headers or {})}},
                share=share,
            )

    def _limits_for(self, visit: Visit) -> FetchLimits:
        if visit.is_sitemap:
            return self._limits_of_sitemaps
        return self._limits_of_rules if is_rulebook(visit) else self._limits

    def _headers_for(self, origin: str) -> Mapping[str, str]:
        """The caller's own; of very many hosts none stays connected, or there would soon be no more connections."""
        given = {} if self._headers is None else self._headers.get(origin, {})
        return given if self._hosts() <= STAY_CONNECTED else {"Connection": "close", **given}
