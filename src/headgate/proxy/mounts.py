"""Which path of the proxy leads to which API. Scheme, host and port change; the path stays what it is.

    one API        http://127.0.0.1:8747/v1/models          https://api.openai.com/v1/models
    several        http://127.0.0.1:8747/openai/v1/models   https://api.openai.com/v1/models
    with a path    --to https://host/tenant: only paths below /tenant are forwarded

A redirect within the API is rewritten to lead through the proxy; any other is passed to the client unchanged.

Headers: what belongs to one connection stays on it, and no secret goes where it is not meant.

    request    dropped: Host, hop-by-hop ones and those named by Connection, those about the client (X-Forwarded-*,
                        Origin, ...), the proxy's token; where the proxy has keys, anything that may be a credential
               added:   what the API requires and the client left out (anthropic-version); the credential comes last
    response   dropped: hop-by-hop ones, Alt-Svc;  rewritten: Location within the API;  masked: the credential
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from multidict import CIMultiDict, CIMultiDictProxy

from ..batch.endpoints import KNOWN_ENDPOINTS, Endpoint, endpoint_of
from ..errors import ConfigError
from ..exchange import SHORTEST_SECRET
from ..formatting import is_credential
from ..integrations.origins import origin_of
from ..integrations.request import OutgoingRequest
from ..wire.urls import host_key
from .error_response import TYPE, RejectedRequestError

MOST_MOUNTS = 100
LONGEST_MODEL = 80
"""Characters of a model's name that are part of a key."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
"""The environment variables that the vendors' own clients read."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One API, and its path in the proxy."""

    name: str
    address: Endpoint
    prefix: str = ""
    """``/name`` where there are several, else nothing."""
    origin: str = ""
    below: str = ""
    """The path that all requests must be below, where one was given."""

    @property
    def variable(self) -> str:
        """The environment variable with the base URL of the vendor's own client; empty if there is none."""
        return _VARIABLES.get(self.address.name, "")

    @property
    def base_path(self) -> str:
        """What follows the proxy's address in a client's base URL."""
        path = urlsplit(self.address.base_url).path.rstrip("/")
        own = path.removesuffix("/v1") if self.address.name == "anthropic" else path  # its client adds /v1 itself
        return self.prefix + own

    def allows(self, path: str) -> bool:
        return not self.below or path == self.below or path.startswith(self.below + "/")

    def rewrite_location(self, location: str, here: str) -> str:
        """A redirect's address for a client of ``here`` (http://host:port)."""
        if location.startswith("/") and location[1:2] not in ("/", "\\"):
            return self.prefix + location
        try:
            parts = urlsplit(location)
        except ValueError:
            return location
        if "@" in parts.netloc or origin_of(location) != origin_of(self.origin):
            return location
        rest = location.split("://", 1)[1][len(parts.netloc) :]
        return f"{here}{self.prefix}{rest if rest.startswith('/') else '/' + rest}"


def mounts_of(given: Sequence[str]) -> list[Mount]:
    """``openai``, ``https://host/path`` or ``NAME=URL`` each; several need names. Raises ``ConfigError``."""
    if not 1 <= len(given) <= MOST_MOUNTS:
        raise ConfigError(f"to has {len(given)} targets; expected 1 to {MOST_MOUNTS}")
    mounts: list[Mount] = []
    for number, text in enumerate(given, 1):
        name, equals, to = text.partition("=")
        if not equals:
            name, to = "", text
        elif not _NAME.fullmatch(name):
            raise ConfigError(f"to: number {number} is not NAME=URL with a name of letters, digits, - _ and .")
        address = endpoint_of(to)
        known = address.name in KNOWN_ENDPOINTS
        if not name and len(given) > 1:
            if not known:
                raise ConfigError(f"to: with several targets each needs a name: NAME={address.base_url}")
            name = address.name
        scheme, host = urlsplit(address.base_url)[:2]
        mounts.append(
            Mount(
                name=name or address.name,
                address=address,
                prefix=f"/{name}" if name else "",
                origin=f"{scheme}://{host}",
                below="" if known else urlsplit(address.base_url).path.rstrip("/"),
            )
        )
    for what, of in (("name", [one.name for one in mounts]), ("host", [origin_of(one.origin) for one in mounts])):
        if len(set(of)) < len(of):
            raise ConfigError(f"to: two targets have the same {what}")
    if len({host_key(one.address.name) for one in mounts}) < len(mounts):
        raise ConfigError("to: two targets are the same API")
    return mounts


