"""robots.txt as it should be: whose rules count, how they match, and what each answer means."""

from __future__ import annotations

import pytest

from headgate.crawl.robots import LIFE, LIFE_UNKNOWN, LONGEST_DELAY, Rules, rules_for

HOST = "https://site.example"


def rules(text: str, agent: str = "headgate") -> Rules:
    return Rules.parse(text.encode(), agent)


def test_rules_of_everybody_count_where_none_are_for_us() -> None:
    read = rules("User-agent: *\nDisallow: /private\n\nUser-agent: other\nDisallow: /")
    assert not read.allows(f"{HOST}/private/x")
    assert read.allows(f"{HOST}/public")
    assert read.problem == ""


def test_rules_for_us_replace_those_of_everybody() -> None:
    read = rules("User-agent: *\nDisallow: /\n\nUser-agent: HeadGate/2.0\nDisallow: /mine")
    assert read.allows(f"{HOST}/anything")
    assert not read.allows(f"{HOST}/mine")


def test_all_groups_of_one_agent_are_one() -> None:
    read = rules(
        "User-agent: headgate\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: headgate\nDisallow: /b"
    )
    assert [read.allows(f"{HOST}/{page}") for page in "abc"] == [False, False, True]


def test_agents_in_a_row_share_the_rules_that_follow() -> None:
    read = rules("User-agent: x\nUser-agent: headgate\n\nDisallow: /a\nUser-agent: y\nDisallow: /b")
    assert not read.allows(f"{HOST}/a")
    assert read.allows(f"{HOST}/b")


@pytest.mark.parametrize("line", ["head", "headgate-news", "gate", "myheadgate"])
def test_a_name_that_only_resembles_ours_is_not_ours(line: str) -> None:
    assert rules(f"User-agent: {line}\nDisallow: /").allows(f"{HOST}/x")


@pytest.mark.parametrize("agent", ["headgate/1.0 (+https://site.example)", "HEADGATE", "headgate"])
def test_the_product_is_what_counts_of_our_own_name(agent: str) -> None:
    assert not rules("User-agent: headgate\nDisallow: /x", agent).allows(f"{HOST}/x")


@pytest.mark.parametrize(
    ("pattern", "path", "allowed"),
    [
        ("/fish", "/fish.html", False),
        ("/fish", "/Fish", True),
        ("/fish/", "/fish", True),
        ("/*.php", "/a/b.php?x=1", False),
        ("/*.php$", "/a.php?x=1", True),
        ("/*.php$", "/a.php", False),
        ("/a%3cd", "/a%3Cd", False),
        ("/ä", "/%C3%A4", False),
        ("/*?sort=", "/list?sort=up", False),
    ],
)
def test_patterns_match_as_rfc_9309_says(pattern: str, path: str, allowed: bool) -> None:
    assert rules(f"User-agent: *\nDisallow: {pattern}").allows(HOST + path) is allowed


def test_the_longest_rule_wins_and_allow_wins_a_tie() -> None:
    read = rules("User-agent: *\nDisallow: /p\nAllow: /public\nDisallow: /public/not\nAllow: /t\nDisallow: /t")
    paths = ("/p", "/public/x", "/public/not/x", "/t")
    assert [read.allows(HOST + path) for path in paths] == [False, True, False, True]


def test_an_empty_disallow_allows_everything() -> None:
    assert rules("User-agent: *\nDisallow:").allows(f"{HOST}/x")


def test_robots_txt_itself_is_always_allowed() -> None:
    assert rules("User-agent: *\nDisallow: /").allows(f"{HOST}/robots.txt")


def test_an_address_that_cannot_be_read_is_not_allowed() -> None:
    assert not rules("User-agent: *\nDisallow: /x?").allows("http://[broken/?a")


@pytest.mark.parametrize(
    ("lines", "delay"),
    [
        ("Crawl-delay: 2.5", 2.5),
        ("Crawl-delay: 0", 0.0),
        ("Request-rate: 1/10", 10.0),
        ("Request-rate: 6/1m", 10.0),
        ("Crawl-delay: 3\nRequest-rate: 1/2", 3.0),
        ("Crawl-delay: 86400", LONGEST_DELAY),
        ("Crawl-delay: soon", None),
        ("Crawl-delay: -1", None),
        ("Crawl-delay: nan", None),
        ("Crawl-delay: inf", None),
        ("Disallow: /x", None),
    ],
)
def test_the_delay_is_the_longest_asked_for_within_bounds(lines: str, delay: float | None) -> None:
    assert rules(f"User-agent: *\n{lines}").delay == delay


def test_sitemaps_count_for_everybody_and_once() -> None:
    read = rules("Sitemap: https://a.example/1.xml\nUser-agent: x\nSitemap: https://a.example/2.xml\nDisallow: /\n"
                 "sitemap: https://a.example/1.xml")  # fmt: skip
    assert read.sitemaps == ("https://a.example/1.xml", "https://a.example/2.xml")


def test_a_sitemap_between_agents_does_not_part_them() -> None:
    read = rules("User-agent: headgate\nSitemap: https://a.example/1.xml\nUser-agent: x\nDisallow: /a")
    assert not read.allows(f"{HOST}/a")


@pytest.mark.parametrize("status", [200, 204, 299])
def test_an_answer_is_read(status: int) -> None:
    read = rules_for(status, b"User-agent: *\nDisallow: /x", "headgate")
    assert read.known
    assert not read.allows(f"{HOST}/x")
    assert read.life == LIFE


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 410, 418, 451])
def test_where_there_is_none_all_is_allowed(status: int) -> None:
    read = rules_for(status, b"User-agent: *\nDisallow: /", "headgate")
    assert read.known
    assert read.allows(f"{HOST}/x")


@pytest.mark.parametrize("status", [0, 429, 500, 503, 599, 100, 700])
def test_where_nobody_knows_nothing_is_allowed_for_now(status: int) -> None:
    read = rules_for(status, b"User-agent: *\nAllow: /", "headgate")
    assert not read.known
    assert not read.allows(f"{HOST}/x")
    assert read.life == LIFE_UNKNOWN
    assert read.problem.startswith("robots.txt")
