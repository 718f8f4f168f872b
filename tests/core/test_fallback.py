"""Reason x list x state -> target, without a clock."""

from __future__ import annotations

import pytest

from headgate.core.decision import Outcome
from headgate.core.fallback import (
    AWAY_FOR,
    USUAL_REASONS,
    CallRoute,
    Choice,
    MoveReason,
    Target,
    TargetStates,
    choose,
    read_reasons,
    reason_of,
)
from headgate.core.signal import Signal

NONE: frozenset[MoveReason] = frozenset()
SPEND, OPEN, LONG = MoveReason.SPEND, MoveReason.CIRCUIT_OPEN, MoveReason.TOO_LONG
ANY = (NONE, USUAL_REASONS, USUAL_REASONS)
M, A, B = Target("ours", "m"), Target("theirs", "a"), Target("third", "b")


@pytest.mark.parametrize(
    ("accepts", "refused", "away", "expected"),
    [
        (ANY, {}, {}, Choice(0, None)),
        (ANY, {0: LONG}, {}, Choice(1, LONG)),
        (ANY, {}, {0: SPEND}, Choice(1, SPEND)),
        (ANY, {}, {0: SPEND, 1: OPEN}, Choice(2, SPEND)),
        ((NONE, frozenset({LONG}), USUAL_REASONS), {}, {0: SPEND}, Choice(2, SPEND)),
        ((NONE, USUAL_REASONS, frozenset({OPEN})), {}, {0: SPEND, 1: OPEN}, Choice(2, OPEN)),
        (ANY, {}, {0: SPEND, 1: OPEN, 2: OPEN}, Choice(0, None)),
        (ANY, {0: LONG}, {1: OPEN, 2: OPEN}, Choice(1, LONG)),
        (ANY, {0: LONG, 1: LONG, 2: LONG}, {}, None),
        ((NONE, frozenset({LONG})), {}, {0: SPEND}, Choice(0, None)),
        ((NONE, USUAL_REASONS), {0: MoveReason.REFUSED_CONTENT}, {}, None),
        ((NONE,), {}, {}, Choice(0, None)),
    ],
)
def test_the_first_target_that_takes_it_else_the_first_that_will(accepts, refused, away, expected) -> None:
    assert choose(accepts, refused, away) == expected


def ended(outcome: Outcome, **fields: object) -> Signal:
    return Signal(outcome=outcome, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("signal", "facts", "expected"),
    [
        (ended(Outcome.TOO_LARGE), {}, LONG),
        (ended(Outcome.SPEND), {}, SPEND),
        (ended(Outcome.INVALID, is_unknown_model=True), {}, MoveReason.UNKNOWN_MODEL),
        (ended(Outcome.INVALID, is_refused_content=True), {}, MoveReason.REFUSED_CONTENT),
        (ended(Outcome.INVALID), {"is_last": True}, None),
        (ended(Outcome.AUTH), {"is_last": True}, None),
        (ended(Outcome.RATE_LIMITED, retry_after=30.0), {"is_last": True}, None),
        (ended(Outcome.QUOTA_EXHAUSTED, retry_after=600.0), {}, None),
        (ended(Outcome.QUOTA_EXHAUSTED, retry_after=600.1), {}, MoveReason.QUOTA_UNTIL),
        (ended(Outcome.CAPACITY), {"refusals": 2}, None),
        (ended(Outcome.CAPACITY), {"refusals": 3}, MoveReason.CAPACITY),
        (ended(Outcome.OVERLOADED), {}, None),
        (ended(Outcome.OVERLOADED), {"is_last": True}, MoveReason.CAPACITY),
        (ended(Outcome.TRANSIENT), {"is_last": True}, MoveReason.FAILING),
        (ended(Outcome.TRANSIENT), {"is_open": True}, OPEN),
        (ended(Outcome.OK), {"is_last": True}, None),
    ],
)
def test_why_a_call_may_move(signal, facts, expected) -> None:
    assert reason_of(signal, **{"is_last": False, **facts}) is expected


def test_reasons_are_read_by_their_names() -> None:
    assert read_reasons(["spend", "too_long"]) == {SPEND, LONG}
    with pytest.raises(ValueError, match="'money' is not a reason to move; the reasons are capacity, too_long"):
        read_reasons(["spend", "money"])
    with pytest.raises(ValueError, match="name a reason"):
        read_reasons([])


class TestStates:
    def test_a_target_without_credit_is_asked_again_after_a_while_by_one_call(self) -> None:
        states = TargetStates()
        states.note(M, SPEND, 0.0)
        assert states.away((M, A), 1.0) == {0: SPEND}
        assert states.away((A, Target("ours", "other")), 1.0) == {1: SPEND}, "of the whole account, in any list"
        assert states.away((M, A), AWAY_FOR) == {}, "this call finds out"
        assert states.away((M, A), AWAY_FOR + 1) == {0: SPEND}, "the others wait for it"
        states.worked(M)
        assert states.away((M, A), AWAY_FOR + 2) == {}

    def test_a_quota_or_a_model_that_is_gone_is_one_models(self) -> None:
        states = TargetStates()
        states.note(A, MoveReason.QUOTA_UNTIL, 0.0, 700.0)
        assert states.away((M, A), 699.0) == {1: MoveReason.QUOTA_UNTIL}
        assert states.away((M, Target("theirs", "y")), 1.0) == {}

    def test_another_model_finds_out_about_the_account_of_one_that_is_gone(self) -> None:
        states = TargetStates()
        states.note(M, SPEND, 0.0)
        states.note(M, MoveReason.UNKNOWN_MODEL, 1.0)
        assert states.away((M, Target("ours", "new")), AWAY_FOR) == {0: MoveReason.UNKNOWN_MODEL}

    def test_what_is_about_one_call_and_what_a_circuit_knows_is_not_kept(self) -> None:
        states = TargetStates()
        states.note(M, LONG, 0.0)
        states.note(M, OPEN, 0.0, 30.0)
        assert states.away((M,), 0.0) == {}


def test_a_call_goes_from_target_to_target_and_the_next_one_knows() -> None:
    states = TargetStates()
    route = CallRoute(ANY, states, (M, A, B), 0.0)
    assert route.choice == (0, None)
    assert route.move(SPEND, 0.0)
    assert (route.choice, route.may_move(OPEN)) == ((1, SPEND), True)
    assert route.move(OPEN, 0.0)
    assert (route.choice, route.may_move(OPEN)) == ((2, SPEND), False)
    assert not route.move(MoveReason.FAILING, 0.0)
    assert route.refused == {0: SPEND, 1: OPEN, 2: MoveReason.FAILING}
    assert CallRoute(ANY, states, (M, A, B), 1.0).choice == (1, SPEND)


def test_targets_of_one_account_cannot_spend_together() -> None:
    states, same = TargetStates(), Target("ours", "a")
    route = CallRoute(ANY, states, (M, same, B), 0.0)
    assert route.move(SPEND, 0.0)
    assert route.choice == (2, SPEND)
    assert route.refused == {0: SPEND}, "the other was not asked"
    assert not route.move(LONG, 0.0)
    assert CallRoute(ANY, states, (M, same, B), 1.0).choice == (2, SPEND)
    assert not CallRoute(ANY[:2], TargetStates(), (M, same), 0.0).move(SPEND, 0.0)
    states.worked(same)
    assert CallRoute(ANY, states, (M, same, B), 2.0).choice == (0, None)
