"""The waits that a server asks for with its refusals."""

from __future__ import annotations

import pytest

from headgate.controllers.adaptive.call_history import CallHistory
from headgate.controllers.adaptive.told_wait import LONG_FLOOR, MANY_WAITED, SLOWLY, SLOWLY_FROM, ToldWait


def test_refusals_of_the_volley_that_is_waited_for_ask_for_nothing_new():
    wait = ToldWait(asked=1.0, held_seq=40)
    assert wait.is_under_way(40)
    assert not wait.is_under_way(41), "it was sent after the wait"


@pytest.mark.parametrize("asked", [0.0, LONG_FLOOR])
def test_without_a_short_wait_there_is_none_under_way(asked):
    assert not ToldWait(asked=asked, held_seq=40).is_under_way(3)


def test_a_search_goes_on_slowly_only_where_the_wait_costs_many_calls():
    let_in = 2.0 * MANY_WAITED
    assert ToldWait(asked=1.0).search_on(let_in) == (SLOWLY_FROM * let_in, SLOWLY)
    assert ToldWait(asked=1.0).search_on(MANY_WAITED) is None
    assert ToldWait(asked=0.0).search_on(let_in) is None
    assert ToldWait(asked=LONG_FLOOR).search_on(let_in) is None, "it is a block, and tells a window"


def test_a_wait_that_varies_is_counted_as_rounded():
    wait = ToldWait()
    assert wait.silence_of_block(6.0, 5.9, 50.0, 0.0) == 1.0, "the first has nothing to be the same as"
    assert wait.silence_of_block(6.0, 5.9, 50.0, 0.0) == 5.9
    assert wait.silence_of_block(6.0, 5.9, 50.0, 10.0) == 1.0, "the window explains it"


def test_what_was_sent_bounds_a_pace_that_has_risen_since():
    history = CallHistory()
    for tenth in range(101):
        history.sends.mark(tenth / 10.0, 5 * tenth)
    assert history.pace_of(500, 10.0, 80.0) == pytest.approx(50.0)
    assert history.pace_of(500, 10.0, 40.0) == 40.0
