"""Which credential goes to which origin, and which headers must not follow a redirect to another one.

    https://api.example.com  ──its own──>  Authorization: Bearer <leased for this attempt>
    https://evil.example     ──────────>   nothing: not ours, and nothing of what the first request carried
    http://api.example.com   ──────────>   nothing: another scheme is another origin

Clients follow redirects above the gate, so every hop comes through it: what belongs to an origin is attached to each.
They drop ``Authorization`` themselves, and keep ``x-api-key``:

    the first hop    remembered with the request: its origin, and the cookies it was sent with
    a later hop      to another origin: no header that may hold a credential, and no cookie of another site goes along

From http to https of the same host is the one exception, as it is for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

from ..errors import ConfigError
from ..formatting import is_credential
from ..resilience.context import KEY_GAP, KEY_HEADER, Credentials, check_credentials, parse_key_header
from ..wire.urls import group_key, host_key

MOST_ORIGINS = 10_000
_LOCATION = re.compile(r"[^/?#]*")
_HOST = re.compile(r"\w[\w.-]*|[0-9a-f:.]+(?:%[\w.-]+)?")
"""Of any other, such as good.example\\.evil.example, clients make what they like."""
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SESSION = re.compile(r"sess(?:ion|id)|(?:^|-)sid(?:-|$)")

Given = Credentials | tuple[Credentials, str]
"""Credentials, and the header they go into if it is another one than ``KEY_HEADER``."""


@dataclass(frozen=True, slots=True)
class OriginCredentials:
    """Credentials of one origin, and the header they travel in."""

    origin: str
    credentials: Credentials
    header: str
    form: str

    def headers(self, secret: str) -> dict[str, str]:
        if not (secret.isascii() and secret.isprintable()):
            raise ConfigError(f"a credential of {self.origin} has characters that a header cannot contain")
        return {self.header: self.form.replace(KEY_GAP, secret)}


def bind(given: Mapping[str, Given]) -> dict[str, OriginCredentials]:
    """Credentials by origin, checked. No error shows a secret."""
    if len(given) > MOST_ORIGINS:
        raise ConfigError(f"credentials has {len(given):,} origins; the limit is {MOST_ORIGINS:,}")
    bound: dict[str, OriginCredentials] = {}
    for number, (text, value) in enumerate(given.items(), 1):
        origin = origin_of(text)
        if not origin:
            raise ConfigError(
                f"credentials: number {number} has no valid origin; write it like https://api.example.com"
            )
        credentials, form = value if isinstance(value, tuple) else (value, KEY_HEADER)
        check_credentials(credentials)
        bound[origin] = OriginCredentials(origin, credentials, *parse_key_header(number, form))
    return bound


def origin_of(url: str) -> str:
    """Scheme, host and port in one spelling; empty if there is none, and then it has no credentials."""
    scheme, colon, rest = url.partition("://")
    start = f"{scheme}{colon}{_LOCATION.match(rest)[0]}"  # type: ignore[index]  # it matches anything
    return _read(start) if "@" in start else _known(start)  # a password is not kept


def _read(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    scheme = parts.scheme.lower()
    if not host or scheme not in _PORTS or _HOST.fullmatch(host) is None:
        return ""
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{host_key(f'//{shown}')}:{port or _PORTS[scheme]}"


_known = lru_cache(maxsize=1024)(_read)


def is_secret(header: str) -> bool:
    """Whether a header of this name must not reach another origin: a credential, or what names a session."""
    return is_credential(header) or _SESSION.search(header.lower().replace("_", "-")) is not None


# ---------------------------------------------------------------------- redirects


class FirstHop(NamedTuple):
    origin: str
    cookies: frozenset[str]


def first_hop(url: str, headers: MutableMapping[str, str]) -> FirstHop:
    return FirstHop(origin_of(url), frozenset(_cookies(headers)))


def strip_secrets(first: FirstHop, url: str, headers: MutableMapping[str, str]) -> FirstHop:
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
    """Cookies may be shared by the hosts of one domain; not where the later one is not encrypted."""
    scheme, host = origin.split("://", 1)[0], urlsplit(origin).hostname or ""
    later_scheme, later_host = later.split("://", 1)[0], urlsplit(later).hostname or ""
    return (
        bool(host) and group_key(host) == group_key(later_host) and not (scheme == "https" and later_scheme == "http")
    )
