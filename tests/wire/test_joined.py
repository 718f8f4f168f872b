"""``RateLimit-Limit`` beside ``RateLimit-Policy``: one budget where they speak of the same quota."""

from __future__ import annotations

from headgate.core.signal import Limit
from headgate.wire import read

PLAIN = {"RateLimit-Limit": "50", "RateLimit-Remaining": "12", "RateLimit-Reset": "1"}


def limits(*, policy: str, **others: str) -> tuple[Limit, ...]:
    return read(200, {**PLAIN, "RateLimit-Policy": policy, **others}, wall=0).limits


def test_a_policy_of_the_same_quota_lends_its_window_and_name() -> None:
    assert limits(policy='"default";q=50;w=1') == (Limit(limit=50, remaining=12, reset=1, window=1, name="default"),)


def test_a_policy_of_an_older_draft_lends_its_window_too() -> None:
    (limit,) = limits(policy="50;w=1")
    assert (limit.limit, limit.remaining, limit.reset, limit.window) == (50, 12, 1, 1)


def test_a_policy_of_another_quota_stays_apart() -> None:
    assert limits(policy='"hourly";q=1000;w=3600') == (
        Limit(limit=50, remaining=12, reset=1),
        Limit(limit=1000, window=3600, name="hourly"),
    )


def test_of_several_policies_only_the_one_of_the_same_quota_is_joined() -> None:
    assert limits(policy='"second";q=50;w=1, "hourly";q=1000;w=3600') == (
        Limit(limit=50, remaining=12, reset=1, window=1, name="second"),
        Limit(limit=1000, window=3600, name="hourly"),
    )


def test_a_policy_without_a_window_has_nothing_to_lend() -> None:
    assert limits(policy='"default";q=50') == (
        Limit(limit=50, remaining=12, reset=1),
        Limit(limit=50, name="default"),
    )


def test_a_policy_that_says_itself_what_is_left_stays_apart() -> None:
    joined = limits(policy='"default";q=50;w=1', RateLimit='"default";r=7;t=1')
    assert joined == (
        Limit(limit=50, remaining=12, reset=1),
        Limit(limit=50, remaining=7, reset=1, window=1, name="default"),
    )


def test_a_window_that_is_known_already_is_not_overruled() -> None:
    headers = {
        "X-RateLimit-Limit-Minute": "50",
        "X-RateLimit-Remaining-Minute": "12",
        "RateLimit-Policy": '"default";q=50;w=1',
    }
    assert {limit.window for limit in read(200, headers, wall=0).limits} == {60, 1}


def test_a_policy_alone_is_what_is_allowed() -> None:
    assert read(200, {"RateLimit-Policy": '"default";q=50;w=1'}, wall=0).limits == (
        Limit(limit=50, window=1, name="default"),
    )


def test_a_policy_counted_in_something_else_is_another_budget() -> None:
    assert len(limits(policy='"bytes";q=50;qu="content-bytes";w=1')) == 2
