"""Where rows are sent and what they carry: of the primary target, and of each fallback."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..errors import ConfigError
from ..formatting import is_credential
from ..resilience.fallback import Fallback
from ..wire.adapt_body import can_translate
from .endpoints import Endpoint, endpoint_of

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
    """Of ``name=value`` each."""
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
