"""The words decisions are made of: what each outcome does, and what a wait promises."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from headgate.core.decision import LONGEST_WAIT, NEVER, UNKNOWN, Outcome, Refuse, RefuseReason, Wait, WaitReason

# outcome -> retried, needs another credential, uses up an attempt, counts for the breaker
TABLE = {
    "ok": (False, False, True, False),
    "rate_limited": (True, False, False, False),
    "quota_exhausted": (True, True, False, False),
    "capacity": (True, False, False, False),
    "spend": (True, True, False, False),
    "overloaded": (True, False, True, True),
    "transient": (True, False, True, True),
    "auth": (True, True, False, False),
    "key_dead": (True, True, False, False),
    "too_large": (False, False, True, False),
    "invalid": (False, False, True, False),
    "abandoned": (False, False, False, False),
}


def test_there_are_exactly_these_outcomes() -> None:
    assert {outcome.value for outcome in Outcome} == set(TABLE)


@pytest.mark.parametrize("label", TABLE)
def test_an_outcome_does_what_its_row_says(label: str) -> None:
    outcome = Outcome(label)
    row = (outcome.retried, outcome.needs_other_credential, outcome.uses_attempt, outcome.counts_against_target)
    assert row == TABLE[label]


def test_a_429_says_nothing_against_the_target() -> None:
    assert not Outcome.RATE_LIMITED.counts_against_target


def test_the_longest_wait_is_31_days() -> None:
    assert LONGEST_WAIT == 31 * 24 * 3600


def test_never_is_before_and_unknown_above_every_number() -> None:
    assert NEVER < -1e300
    assert UNKNOWN > 1e300


@pytest.mark.parametrize("reason", [WaitReason.FLOOR, WaitReason.HOLD, WaitReason.PACE, WaitReason.QUOTA])
def test_a_wait_says_when_the_turn_comes(reason: WaitReason) -> None:
    assert Wait(reason, 1.0).is_forecast


def test_a_wait_for_depth_ends_with_an_answer_and_is_no_forecast() -> None:
    assert not Wait(WaitReason.DEPTH, 1.0).is_forecast


def test_answers_cannot_be_changed() -> None:
    for answer in (Wait(WaitReason.PACE, 1.0), Refuse(RefuseReason.CIRCUIT_OPEN, 2.0)):
        with pytest.raises(FrozenInstanceError):
            answer.reason = "other"  # type: ignore[misc]


def test_a_refusal_without_a_known_end_says_so() -> None:
    assert Refuse(RefuseReason.QUEUE_FULL).retry_at is None
