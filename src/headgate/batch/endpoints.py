"""Where rows are sent and what they carry: a vendor by its name, or any base URL; and how a row's path is joined to it.

A row comes from a file, and the request carries a credential, so a path may not lead anywhere else: no other
host, no user, no way up. Base URLs are written with their version, as SDKs have them, or without; rows
made for OpenAI begin with ``/v1``:

    http://localhost:8000             + /v1/chat/completions   http://localhost:8000/v1/chat/completions
    https://api.openai.com/v1         + /v1/chat/completions   https://api.openai.com/v1/chat/completions
    https://host/v1beta/openai        + /v1/chat/completions   https://host/v1beta/openai/chat/completions
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from ..config import RateLimitConfig
from ..errors import ConfigError
from ..formatting import for_display, is_credential, nearest_name
from ..plugins import VENDORS, PluginError, load_plugin
from ..resilience.fallback import Fallback
from ..wire.dialect import Dialect
from ..wire.fallback import can_translate

LONGEST_PATH = 2_048
LONGEST_URL = 2_048

_CHAT = "/v1/chat/completions"
_PATH = re.compile(r"(?a)/(?!/)[\w.~!$&'()*+,;=:@%/-]*(\?[\w.~!$&'()*+,;=:@%/?-]*)?")
_BASE = re.compile(r"(?ai)(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?((?:/[\w.~-]+)*)/?")
_PLUGIN = re.compile(r"(?a)[a-z][\w.-]{0,63}")
_VERSION = re.compile(r"v[0-9]+[a-z0-9]*")


class InvalidPathError(Exception):
    """This path may not be asked for; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One API: its address, and how requests to it carry a key."""

    name: str
    base_url: str
    path: str = _CHAT
    """Where rows go that do not say."""
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    key_variable: str = ""
    """The environment variable in which people keep its key; nothing here reads it."""
    dialect: str = "openai"
    """Whose requests it takes: one of ``DIALECTS``."""

    def url(self, path: str = "") -> str:
        """The whole URL for a row's path. Raises ``InvalidPathError``."""
        asked = path or self.path
        if len(asked) > LONGEST_PATH:
            raise InvalidPathError(f"url has {len(asked):,} characters; the limit is {LONGEST_PATH:,}")
        if not _PATH.fullmatch(asked):
            raise InvalidPathError("url must be a path on the target's host, such as /v1/chat/completions")
        segments = unquote(unquote(asked.partition("?")[0])).replace("\\", "/").split("/")
        if ".." in segments or "." in segments:
            raise InvalidPathError("url must not contain . or .. segments")
        if asked.startswith("/v1/") and self._has_version:
            asked = asked.removeprefix("/v1")
        return self.base_url + asked

    @property
    def _has_version(self) -> bool:
        """Whether the version is part of the base URL, or of a query as Azure's deployments have it."""
        segments = self.base_url.split("/")[3:]
        return (self.dialect == "azure" and "deployments" in segments) or any(map(_VERSION.fullmatch, segments))


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """What a package offers as an entry point of ``headgate.vendors``: where its API is, and how it states limits."""

    endpoint: Endpoint
    dialect: Dialect | None = None
    """None: its headers and error bodies are the customary ones."""


def endpoint_of(to: str, dialect: str = "") -> Endpoint:
    """A known name, that of an installed plugin, or a base URL, whose dialect may be said."""
    if dialect and dialect not in DIALECTS:
        raise ConfigError(f"dialect={dialect[:80]!r} must be one of {', '.join(DIALECTS)}")
    endpoint = _endpoint_of(to)
    if not dialect or dialect == endpoint.dialect:
        return endpoint
    if endpoint.name in KNOWN_ENDPOINTS or "://" not in to:
        raise ConfigError(f"dialect={dialect!r} is for a base URL; {endpoint.name} has a dialect of its own")
    return replace(endpoint, dialect=dialect, **DIALECTS[dialect])


