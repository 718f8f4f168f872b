"""What the mock must know of an API of language models, and what the mocked models say.

    request ─> key_of ─> check ─> endpoints[path] ─> Answer: body, or events      200
                 │         └───────────┴──> RejectedError: its 400, 404
                 └─ unknown, unpaid ──────> refuse("unauthorized"), refuse("quota")

Everything here is pure; budgets and sockets are in ``service.py``.
"""

from __future__ import annotations

import math
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from ..api import Reply
from ..dialects import Dialect
from ..dialects.dialect import DAY, HOUR, MINUTE
from ..providers.provider_api import MockRequest
from ..quota import LimitStatus

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
    organization: str = "org-mock"
    project: str = "proj-mock"
    """Whose key asked."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream; ``data`` is an object for JSON, or text as it is."""

    data: Any
    name: str = ""


class Answer(ABC):
    """One request as it was parsed, and what it will be told."""

    model: str
    streamed: bool
    tokens_in: int
    tokens_out: int
    most_out: int | None = None
    """The caller's maximum, if there is one."""

    @property
    def tokens(self) -> int:
        """In and out: exactly what ``usage`` will say."""
        return self.tokens_in + self.tokens_out

    @abstractmethod
    def body(self, stamp: Stamp) -> dict[str, Any]: ...

    def events(self, stamp: Stamp) -> Iterator[Event]:
        """The same, piece by piece, of one that is ``streamed``; a kind that never is has no pieces."""
        return iter(())

    def failure(self, body: Any, stamp: Stamp) -> Event:
        """How an error is told in a stream that has begun."""
        return Event(body)


Endpoint = Callable[[Mapping[str, Any], str], Answer]
"""Reads the fields of a request; the second argument is the seed. Raises ``RejectedError``."""


@dataclass(frozen=True, slots=True)
class Refusal:
    trouble: str
    """too_large, daily or rate_limited."""
    unit: str
    """What the limit counts: calls, tokens, input_tokens or output_tokens."""
    status: LimitStatus
    """Its state; ``retry`` is this call's own wait."""
    requested: int

    @classmethod
    def scripted(cls, trouble: str, wait: float) -> Refusal:
        """One that no limit asked for: of a small limit on calls, which is used up."""
        window, wait = (DAY, HOUR) if trouble == "daily" else (MINUTE, wait)
        return cls(trouble, "calls", LimitStatus(60.0, window, 60.0, 0.0, wait, wait, 60.0, wait), 1)


def owners_of(key: str) -> tuple[str, str]:
    """The organisation and the project of a key: of ``acme.search.1`` acme and search, else the usual ones."""
    organization, _, rest = key.rpartition(".")[0].partition(".")
    return organization or "org-mock", rest or "proj-mock"


class LanguageApi(ABC):
    name: str
    site: str
    root = ""
    """What clients take for a part of the address."""
    dialect: Dialect
    endpoints: ClassVar[Mapping[str, Endpoint]]
    """By the path below the root."""

    @abstractmethod
    def key_of(self, asked: MockRequest) -> str:
        """The key the request carries, or nothing."""

    def model_of(self, asked: MockRequest) -> str:
        """The model, with its service tier, that the request asks for: limits may be theirs."""
        fields = asked.body if isinstance(asked.body, dict) else {}
        return f"{str(fields.get('model'))[:LONGEST_MODEL]}/{str(fields.get('service_tier') or '')[:LONGEST_MODEL]}"

    def check(self, asked: MockRequest) -> None:
        """Whether the request is one at all; raises ``RejectedError``."""
        if not isinstance(asked.body, dict):
            self.reject("invalid", "We could not parse the JSON body of your request.")

    def reject(self, trouble: str, why: str) -> NoReturn:
        raise RejectedError(self.refuse(trouble, why))

    counts_produced = False
    """Whether output is counted when it has been written, and not by what the request allows."""

    def counted(self, parsed: Answer) -> int:
        """What it takes of a limit on tokens. Limits on input and output tokens take what ``usage`` will say."""
        return parsed.tokens

    @abstractmethod
    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        """A trouble as this API tells it, when nothing is known but its name."""

    @abstractmethod
    def refuse_limit(self, refusal: Refusal, model: str) -> Reply:
        """What it says to a key that may not do this, with the numbers."""

    @abstractmethod
    def sign(self, reply: Reply, stamp: Stamp) -> Reply:
        """The reply with the request's id, where this API puts it."""


# ---------------------------------------------------------------------- what models read and say
# A token is four characters. Everything follows from the seed, the model and the text: the same question gets the
# same answer.
#
#     tokens of a text    its characters, divided by four, rounded up
#     an answer           made-up sentences of 16 to 96 tokens or a few more, cut where the caller's maximum is reached
#     a vector            of length one, and the same for the same text

CHARACTERS_PER_TOKEN = 4
SHORTEST, LONGEST = 16, 96
"""Tokens of an answer whose caller sets no maximum, but for the end of its last sentence."""
READ = ("content", "text", "input", "output", "arguments", "thinking")
"""Where texts are in a message; pictures and the like cost nothing here."""

_RIVER = """
    the water rises behind each gate until a keeper lets some through and no more than the river below can hold so
    nothing floods while every boat that waits gets its turn at a steady pace which no sign shows but all learn"""


@dataclass(frozen=True, slots=True)
class Written:
    text: str
    cut: bool
    """Whether the maximum came first."""

    @property
    def tokens(self) -> int:
        return tokens_of(self.text)

    @property
    def pieces(self) -> list[str]:
        """Word by word, as it is streamed."""
        return re.findall(r"\s*\S+", self.text)


def tokens_of(text: str) -> int:
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def texts_in(value: Any) -> Iterator[str]:
    """Every text of a message, a list of them, or what else may be asked."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from texts_in(entry)
    elif isinstance(value, Mapping):
        for name in READ:
            yield from texts_in(value.get(name))


def write(seed: str, model: str, prompt: str, most_tokens: int | None) -> Written:
    """The model's answer; ``most_tokens`` is the caller's maximum."""
    words, rng = _RIVER.split(), _chance(seed, model, prompt)
    wanted = rng.randint(SHORTEST, LONGEST)
    text = "This is made up."
    while tokens_of(text) < wanted:
        text += f" {' '.join(rng.choices(words, k=rng.randint(4, 11))).capitalize()}."
    if most_tokens is None or tokens_of(text) <= most_tokens:
        return Written(text, False)
    return Written(text[: most_tokens * CHARACTERS_PER_TOKEN].rstrip(), True)


def vector(seed: str, model: str, text: str, dimensions: int) -> list[float]:
    raw = _chance(seed, model, text).randbytes(dimensions)
    length = math.sqrt(sum((byte - 127.5) ** 2 for byte in raw))
    return [(byte - 127.5) / length for byte in raw]


def _chance(*about: str) -> random.Random:
    """Half a character, which JSON can hold and UTF-8 cannot, is as good as any."""
    return random.Random("\n".join(about).encode("utf-8", "surrogatepass"))
