"""What the mock must know of an API: where it listens, what it takes, how it answers and refuses.

    request ─> key_of ─> check ─> answer                         200
                 │          └────> refuse("invalid", why)         400
                 └─ unknown ─────> refuse("unauthorized")         401, 403 or 400, as the real one does

A ``FaultScript`` holds what is to go wrong instead. Everything here is pure; quotas and sockets are in ``service.py``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

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


# ---------------------------------------------------------------------- faults
# A script of what goes wrong in the next calls of an API:
#
#     Fault(trouble="rate_limited")              in the API's own words
#     Fault(status=502, body="<html>...")        the same for every API
#     Fault(status=302, headers={"Location": ...})
#     Fault(delay=2.0)                           the usual answer, late
#     Fault(drop="before"), Fault(drop="midway") closes the connection instead of answering, or half way through
#
# A fault with a ``key`` waits for a call that carries that key.

MOST_FAULTS = 10_000
"""How many may wait to be acted out."""
LONGEST_DELAY = 3600.0
DROPS = ("", "before", "midway")


class Speaker(Protocol):
    """An API that knows words for its troubles."""

    @property
    def name(self) -> str: ...

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    trouble: str = ""
    status: int | None = None
    body: Any = None
    """An object for JSON, or text or bytes as they are."""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drop: str = ""
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.drop not in DROPS:
            raise ValueError(f"drop={self.drop!r} must be one of {DROPS}")
        if not 0 <= self.delay <= LONGEST_DELAY:
            raise ValueError(f"delay={self.delay!r} must be within 0 and {LONGEST_DELAY:g} s")
        if self.status is not None and not 200 <= self.status <= 599:
            raise ValueError(f"status={self.status!r} must be within 200 and 599")

    def reply(self, api: Speaker, usual: Reply) -> Reply:
        """What is sent instead of, or as, the usual answer."""
        if self.trouble:
            told = api.refuse(self.trouble)
            headers = {name: value for name, value in told.headers.items() if name not in self.headers}
            return Reply(self.status or told.status, told.body, headers | self.headers)
        if self.status is None and self.body is None:
            return Reply(usual.status, usual.body, usual.headers | self.headers)
        return Reply(self.status or 200, {} if self.body is None else self.body, self.headers)


class FaultScript:
    """The faults that wait, first come, first served."""

    def __init__(self, api: Speaker) -> None:
        self._api = api
        self._waiting: deque[Fault] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, fault: Fault, times: int = 1) -> None:
        if not 1 <= times <= MOST_FAULTS - len(self._waiting):
            raise ValueError(f"times={times!r} must be 1 or more, and at most {MOST_FAULTS:,} faults may wait")
        if fault.trouble:
            try:
                self._api.refuse(fault.trouble)
            except KeyError:
                known = ", ".join(TROUBLES)
                raise ValueError(f"{self._api.name} has no trouble {fault.trouble!r}; known are {known}") from None
        self._waiting.extend([fault] * times)

    def clear(self) -> None:
        self._waiting.clear()

    def take(self, key: str) -> Fault | None:
        """The first fault meant for a call with this key."""
        found = next((fault for fault in self._waiting if fault.key in (None, key)), None)
        if found is not None:
            self._waiting.remove(found)
        return found


# ---------------------------------------------------------------------- pages

PAGES = 130
"""How many pages there are about anything; more than every API gives at once."""
LONGEST_SLUG = 60
FIRST_YEAR = 2018

_ASPECTS = ("an introduction", "a survey", "in practice", "the numbers", "a critique", "the history", "open questions")


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page of the small web that the mocks search: a question always finds the same pages, in the same order."""

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