def _endpoint_of(to: str) -> Endpoint:
    if to in KNOWN_ENDPOINTS:
        return KNOWN_ENDPOINTS[to]
    if _PLUGIN.fullmatch(to) and (vendor := _vendor_of(to)) is not None:
        return vendor.endpoint
    found = _BASE.fullmatch(to) if len(to) <= LONGEST_URL else None
    if found is None or ".." in to or int((found[3] or ":1")[1:]) not in range(1, 65_536):
        raise ConfigError(_invalid_text(to))
    scheme, host, port, path = found.groups()
    name = f"{host.lower()}{port or ''}"
    base_url = f"{scheme.lower()}://{name}{path}"
    known = next((one for one in KNOWN_ENDPOINTS.values() if one.base_url.split("/")[2] == host.lower()), None)
    if known is None or scheme.lower() != "https":
        return Endpoint(name=name, base_url=base_url)
    return replace(known, base_url=base_url)


def _invalid_text(to: str) -> str:
    """What is wrong with a target. Only a misspelled name is repeated: anything else may be a secret."""
    if "://" in to:
        return "target is not a base URL; expected http(s)://host[:port][/path], without user, query or fragment"
    if near := nearest_name(to, KNOWN_ENDPOINTS):
        return f'unknown target "{for_display(to)}"; did you mean "{near}"?'
    return f"unknown target; expected a base URL or one of {', '.join(KNOWN_ENDPOINTS)}"


def _vendor_of(name: str) -> Vendor | None:
    """The vendor of a plugin; its dialect is understood from now on."""
    try:
        vendor = load_plugin(VENDORS, name)
    except PluginError as error:
        raise ConfigError(f"target: {error}") from None
    if vendor is None:
        return None
    if not isinstance(vendor, Vendor):
        raise ConfigError(f"target: plugin {name!r} is not a headgate.batch.endpoints.Vendor")
    if vendor.dialect is not None:
        from ..wire.dialects import register

        register(vendor.dialect)
    return vendor


DIALECTS: dict[str, dict[str, Any]] = {
    "openai": {},
    "anthropic": {
        "path": "/v1/messages",
        "key_header": "x-api-key",
        "key_prefix": "",
        "headers": (("anthropic-version", "2023-06-01"),),
    },
    "azure": {"key_header": "api-key", "key_prefix": ""},
}
"""What differs in an ``Endpoint`` by whose requests it takes."""


def _alike(name: str, base_url: str) -> Endpoint:
    """One with the API of OpenAI."""
    return Endpoint(name=name, base_url=base_url, key_variable=f"{name.upper()}_API_KEY")


KNOWN_ENDPOINTS = {
    address.name: address
    for address in (
        _alike("openai", "https://api.openai.com/v1"),
        Endpoint(
            name="anthropic",
            base_url="https://api.anthropic.com/v1",
            key_variable="ANTHROPIC_API_KEY",
            dialect="anthropic",
            **DIALECTS["anthropic"],
        ),
        _alike("deepseek", "https://api.deepseek.com/v1"),
        _alike("fireworks", "https://api.fireworks.ai/inference/v1"),
        _alike("gemini", "https://generativelanguage.googleapis.com/v1beta/openai"),
        _alike("groq", "https://api.groq.com/openai/v1"),
        _alike("mistral", "https://api.mistral.ai/v1"),
        _alike("openrouter", "https://openrouter.ai/api/v1"),
        _alike("together", "https://api.together.xyz/v1"),
        _alike("xai", "https://api.x.ai/v1"),
    )
}


