"""Take out of any kind of headers the few that speak of limits.

A plain dict, pairs, httpx's and requests' mappings and aiohttp's multidict all come
here, whole or hostile. The work is bounded by three names: so many headers are looked
at, so long may a name be, so long a value; what exceeds them is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from .names import LONGEST_NAME, Meaning, meaning

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


class Spoken:
    """The headers that bear on limits: budgets by name, retry hints, and marks that tell who speaks."""

    __slots__ = ("budgets", "marks", "retries", "speaks")

    def __init__(self) -> None:
        self.budgets: dict[str, Budget] = {}
        self.retries: list[tuple[str, bool]] = []
        """Values of Retry-After and its relatives; True where they are milliseconds."""
        self.marks: dict[str, str] = {}
        self.speaks = False
        """Whether anything was said about limits, or only who is speaking."""

    def hear(self, known: Meaning, value: str) -> None:
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
            heard, slot = budget.parts, known.part + "_ms" if known.milliseconds else known.part
        else:
            heard, slot = self.marks, known.budget
        before = heard.get(slot)
        if before is None:
            heard[slot] = value
        elif before != value and len(before) + len(value) < LONGEST_VALUE:
            heard[slot] = f"{before}, {value}"


NOTHING = Spoken()
"""What headers say that have nothing to do with limits. Never added to."""


def listen(headers: object, *, idly: bool = False) -> Spoken:
    """What the headers say about limits. A pair that is none, a name that is no text: passed over.

    ``idly``: nothing is wrong, so who speaks matters only if limits are spoken of.
    """
    if not headers:
        return NOTHING
    heard: list[tuple[Meaning, object]] = []
    speaks = False
    for pair in islice(_pairs(headers), MOST_HEADERS):
        try:
            name, value = pair
            known = meaning(name) if len(name) <= LONGEST_NAME else None
        except (TypeError, ValueError, AttributeError):
            continue
        if known is not None:
            heard.append((known, value))
            if known.speaks:
                speaks = True
    if not speaks and (idly or not heard):
        return NOTHING
    spoken = Spoken()
    spoken.speaks = speaks
    for known, value in heard:
        spoken.hear(known, value if type(value) is str else _text(value))
    return spoken


def _pairs(headers: Any) -> Iterable[tuple[str | bytes, object]]:
    if type(headers) is dict:
        return headers.items()
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
