"""What a span says about where a call goes, by the semantic conventions, without anything that could be a secret."""

from __future__ import annotations

from ..wire.redaction import redact
from ..wire.urls import host_key

METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"))
LONGEST_ADDRESS = 500
_PORTS = {"http": 80, "https": 443}


def method_of(method: str) -> str:
    """A method as the conventions have it; empty for one that is not known."""
    upper = method.upper()
    return upper if upper in METHODS else ""


def address_facts(url: str) -> dict[str, str | int]:
    """Where a request goes: scheme, host and path. Query, fragment and user are left out."""
    scheme, found, rest = url.partition("://")
    if not found:
        return server_facts(url)
    bare = rest.partition("#")[0].partition("?")[0]
    location, slash, path = bare.partition("/")
    host = location.rpartition("@")[2]
    facts = server_facts(host)
    port = host.rpartition(":")[2]
    if "server.address" in facts and (port.isdecimal() or scheme.lower() in _PORTS):
        facts["server.port"] = int(port) if port.isdecimal() else _PORTS[scheme.lower()]
    facts["url.full"] = redact(f"{scheme.lower()}://{host}{slash}{path}"[:LONGEST_ADDRESS])
    return facts


def server_facts(key: str) -> dict[str, str | int]:
    """The host that a key names, if it names one: ``api.example.com/label`` does, ``openai`` does not."""
    host = host_key(key.partition("/")[0])
    name, colon, port = host.rpartition(":")
    if not (colon and port.isdecimal() and (name.startswith("[") or ":" not in name)):
        name, port = host, ""
    is_host = name.startswith("[") or name == "localhost" or ("." in name and " " not in name)
    if not is_host:
        return {}
    facts: dict[str, str | int] = {"server.address": name.strip("[]")}
    if port:
        facts["server.port"] = int(port)
    return facts