def lines_of(mounts: Sequence[Mount], *, learn_others: bool = False) -> Callable[[OutgoingRequest], str]:
    """The ``key`` of a client gate: one for each API and model, since vendors limit each model on its own.

    Named as ``headgate run`` names them, so that both share one quota through a store. ``learn_others``: requests may
    go to fallbacks, which are named by their hosts.
    """
    names = {mount.origin: mount.address.name for mount in mounts}

    def key(request: OutgoingRequest) -> str:
        scheme, _, rest = request.url.partition("://")
        host = rest.partition("/")[0]
        name = names.get(f"{scheme}://{host}", host) if learn_others else names[f"{scheme}://{host}"]
        if not request.for_model:
            return name
        body = request.parsed()
        model = body.get("model") if isinstance(body, dict) else None
        if not isinstance(model, str) or not model or not model.isprintable():
            return name
        return f"{name}/{model[:LONGEST_MODEL]}"

    return key


# ---------------------------------------------------------------------- headers

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
_ABOUT_CLIENT = frozenset(
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
_NOT_RETURNED = HOP_BY_HOP | {"alt-svc"}


@lru_cache(maxsize=1024)
def _is_forwarded(name: str, adds_keys: bool) -> bool:
    lower = name.lower()
    if lower in HOP_BY_HOP or lower in _ABOUT_CLIENT or lower.startswith(("x-forwarded-", "sec-fetch-")):
        return False
    return not (adds_keys and is_credential(lower))


@lru_cache(maxsize=1024)
def _is_returned(name: str) -> bool:
    return name.lower() not in _NOT_RETURNED


def request_headers(given: CIMultiDictProxy[str], mount: Mount, host: str, *, adds_keys: bool) -> CIMultiDict[str]:
    """The client's headers as the API at ``host`` gets them, without credential and length.

    Raises ``RejectedRequestError``.
    """
    named = _connection_names(given.getall("Connection", ()))
    sent: CIMultiDict[str] = CIMultiDict(Host=host)
    for name, value in given.items():
        if _is_forwarded(name, adds_keys) and not (named and name.lower() in named):
            sent.add(name, value)
    if not all(map(str.isascii, sent.values())):
        _check_text(sent)
    for name, value in mount.address.headers:
        sent.setdefault(name, value)
    return sent


def _check_text(headers: CIMultiDict[str]) -> None:
    """UTF-8 passes unchanged; other bytes would be changed on the way."""
    for value in headers.values():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RejectedRequestError(
                400, "bad_header", "a header has bytes that are neither ASCII nor UTF-8"
            ) from None


def response_headers(given: CIMultiDictProxy[str], mount: Mount, here: str, secret: str) -> CIMultiDict[str]:
    """The API's headers as the client gets them."""
    named = _connection_names(given.getall("Connection", ()))
    returned: CIMultiDict[str] = CIMultiDict()
    hides = len(secret) >= SHORTEST_SECRET
    for name, value in given.items():
        if not _is_returned(name) or (named and name.lower() in named):
            continue
        if hides and secret in value:
            value = value.replace(secret, "*" * len(secret))
        is_location = len(name) == len("location") and name.lower() == "location"
        returned.add(name, mount.rewrite_location(value, here) if is_location else value)
    returned.setdefault("Server", TYPE)
    return returned


def _connection_names(connection: Sequence[str]) -> tuple[str, ...]:
    return tuple([one.strip().lower() for value in connection for one in value.split(",")]) if connection else ()
