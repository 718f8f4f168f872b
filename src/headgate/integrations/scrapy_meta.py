"""What a Scrapy request takes along to the next hop, and must not.

A redirect is a copy of the request before it, with another address. Scrapy takes ``Authorization`` and cookies off it
itself; it keeps ``X-Api-Key``, and the download slot of the host it came from. Here are the decisions alone, on
``meta`` and names, for whoever has a request in hand.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from .binding import is_secret, origin_of
from .hops import FirstHop, strip

HOP = "headgate_hop"
"""In ``meta``: the address of this hop, and the origin that its headers belong to."""
WAIT = "headgate_wait"
"""In ``meta``: seconds for which a request that goes again is put off."""
TURNED_AWAY = "headgate_turned_away"
"""In ``meta``: how often it was answered with 429."""
_SLOT = "download_slot"
_KEPT_BY_SCRAPY = frozenset(("authorization", "cookie", "proxy-authorization"))
"""Scrapy attaches and removes these itself, by rules of its own that are as strict."""


def secrets_to_drop(meta: MutableMapping[str, Any], url: str, headers: Iterable[str]) -> list[str]:
    """Names of headers that hold a credential of another origin; notes in ``meta`` what the next hop must know."""
    known = meta.get(HOP)
    first = FirstHop(origin_of(url), frozenset())
    carried = {name: "" for name in headers if is_secret(name) and name.lower() not in _KEPT_BY_SCRAPY}
    names = list(carried)
    if known is not None and known[0] in (url, came_from(meta)):
        first = strip(FirstHop(known[1], frozenset()), url, carried)
    meta[HOP] = (url, first.origin)
    return [name for name in names if name not in carried]


def leave_slot_of_other_host(meta: MutableMapping[str, Any], url: str) -> None:
    """A redirect to another host stands in that host's line. A slot that the spider chose itself stays."""
    before = urlsplit(came_from(meta)).hostname
    if before and meta.get(_SLOT) == before != urlsplit(url).hostname:
        del meta[_SLOT]


def came_from(meta: MutableMapping[str, Any]) -> str:
    """The address that led to this one; empty if none did."""
    before = meta.get("redirect_urls")
    return str(before[-1]) if before else ""
