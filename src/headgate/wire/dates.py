"""Instants as servers write them, in Unix seconds, without a time zone database or a clock.

Three ways to write one are met in headers and bodies::

    RFC 3339    2026-09-27T12:05:00Z            Anthropic
    RFC 9110    Fri, 31 Dec 1999 23:59:59 GMT   Retry-After, Date   (and two older spellings)
    a rule      "midnight Pacific"              Google's daily quotas

The calendar is counted here, since the machine may hold no zone data and the few
lines below load faster than the library that would replace them.
"""

from __future__ import annotations

import re

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
    """The UTC year an instant falls into."""
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
