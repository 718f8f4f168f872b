"""Sentences from reasons: each says what waits, for what, and for how long where that is known."""

from math import inf

import pytest

from headgate.core.decision import (
    CircuitState,
    ControllerNote,
    Explanation,
    PaceReason,
    Refuse,
    RefuseReason,
    WaitReason,
)
from headgate.reason_text import (
    CircuitChange,
    RateChange,
    credential_text,
    elsewhere_text,
    event_reason,
    lane_text,
    reason_text,
    refuse_text,
    retries_text,
    store_text,
)


@pytest.mark.parametrize("reason", [reason for reason in WaitReason if reason])
def test_every_wait_has_a_sentence(reason):
    text = reason_text(Explanation(reason=reason, seconds_left=3.0, subject="9 requests per 60 s", rate=2.0))
    assert text
    assert not text.endswith(".")


@pytest.mark.parametrize("reason", RefuseReason)
def test_every_refusal_has_a_sentence(reason):
    assert refuse_text(Refuse(reason, subject="it"))
    assert reason_text(Explanation(reason=reason, subject="it", seconds_left=2.0)).endswith("2.0 s to go")


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (Explanation(reason=WaitReason.PACE, rate=40.0), "paced at 40 calls/s"),
        (
            Explanation(reason=WaitReason.HOLD, seconds_left=9.0, controller_note=ControllerNote(PaceReason.EMPTY)),
            "nothing is left by the server's headers, 9.0 s to go",
        ),
        (
            Explanation(reason=WaitReason.PACE, rate=4.0, is_ramping=True, members=3, controller_note="a note"),
            "paced at 4 calls/s while ramping up after a pause, shared by 3 processes, a note",
        ),
        (
            Explanation(reason=WaitReason.PACE, ceiling=5.0, seconds_left=0.2),
            "held under the operator's limit of 5 calls/s",
        ),
        (
            Explanation(reason=WaitReason.FLOOR, seconds_left=1.0, lost_store="redis"),
            "rate limited by the server, 1.0 s to go; not shared, because redis cannot be reached",
        ),
    ],
)
def test_the_numbers_are_in_it(why, text):
    assert reason_text(why) == text


@pytest.mark.parametrize(
    ("code", "seconds", "text"),
    [
        ("", None, ""),
        ("workers", None, "all workers are busy"),
        ("cooldown", 30.0, "waiting for the rate limit, 30.0 s to go"),
        ("credential", 5.0, "key resting, available again in 5.0 s"),
        ("credential", inf, "key disabled"),
        ("answers", None, "waiting for 3 answers"),
        ("of_another_version", None, "of_another_version"),
    ],
)
def test_what_a_lane_waits_for(code, seconds, text):
    assert lane_text(code, seconds, in_flight=3) == text


@pytest.mark.parametrize(
    ("code", "detail", "text"),
    [
        ("invalid", "HTTP 400", "invalid: HTTP 400"),
        ("invalid", "", "invalid"),
        ("", "a sentence", "a sentence"),
        ("pace", Explanation(reason=WaitReason.PACE, rate=1.0), "paced at 1 call/s"),
        ("", CircuitChange(CircuitState.CLOSED, CircuitState.OPEN), "closed to open"),
        ("", RateChange(1.0, 2.5, "searching for the limit"), "1 to 2.5 calls/s, searching for the limit"),
    ],
)
def test_the_reason_of_an_event(code, detail, text):
    assert event_reason(code, detail) == text


def test_credentials_stores_and_batches():
    assert credential_text("retired", "auth", None) == "is disabled: rejected by the server"
    assert credential_text("resting", "", 3.0) == "rests for 3.0 s: no reason given"
    assert credential_text("held", "", None) == "is in use by other calls"
    assert store_text("redis", 1, is_lost=False) == "redis, shared by 1 process"
    assert store_text("redis", 2, is_lost=True).endswith("continuing at this process's own share")
    assert elsewhere_text([(7, "a"), (8, "b")]).endswith("are held by process 7 on a, process 8 on b")
    assert retries_text(None) == "waiting to retry rows"
    assert retries_text(2.0).endswith("the first in 2.0 s")
