"""An account that cannot spend rests, and one call in 15 minutes finds out whether it can again."""

from __future__ import annotations

from headgate.core.cooldown import SPEND_REST
from headgate.core.decision import NEVER
from headgate.core.spend_rest import MOST_ACCOUNTS, SpendRests


def test_one_call_leaves_when_the_rest_is_over_and_others_wait_for_its_answer() -> None:
    rests = SpendRests()
    assert not rests
    assert rests.stopped("a", 0.0, 5.0)
    assert not rests.stopped("a", 1.0, 10.0)  # another that was in flight
    assert rests.begin("a", 100.0) == SPEND_REST - 95.0
    assert rests.begin("b", 100.0) == 0.0
    due = 5.0 + SPEND_REST
    assert [rests.begin("a", due), rests.begin("a", due + 1.0)] == [0.0, SPEND_REST - 1.0]
    assert rests.stopped("a", due, due + 2.0)
    assert rests.begin("a", due + SPEND_REST) == 2.0


def test_a_success_frees_the_account() -> None:
    rests = SpendRests()
    rests.stopped("a", 0.0, 5.0)
    assert not rests.worked("a", 4.0)  # it left before that was known
    assert rests.worked("a", 6.0)
    assert (bool(rests), rests.until("a"), rests.begin("a", 1.0)) == (False, NEVER, 0.0)


def test_the_accounts_that_are_known_have_a_bound() -> None:
    rests = SpendRests()
    for account in range(MOST_ACCOUNTS + 1):
        rests.stopped(account, 0.0, 0.0)
    assert (rests.until(0), rests.until(1)) == (NEVER, SPEND_REST)


def test_accounts_that_turn_out_to_be_one_rest_for_as_long_as_either() -> None:
    rests = SpendRests()
    rests.stopped("a", 0.0, 0.0)
    rests.stopped("b", 7.0, 7.0)
    rests.join("a", "b")
    assert (rests.accounts, rests.until("a")) == (("a",), 7.0 + SPEND_REST)
    rests.forget("a")
    assert not rests
