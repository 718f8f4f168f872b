"""Structured RateLimit fields: the usual ones by pattern, the rest by the full parser, malformed ones not at all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headgate.core.decision import LONGEST_WAIT
from headgate.core.signal import Limit
from headgate.wire.ietf_fields import LARGEST_COUNT, MOST_MEMBERS, members, quotas, structured_limits


@pytest.mark.parametrize(
    "text",
    [
        '"default";r=50;t=30',
        '"permin";q=50;w=60,"perhr";q=1000;w=3600',
        '"a"; r=1 , "b";r=2',
        'tok;q=1;qu="requests"',
        "100, 100;window=60, 10000;window=86400",
    ],
)
def test_the_pattern_and_the_parser_agree(text: str) -> None:
    import http_sf

    def plain(value: object) -> object:
        return str(value) if isinstance(value, http_sf.Token) else value

    parsed = http_sf.parse(text.encode(), tltype="list")
    assert isinstance(parsed, list)
    expected = [(plain(item[0]), item[1]) for item in parsed if isinstance(item, tuple)]
    assert members(text) == expected


def test_escapes_bytes_and_flags_go_to_the_parser() -> None:
    assert members(r'"a\"b";q=5;w=1;flag;pk=:AAAA:') == [('a"b', {"q": 5, "w": 1, "flag": True, "pk": b"\x00\x00\x00"})]


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", '"a', '"a";', '"a";r', '"a";r=50,', '"a";r=50;;t=3', '"a" "b"', "a=1,,b=2", "=5", '"é";r=1', "\x00"),
        '"a";r=' + "9" * 40,
    ],
)
def test_a_malformed_field_counts_as_not_sent(text: str) -> None:
    assert structured_limits(text, text) == []


def test_a_member_that_lacks_what_it_must_have_is_left_out() -> None:
    assert structured_limits('"a";t=3, "b";r=1', '"a";w=60, "c";q=9') == [
        Limit(limit=9, name="c"),
        Limit(remaining=1, name="b"),
    ]


def test_negative_and_fractional_counts_are_no_counts() -> None:
    assert structured_limits('"a";r=-1;t=5, "b";r=1.5', None) == []


def test_times_and_counts_stay_in_bounds() -> None:
    (limit,) = structured_limits('"a";r=999999999999999;t=999999999999999', None)
    assert (limit.remaining, limit.reset) == (LARGEST_COUNT - 1, LONGEST_WAIT)


def test_a_window_of_zero_is_no_window() -> None:
    assert structured_limits(None, '"a";q=5;w=0') == [Limit(limit=5, name="a")]


def test_concurrency_is_a_dimension() -> None:
    assert structured_limits(None, '"a";q=5;qu="concurrent-requests"')[0].dimension == "concurrency"


def test_no_more_members_than_the_bound() -> None:
    text = ",".join(f'"p{i}";q={i};w=60' for i in range(1, 100))
    assert len(structured_limits(None, text)) == MOST_MEMBERS


def test_quotas_of_older_drafts() -> None:
    assert quotas('100, 100;w=60;comment="x", 10000;window=86400') == [(100, None), (100, 60), (10000, 86400)]


def test_the_parser_is_not_loaded_for_what_is_usual() -> None:
    code = (
        "import sys; from headgate.wire import read\n"
        "read(200, {'RateLimit': '\"a\";r=1;t=2', 'RateLimit-Policy': '\"a\";q=5;w=60'}, wall=0)\n"
        "sys.exit(sum(name in sys.modules for name in ('http_sf', 'json')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
