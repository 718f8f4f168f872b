"""Take out of any kind of headers the few that state limits.

A plain dict, pairs, httpx's and requests' mappings and aiohttp's multidict all come
here, malformed ones too. The work is bounded by three constants: how many headers are
read, how long a name may be, how long a value; what exceeds them is skipped.

Servers agree on the words and on nothing else::

    x-ratelimit-remaining-tokens          part, then what is counted        OpenAI, Azure, Groq
    x-ratelimit-limit-req-minute          ... then the window               Mistral, Kong
    anthropic-ratelimit-tokens-remaining  what is counted, then the part    Anthropic
    x-ratelimit-reset, RateLimit-Reset    the one budget there is           GitHub, GitLab, ...
    x-rate-limit-interval                 ... and over which time           Crossref
    RateLimit, RateLimit-Policy           structured fields                 IETF draft
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

LONGEST_NAME = 80
"""Characters; longer names are not looked at."""
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
_COUNTED = {
    "": "requests",
    "req": "requests",
    "request": "requests",
    "requests": "requests",
    "token": "tokens",
    "tokens": "tokens",
    "input-tokens": "input_tokens",
    "output-tokens": "output_tokens",
}


class Meaning(NamedTuple):
    """What a header is for: ``part`` of which ``budget``.

    Marks (``part`` empty) tell the vendor, which budget is meant or how old the answer is; ``budget`` is their name.
    """

    part: str
    budget: str
    dimension: str = ""
    window: float | None = None
    milliseconds: bool = False
    family: str = ""
    """What comes before ``ratelimit-``: ``x-``, ``anthropic-``, or nothing."""
    is_about_limits: bool = True
    """Whether this header alone makes an answer worth reading."""


@lru_cache(maxsize=NAMES_REMEMBERED)
def meaning(name: str | bytes) -> Meaning | None:
    """What a header of this name (at most ``LONGEST_NAME`` long) is for; None if it has nothing to do with limits.

    A program meets the same few dozen names again and again, so the answer is remembered; that is what makes an answer
    without limits cheap to read.
    """
    from .dialects import MARKS  # loaded with the first header, not with ``import headgate``

    text = name.decode("latin-1") if isinstance(name, bytes) else name
    text = text.strip().lower().replace("rate-limit-", "ratelimit-")
    if text in MARKS:
        return Meaning("", text, is_about_limits=MARKS[text])
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


MOST_HEADERS = 256
"""Headers looked at; real answers have some twenty."""
LONGEST_VALUE = 4096
"""Characters of one value, with its repetitions; what is longer is ignored, not cut: half a value can lie."""
MOST_LINES = 8
"""Lines looked at where a library keeps a repeated header as a list."""


class Budget:
    """What the headers say of one budget: its parts as they came, still unread."""

    __slots__ = ("meaning", "parts")

    def __init__(self, known: Meaning) -> None:
        self.meaning = known
        self.parts: dict[str, str] = {}


class RateLimitHeaders:
    """The headers about limits: budgets by name, retry hints, and marks that identify the vendor."""

    __slots__ = ("budgets", "has_limits", "marks", "retries")

    def __init__(self) -> None:
        self.budgets: dict[str, Budget] = {}
        self.retries: list[tuple[str, bool]] = []
        """Values of Retry-After and its relatives; True where they are milliseconds."""
        self.marks: dict[str, str] = {}
        self.has_limits = False
        """Whether limits are spoken of; else the marks only tell the vendor."""

    def add(self, known: Meaning, value: str) -> None:
        if len(value) > LONGEST_VALUE:
            return
        if "\n" in value:
            value = " ".join(value.split())
        if known.part == "retry":
            self.retries.append((value, known.milliseconds))
            return
        if known.part:
            budget = self.budgets.get(known.budget)
            if budget is None:
                budget = self.budgets[known.budget] = Budget(known)
            parts, slot = budget.parts, known.part + "_ms" if known.milliseconds else known.part
        else:
            parts, slot = self.marks, known.budget
        before = parts.get(slot)
        if before is None:
            parts[slot] = value
        elif before != value and len(before) + len(value) < LONGEST_VALUE:
            parts[slot] = f"{before}, {value}"


NO_HEADERS = RateLimitHeaders()
"""For headers that have nothing to do with limits. Never added to."""


def scan_headers(headers: object, *, only_limits: bool = False) -> RateLimitHeaders:
    """What the headers say about limits. Entries that are not pairs, or whose name is not text, are skipped.

    ``only_limits``: nothing is wrong, so the vendor matters only if limits are spoken of.
    """
    if not headers:
        return NO_HEADERS
    known: list[tuple[Meaning, object]] = []
    has_limits = False
    pairs = headers.items() if type(headers) is dict else _pairs(headers)
    for pair in islice(pairs, MOST_HEADERS):
        try:
            name, value = pair
            what = meaning(name) if len(name) <= LONGEST_NAME else None
        except (TypeError, ValueError, AttributeError):
            continue
        if what is not None:
            known.append((what, value))
            if what.is_about_limits:
                has_limits = True
    if not has_limits and (only_limits or not known):
        return NO_HEADERS
    found = RateLimitHeaders()
    found.has_limits = has_limits
    for what, value in known:
        found.add(what, value if type(value) is str else _text(value))
    return found


def _pairs(headers: Any) -> Iterable[tuple[str | bytes, object]]:
    raw = getattr(headers, "raw", None)  # httpx: its other views decode every header at every look
    if type(raw) is list:
        return raw
    items = getattr(headers, "items", None)
    pairs = items() if callable(items) else headers
    return pairs if hasattr(pairs, "__iter__") else ()


def _text(value: object) -> str:
    if isinstance(value, str):
        return str(value[: LONGEST_VALUE + 1])
    if isinstance(value, bytes | bytearray):
        return bytes(value[: LONGEST_VALUE + 1]).decode("latin-1")
    if isinstance(value, list | tuple):
        return ", ".join(_text(line) for line in value[:MOST_LINES] if not isinstance(line, list | tuple))
    return repr(value) if isinstance(value, int | float) and -1e18 < value < 1e18 else ""
