"""The token rule, the made-up answers, and the errors that can be scripted."""

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.mock.llm import LANGUAGE_APIS
from headgate.mock.llm.language_api import LONGEST, SHORTEST, texts_in, tokens_of, vector, write

PAGE = (Path(__file__).parents[3] / "docs" / "mock.md").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("name", LANGUAGE_APIS)
def test_every_trouble_on_the_page_can_be_scripted(name):
    named = re.search(r"\| `trouble` \| (.*?):", PAGE)[1]
    for trouble in re.findall(r"`(\w+)`", named):
        assert LANGUAGE_APIS[name].refuse(trouble).status >= 400
