"""Broken robots.txt files: each is read as far as it can be, says what was wrong with it, and takes hardly any time."""

from __future__ import annotations

import time
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.crawl.robots import LARGEST, Rules

pytestmark = pytest.mark.no_cover

SECONDS = 10.0
"""Of the processor, for the worst of them while coverage is measured; half a second without."""


class Case(NamedTuple):
    name: str
    body: bytes
    problem: str
    """What the result must name; empty: nothing was wrong."""
    forbids: str = ""
    allows: str = ""


CASES = [
    Case("empty", b"", "", allows="/x"),
    Case("only spaces and line ends", b" \r\n\t\n", "", allows="/x"),
    Case("only comments", b"# nothing\n#Disallow: /\n", "", allows="/x"),
    Case("UTF-8 with a byte order mark", b"\xef\xbb\xbfUser-agent: *\nDisallow: /x", "", forbids="/x"),
    Case("UTF-16", "User-agent: *\nDisallow: /x".encode("utf-16"), "", forbids="/x"),
    Case("UTF-16 without a mark", "User-agent: *\nDisallow: /x".encode("utf-16-le"), "UTF-16", forbids="/x"),
    Case("Latin-1 letters", b"# gr\xfc\xdfe\nUser-agent: *\nDisallow: /x", "not valid utf-8", forbids="/x"),
    Case("old Mac line ends", b"User-agent: *\rDisallow: /x\rAllow: /y", "", forbids="/x", allows="/y"),
    Case("line ends of three kinds", b"User-agent: *\r\n\nDisallow: /x\rDisallow: /z\n\r", "", forbids="/z"),
    Case("NUL bytes", b"User-agent: *\n\0Disallow: /x\0\n", "NUL bytes", forbids="/x"),
    Case("no colons", b"User-agent *\nDisallow /x", "a colon", forbids="/x"),
    Case("spaces before colons", b"User-agent : *\nDisallow : /x", "", forbids="/x"),
    Case("no space after colons", b"user-agent:*\ndisallow:/x", "", forbids="/x"),
    Case("misspelt fields", b"Useragent: *\nDissalow: /x\nDisalow: /z", "", forbids="/z"),
    Case("rules before any agent", b"Disallow: /x\nUser-agent: other\nDisallow: /y", "before the first", "/x", "/y"),
    Case("no agent at all", b"Disallow: /x", "before the first", forbids="/x"),
    Case("an agent without a name", b"User-agent:\nDisallow: /x", "", allows="/x"),
    Case("no slash before the path", b"User-agent: *\nDisallow: x/", "", forbids="/x/y"),
    Case("an address as a path", b"User-agent: *\nDisallow: https://site.example/x", "", allows="/"),
    Case("a web page", b"<!DOCTYPE html><html><body>Not found\nDisallow access</body>", "HTML or XML", allows="/x"),
    Case("a script before the rules", b"<script>x</script>\nUser-agent: *\nDisallow: /x", "HTML or XML", forbids="/x"),
    Case("JSON", b'{"error": "not found"}', "without a rule", allows="/x"),
    Case("prose", b"please do not\ncrawl this site\n", "without a rule", allows="/x"),
    Case("noise", bytes(range(256)) * 40, "", allows="/x"),
    Case("compressed twice", b"\x1f\x8b\x08\0\0\0\0\0\0\x03abc", "compressed", allows="/x"),
    Case("percent signs that mean nothing", b"User-agent: *\nDisallow: /%zz%\nDisallow: /x%2", "", forbids="/x%2"),
    Case("half a character", b"User-agent: *\nDisallow: /\xed\xa0\x80\nDisallow: /x", "not valid utf-8", forbids="/x"),
    Case("a delay of years", b"User-agent: *\nCrawl-delay: 99999999\nDisallow: /x", "between calls", forbids="/x"),
    Case("a delay in words", b"User-agent: *\nCrawl-delay: ten\nDisallow: /x", "invalid value", forbids="/x"),
    Case("a rate by nothing", b"User-agent: *\nRequest-rate: 1/0\nDisallow: /x", "", forbids="/x"),
    Case("a number of a thousand digits", b"User-agent: *\nCrawl-delay: " + b"9" * 1_000, "between calls", "", "/x"),
    Case("cut off in the middle", b"User-agent: *\nDisallow: /x\nDisal", "without a rule", forbids="/x"),
    Case("a pattern of 100,000 letters", b"User-agent: *\nDisallow: /" + b"a" * 100_000, "too long", allows="/x"),
    Case("a pattern of 100,000 stars", b"User-agent: *\nDisallow: /x" + b"*a" * 50_000, "too long", "/xyz", "/y"),
    Case("a megabyte on one line", b"User-agent: *\nDisallow: /x\nDisallow: /" + b"a" * 1_000_000, "bytes", "/x"),
    Case("more than is read", b"User-agent: *\nDisallow: /x\n" + b"# filler\n" * 100_000, "bytes", forbids="/x"),
    Case(
        "20,000 wildcards", b"User-agent: *\n" + b"".join(b"Disallow: /*q%d\n" % n for n in range(20_000)), "wildcards"
    ),
    Case("30,000 rules", b"User-agent: *\n" + b"".join(b"Disallow: /%x\n" % n for n in range(30_000)), "", "/fff"),
    Case(
        "18,000 agents by 13,000 rules",
        b"".join(b"User-agent: a%d\n" % n for n in range(18_000)) + b"User-agent: *\n" + b"Allow: /y\n" * 13_000,
        "",
        allows="/x",
    ),
    Case(
        "agents listed again and again",
        (b"".join(b"User-agent: a%d\n" % n for n in range(8_000)) + b"Disallow: /\n") * 3,
        "",
        allows="/x",
    ),
    Case("30,000 sitemaps", b"".join(b"Sitemap: /%d\n" % n for n in range(30_000)), "sitemaps", allows="/x"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_broken_file_is_read_as_far_as_it_can_be(case: Case) -> None:
    began = time.process_time()
    rules = Rules.parse(case.body, "headgate")
    if case.forbids:
        assert not rules.allows(f"https://site.example{case.forbids}")
    if case.allows:
        assert rules.allows(f"https://site.example{case.allows}")
    assert time.process_time() - began < SECONDS
    assert case.problem in rules.problem
    if not case.problem and case.name != "noise":
        assert rules.problem == ""
    assert len(rules.problem) < 500
    assert len(rules.sitemaps) <= 1_000


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)


def test_one_question_to_the_largest_file_of_wildcards_takes_milliseconds() -> None:
    body = b"User-agent: *\n" + b"".join(b"Disallow: /a*q%d*r\n" % number for number in range(24_000))
    rules = Rules.parse(body[:LARGEST], "headgate")
    began = time.process_time()
    for number in range(10):
        rules.allows(f"https://site.example/b{'q' * 1_500}{number}")
    assert (time.process_time() - began) / 10 < 0.5


@given(
    st.lists(
        st.sampled_from(
            [
                b"User-agent: *",
                b"User-agent: headgate",
                b"Disallow: /",
                b"Allow: /a*$",
                b"\xff\xfe",
                b"\0",
                b"Crawl-delay: 1e9",
                b"#",
                b":",
                b"Request-rate: 1/1x",
                b"Sitemap:",
                b"%",
                b"$",
                b"\r",
                b"\n",
                b" ",
                b"*",
            ]
        )
    ).map(b"".join)
)
def test_no_mixture_of_pieces_raises(body: bytes) -> None:
    Rules.parse(body, "headgate").allows("https://site.example/a?b=$&c=%")


@given(st.binary(max_size=300))
def test_no_bytes_raise(body: bytes) -> None:
    Rules.parse(body, "headgate").allows("https://site.example/")
