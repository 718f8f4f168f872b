"""The results of a search, the same for every provider.

Answers come from outside: a field may be missing, of another type or nonsense. What cannot be read is left out, and
nothing here raises for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

LONGEST_DATE = 64
"""Characters; no real date is that long."""

Json = Mapping[str, Any]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters; tabs and new lines are harmless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One result. What the provider did not state is empty."""

    title: str
    url: str
    """Always http or https."""
    provider: str
    snippet: str = ""
    """A sentence or two about it."""
    content: str | None = None
    """The text itself, where the provider gives it."""
    score: float | None = None
    """The provider's own measure; not comparable across providers."""
    published_at: datetime | None = None
    """In UTC."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of this provider alone: authors, citations, ..."""


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of a provider, and where the next one begins, if there is more."""

    results: list[SearchResult]
    next_start: int | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    """Requested addresses that could not be read, and why."""


def objects(value: object) -> Iterator[Json]:
    """The objects in a list; nothing if it is not a list."""
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, Mapping))


def inner(value: object, *names: str) -> Any:
    """The value under these nested names; None if one is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def text(value: object) -> str:
    """The text without control characters."""
    return _CONTROLS.sub("", value).strip() if isinstance(value, str) else ""


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def position(value: object) -> int | None:
    """A place in a list of results."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def web_address(value: object) -> str:
    """The address if it is http or https, else nothing."""
    address = text(value)
    return address if address.lower().startswith(("http://", "https://")) else ""


def instant(value: object) -> datetime | None:
    """``2024-03-05``, ``2024-03-05T08:00:00Z`` or ``Tue, 05 Mar 2024 08:00:00 GMT``, in UTC."""
    from email.utils import parsedate_to_datetime  # here, because few write dates that way and it is large

    written = text(value)[:LONGEST_DATE]
    for reader in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = reader(written)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, TypeError, OverflowError):
            continue
    return None
