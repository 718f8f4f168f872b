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


def retry_after(value: object, *, wall: float, date: object = None) -> float | None:
    """Seconds that one ``Retry-After`` value asks for, within [0, 31 days], or None where it says nothing.

    ``date`` is the answer's own ``Date`` header. Nothing that may be passed raises.
    """
    arrival = Arrival(wall, date)
    if isinstance(value, bytes):
        value = value[: LONGEST_TIME_TEXT + 1].decode("latin-1")
    return arrival.until(value) if isinstance(value, str) else seconds_of(value, now=arrival.now)


class Arrival:
    """When an answer came in, by our clock and, if it says so, by the server's: every instant in it is judged by that.

    The ``Date`` header is read only when something in the answer is an instant: it costs more than most limits.
    """

    __slots__ = ("_date", "_now", "_wall")

    def __init__(self, wall: object, date: object = None) -> None:
        self._wall = wall
        self._date = date
        self._now: float | None = None

    @property
    def now(self) -> float:
        """What the server's clock showed: its ``Date`` (text or Unix seconds), else our own."""
        if self._now is None:
            wall, date = sane_wall(self._wall), self._date
            if isinstance(date, str):
                instant = http_date(date.strip(), near=wall) if len(date) <= LONGEST_TIME_TEXT else None
                self._now = wall if instant is None else instant
            else:
                self._now = sane_wall(date) or wall
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


# ---------------------------------------------------------------------- dates

# Instants as servers write them, in Unix seconds, without a time zone database or a clock. The calendar is counted
# here, since the machine may hold no zone data and these lines load faster than the library that would replace them.
#
#   RFC 3339    2026-09-27T12:05:00Z            Anthropic
#   RFC 9110    Fri, 31 Dec 1999 23:59:59 GMT   Retry-After, Date   (and two older spellings)
#   a rule      "midnight Pacific"              Google's daily quotas

DAY = 86400
LONGEST_DATE = 64
"""Characters; no legal spelling of an instant comes near it."""
LAST_YEAR = 9999

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_CLOCK = r"(\d\d):(\d\d):(\d\d)"
# Patterns are compiled when the first date comes along; most programs never meet one.
_RFC3339 = rf"(?ai)(\d{{4}})-(\d\d)-(\d\d)[T ]{_CLOCK}(\.\d{{1,12}})?(?:Z|([+-])(\d\d):?(\d\d))"
_IMF_FIXDATE = rf"(?ai)[a-z]{{3}}, (\d{{1,2}}) ([a-z]{{3}}) (\d{{4}}) {_CLOCK} (?:GMT|UTC|[+-]0000)"
_RFC850 = rf"(?ai)[a-z]{{6,9}}, (\d\d)-([a-z]{{3}})-(\d\d) {_CLOCK} (?:GMT|UTC)"
_ASCTIME = rf"(?ai)[a-z]{{3}} ([a-z]{{3}}) ([ \d]\d) {_CLOCK} (\d{{4}})"

_HOUR = 3600
_PACIFIC_WINTER = -8 * _HOUR
_PACIFIC_SUMMER = -7 * _HOUR


def rfc3339(text: str) -> float | None:
    """The instant, or None where the text is something else."""
    found = re.fullmatch(_RFC3339, text) if len(text) <= LONGEST_DATE else None
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, off_hours, off_minutes = found.groups()
    instant = _instant(int(year), int(month), int(day), int(hour), int(minute), int(second))
    if instant is None:
        return None
    if fraction:
        instant += float(fraction)
    if sign:
        offset = int(off_hours) * _HOUR + int(off_minutes) * 60
        instant += -offset if sign == "+" else offset
    return instant


def http_date(text: str, *, near: float) -> float | None:
    """The instant of any of RFC 9110's three spellings, or None.

    ``near`` settles the century of the two-digit year: never more than 50 years ahead.
    """
    if len(text) > LONGEST_DATE:
        return None
    if found := re.fullmatch(_IMF_FIXDATE, text):
        day, month, year, *clock = found.groups()
    elif found := re.fullmatch(_RFC850, text):
        day, month, short_year, *clock = found.groups()
        this_year = civil_year(near)
        year_number = this_year - this_year % 100 + int(short_year)
        year = str(year_number - 100 if year_number > this_year + 50 else year_number)
    elif found := re.fullmatch(_ASCTIME, text):
        month, day, *clock, year = found.groups()
    else:
        return None
    at = _MONTHS.find(month.lower())
    return None if at % 4 else _instant(int(year), at // 4 + 1, int(day), *map(int, clock))


def next_midnight_pacific(now: float) -> float:
    """The instant Google's daily quotas are whole again."""
    offset = _PACIFIC_SUMMER if _is_pacific_summer(now) else _PACIFIC_WINTER
    midnight_there = ((now + offset) // DAY + 1) * DAY
    at = midnight_there - _PACIFIC_WINTER
    return at - _HOUR if _is_pacific_summer(at) else at


def civil_year(instant: float) -> int:
    """The UTC year of an instant. ``time.gmtime`` is no help: on some platforms it ends in 2038 or 3000."""
    days = int(instant // DAY)
    year = 1970 + days * 400 // 146097
    while _days(year, 1, 1) > days:
        year -= 1
    return year + 1 if _days(year + 1, 1, 1) <= days else year


def _is_pacific_summer(at: float) -> bool:
    """US rule since 2007: from 2:00 on March's second Sunday to 2:00 on November's first, local time."""
    year = civil_year(at)
    begins = _sunday_on_or_after(year, 3, 8) * DAY + 2 * _HOUR - _PACIFIC_WINTER
    ends = _sunday_on_or_after(year, 11, 1) * DAY + 2 * _HOUR - _PACIFIC_SUMMER
    return begins <= at < ends


def _sunday_on_or_after(year: int, month: int, day: int) -> int:
    days = _days(year, month, day)
    return days + (3 - days) % 7  # day 0 was a Thursday, so day 3 was the first Sunday


def _instant(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    """A leap second is taken as the second after it."""
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour <= 23 and minute <= 59 and second <= 60 and year <= LAST_YEAR):
        return None
    return float(_days(year, month, day) * DAY + hour * _HOUR + minute * 60 + second)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the Gregorian calendar (the year is taken to begin in March)."""
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719469
