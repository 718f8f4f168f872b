"""What the mock must know of an API to speak it: where it listens, what it takes, how it answers and refuses.

    request ─> key_of ─> check ─> answer                         200
                 │          └────> refuse("invalid", why)         400
                 └─ unknown ─────> refuse("unauthorized")         401, 403 or 400, as the real one does

Everything here is pure; quotas, faults and sockets are the service's (``service.py``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..api import Reply

TROUBLES = ("rate_limited", "quota", "unauthorized", "forbidden", "invalid", "server_error", "unavailable")
"""What every API can say in its own words."""


class InvalidRequestError(Exception):
    """The API does not take this request; the message is the one it would give."""


@dataclass(frozen=True, slots=True)
class MockRequest:
    """One request as it came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    body: Any = None

    @property
    def bearer(self) -> str:
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else ""

    def fields(self) -> dict[str, Any]:
        """The JSON object in the body, which the real APIs insist on."""
        if not isinstance(self.body, dict):
            raise InvalidRequestError("The request body must be a JSON object.")
        return self.body

    def whole_number(self, name: str, default: int, least: int, most: int) -> int:
        """A number of the query or of the body, within its bounds."""
        given = self.body.get(name, default) if isinstance(self.body, dict) else self.query.get(name, default)
        try:
            number = int(given)
        except (TypeError, ValueError):
            number = least - 1
        if not least <= number <= most:
            raise InvalidRequestError(f"{name} must be between {least} and {most}.")
        return number


class ProviderApi(ABC):
    name: str
    site: str
    """APIs of one site share its address, as /search and /extract of Tavily do."""
    root = ""
    """What clients take for a part of the address."""
    method: str
    path: str
    keyless = False
    """Whether it answers without a key too."""

    @abstractmethod
    def key_of(self, asked: MockRequest) -> str:
        """The key the request carries, or nothing."""

    @abstractmethod
    def answer(self, asked: MockRequest) -> dict[str, Any]:
        """The body of a good answer; raises ``InvalidRequestError``."""

    @abstractmethod
    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        """One of ``TROUBLES`` as this API tells it; ``retry_after`` is told only where the real API does."""


# ---------------------------------------------------------------------- pages
# The small web that the mocks search: the same question always finds the same pages, in the same order.


PAGES = 130
"""How many pages there are about anything; more than every API gives at once."""
LONGEST_SLUG = 60
FIRST_YEAR = 2018

_ASPECTS = ("an introduction", "a survey", "in practice", "the numbers", "a critique", "the history", "open questions")


@dataclass(frozen=True, slots=True)
class WebPage:
    title: str
    url: str
    summary: str
    text: str
    score: float
    published: str
    """An ISO date."""


def page(query: str, index: int) -> WebPage:
    slug = re.sub(r"[^a-z0-9]+", "-", query.lower())[:LONGEST_SLUG].strip("-") or "anything"
    aspect = _ASPECTS[index % len(_ASPECTS)]
    summary = f"Page {index + 1} on {query}: {aspect}."
    return WebPage(
        title=f"{query}: {aspect} ({index + 1})",
        url=f"https://example.org/{slug}/{index + 1}",
        summary=summary,
        text=f"{summary} It is made up, and says so.",
        score=round(0.99 - 0.007 * index, 4),
        published=f"{FIRST_YEAR + index % 8}-{1 + index % 12:02}-{1 + index % 28:02}",
    )


def pages(query: str, start: int, count: int) -> list[WebPage]:
    return [page(query, index) for index in range(start, min(start + count, PAGES))]
