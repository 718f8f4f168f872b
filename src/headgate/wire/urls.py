"""One name per server, however its address is written.

https://User:pw@API.Example.com:443/v1?key=1   api.example.com
http://BÜCHER.example:8080                     xn--bcher-kva.example:8080
http://[2001:DB8::1]:80/                       [2001:db8::1]
openai/gpt-4o, tenant A, Tavily                unchanged: a name, not an address
"""

from __future__ import annotations

import re

LONGEST_URL = 8192
"""Characters; a longer text is a name of its own and stays as it is."""
LONGEST_HOST = 253

_DEFAULT_PORTS = ("80", "443")
_URL = r"(?ai)(?:[a-z][a-z0-9+.-]{0,31}:)?//([^/?#\\]*)"
_LOCATION = r"(?ai)(?:([^\s/?#@:\[\]\\]+)|\[([0-9a-f:.]{2,64})(?:%[^\]]{1,32})?\])(?::(\d{0,5}))?"
_IPV4 = r"(?a)\d{1,3}(?:\.\d{1,3}){3}"
_TOP_LEVEL = r"[^\W\d_]{2,63}|xn--[a-z0-9-]{1,59}"

_SECOND_LEVELS = frozenset(
    ("ac", "co", "com", "edu", "go", "gob", "gov", "mil", "ne", "net", "nom", "or", "org", "sch")
)


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


def group_key(host: str) -> str:
    """The domain under which a host's owner registered it: ``a.b.example.com`` is ``example.com``.

    Two labels, or three where a two-letter country keeps its second level for kinds of owners
    (``example.co.uk``). A rule of thumb in place of the Public Suffix List: it treats every site
    under ``github.io`` as one. Addresses of machines, ports and plain names are kept.
    """
    name, colon, port = host.partition(":")
    if host.startswith("[") or re.fullmatch(_IPV4, name) or not _looks_like_host(name):
        return host
    labels = name.rstrip(".").split(".")
    kept = 3 if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVELS else 2
    return ".".join(labels[-kept:]) + colon + port


def _looks_like_host(name: str) -> bool:
    if name == "localhost" or re.fullmatch(_IPV4, name):
        return True
    rest, dot, top = name.rpartition(".")
    return bool(dot and rest and len(name) <= LONGEST_HOST and ".." not in name and re.fullmatch(_TOP_LEVEL, top))


def _canonical(name: str) -> str:
    name = name.lower().rstrip(".") or name
    if name.isascii() or len(name) > LONGEST_HOST:
        return name
    try:
        import idna  # many HTTP libraries bring it; it knows today's rules

        return idna.encode(name, uts46=True).decode("ascii")
    except (ImportError, UnicodeError):
        pass
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return name


def _shortest(address: str) -> str:
    import ipaddress

    try:
        return ipaddress.IPv6Address(address).compressed
    except ValueError:
        return address.lower()