LARGEST_ANSWER = 64 << 20
"""Bytes, unpacked."""
LONGEST_TIMEOUT = 86_400.0
MOST_CONNECTIONS = 10_000
ENVIRONMENT = "env:"
_OURS = frozenset(("content-length", "content-type", "cookie", "host", "idempotency-key", "transfer-encoding"))
"""Headers that are not for a configuration to set."""
_QUERY = re.compile(r"(?a)[\w.~-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """How rows are sent."""

    to: str
    """A known name, such as ``openai``, or a base URL."""
    path: str = ""
    """Where rows go that do not say; empty is the target's usual one."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every row, such as OpenAI-Organization. The key that rows are sent with belongs to the credentials."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Added to every URL, such as ``api-version`` for Azure. Never a credential: URLs are shown."""
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Values of headers that must not be seen where a server sends them back."""
    dialect: str = ""
    """Whose requests a base URL takes (``endpoints.DIALECTS``); empty is OpenAI's, or the named vendor's own."""
    timeout: float = 600.0
    """Seconds for one attempt."""
    largest_answer: int = LARGEST_ANSWER
    connections: int = 1_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "headers", dict(self.headers))
        for name, value in self.headers.items():
            if not is_header(name, value) or name.lower() in _OURS:
                raise ConfigError(f"target headers: {name[:80]!r} cannot be set")
        object.__setattr__(self, "query", dict(self.query))
        for name, value in self.query.items():
            if not _QUERY.fullmatch(name) or not _QUERY.fullmatch(value):
                raise ConfigError(f"target query: {name[:80]!r} is not a name and a value of letters, digits and - _ .")
            if is_credential(name):
                raise ConfigError(
                    f"target query: {name[:80]!r} may be a credential, and URLs are shown; send it as a header, or "
                    "with the keys"
                )
        for name, least, most in (
            ("timeout", 0.001, LONGEST_TIMEOUT),
            ("largest_answer", 1, 1 << 40),
            ("connections", 1, MOST_CONNECTIONS),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ConfigError(f"target {name}={value!r} must be from {least:,} to {most:,}")

    @property
    def endpoint(self) -> Endpoint:
        """Raises ``ConfigError``."""
        return endpoint_of(self.to, self.dialect)

    def for_fallback(self, fallback: Fallback) -> TargetConfig:
        """Where rows of this target go by a fallback. What belongs to this origin goes to no other.

        Raises ``ConfigError`` for one whose requests have another shape.
        """
        if not fallback.to:
            if fallback.header or fallback.query or fallback.dialect:
                raise ConfigError("fallback: header, query and dialect are for another target; add to=...")
            return self
        headers, hidden = read_headers(fallback.header)
        other = replace(
            self,
            to=fallback.to,
            headers=headers,
            hidden=hidden,
            query=read_query(fallback.query),
            dialect=fallback.dialect,
        )
        ours, theirs = self.endpoint, other.endpoint
        if not can_translate(ours.dialect, theirs.dialect):
            raise ConfigError(
                f"fallback: requests for {ours.name} (dialect {ours.dialect}) cannot be translated for {theirs.name} "
                f"(dialect {theirs.dialect}); only names are adapted: the model, and max_tokens"
            )
        return other


def unlimited_elsewhere(to: TargetConfig, fallbacks: Iterable[Fallback], config: RateLimitConfig) -> RateLimitConfig:
    """The limits that are known are those of the primary target: what other vendors allow is learned.

    Keys of the limiter are ``vendor/model``, and ``vendor(2)/model`` for other credentials at the same vendor.
    """
    names = {to.for_fallback(one).endpoint.name for one in fallbacks} - {to.endpoint.name}
    escaped = [name.replace("[", "[[]") for name in names]  # the address of an IPv6 host is not a pattern
    learned = replace(config, limits={})
    patterns = [pattern for name in escaped for pattern in (name, f"{name}/*", f"{name}(*")]
    return replace(config, overrides=dict.fromkeys(patterns, learned))


def read_headers(texts: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Headers by name, of ``Name: value`` each, and the values that were read from the environment."""
    headers: dict[str, str] = {}
    hidden = []
    for text in texts:
        name, colon, value = (part.strip() for part in text.partition(":"))
        if not colon or not name or not value:
            raise ConfigError("header: expected 'NAME: VALUE', such as 'OpenAI-Organization: org-1'")
        if value.startswith(ENVIRONMENT):
            variable = value.removeprefix(ENVIRONMENT)
            value = os.environ.get(variable, "").strip()
            if not value:
                raise ConfigError(f"the environment variable {variable} for header {name} is not set")
            hidden.append(value)
        elif is_credential(name):
            raise ConfigError(
                f"header {name} is a credential and is not written here, where others can see it; name the environment "
                "variable that holds it, as env:NAME"
            )
        headers[name] = value
    return headers, tuple(hidden)


def read_query(texts: Iterable[str]) -> dict[str, str]:
    """The query of a target, from ``name=value`` texts."""
    query: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError("query: expected NAME=VALUE, such as api-version=2024-10-21")
        query[name] = value
    return query


def is_header(name: str, value: str) -> bool:
    return (
        name.replace("-", "").replace("_", "").isalnum() and name.isascii() and value.isprintable() and value.isascii()
    )
