"""What a redirect must not carry along: the headers of one origin stay with it.

    the first hop    remembered with the request: its origin, and the cookies it was sent with
    a later hop      to another origin: no header that may hold a credential, and no cookie of another site goes along

Clients drop ``Authorization`` themselves, and keep ``x-api-key``. From http to https of the same host is the one
exception, as it is for them.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple
from urllib.parse import urlsplit

from ..wire.urls import group_key
from .binding import is_secret, origin_of


class FirstHop(NamedTuple):
    origin: str
    cookies: frozenset[str]


def first_hop(url: str, headers: MutableMapping[str, str]) -> FirstHop:
    return FirstHop(origin_of(url), frozenset(_cookies(headers)))


def strip(first: FirstHop, url: str, headers: MutableMapping[str, str]) -> FirstHop:
    """Take out of a later hop's headers what belongs to the first. Returns what the hop after it is compared with."""
    origin = origin_of(url)
    if origin == first.origin and origin:
        return first
    if _is_upgrade(first.origin, origin):
        return FirstHop(origin, first.cookies)
    for name in list(headers):
        if is_secret(name) and name.lower() != "cookie":
            headers.pop(name, None)  # a name may be there twice
    if first.cookies and not _is_same_site(first.origin, origin):
        kept = [cookie for cookie in _cookies(headers) if cookie not in first.cookies]
        if kept:
            headers["cookie"] = "; ".join(kept)
        elif "cookie" in headers:
            del headers["cookie"]
    return first


def _cookies(headers: MutableMapping[str, str]) -> list[str]:
    return [cookie.strip() for cookie in headers.get("cookie", "").split(";") if cookie.strip()]


def _is_upgrade(origin: str, later: str) -> bool:
    return (
        origin.startswith("http://")
        and origin.endswith(":80")
        and later == f"https://{origin.removeprefix('http://').removesuffix(':80')}:443"
    )


def _is_same_site(origin: str, later: str) -> bool:
    """Cookies may be shared by the hosts of one domain; not where the later one could be overheard."""
    scheme, host = origin.split("://", 1)[0], urlsplit(origin).hostname or ""
    later_scheme, later_host = later.split("://", 1)[0], urlsplit(later).hostname or ""
    return (
        bool(host) and group_key(host) == group_key(later_host) and not (scheme == "https" and later_scheme == "http")
    )
