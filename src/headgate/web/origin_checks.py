"""Where a request comes from: under which name it asks for us, and on whose behalf.

A browser runs pages of many sites. One of them may give itself a name that leads to this machine (DNS rebinding), or
ask us in the operator's name from a page of its own. The first is told by ``Host``, the second by ``Origin`` and
``Sec-Fetch-Site``, which pages cannot write.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from starlette.types import Scope

from ..checks import check

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names of this machine that no other site can take."""
ANY = "*"
_HOST = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::\d{1,5})?")


class Hosts:
    """Names, addresses and networks under which the page may be asked for, whatever the port; ``*`` is any."""

    def __init__(self, allowed: Sequence[str]) -> None:
        check("allow_hosts", allowed, not isinstance(allowed, str) and len(allowed) > 0, "some names, as a list")
        self._any = ANY in allowed
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for one in allowed:
            try:
                self._networks.append(ipaddress.ip_network(one))
            except ValueError:
                self._names.add(one.lower())

    def has(self, host: str | None) -> bool:
        found = _HOST.fullmatch(host.lower()) if host is not None else None
        if found is None or self._any:
            return found is not None
        name = found[1] or found[2]
        if name in self._names:
            return found[1] is None
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return (address.version == 6) == (found[1] is not None) and any(address in one for one in self._networks)


class Fields:
    """A request's header fields; no name is looked for twice in different ways."""

    def __init__(self, scope: Scope) -> None:
        self._fields: list[tuple[bytes, bytes]] = [(name.lower(), value) for name, value in scope["headers"]]
        self.size = sum(len(name) + len(value) for name, value in self._fields)
        self.size += len(scope["query_string"]) + len(scope["path"])

    def all(self, name: bytes) -> list[bytes]:
        return [value for one, value in self._fields if one == name]

    def only(self, name: bytes) -> str | None:
        """None unless it is there exactly once."""
        found = self.all(name)
        return found[0].decode("latin-1") if len(found) == 1 else None


def same_site(fields: Fields, host: str, *, to_page: bool) -> bool:
    origins, sites = fields.all(b"origin"), fields.all(b"sec-fetch-site")
    if origins:
        scheme, _, rest = (fields.only(b"origin") or "").partition("://")
        if scheme not in ("http", "https") or rest.lower() != host.lower():
            return False
    if not sites or sites in ([b"same-origin"], [b"none"]):
        return True
    followed_a_link = fields.all(b"sec-fetch-mode") == [b"navigate"] and fields.all(b"sec-fetch-dest") == [b"document"]
    return to_page and followed_a_link and len(sites) == 1


def own_path(scope: Scope) -> str:
    """The path below the prefix at which we are mounted; the same that the routes go by."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    below = path.removeprefix(prefix)
    return below if prefix and path.startswith(prefix) and below[:1] in ("", "/") else path
