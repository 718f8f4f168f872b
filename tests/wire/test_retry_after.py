"""The one rule for hints of time, and the calendar behind it."""

from __future__ import annotations

import datetime
import random
import zoneinfo

import pytest

from headgate.core.decision import LONGEST_WAIT
from headgate.wire import retry_after
from headgate.wire.retry_after import MOST_HINTS, civil_year, http_date, next_midnight_pacific, rfc3339, seconds_until

NOW = 1_788_220_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("30", 30.0),
        (" 30 ", 30.0),
        ("7.66", 7.66),
        (".5", 0.5),
        ("999999999", LONGEST_WAIT),
        ("1788220800", 800.0),
        ("1788220800.5", 800.5),
        ("1788220800000", 800.0),
        ("1788210000", 0.0),
        ("6m0s", 360.0),
        ("16m17.764s", 977.764),
        ("12ms", 0.012),
        ("1h2m3s", 3723.0),
        ("1m", 60.0),
        ("1.5h", 5400.0),
        ("250us", 0.00025),
        ("2m59.56s", 179.56),
        ("2026-08-31T23:59:00Z", 740.0),
        ("2026-09-01T01:59:00.5+02:00", 740.5),
        ("Mon, 31 Aug 2026 23:59:00 GMT", 740.0),
        ("Monday, 31-Aug-26 23:59:00 GMT", 740.0),
        ("Mon Aug 31 23:59:00 2026", 740.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
        ("99999999999999999999999999", LONGEST_WAIT),
        ("9" * 250, LONGEST_WAIT),
    ],
)
def test_a_hint_in_seconds(text: str, seconds: float) -> None:
    assert retry_after(text, wall=NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-1", "-0.5", "soon", "nan", "inf", "-inf", "Infinity", "1e3", "1_000", "0x10", "１２", "٣"),
        *("1.2.3", "m", "s", "ms", "6m0s!", "--", "+-1", ".", "..", "2026-13-01T00:00:00Z", "2026-01-01T25:00:00Z"),
        *("Fri, 31 Foo 1999 23:59:59 GMT", "Fri, 99 Dec 1999 23:59:59 GMT", "\x00", "\ud800", "9" * 100_000),
    ],
)
def test_what_is_no_hint_says_nothing(text: str) -> None:
    assert retry_after(text, wall=NOW) is None


@pytest.mark.parametrize("value", [None, True, object(), [], {}, float("nan"), -1, -0.5])
def test_values_that_are_no_text(value: object) -> None:
    assert retry_after(value, wall=NOW) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(3, 3.0), (0.5, 0.5), (b"12", 12.0), (1e-7, 1e-7), (10**400, LONGEST_WAIT), (float("inf"), LONGEST_WAIT)],
)
def test_numbers_and_bytes_are_values_too(value: object, seconds: float) -> None:
    assert retry_after(value, wall=NOW) == seconds


def test_milliseconds_by_name() -> None:
    assert seconds_until("1500", now=NOW, milliseconds=True) == 1.5
    assert seconds_until("1788220800000", now=NOW, milliseconds=True) == LONGEST_WAIT


def test_repeated_lines_the_longest_wins() -> None:
    assert retry_after("30, 60, 45", wall=NOW) == 60
    assert retry_after("30, soon", wall=NOW) == 30
    assert retry_after("30, Mon, 31 Aug 2026 23:59:00 GMT", wall=NOW) == 740
    assert retry_after("Mon, 31 Aug 2026 23:59:00 GMT, 30", wall=NOW) == 740


def test_of_many_repetitions_only_the_first_are_looked_at() -> None:
    assert retry_after("1," * (2 * MOST_HINTS) + "99", wall=NOW) == 1


def test_instants_are_judged_by_the_answers_own_date() -> None:
    date = "Fri, 31 Dec 1999 23:59:49 GMT"
    assert retry_after("Fri, 31 Dec 1999 23:59:59 GMT", wall=NOW, date=date) == 10
    assert retry_after("10", wall=NOW, date=date) == 10
    assert retry_after("Fri, 31 Dec 1999 23:59:59 GMT", wall=NOW, date="nonsense") == 0
    assert retry_after("1788220800", wall=NOW - 5000, date="Mon, 31 Aug 2026 23:59:50 GMT") == 10


@pytest.mark.parametrize("wall", [float("nan"), float("inf"), -1.0, 1e300, None, "x"])
def test_a_broken_clock_breaks_nothing(wall: float) -> None:
    assert retry_after("5", wall=wall) == 5
    assert retry_after("Mon, 31 Aug 2026 23:59:00 GMT", wall=wall) == LONGEST_WAIT


def test_two_digit_years_are_never_far_ahead() -> None:
    assert http_date("Sunday, 06-Nov-94 08:49:37 GMT", near=NOW) == 784111777
    assert http_date("Friday, 31-Dec-49 23:59:59 GMT", near=NOW) == http_date("Fri, 31 Dec 2049 23:59:59 GMT", near=NOW)


def test_dates_agree_with_the_standard_library() -> None:
    rng = random.Random(20260921)
    for _ in range(2000):
        instant = rng.randrange(0, 4_000_000_000)
        moment = datetime.datetime.fromtimestamp(instant, datetime.UTC)
        assert rfc3339(moment.strftime("%Y-%m-%dT%H:%M:%SZ")) == instant
        assert http_date(moment.strftime("%a, %d %b %Y %H:%M:%S GMT"), near=NOW) == instant
        assert civil_year(instant) == moment.year


def utc(text: str) -> float:
    instant = rfc3339(text)
    assert instant is not None
    return instant


@pytest.mark.parametrize(
    ("now", "midnight"),
    [
        ("2026-09-21T13:30:00Z", "2026-09-22T07:00:00Z"),  # summer
        ("2026-01-10T07:59:59Z", "2026-01-10T08:00:00Z"),  # winter, the last second of the day
        ("2026-01-10T08:00:00Z", "2026-01-11T08:00:00Z"),  # midnight itself belongs to the new day
        ("2026-03-08T09:00:00Z", "2026-03-09T07:00:00Z"),  # the day the clocks go forward has 23 hours
        ("2026-11-01T07:30:00Z", "2026-11-02T08:00:00Z"),  # the day they go back has 25
    ],
)
def test_midnight_pacific(now: str, midnight: str) -> None:
    assert next_midnight_pacific(utc(now)) == utc(midnight)


def test_midnight_pacific_agrees_with_the_zone_database() -> None:
    try:
        zone = zoneinfo.ZoneInfo("America/Los_Angeles")
    except zoneinfo.ZoneInfoNotFoundError:
        pytest.skip("this machine has no zone data")
    rng = random.Random(20260921)
    for _ in range(2000):
        now = rng.uniform(1.2e9, 4e9)
        there = datetime.datetime.fromtimestamp(now, zone)
        tomorrow = datetime.datetime.combine(there.date() + datetime.timedelta(days=1), datetime.time(), zone)
        assert next_midnight_pacific(now) == tomorrow.timestamp(), now
