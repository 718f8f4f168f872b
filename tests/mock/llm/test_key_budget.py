"""The budget of one key of a mocked language model, without any socket."""

import pytest

from headgate.mock.api import MockPlan
from headgate.mock.llm.key_budget import KeyBudget
from headgate.units import Rate, Step

MINUTE, DAY = 60.0, 86_400.0


def budget(**plan):
    return KeyBudget(MockPlan(**plan))


def test_a_refused_call_leaves_every_limit_as_it_was():
    key = budget(rate=Rate(10.0, MINUTE), tokens=Rate(100.0, MINUTE), per_day=5)
    assert key.take(0.0, 0.0, 90) is None
    refusal = key.take(0.0, 0.0, 20)
    assert (refusal.trouble, refusal.unit, refusal.requested) == ("rate_limited", "tokens", 20)
    assert refusal.status.retry == pytest.approx(6.0)
    assert [status.remaining for _, status in key.statuses(0.0, 0.0)] == [9.0, 10.0]
    assert key.today == 1
    assert key.take(6.0, 6.0, 20) is None


def test_the_limit_that_keeps_a_call_out_longest_is_the_one_that_is_told():
    key = budget(rate=Rate(1.0, MINUTE), tokens=Rate(100.0, MINUTE))
    assert key.take(0.0, 0.0, 50) is None
    assert key.take(0.0, 0.0, 60).unit == "calls"  # 60 s, and 6 s for the tokens
    assert key.take(59.0, 59.0, 100).unit == "calls"
    assert key.take(60.0, 60.0, 100) is None


@pytest.mark.parametrize("algorithm", ["bucket", "gcra", "window", "log", "strict-log"])
def test_every_way_of_counting_keeps_tokens_within_their_limit(algorithm):
    key = budget(rate=Rate(100.0, MINUTE), tokens=Rate(35.0, MINUTE), algorithm=algorithm)
    assert [key.take(0.0, 0.0, 10) is None for _ in range(4)] == [True, True, True, False]


def test_a_day_begins_at_midnight():
    key = budget(per_day=1)
    assert key.take(0.0, DAY - 10.0, 1) is None
    refusal = key.take(1.0, DAY - 9.0, 1)
    assert (refusal.trouble, refusal.status.retry) == ("daily", 9.0)
    assert key.take(10.0, DAY, 1) is None


def test_a_step_scales_calls_and_tokens_and_what_can_never_fit():
    key = budget(rate=Rate(10.0, MINUTE), tokens=Rate(100.0, MINUTE), steps=(Step(0.5, 10.0), Step(1.0, 20.0)))
    assert [status.limit for _, status in key.statuses(10.0, 0.0)] == [5.0, 50.0]
    assert key.take(10.0, 0.0, 51).trouble == "too_large"
    assert key.take(20.0, 0.0, 51).trouble == "rate_limited"


@pytest.mark.parametrize("per_day", [0, -1, 10**9])
def test_a_day_out_of_range_is_refused(per_day):
    with pytest.raises(ValueError, match="per_day must be from"):
        MockPlan(per_day=per_day)
