"""What a header's name means, before its value is looked at.

Servers agree on the words and on nothing else::

    x-ratelimit-remaining-tokens          part, then what is counted        OpenAI, Azure, Groq
    x-ratelimit-limit-req-minute          ... then the window               Mistral, Kong
    anthropic-ratelimit-tokens-remaining  what is counted, then the part    Anthropic
    x-ratelimit-reset, RateLimit-Reset    the one budget there is           GitHub, GitLab, ...
    x-rate-limit-interval                 ... and over which time           Crossref
    RateLimit, RateLimit-Policy           structured fields                 IETF draft

A program meets the same few dozen names again and again, so the answer is remembered;
that is what makes an answer without limits cheap to read.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

LONGEST_NAME = 80
"""Characters; longer names mean nothing to us and are not remembered."""
NAMES_REMEMBERED = 1024

WINDOWS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}

_PARTS = {
    "limit": "limit",
    "remaining": "remaining",
    "reset": "reset",
    "used": "used",
    "renewalperiod": "renewal",
    "interval": "interval",
}
_MARKS = {
    # Words that tell who is speaking, which budget is meant or how old the answer is; True: of limits too.
    "x-ratelimit-resource": True,
    "x-ratelimit-bucket": True,
    "x-ratelimit-scope": True,
    "x-ratelimit-global": True,
    "x-ratelimit-type": True,
    "ratelimit": True,
    "ratelimit-policy": True,
    "ratelimit-observed": True,
    "ratelimit-name": True,
    "stripe-rate-limited-reason": True,
    "x-shopify-shop-api-call-limit": True,
    "stripe-should-retry": False,
    "x-github-request-id": False,
    "x-groq-region": False,
    "apim-request-id": False,
    "x-ms-region": False,
    "cf-ray": False,
    "date": False,
    "age": False,
}
_COUNTED = {
    "": "requests",
    "req": "requests",
    "request": "requests",
    "requests": "requests",
    "token": "tokens",
    "tokens": "tokens",
    "input-tokens": "input-tokens",
    "output-tokens": "output-tokens",
}


class Meaning(NamedTuple):
    """``part`` of which ``budget``. Marks (``part`` empty) only tell who speaks; their name is the ``budget``."""

    part: str
    budget: str
    dimension: str = ""
    window: float | None = None
    milliseconds: bool = False
    family: str = ""
    """Whose words these are: ``x-``, ``anthropic-``, or nothing for the plain ``RateLimit-...``."""
    speaks: bool = True
    """Whether this header alone makes an answer worth reading."""


@lru_cache(maxsize=NAMES_REMEMBERED)
def meaning(name: str | bytes) -> Meaning | None:
    """What the header is for; None for all that have nothing to do with limits. At most ``LONGEST_NAME`` long."""
    text = name.decode("latin-1") if isinstance(name, bytes) else name
    text = text.strip().lower().replace("rate-limit-", "ratelimit-")
    if text in _MARKS:
        return Meaning("", text, speaks=_MARKS[text])
    bare, milliseconds = (text[:-3], True) if text.endswith("-ms") else (text, False)
    if bare in ("retry-after", "x-retry-after", "x-ms-retry-after"):
        return Meaning("retry", bare, milliseconds=milliseconds)
    family, found, rest = bare.partition("ratelimit-")
    return _budget_part(family, rest.split("-"), milliseconds) if found else None


def _budget_part(family: str, words: list[str], milliseconds: bool) -> Meaning | None:
    if words == ["reset", "after"]:
        return Meaning("reset_after", "", "requests", milliseconds=milliseconds, family=family)
    if words[0] in _PARTS:
        part, words = _PARTS[words[0]], words[1:]
    elif words[-1] in _PARTS:
        part, words = _PARTS[words[-1]], words[:-1]
    else:
        return None
    budget = "-".join(words)
    window = WINDOWS.get(words[-1]) if words else None
    counted = "-".join(words[:-1] if window else words)
    dimension = _COUNTED.get(counted) or next((word for word in ("tokens", "requests") if word in counted), counted)
    return Meaning(part, budget, dimension, window, milliseconds, family)
