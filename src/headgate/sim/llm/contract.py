"""What the mock must know of an API of language models to speak it.

    request ─> key_of ─> check ─> endpoints[path] ─> Answer: body, or events      200
                 │         └───────────┴──> RejectedError: its 400, 404
                 └─ unknown, unpaid ──────> refuse("unauthorized"), refuse("quota")

Everything here is pure; quotas, faults and sockets are the desk's (``desk.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from ..dialects import Dialect
from ..providers.contract import Asked
from ..reply import Reply
from .budget import Refusal

MISSING = "missing"
"""Models whose name begins like this do not exist; all others do."""
LONGEST_MODEL = 80


class RejectedError(Exception):
    """The API does not take this request, and says so with this reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


@dataclass(frozen=True, slots=True)
class Stamp:
    """What one answer is known by."""

    token: str
    created: int
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream; ``data`` is an object for JSON, or text as it is."""

    data: Any
    name: str = ""


class Answer(ABC):
    """One request as it was understood, and what it will be told."""

    model: str
    streamed: bool
    tokens_in: int
    tokens_out: int

    @property
    def tokens(self) -> int:
        """What it costs: exactly what ``usage`` will say."""
        return self.tokens_in + self.tokens_out

    @abstractmethod
    def body(self, stamp: Stamp) -> dict[str, Any]: ...

    def events(self, stamp: Stamp) -> Iterator[Event]:
        """The same, piece by piece; only asked of one that is ``streamed``."""
        raise NotImplementedError

    def failure(self, body: Any, stamp: Stamp) -> Event:
        """How an error is told in a stream that has begun."""
        return Event(body)


Endpoint = Callable[[Mapping[str, Any], str], Answer]
"""Reads the fields of a request; the second argument is the seed. Raises ``RejectedError``."""


class LanguageApi(ABC):
    name: str
    site: str
    root = ""
    """What clients take for a part of the address."""
    dialect: Dialect
    endpoints: ClassVar[Mapping[str, Endpoint]]
    """By the path below the root."""

    @abstractmethod
    def key_of(self, asked: Asked) -> str:
        """The key the request carries, or nothing."""

    def check(self, asked: Asked) -> None:
        """Whether the request is one at all; raises ``RejectedError``."""
        if not isinstance(asked.body, dict):
            self.reject("invalid", "We could not parse the JSON body of your request.")

    def reject(self, trouble: str, why: str) -> NoReturn:
        raise RejectedError(self.refuse(trouble, why))

    @abstractmethod
    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        """A trouble as this API tells it, when nothing is known but its name."""

    @abstractmethod
    def turn_away(self, refusal: Refusal, model: str) -> Reply:
        """What it says to a key that may not do this, with the numbers."""

    @abstractmethod
    def sign(self, reply: Reply, stamp: Stamp) -> Reply:
        """The reply with the request's id, where this API puts it."""
