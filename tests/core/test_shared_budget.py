"""Which credentials are found to share a budget, by their counters and by their refusals."""

import pytest

from headgate.core.credential_pool import Pool, PoolEntry
from headgate.core.decision import Outcome
from headgate.core.shared_budget import Finding, Groups, SharedBudgets
from headgate.core.signal import Limit, Signal


def left(remaining, account=("org",), limit=1000.0, reset=30.0):
    limits = (Limit(limit=limit, remaining=remaining, reset=reset),)
    return Signal(outcome=Outcome.OK, limits=limits, account=account)


def findings(answers):
    budgets, found = SharedBudgets(), []
    for at, (label, signal) in enumerate(answers):
        one = budgets.hear(label, signal, at * 0.1, at * 0.1)
        found += [] if one is None else [one]
    return found


def test_a_counter_that_falls_by_the_calls_of_both_is_shared():
    answers = [(f"key-{at % 2}", left(1000 - at)) for at in range(32)]
    assert findings(answers) == [Finding(("key-0", "key-1"), "org")], "once"


def test_counters_that_fall_by_their_own_calls_are_not():
    assert findings([(f"key-{at % 2}", left(1000 - at // 2)) for at in range(40)]) == []


@pytest.mark.parametrize("in_flight", [4, 8, 12, 16, 30])
def test_answers_out_of_order_look_like_calls_of_the_others_only_once(in_flight):
    """The first answer that is heard is the one to the first call, the next one is to the last of those in flight."""
    answers = [(f"key-{at % 2}", left(1000 - at // 2 - (in_flight if at > 1 else 0))) for at in range(100)]
    assert findings(answers) == []


def test_neither_are_limits_that_differ():
    answers = [(f"key-{at % 2}", left(1000 - at, limit=1000.0 + at % 2)) for at in range(40)]
    assert findings(answers) == []


def test_the_scope_is_the_one_whose_counters_are_shared():
    """Four keys in two projects of one organisation, each project with a counter of its own."""
    used, answers = {"a": 0, "b": 0}, []
    for at in range(80):
        project = "ab"[at % 2]
        used[project] += 1
        answers.append((f"key-{at % 4}", left(1000 - used[project], ("org", project))))
    assert {one.scope for one in findings(answers)} == {"a", "b"}


def test_an_organisation_is_the_scope_where_its_projects_share_a_counter():
    answers = [(f"key-{at % 2}", left(1000 - at, ("org", "ab"[at % 2]))) for at in range(32)]
    assert findings(answers) == [Finding(("key-0", "key-1"), "org")]


def test_a_bucket_that_refills_meanwhile_is_understood():
    answers, level = [], 1000.0
    for at in range(40):
        level = min(1000.0, level + 0.1 * 5.0) - 1
        answers.append((f"key-{at % 2}", left(level, reset=(1000.0 - level) / 5.0)))
    assert [one.scope for one in findings(answers)] == ["org"]


REFUSED = Signal(outcome=Outcome.RATE_LIMITED)
FINE = Signal(outcome=Outcome.OK)


def refusals(second):
    budgets, found = SharedBudgets(), []
    for at in range(0, 200, 10):
        for label, signal, after in (("a", REFUSED, 0.0), ("b", second(at), 0.3)):
            one = budgets.hear(label, signal, at + after, at + after + 0.1)
            found += [] if one is None else [one]
    return found


def test_refusals_that_go_together_propose_a_group():
    assert refusals(lambda _: REFUSED) == [Finding(("a", "b"), "")]


def test_refusals_that_do_not_propose_none():
    assert refusals(lambda at: FINE if at % 20 else REFUSED) == []


@pytest.mark.parametrize(("mode", "joined"), [("headers", True), ("auto", True), ("off", False)])
def test_members_of_a_found_group_rest_together(mode, joined):
    pool = Pool([PoolEntry("key-0"), PoolEntry("key-1"), PoolEntry("other")])
    groups = Groups(pool, mode)
    for at in range(32):
        groups.hear(pool.slots[at % 2], left(1000 - at), at * 0.1, at * 0.1)
    assert groups.changes == joined
    rested = pool.hear(pool.slots[0], Signal(outcome=Outcome.RATE_LIMITED, retry_after=5.0), 3.0, 3.0)
    assert [slot.label for slot in rested] == (["key-0", "key-1"] if joined else ["key-0"])
    assert pool.slots[1].group == ("org" if joined else None)


@pytest.mark.parametrize(("mode", "is_used"), [("headers", False), ("auto", True)])
def test_what_refusals_show_is_used_only_where_that_was_chosen(mode, is_used):
    pool = Pool([PoolEntry("a"), PoolEntry("b")])
    groups, found = Groups(pool, mode), []
    for at in range(0, 200, 10):
        for slot, after in zip(pool.slots, (0.0, 0.3), strict=True):
            one = groups.hear(slot, REFUSED, at + after, at + after + 0.1)
            found += [] if one is None else [one]
    assert found == [(Finding(("a", "b"), ""), is_used)]


def test_groups_that_were_given_stand():
    pool = Pool([PoolEntry("key-0", "mine"), PoolEntry("key-1")])
    groups = Groups(pool, "auto")
    for at in range(32):
        groups.hear(pool.slots[at % 2], left(1000 - at), at * 0.1, at * 0.1)
    assert (groups.changes, pool.slots[0].group, pool.slots[1].group) == (0, "mine", None)
