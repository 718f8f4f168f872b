"""Which path of the proxy leads to which API. Scheme, host and port change; the path stays what it is.

    one API        http://127.0.0.1:8747/v1/models          https://api.openai.com/v1/models
    several        http://127.0.0.1:8747/openai/v1/models   https://api.openai.com/v1/models
    with a path    --to https://host/tenant: what is not below /tenant is not passed on

A redirect within the API is led back through here; one to anywhere else is handed to the caller as it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..batch.addresses import KNOWN, Address, address_of
from ..errors import ConfigError
from ..integrations.binding import origin_of
from ..integrations.outgoing import Outgoing
from ..wire.urls import host_key

MOST_MOUNTS = 100
LONGEST_MODEL = 80
"""Characters of a model's name that are part of a key."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLES = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
"""What the vendors' own clients read."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One API, and where it is found here."""

    name: str
    address: Address
    prefix: str = ""
    """``/name`` where there are several, else nothing."""
    origin: str = ""
    below: str = ""
    """The path that everything must be under, where one was given."""

    @property
    def variable(self) -> str:
        """The environment variable by which the vendor's own client is told its base URL; empty if there is none."""
        return _VARIABLES.get(self.address.name, "")

    @property
    def base_path(self) -> str:
        """What comes behind the proxy's own address in a client's base URL."""
        path = urlsplit(self.address.base_url).path.rstrip("/")
        own = path.removesuffix("/v1") if self.address.name == "anthropic" else path  # its client adds /v1 itself
        return self.prefix + own

    def lets_through(self, path: str) -> bool:
        return not self.below or path == self.below or path.startswith(self.below + "/")

    def led_back(self, location: str, here: str) -> str:
        """A redirect's address as the caller of ``here`` (http://host:port) must ask for it."""
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
        raise ConfigError(f"to: {len(given)} targets must be 1 to {MOST_MOUNTS}")
    mounts: list[Mount] = []
    for number, text in enumerate(given, 1):
        name, equals, to = text.partition("=")
        if not equals:
            name, to = "", text
        elif not _NAME.fullmatch(name):
            raise ConfigError(f"to: number {number} is written NAME=URL, with a name of letters, digits, - _ and .")
        address = address_of(to)
        known = address.name in KNOWN
        if not name and len(given) > 1:
            if not known:
                raise ConfigError(f"to: where there are several, each needs a name: NAME={address.base_url}")
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


def lines_of(mounts: Sequence[Mount]) -> Callable[[Outgoing], str]:
    """The ``key`` of a ``Passing``: a line for each API, and one for each model, since vendors limit each on its own.

    They are named as ``headgate run`` names them, so that both share one quota through a store.
    """
    names = {mount.origin: mount.address.name for mount in mounts}

    def key(request: Outgoing) -> str:
        scheme, _, rest = request.url.partition("://")
        name = names[f"{scheme}://{rest.partition('/')[0]}"]
        if not request.for_model:
            return name
        body = request.parsed()
        model = body.get("model") if isinstance(body, dict) else None
        if not isinstance(model, str) or not model or not model.isprintable():
            return name
        return f"{name}/{model[:LONGEST_MODEL]}"

    return key
