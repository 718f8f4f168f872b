"""What the mock must know of an API to speak it: where it listens, what it takes, how it answers and refuses.

    request ─> key_of ─> check ─> answer                         200
                 │          └────> refuse("invalid", why)         400
                 └─ unknown ─────> refuse("unauthorized")         401, 403 or 400, as the real one does

Everything here is pure; quotas, faults and sockets are the desk's (``desk.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..reply import Reply

TROUBLES = ("rate_limited", "quota", "unauthorized", "forbidden", "invalid", "server_error", "unavailable")
"""What every API can say in its own words."""


class InvalidRequestError(Exception):
    """The API does not take this request; the message is the one it would give."""


@dataclass(frozen=True, slots=True)
class Asked:
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
    def key_of(self, asked: Asked) -> str:
        """The key the request carries, or nothing."""

    @abstractmethod
    def answer(self, asked: Asked) -> dict[str, Any]:
        """The body of a good answer; raises ``InvalidRequestError``."""

    @abstractmethod
    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        """One of ``TROUBLES`` as this API tells it; ``retry_after`` is told only by those who really do."""
