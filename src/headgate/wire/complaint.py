"""What a body complains of, before status and headers have been heard."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..core.decision import Outcome
from ..core.signal import Limit

LONGEST_WORD = 64
"""Characters of a server's own code or name that are kept."""

_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


@dataclass(slots=True, kw_only=True)
class Complaint:
    """Whatever the body did not say is empty."""

    outcome: Outcome | None = None
    reason: str = ""
    floor: float | None = None
    limits: tuple[Limit, ...] = ()
    scope: str | None = None
    dialect: str = ""
    status: int | None = None
    """A status inside the body, believed only where the one outside claims that all is well."""


def word(value: object) -> str:
    """A server's code or name made fit for people: printable, short, and empty when it is no word at all."""
    if isinstance(value, int) and not isinstance(value, bool) and -(10**9) < value < 10**9:
        return str(value)
    if not isinstance(value, str):
        return ""
    return _UNPRINTABLE.sub("", value[: 4 * LONGEST_WORD]).strip()[:LONGEST_WORD]


def status_in(value: object) -> int | None:
    """A status given as a number or as its three digits: ``"429"`` is one, ``"4290"`` and ``"1300"`` are not."""
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else None
