"""Numbers as people say them: sane units, no exponents, no "1 calls"."""

import pytest

from headgate.formatting import format_number, format_rate, format_seconds, nearest_name, plural


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0001, "1 ms"),
        (0.04, "40 ms"),
        (12.34, "12.3 s"),
        (900.0, "15 min"),
        (9000.0, "2.5 h"),
        (30 * 86_400.0, "30.0 days"),
    ],
)
def test_a_duration_has_the_unit_of_its_size(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (20_000.0, "20,000 calls/s"),
        (12.5, "12.5 calls/s"),
        (1.0, "1 call/s"),
        (0.05, "3 calls/min"),
        (1 / 3600, "1 call/h"),
        (1 / 86_400, "1 call/day"),
    ],
)
def test_a_rate_has_the_unit_of_its_size(per_second, text):
    assert format_rate(per_second) == text


def test_numbers_and_counts():
    assert [format_number(one) for one in (0.25, 12.5, 2560.0)] == ["0.25", "12.5", "2,560"]
    assert [plural(1, "call"), plural(2_000, "call"), plural(2, "address")] == ["1 call", "2,000 calls", "2 addresses"]


def test_the_nearest_of_the_known_names():
    assert nearest_name("OpenIA", ["anthropic", "openai"]) == "openai"
    assert nearest_name("something", ["anthropic", "openai"]) is None
