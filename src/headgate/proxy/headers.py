"""Headers on their way through: what belongs to one connection stays on it, and no secret goes where it is not meant.

there    off: Host, what is hop-by-hop or named by Connection, where the caller sits (X-Forwarded-*, Origin, ...),
              the proxy's own token; and where the proxy has keys, whatever else may be a credential
         on:  what the API wants to have and the caller left out (anthropic-version); the credential comes last
back     off: what is hop-by-hop, Alt-Svc;  changed: Location within the API;  hidden: the credential
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from multidict import CIMultiDict, CIMultiDictProxy

from ..exchange import SHORTEST_SECRET
from ..integrations.binding import is_credential
from .answering import TYPE, TurnedAwayError
from .mounts import Mount

HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_ABOUT_CALLER = frozenset(
    (
        "host",
        "content-length",
        "expect",
        "forwarded",
        "http2-settings",
        "origin",
        "referer",
        "via",
        "x-real-ip",
        "x-headgate-token",
    )
)
_OFF_BACK = HOP_BY_HOP | {"alt-svc"}


@lru_cache(maxsize=1024)
def _goes(name: str, adds_keys: bool) -> bool:
    lower = name.lower()
    if lower in HOP_BY_HOP or lower in _ABOUT_CALLER or lower.startswith(("x-forwarded-", "sec-fetch-")):
        return False
    return not (adds_keys and is_credential(lower))


def there(given: CIMultiDictProxy[str], mount: Mount, *, adds_keys: bool) -> CIMultiDict[str]:
    """The caller's headers as the API gets them, but for the credential and the length. Raises ``TurnedAwayError``."""
    named = _named(given.getall("Connection", ()))
    sent: CIMultiDict[str] = CIMultiDict(
        [(name, value) for name, value in given.items() if _goes(name, adds_keys) and name.lower() not in named]
    )
    if not all(map(str.isascii, sent.values())):
        _check_text(sent)
    for name, value in mount.address.headers:
        sent.setdefault(name, value)
    return sent


def _check_text(headers: CIMultiDict[str]) -> None:
    """UTF-8 comes through as it is; what is neither would become something else on the way."""
    for value in headers.values():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise TurnedAwayError(400, "bad_header", "a header has bytes that are neither ASCII nor UTF-8") from None


def back(given: CIMultiDictProxy[str], mount: Mount, here: str, secret: str) -> CIMultiDict[str]:
    """The API's headers as the caller gets them."""
    named = _named(given.getall("Connection", ()))
    told: CIMultiDict[str] = CIMultiDict()
    hides = len(secret) >= SHORTEST_SECRET
    for name, value in given.items():
        lower = name.lower()
        if lower in _OFF_BACK or lower in named:
            continue
        if hides and secret in value:
            value = value.replace(secret, "*" * len(secret))
        told.add(name, mount.led_back(value, here) if lower == "location" else value)
    told.setdefault("Server", TYPE)
    return told


def _named(connection: Iterable[str]) -> tuple[str, ...]:
    return tuple(one.strip().lower() for value in connection for one in value.split(",") if "," in value or value)
