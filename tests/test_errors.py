"""Errors: two families under one root, messages that help, and a way through pickle."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from headgate import (
    CircuitOpenError,
    ConfigError,
    CostTooLargeError,
    HeadgateError,
    Refused,
    TimeBudgetExceededError,
    TooManyKeysError,
    WaitTooLongError,
)

REFUSALS = [CircuitOpenError, CostTooLargeError, TimeBudgetExceededError, TooManyKeysError, WaitTooLongError]
SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}

refusals = pytest.mark.parametrize("kind", REFUSALS)


class TestFamilies:
    @pytest.mark.parametrize("kind", [*REFUSALS, Refused, ConfigError])
    def test_everything_has_one_root(self, kind: type[Exception]) -> None:
        assert issubclass(kind, HeadgateError)

    @refusals
    def test_a_call_that_was_never_sent_is_refused(self, kind: type[Exception]) -> None:
        assert issubclass(kind, Refused)

    def test_bad_input_is_no_refusal(self) -> None:
        assert not issubclass(ConfigError, Refused)

    @pytest.mark.parametrize("kind", [ConfigError, CostTooLargeError])
    def test_bad_input_is_a_value_error(self, kind: type[Exception]) -> None:
        assert issubclass(kind, ValueError)


class TestWords:
    @refusals
    def test_it_says_which_key_why_and_when_to_come_back(self, kind: type[Refused]) -> None:
        assert str(kind("api.example.com", "the circuit is open", 30.0)) == (
            "api.example.com: the circuit is open; try again in 30.0 s"
        )

    @refusals
    def test_it_does_not_guess_when_that_is_unknown(self, kind: type[Refused]) -> None:
        assert str(kind("api.example.com", "the circuit is open")) == "api.example.com: the circuit is open"

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [(0.25, "250 ms"), (1.0, "1.0 s"), (59.94, "59.9 s"), (600.0, "10 min"), (7200.0, "2.0 h"), (86400, "24.0 h")],
    )
    def test_the_time_is_in_the_unit_a_person_would_use(self, seconds: float, words: str) -> None:
        assert str(Refused("key", "why", seconds)).endswith(f"; try again in {words}")

    @pytest.mark.parametrize("seconds", [0.0123, 0.5, 1.26, 45.0, 119.9, 121.0, 149.0, 209.0, 7199.0, 7300.0, 2.6784e6])
    def test_the_time_is_told_within_a_tenth(self, seconds: float) -> None:
        said = re.search(r"try again in ([0-9.]+) (\w+)$", str(Refused("key", "why", seconds)))
        assert said is not None
        assert float(said[1]) * SECONDS[said[2]] == pytest.approx(seconds, rel=0.1)


class TestFacts:
    @refusals
    def test_it_carries_key_reason_and_retry_after(self, kind: type[Refused]) -> None:
        error = kind("key", "why", 1.5)
        assert (error.key, error.reason, error.retry_after) == ("key", "why", 1.5)

    @refusals
    def test_an_unknown_time_is_none(self, kind: type[Refused]) -> None:
        assert kind("key", "why").retry_after is None

    def test_a_spent_budget_carries_what_was_spent(self) -> None:
        error = TimeBudgetExceededError("key", "why", 9.0, elapsed=60.5, attempts=4)
        assert (error.elapsed, error.attempts, error.retry_after) == (60.5, 4, 9.0)


ERRORS = [
    *(kind("key", "why", 1.5) for kind in REFUSALS),
    *(kind("key", "why") for kind in REFUSALS),
    TimeBudgetExceededError("key", "why", 9.0, elapsed=60.5, attempts=4),
    ConfigError("initial_rps=0 must be a finite number above 0"),
]
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {version}": lambda error, version=version: pickle.loads(pickle.dumps(error, version))
        for version in range(2, 6)
    },
}


@pytest.mark.no_cover
@pytest.mark.parametrize("twin_of", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_it_survives_the_way_to_another_process(error: Exception, twin_of) -> None:
    twin = twin_of(error)
    assert twin is not error
    assert type(twin) is type(error)
    assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))


def test_a_note_survives_it_too() -> None:
    error = CircuitOpenError("key", "why", 1.5)
    error.add_note("while fetching row 17")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["while fetching row 17"]
