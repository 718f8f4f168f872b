"""The token rule, the made-up answers and the budget of one key, without any socket."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.mock.api import MockPlan
from headgate.mock.llm.language_api import KeyBudget
from headgate.mock.llm.text import LONGEST, SHORTEST, texts_in, tokens_of, vector, write
from headgate.units import Rate, Step

MINUTE, DAY = 60.0, 86_400.0


@given(text=st.text(max_size=200))
def test_a_token_is_four_characters(text):
    assert tokens_of(text) == math.ceil(len(text) / 4)


@given(prompt=st.text(max_size=50), most=st.integers(1, 300))
def test_an_answer_keeps_to_the_maximum_and_its_pieces_are_all_of_it(prompt, most):
    free, bounded = write("1", "m", prompt, None), write("1", "m", prompt, most)
    assert SHORTEST <= free.tokens <= LONGEST + 30
    assert not free.cut
    assert bounded.tokens == min(most, free.tokens)
    assert bounded.cut is (most < free.tokens)
    assert free.text.startswith(bounded.text)
    assert "".join(bounded.pieces) == bounded.text


def test_only_texts_are_read():
    parts = [{"type": "text", "text": "ab"}, {"type": "image", "source": {"data": "x" * 99}}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": "cd"}, None, 7]
    assert list(texts_in(messages)) == ["ab", "cd"]


def test_a_vector_has_length_one_and_its_texts_own_direction():
    one, same, other = (vector("1", "m", text, 256) for text in ("a", "a", "b"))
    assert one == same != other
    assert math.hypot(*one) == pytest.approx(1.0)


def budget(per_day=None, **plan):
    return KeyBudget(MockPlan(**plan), per_day)


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
    with pytest.raises(ValueError, match="per_day must be within"):
        MockPlan(per_day=per_day)
