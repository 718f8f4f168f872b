"""Which credential goes to which origin, and which headers must not follow a redirect to another one.

    https://api.example.com  ──its own──>  Authorization: Bearer <leased for this attempt>
    https://evil.example     ──────────>   nothing: not ours, and nothing of what the first request carried
    http://api.example.com   ──────────>   nothing: another scheme is another origin

Clients follow redirects above the gate, so every hop comes through it: what belongs to an origin is attached to each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from ..errors import ConfigError
from ..resilience.context import Credentials, check_credentials
from ..wire.urls import host_key

FORM = "Authorization: Bearer {secret}"
GAP = "{secret}"
MOST_ORIGINS = 10_000
_LOCATION = re.compile(r"[^/?#]*")
_HOST = re.compile(r"\w[\w.-]*|[0-9a-f:.]+(?:%[\w.-]+)?")
"""Of any other, such as good.example\\.evil.example, clients make what they like."""
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_CREDENTIAL = re.compile(
    r"cookie|credential|signature|secret|passw(?:or)?d|passphrase|authori[sz]|authentic|bearer|jwt|hmac"
    r"|(?:token|key|auth)(?:-|$)|(?:^|-)(?:sig|pwd|otp)(?:-|$)"
)
_SESSION = re.compile(r"sess(?:ion|id)|(?:^|-)sid(?:-|$)")
_NO_SECRET = frozenset(("idempotency-key", "sec-websocket-key"))

Given = Credentials | tuple[Credentials, str]
"""Credentials, and the header they go into if it is another one than ``FORM``."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Credentials of one origin, and the header they travel in."""

    origin: str
    credentials: Credentials
    header: str
    form: str

    def headers(self, secret: str) -> dict[str, str]:
        if not (secret.isascii() and secret.isprintable()):
            raise ConfigError(f"a credential of {self.origin} has characters that no header can hold")
        return {self.header: self.form.replace(GAP, secret)}


def bind(given: Mapping[str, Given]) -> dict[str, Bound]:
    """Credentials by origin, checked. What is wrong is told without a word of a secret."""
    if len(given) > MOST_ORIGINS:
        raise ConfigError(f"credentials: {len(given):,} origins must be at most {MOST_ORIGINS:,}")
    bound: dict[str, Bound] = {}
    for number, (text, value) in enumerate(given.items(), 1):
        origin = origin_of(text)
        if not origin:
            raise ConfigError(f"credentials: number {number} is for no origin; write it like https://api.example.com")
        credentials, form = value if isinstance(value, tuple) else (value, FORM)
        check_credentials(credentials)
        header, colon, around = form.partition(":")
        if not (colon and header.replace("-", "").isalnum() and form.isascii() and form.isprintable()):
            raise ConfigError(f"credentials: number {number} needs a header such as {FORM!r}")
        if around.count(GAP) != 1:
            raise ConfigError(f"credentials: number {number} needs {GAP} once in the value of its header")
        bound[origin] = Bound(origin, credentials, header, around.strip())
    return bound


def origin_of(url: str) -> str:
    """Scheme, host and port in one spelling; empty if there is none, and then it is nobody's."""
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


def is_credential(header: str) -> bool:
    """Whether a header of this name may hold a credential, by the names that are in use for it."""
    name = header.lower().replace("_", "-")
    return name not in _NO_SECRET and _CREDENTIAL.search(name) is not None


def is_secret(header: str) -> bool:
    """Whether a header of this name must not reach another origin: a credential, or what names a session."""
    return is_credential(header) or _SESSION.search(header.lower().replace("_", "-")) is not None
