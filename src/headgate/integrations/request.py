"""A request as the gate sees it: its key, what it takes of the limits, whether it may be sent twice.

    GET, HEAD, OPTIONS, PUT, DELETE, TRACE            may be sent again: twice is the same as once
    any other with an Idempotency-Key                 likewise: the server knows that it is the same one
    any other                                         only if nothing was done for it: not sent, or turned away (429)
    a body that cannot be read again (a generator)    never

A body is parsed where limits on tokens are known, or a limit was met that may be one on tokens, and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..limiter.permit import Cost
from ..wire.parse import FLEX
from ..wire.token_usage import (
    CHARACTERS_IN_A_TOKEN,
    USUAL_OUTPUT,
    Usage,
    admitted,
    estimate,
    output_limit,
    template_of,
)
from ..wire.urls import host_key

IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))
LARGEST_PARSED = 8 << 20
"""Bytes of a body that are parsed to count its tokens; a larger one is judged by its size."""
LONGEST_MODEL = 100
"""Characters of a model's name that are part of a key."""
_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
_GEMINI = (":generateContent", ":streamGenerateContent")
_MODELS = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", *_GEMINI)
"""Ends of paths where language models answer, and say in ``usage`` what it took."""


@dataclass(slots=True)
class OutgoingRequest:
    """One request, before it is sent. Made by the file of each client."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By names in lower case."""
    body: bytes | None = field(default=None, repr=False)
    """Where it is in memory."""
    can_repeat_body: bool = True
    """Whether the body can be sent a second time; a generator or a file under way cannot."""
    payer: Hashable = field(default=None, init=False)
    """The account of the fallback that it goes to, where it is not the one of its headers."""
    vendor: str = field(default="", init=False)
    """Whose way of counting tokens the API has; empty if that is not known."""
    output_limit: int | None = field(default=None, init=False)
    """The tokens that the body allows its answer, if it was looked at and says so."""
    tier: str = field(default="", init=False)
    """"flex", if the body was looked at and asks for that service tier."""
    _json: Any = field(default=None, init=False, repr=False)
    _is_parsed: bool = field(default=False, init=False, repr=False)
    _for_model: bool | None = field(default=None, init=False, repr=False)

    @property
    def path(self) -> str:
        return self.url.partition("?")[0].partition("#")[0]

    @property
    def for_model(self) -> bool:
        """Whether a language model answers there."""
        if self._for_model is None:
            self._for_model = self.method == "POST" and self.path.endswith(_MODELS)
        return self._for_model

    @property
    def is_repeated(self) -> bool:
        """Whether the vendor's client sends it again by itself: openai's and anthropic's say so."""
        return self.headers.get("x-stainless-retry-count", "0") != "0"

    @property
    def account(self) -> Hashable:
        """Who pays for it: the host, and the key that it carries, which is not kept."""
        if self.payer is not None:
            return self.payer
        keys = [self.headers[name] for name in _KEY_HEADERS if name in self.headers]
        return host_key(self.url), hash(tuple(keys))

    def parsed(self) -> Any:
        """The body as JSON; None if it is none, or too large to look at."""
        if not self._is_parsed:
            self._is_parsed = True
            if self.body is not None and len(self.body) <= LARGEST_PARSED:
                with suppress(ValueError, RecursionError):
                    self._json = json.loads(self.body)
        return self._json

    def drop_parsed(self) -> None:
        """Give up what was parsed, which may take ten times the body's memory, before it waits in a queue."""
        if self._json is not None:
            self.output_limit = output_limit(self._json)
        self._json, self._is_parsed = None, False


Key = Callable[[OutgoingRequest], str]
CostOf = Callable[[OutgoingRequest], Cost]
Repeatable = Callable[[OutgoingRequest], bool]


def by_host(request: OutgoingRequest) -> str:
    """One key for each host: the default."""
    return host_key(request.url)


def by_model(request: OutgoingRequest) -> str:
    """One key for each model of a host, since vendors of language models limit each model on its own.

    Requests of its flex tier have a key of their own: that may be full while the usual one is not. It spends of the
    model's known limits, unless the vendor's tiers have their own (``Dialect.has_own_tiers``).
    """
    host = host_key(request.url)
    if not request.for_model:
        return host
    body = request.parsed()
    model = body.get("model") if isinstance(body, dict) else None
    if request.path.endswith(_GEMINI):
        model = request.path.rpartition("/")[2].partition(":")[0]
    if not (isinstance(model, str) and model):
        return host
    key = f"{host}/{model[:LONGEST_MODEL]}"
    if not isinstance(body, dict) or body.get("service_tier") != FLEX:
        return key
    request.tier = FLEX
    return f"{key}/{FLEX}"


def with_tokens(request: OutgoingRequest) -> Cost:
    """One request and, where a language model answers, the tokens it will likely take."""
    if not request.for_model:
        return 1
    if request.body is not None and len(request.body) > LARGEST_PARSED:
        likely = Usage(len(request.body) // CHARACTERS_IN_A_TOKEN, USUAL_OUTPUT)
    else:
        body = request.parsed()
        if body is None:
            return 1
        likely = estimate(body, request.path)
    return admitted(request.vendor, likely, template_of(request.parsed()))


def is_idempotent(request: OutgoingRequest) -> bool:
    """Whether sending it twice does no more than sending it once."""
    return request.method in IDEMPOTENT or "idempotency-key" in request.headers


def is_idempotent_or_generates(request: OutgoingRequest) -> bool:
    """The same, and what language models are asked: their vendors' clients repeat that too."""
    return request.for_model or is_idempotent(request)
