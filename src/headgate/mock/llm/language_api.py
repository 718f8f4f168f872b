"""What the mock must know of an API of language models, as data, and what the mocked models say.

    request ─> key_of ─> endpoints[path] ─> Answer: body, or events               200
                 │              └──> RejectedError: errors[trouble]               400, 404
                 └─ unknown, unpaid ──────> errors["unauthorized"], errors["quota"]

A vendor is one ``LanguageApi``: its paths, its errors as a table, its way of counting. Everything here is pure; budgets
and sockets are in ``service.py``.
"""

from __future__ import annotations

import math
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..api import Reply
from ..dialects import Dialect
from ..dialects.dialect import DAY, HOUR, MINUTE
from ..providers.provider_api import MockRequest
from ..quota import LimitStatus

MISSING = "missing"
"""Models whose name begins like this do not exist; all others do."""
BUSY = "busy"
"""The cheaper tier (``service_tier: flex``) of models whose name begins like this has no capacity."""
LONGEST_MODEL = 80
CACHED_FROM = 1024
"""Tokens from which on the beginning of a prompt is cached, as vendors document it."""


class RejectedError(Exception):
    """The API does not take this request: which of its errors, with which message."""

    def __init__(self, trouble: str, why: str, param: str | None = None) -> None:
        super().__init__(trouble, why)
        self.trouble, self.why, self.param = trouble, why, param


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
    best_of: int = 1
    """Answers that are written, of which one is sent."""
    prefix: str = ""
    """How the prompt begins, as far as the API may keep it in a cache ..."""
    is_prefix_marked: bool = False
    """... because the request asks for it, and pays for what is written there."""
    cached: int = 0
    cache_written: int = 0
    """Tokens of the prompt that the cache had, and that it has from now on."""

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


# ---------------------------------------------------------------------- a vendor, as data


@dataclass(frozen=True, slots=True)
class ApiError:
    status: int
    message: str
    kind: str = ""
    """Its ``type``, or its ``status`` in Google's words."""
    code: str | None = None


def larger(parsed: Answer) -> int:
    """OpenAI: the larger of what the caller allows and the prompt, whatever is then written."""
    return parsed.tokens if parsed.most_out is None else max(parsed.most_out, parsed.tokens_in)


def allowed(parsed: Answer) -> int:
    """Azure, Groq: the prompt and all that the caller allows to be written."""
    most = parsed.tokens_out if parsed.most_out is None else parsed.most_out
    return parsed.tokens_in + most * parsed.best_of


def prompt(parsed: Answer) -> int:
    return parsed.tokens_in


def everything(parsed: Answer) -> int:
    return parsed.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """What a call takes of limits on tokens, and when."""

    admission: Callable[[Answer], int] = everything
    """Of a limit on ``tokens`` when it arrives; one on ``input_tokens`` takes the prompt."""
    produced: tuple[str, ...] = ()
    """Limits of which the answer is taken when it is written; the call is let in while some of them is left."""
    cached_is_free: bool = False
    """Whether what the cache held is given back when the call is answered."""
    calls_within: float | None = None
    """Seconds over which a limit on calls is judged too, where that is shorter than its window; no header tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose limits they are."""

    owner: str = "organization"
    per_model: bool = True
    per_tier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageApi:
    name: str
    root: str = ""
    """What clients take for a part of the address."""
    endpoints: Mapping[str, Endpoint]
    """By the path below the root, in which ``{model}`` may be a part."""
    dialect: Dialect
    """How limits are told in headers."""
    subscription: Dialect | None = None
    """The same for keys that begin with ``SUBSCRIBER``."""
    errors: Mapping[str, ApiError]
    error_body: Callable[[ApiError, str | None], dict[str, Any]]
    """With the parameter that is wrong, if the API names one."""
    error_headers: Callable[[ApiError], dict[str, str]] = lambda error: {}
    limit_reached: Callable[[Refusal, str, str], Reply]
    """What it says to a key that may not do this, with the numbers; the model and the organisation."""
    key_of: Callable[[MockRequest], str]
    """The key the request carries, or nothing."""
    check: Callable[[MockRequest], None] = lambda asked: None
    """What must be in a request beside its JSON; raises ``RejectedError``."""
    sign: Callable[[Reply, Stamp, str], Reply]
    """The reply with the request's id, the owner and the model, where this API puts them."""
    counting: Counting = Counting()
    scope: Scope = Scope()
    tells_day: bool = False
    """Whether headers tell the calls of the day, where those are limited."""
    pacific_days: bool = False
    """Whether days end at midnight Pacific, instead of UTC."""

    @property
    def site(self) -> str:
        return self.name

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply:
        """A trouble as this API tells it, when nothing is known but its name; ``KeyError`` for one it never has."""
        if trouble in ("rate_limited", "daily"):
            return self.limit_reached(Refusal.scripted(trouble, retry_after), "mock", "org-mock")
        return self.rejection(RejectedError(trouble, why))

    def rejection(self, rejected: RejectedError) -> Reply:
        error = self.errors[rejected.trouble]
        told = ApiError(error.status, rejected.why or error.message, error.kind, error.code)
        return Reply(error.status, self.error_body(told, rejected.param), self.error_headers(told))


SUBSCRIBER = "sk-ant-oat"
"""How credentials of Anthropic's subscriptions begin."""


def model_and_tier(asked: MockRequest) -> tuple[str, str]:
    fields = asked.body if isinstance(asked.body, dict) else {}
    return str(fields.get("model"))[:LONGEST_MODEL], str(fields.get("service_tier") or "")[:LONGEST_MODEL]


def bearer(asked: MockRequest) -> str:
    return asked.bearer


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
