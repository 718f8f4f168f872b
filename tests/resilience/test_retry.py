"""retry_with_backoff and its async twin: what is tried again, how often, and how long that waits.

Both forms are put through the same scripts. A script is the list of answers to expect, in
order; calls take no time, so the gaps between them are the waits.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import ConfigError, Outcome, Signal, async_retry_with_backoff, retry_with_backoff
from headgate.lab.virtual_time import LoopClock, VirtualClock, run

ALMOST_ONE = 1.0 - 2**-53
modest = settings(max_examples=40, deadline=None, derandomize=True)


class HttpError(Exception):
    """As the HTTP libraries raise it: with the answer attached."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"HTTP {status}")
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = type("Response", (), {"status_code": status, "headers": names})()


class Draw(random.Random):
    """A die that always falls the same way."""

    def __init__(self, draw: float) -> None:
        super().__init__()
        self.draw = draw

    def random(self) -> float:
        return self.draw


class Script:
    """A function that gives its answers in order, and remembers when it was asked."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.called_at: list[float] = []
        self.got: object = None

    def __call__(self, clock: VirtualClock) -> object:
        self.called_at.append(clock.now())
        answer = self.answers[len(self.called_at) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def calls(self) -> int:
        return len(self.called_at)

    @property
    def waits(self) -> list[float]:
        return [after - before for before, after in zip(self.called_at, self.called_at[1:], strict=False)]


Play = Callable[..., Script]


def play_sync(*answers: object, **options: object) -> Script:
    script, clock = Script(*answers), VirtualClock()
    options.setdefault("rng", random.Random(7))
    try:
        script.got = retry_with_backoff(lambda: script(clock), clock=clock, **options)
    except BaseException as error:
        script.got = error
    return script


def play_async(*answers: object, **options: object) -> Script:
    script = Script(*answers)
    options.setdefault("rng", random.Random(7))

    async def main(clock: LoopClock) -> None:
        async def func() -> object:
            return script(clock)

        try:
            script.got = await async_retry_with_backoff(func, clock=clock, **options)
        except BaseException as error:
            script.got = error

    run(main)
    return script


both_forms = pytest.mark.parametrize("play", [play_sync, play_async], ids=["sync", "async"])
PASSING = [HttpError(status) for status in (408, 500, 502, 503, 504, 529)]
PASSING += [TimeoutError(), ConnectionResetError(), OSError("unreachable")]
LASTING = [HttpError(status) for status in (400, 401, 402, 403, 404, 413, 422, 432)]
LASTING += [ValueError("a slip of ours"), FileNotFoundError()]


@both_forms
class TestAttempts:
    def test_a_first_success_is_returned_at_once(self, play: Play) -> None:
        script = play("fine")
        assert (script.got, script.calls) == ("fine", 1)

    @pytest.mark.parametrize("error", PASSING, ids=repr)
    def test_what_may_pass_is_tried_three_times(self, play: Play, error: Exception) -> None:
        assert play(error, error, "fine").got == "fine"
        script = play(error, error, error, "too late")
        assert (script.got, script.calls) == (error, 3)

    @pytest.mark.parametrize("error", LASTING, ids=repr)
    def test_what_will_not_pass_is_raised_unchanged_and_at_once(self, play: Play, error: Exception) -> None:
        script = play(error, "never asked")
        assert script.got is error
        assert (script.called_at, error.__cause__, error.__context__) == ([0.0], None, None)

    def test_the_last_error_is_raised_itself(self, play: Play) -> None:
        errors = [HttpError(500), TimeoutError(), HttpError(502)]
        assert play(*errors).got is errors[-1]

    @pytest.mark.parametrize("most", [1, 2, 7])
    def test_the_number_of_attempts_can_be_set(self, play: Play, most: int) -> None:
        assert play(*[HttpError(500)] * 9, max_attempts=most).calls == most

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
    def test_an_interrupt_passes_at_once(self, error: BaseException, play: Play) -> None:
        script = play(error, "never asked")
        assert (script.got, script.calls) == (error, 1)

    def test_what_an_error_means_can_be_chosen(self, play: Play) -> None:
        def classify(error: Exception) -> Signal:
            return Signal(outcome=Outcome.TRANSIENT, retry_after=9.0)

        script = play(KeyError("again"), "fine", classify=classify, rng=Draw(0.0))
        assert (script.got, script.waits) == ("fine", [9.0])


@both_forms
class TestRateLimited:
    def test_five_refusals_use_up_no_attempt(self, play: Play) -> None:
        script = play(*[HttpError(429)] * 5, HttpError(500), HttpError(500), "fine", max_attempts=3)
        assert (script.got, script.calls) == ("fine", 8)

    def test_a_single_attempt_still_comes_back_after_a_refusal(self, play: Play) -> None:
        assert play(HttpError(429), "fine", max_attempts=1).got == "fine"

    def test_failures_in_between_are_counted(self, play: Play) -> None:
        script = play(
            HttpError(500), HttpError(429), HttpError(500), HttpError(429), last := HttpError(500), max_attempts=3
        )
        assert (script.got, script.calls) == (last, 5)

    def test_twenty_refusals_are_borne(self, play: Play) -> None:
        assert play(*[HttpError(429)] * 20, "fine").got == "fine"

    def test_the_twenty_first_is_the_end(self, play: Play) -> None:
        script = play(*[HttpError(429)] * 20, last := HttpError(429), "too late")
        assert (script.got, script.calls) == (last, 21)


@both_forms
class TestFloors:
    @pytest.mark.parametrize("status", [429, 503])
    @pytest.mark.parametrize("draw", [0.0, 0.5, ALMOST_ONE])
    def test_retry_after_is_kept_whatever_the_longest_delay(self, play: Play, status: int, draw: float) -> None:
        script = play(HttpError(status, retry_after="30"), "fine", max_delay=5.0, rng=Draw(draw))
        assert script.waits == [pytest.approx(30.0 + draw * 3.0)]
        assert script.waits[0] >= 30.0

    def test_a_date_is_a_floor_too(self, play: Play) -> None:
        error = HttpError(429, retry_after="Fri, 15 Jan 2027 08:00:40 GMT")  # the virtual wall clock begins at 08:00
        assert 40.0 <= play(error, "fine").waits[0] <= 44.0

    def test_an_hour_is_kept_and_not_overstayed_by_minutes(self, play: Play) -> None:
        assert 3600.0 <= play(HttpError(429, retry_after="3600"), "fine").waits[0] <= 3605.0

    def test_more_than_31_days_are_31_days(self, play: Play) -> None:
        assert play(HttpError(429, retry_after="99999999"), "fine").waits == [31 * 86400.0]

    def test_the_wait_is_the_longest_of_backoff_and_floor_and_not_their_sum(self, play: Play) -> None:
        script = play(HttpError(503, retry_after="3"), "fine", base_delay=4.0, max_delay=60.0, rng=Draw(ALMOST_ONE))
        assert script.waits == [pytest.approx(4.0)]

    def test_a_floor_is_kept_when_the_error_was_raised_from_the_answer(self, play: Play) -> None:
        error = RuntimeError("search failed")
        error.__cause__ = HttpError(429, retry_after="30")
        script = play(error, "fine")
        assert script.got == "fine"
        assert script.waits[0] >= 30.0

    @modest
    @given(st.integers(1, 100_000), st.integers(0, 2**32), st.sampled_from([429, 500, 503]))
    def test_no_wait_undercuts_its_floor(self, play: Play, floor: int, seed: int, status: int) -> None:
        script = play(HttpError(status, retry_after=str(floor)), "fine", rng=random.Random(seed), max_delay=1.0)
        assert floor - 1e-9 <= script.waits[0] <= floor * 1.1 + 1e-9


@both_forms
class TestBackoff:
    def test_the_ceiling_doubles_up_to_the_longest_delay(self, play: Play) -> None:
        script = play(*[HttpError(500)] * 8, max_attempts=8, rng=Draw(ALMOST_ONE))
        assert script.waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])

    @pytest.mark.parametrize("draw", [0.0, 0.25, 0.5])
    def test_jitter_is_full(self, play: Play, draw: float) -> None:
        script = play(*[HttpError(500)] * 4, max_attempts=4, base_delay=1.0, rng=Draw(draw))
        assert script.waits == pytest.approx([draw, 2 * draw, 4 * draw])

    def test_refusals_without_a_floor_back_off_too(self, play: Play) -> None:
        script = play(*[HttpError(429)] * 4, "fine", base_delay=1.0, rng=Draw(ALMOST_ONE))
        assert script.waits == pytest.approx([1.0, 2.0, 4.0, 5.0])

    @modest
    @given(
        st.lists(st.sampled_from([429, 500, 503]), min_size=1, max_size=12),
        st.floats(0.001, 10.0),
        st.floats(1.0, 100.0),
        st.integers(0, 2**32),
    )
    def test_without_a_floor_no_delay_exceeds_the_longest(
        self, play: Play, statuses: list[int], base: float, factor: float, seed: int
    ) -> None:
        script = play(
            *(HttpError(status) for status in statuses),
            "fine",
            max_attempts=20,
            base_delay=base,
            max_delay=base * factor,
            rng=random.Random(seed),
        )
        assert script.got == "fine"
        for number, wait in enumerate(script.waits):
            assert -1e-9 <= wait <= min(base * 2**number, base * factor) + 1e-9

    def test_the_same_seed_gives_the_same_waits(self, play: Play) -> None:
        script = [HttpError(500), HttpError(429, retry_after="3"), HttpError(503), "fine"]
        first, again, other = (play(*script, rng=random.Random(seed)).waits for seed in (42, 42, 43))
        assert first == again
        assert first != other


def test_both_forms_wait_the_same() -> None:
    script = [HttpError(500), HttpError(429, retry_after="3"), HttpError(503), "fine"]
    assert play_sync(*script).waits == pytest.approx(play_async(*script).waits)


@both_forms
class TestBadArguments:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("max_attempts", value) for value in (0, -1, nan, 1.5, "3", None, True)),
            *(("base_delay", value) for value in (0, -1.0, nan, inf, 5.1, "1", None)),
            *(("max_delay", value) for value in (0, -1.0, nan, inf, 0.1, "1", None)),
            *(("time_budget", value) for value in (0, -1.0, nan, "60")),
        ],
    )
    def test_they_are_refused_by_name_before_anything_is_called(self, play: Play, name: str, value: object) -> None:
        script = play("fine", **{name: value})
        assert script.calls == 0
        assert isinstance(script.got, ConfigError)
        shown = "str" if isinstance(value, str) else repr(value)  # what is no number may be a secret
        assert f"{name}={shown}" in str(script.got)
        assert "must be" in str(script.got)
