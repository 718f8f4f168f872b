"""One name per server, however its address is written.

https://User:pw@API.Example.com:443/v1?key=1   api.example.com
http://BÜCHER.example:8080                     xn--bcher-kva.example:8080
http://[2001:DB8::1]:80/                       [2001:db8::1]
openai/gpt-4o, tenant A, Tavily                unchanged: a name, not an address
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

LONGEST_URL = 8192
"""Characters; a longer text is a name of its own and stays as it is."""
LONGEST_HOST = 253

_DEFAULT_PORTS = ("80", "443")
_URL = r"(?ai)(?:[a-z][a-z0-9+.-]{0,31}:)?//([^/?#\\]*)"
_LOCATION = r"(?ai)(?:([^\s/?#@:\[\]\\]+)|\[([0-9a-f:.]{2,64})(?:%[^\]]{1,32})?\])(?::(\d{0,5}))?"
_IPV4 = r"(?a)\d{1,3}(?:\.\d{1,3}){3}"
_TOP_LEVEL = r"[^\W\d_]{2,63}|xn--[a-z0-9-]{1,59}"
_UNFIT = r"[^\w.-]"
"""Characters that may be in a label but not in a key."""


def host_key(text: str) -> str:
    """A URL or a host as a limiter's key; any other text unchanged. Never raises, never keeps a credential."""
    if len(text) > LONGEST_URL:
        return text
    url = re.match(_URL, text)
    if url is not None:
        location = url[1].rpartition("@")[2]
        return _host(location) or location.lower() or text
    plain = text.strip()
    first, slash, path = plain.partition("/")
    user, _, location = first.rpartition("@")
    host = _host(location if ":" in user else first)
    if host is None or not (host.startswith("[") or _looks_like_host(host.partition(":")[0])):
        return text
    return f"{host}/{path.partition('?')[0]}" if slash else host


def _host(location: str) -> str | None:
    """A host and its port in one spelling; None if it is neither."""
    found = re.fullmatch(_LOCATION, location)
    if found is None:
        return None
    name, ipv6, port = found.groups()
    host = f"[{_shortest(ipv6)}]" if ipv6 else _canonical(name)
    return f"{host}:{int(port)}" if port and port not in _DEFAULT_PORTS else host


def pair_key(key: str, label: str) -> str:
    """The key of a credential's own pace: ``api.example.com/label``."""
    return f"{key}/{re.sub(_UNFIT, _quoted, label)}"


def _quoted(unfit: re.Match[str]) -> str:
    return f"%{ord(unfit[0]):x}"


def group_key(host: str) -> str:
    """The domain under which a host's owner registered it: ``a.b.example.co.uk`` is ``example.co.uk``.

    By the Public Suffix List, its private part included: sites under ``github.io`` have an owner each. Addresses of
    machines, ports and plain names are kept, and so is a name that is a public suffix itself.
    """
    name, colon, port = host.partition(":")
    if host.startswith("[") or re.fullmatch(_IPV4, name) or not _looks_like_host(name):
        return host
    return (_suffixes().privatesuffix(name) or name) + colon + port


@cache
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # read when the first domain is asked for: it takes a moment

    return PublicSuffixList()


def _looks_like_host(name: str) -> bool:
    if name == "localhost" or re.fullmatch(_IPV4, name):
        return True
    rest, dot, top = name.rpartition(".")
    return bool(dot and rest and len(name) <= LONGEST_HOST and ".." not in name and re.fullmatch(_TOP_LEVEL, top))


def _canonical(name: str) -> str:
    name = name.lower().rstrip(".") or name
    if name.isascii() or len(name) > LONGEST_HOST:
        return name
    return ascii_host(name) or name


def ascii_host(name: str) -> str | None:
    """An international name in ASCII; None if it has none."""
    try:
        import idna  # many HTTP libraries bring it; it knows today's rules

        return idna.encode(name, uts46=True).decode("ascii")
    except (ImportError, UnicodeError):  # symbols, which these rules no longer know but names still have
        pass
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return None


def _shortest(address: str) -> str:
    import ipaddress

    try:
        return ipaddress.IPv6Address(address).compressed
    except ValueError:
        return address.lower()


LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names of this machine that no other site can take."""
EVERY_ADDRESS = ("0.0.0.0/0", "::/0")
"""A request by address involves no name, so none can be rebound."""
ANY_HOST = "*"
_HOST_FIELD = r"(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::\d{1,5})?"
"""A ``Host`` header in lower case: an IPv6 address in brackets or a name, and perhaps a port."""


class AllowedHosts:
    """Names, addresses and networks under which a server may be asked for, whatever the port; ``*`` is any.

    Another name in ``Host`` is one that a foreign site has pointed here (DNS rebinding).
    """

    def __init__(self, allowed: Sequence[str]) -> None:
        import ipaddress  # here, because few processes listen

        self._any = ANY_HOST in allowed
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for one in allowed:
            try:
                self._networks.append(ipaddress.ip_network(one))
            except ValueError:
                self._names.add(one.lower())

    def has(self, host: str) -> bool:
        """``host`` is the value of a ``Host`` header."""
        import ipaddress

        found = re.fullmatch(_HOST_FIELD, host.lower())
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


def is_loopback(host: str) -> bool:
    """Whether this name or address reaches only this machine."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
