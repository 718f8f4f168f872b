"""One rule for every hint of a time: how many seconds from now?

    text                          reading
    ----------------------------  -----------------------------------------------
    30, 7.66                      seconds from now
    1788220800 (>= 1e9)           Unix seconds
    1788220800000 (>= 1e11)       Unix milliseconds
    -1                            no data
    6m0s, 16m17.764s, 12ms        a Go duration
    2026-09-27T12:05:00Z          RFC 3339
    Fri, 31 Dec 1999 23:59:59 GMT RFC 9110
    anything else                 no data

Instants are judged against the answer's own ``Date`` where it has one: server and
header then share a clock, and a wrong clock on this side can neither free nor freeze
anything. Every result lies within [0, 31 days]; longer hints are cut there, never lost.
"""

from __future__ import annotations

import re
from itertools import pairwise

from ..core.decision import LONGEST_WAIT
from .dates import http_date, rfc3339

EPOCH_SECONDS_FROM = 1e9
EPOCH_MILLISECONDS_FROM = 1e11
LONGEST_TIME_TEXT = 256
"""Characters one hint may have; longer ones are no hint."""
MOST_HINTS = 8
"""How many comma-separated hints of one repeated header are looked at."""
LAST_INSTANT = 253402300799.0
"""The end of year 9999: a clock beyond it is not believed."""

_DURATION = r"(?a)(?:\d{1,15}(?:\.\d{0,15})?(?:h|ms|m|s|us|µs|ns))+"
_DURATION_PART = r"(?a)(\d+(?:\.\d*)?)(h|ms|m|s|us|µs|ns)"
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def number(text: str) -> float | None:
    """A plain decimal number >= 0, or None. ``nan``, ``1e9``, ``1_000`` and other scripts' digits are none."""
    if len(text) > LONGEST_TIME_TEXT or not text.isascii():
        return None
    if text.isdigit():
        return float(text)
    text = text.strip()
    return float(text) if text.replace(".", "", 1).isdigit() else None


def duration(text: str) -> float | None:
    """A Go duration in seconds, or None. The two usual forms, ``7.66s`` and ``6m0s``, go without a pattern."""
    if text[-1:] == "s":
        single = number(text[:-1])
        if single is not None:
            return single
        minutes, _, rest = text.partition("m")
        whole = number(minutes)
        if whole is not None:
            if rest == "s":
                return whole * 1e-3
            seconds = number(rest[:-1])
            if seconds is not None:
                return whole * 60.0 + seconds
    if len(text) > LONGEST_TIME_TEXT or not re.fullmatch(_DURATION, text):
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in re.findall(_DURATION_PART, text))


def within_bounds(seconds: float) -> float:
    """The one bound on waits: [0, 31 days]."""
    if seconds >= LONGEST_WAIT:
        return LONGEST_WAIT
    return seconds if seconds > 0.0 else 0.0


def sane_wall(wall: object) -> float:
    """A usable clock reading; 0 for anything that is none."""
    if isinstance(wall, int | float) and 0.0 <= wall <= LAST_INSTANT:
        return float(wall)
    return 0.0


def seconds_of(amount: object, *, now: float) -> float | None:
    """The rule for a bare number, also one that came as JSON: too large to be a span, it is an instant."""
    if not isinstance(amount, int | float) or isinstance(amount, bool) or not amount >= 0:
        return None
    if amount >= EPOCH_MILLISECONDS_FROM:
        return within_bounds(amount / 1e3 - now if amount < 1e18 else LONGEST_WAIT)
    return within_bounds(amount - now if amount >= EPOCH_SECONDS_FROM else float(amount))


def seconds_until(text: str, *, now: float, milliseconds: bool = False) -> float | None:
    """The rule above for one hint. ``milliseconds``: the header's name ends in ``-ms``."""
    text = text.strip()
    amount = number(text)
    if amount is not None:
        return within_bounds(amount / 1e3) if milliseconds else seconds_of(amount, now=now)
    amount = duration(text)
    if amount is not None:
        return within_bounds(amount)
    instant = rfc3339(text)
    if instant is None:
        instant = http_date(text, near=now)
    return None if instant is None else within_bounds(instant - now)


def longest_of(text: str, *, now: float, milliseconds: bool = False) -> float | None:
    """The longest hint of a header that may have been sent several times and joined by commas.

    HTTP dates hold a comma themselves, so a piece is also tried together with the one before it.
    """
    if len(text) > LONGEST_TIME_TEXT:
        return None
    whole = seconds_until(text, now=now, milliseconds=milliseconds)
    if whole is not None or "," not in text:
        return whole
    pieces = text.split(",", 2 * MOST_HINTS)[: 2 * MOST_HINTS]
    pieces += [f"{day},{rest}" for day, rest in pairwise(pieces)]
    hints = (seconds_until(piece, now=now, milliseconds=milliseconds) for piece in pieces)
    return max((hint for hint in hints if hint is not None), default=None)


def server_now(date: object, *, wall: float) -> float:
    """What the server's clock showed: its ``Date`` (text or Unix seconds), else our own."""
    if isinstance(date, str):
        instant = http_date(date.strip(), near=wall) if len(date) <= LONGEST_TIME_TEXT else None
        return wall if instant is None else instant
    return sane_wall(date) or wall


def retry_after(value: object, *, wall: float, date: object = None) -> float | None:
    """Seconds that one ``Retry-After`` value asks for, within [0, 31 days], or None where it says nothing.

    ``date`` is the answer's own ``Date`` header. Nothing that may be passed raises.
    """
    now = server_now(date, wall=sane_wall(wall))
    if isinstance(value, bytes):
        value = value[: LONGEST_TIME_TEXT + 1].decode("latin-1")
    return longest_of(value, now=now) if isinstance(value, str) else seconds_of(value, now=now)


class Arrival:
    """When an answer came in, by our clock and, if it says so, by the server's: every instant in it is judged by that.

    The ``Date`` header is read only when something in the answer is an instant: it costs more than most limits.
    """

    __slots__ = ("_date", "_now", "_wall")

    def __init__(self, wall: object, date: str | None = None) -> None:
        self._wall = wall
        self._date = date
        self._now: float | None = None

    @property
    def now(self) -> float:
        if self._now is None:
            self._now = server_now(self._date, wall=sane_wall(self._wall))
        return self._now

    def until(self, text: str, *, milliseconds: bool = False) -> float | None:
        """Seconds from this moment that a hint gives, within [0, 31 days]; None if it says nothing."""
        span = number(text)
        if span is None:
            span = duration(text)
        elif milliseconds:
            span /= 1e3
        elif span >= EPOCH_SECONDS_FROM:
            span = None
        if span is not None:
            return within_bounds(span)
        return longest_of(text, now=self.now, milliseconds=milliseconds)
