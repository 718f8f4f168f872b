"""CircuitBreaker: what opens it, what it lets through while it finds out, and what leaves it alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf, nan

import pytest

from headgate import CircuitBreaker, CircuitOpenError, CircuitState, ConfigError, Outcome, WaitTooLongError
from headgate.lab.virtual_time import VirtualClock

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


class HttpError(Exception):
    """As the HTTP libraries raise it: with the answer attached."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.response = type("Response", (), {"status_code": status, "headers": {}})()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start=1000.0)


@pytest.fixture
def breaker(clock: VirtualClock) -> CircuitBreaker:
    return CircuitBreaker("search", clock=clock)


def healthy() -> str:
    return "fine"


def raiser(error: BaseException) -> Callable[[], None]:
    def raising() -> None:
        raise error

    return raising


def fail(breaker: CircuitBreaker, error: BaseException, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(type(error)) as caught:
            breaker.call(raiser(error))
        assert caught.value is error


def trip(breaker: CircuitBreaker) -> None:
    fail(breaker, ConnectionError(), 5)
    assert breaker.state is OPEN


def refusal_of(breaker: CircuitBreaker) -> CircuitOpenError:
    with pytest.raises(CircuitOpenError) as caught:
        breaker.call(pytest.fail, "called through an open circuit")
    return caught.value


class TestTrippingByFailuresInARow:
    def test_four_failures_leave_it_closed(self, breaker: CircuitBreaker) -> None:
        fail(breaker, ConnectionError(), 4)
        assert breaker.state is CLOSED

    def test_five_failures_open_it(self, breaker: CircuitBreaker) -> None:
        fail(breaker, ConnectionError(), 5)
        assert breaker.state is OPEN

    def test_a_success_in_between_starts_the_count_over(self, breaker: CircuitBreaker) -> None:
        fail(breaker, ConnectionError(), 4)
        breaker.call(healthy)
        fail(breaker, ConnectionError(), 4)
        assert breaker.state is CLOSED

    @pytest.mark.parametrize(
        "error",
        [HttpError(500), HttpError(502), HttpError(503), HttpError(529), TimeoutError(), OSError(), RuntimeError()],
        ids=repr,
    )
    def test_errors_of_the_server_and_of_the_way_count(self, breaker: CircuitBreaker, error: Exception) -> None:
        fail(breaker, error, 5)
        assert breaker.state is OPEN

    @pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422, 432])
    def test_errors_of_the_caller_do_not_count(self, breaker: CircuitBreaker, status: int) -> None:
        fail(breaker, HttpError(status), 20)
        assert breaker.state is CLOSED

    def test_being_rate_limited_never_counts(self, breaker: CircuitBreaker) -> None:
        fail(breaker, HttpError(429), 100)
        assert breaker.state is CLOSED

    def test_being_rate_limited_between_failures_neither_adds_nor_clears(self, breaker: CircuitBreaker) -> None:
        for _ in range(4):
            fail(breaker, ConnectionError())
            fail(breaker, HttpError(429))
        assert breaker.state is CLOSED
        fail(breaker, ConnectionError())
        assert breaker.state is OPEN

    def test_a_rate_limit_counts_as_one_behind_another_exception(self, breaker: CircuitBreaker) -> None:
        error = RuntimeError("search failed")
        error.__cause__ = HttpError(429)
        fail(breaker, error, 20)
        assert breaker.state is CLOSED

    def test_a_rate_limit_counts_as_one_by_its_bare_status(self, breaker: CircuitBreaker) -> None:
        error = RuntimeError("too many requests")
        error.status_code = 429
        fail(breaker, error, 20)
        assert breaker.state is CLOSED

    def test_a_refusal_inside_never_counts(self, breaker: CircuitBreaker) -> None:
        fail(breaker, WaitTooLongError("other", "the wait would be too long", 9.0), 20)
        assert breaker.state is CLOSED

    def test_an_interrupt_never_counts(self, breaker: CircuitBreaker) -> None:
        fail(breaker, KeyboardInterrupt(), 20)
        assert breaker.state is CLOSED

    def test_what_counts_can_be_chosen(self, clock: VirtualClock) -> None:
        breaker = CircuitBreaker(
            clock=clock, classify=lambda error: Outcome.TRANSIENT if isinstance(error, KeyError) else Outcome.INVALID
        )
        fail(breaker, ConnectionError(), 20)
        assert breaker.state is CLOSED
        fail(breaker, KeyError(), 5)
        assert breaker.state is OPEN


class TestTrippingByErrorRate:
    @pytest.fixture
    def breaker(self, clock: VirtualClock) -> CircuitBreaker:
        return CircuitBreaker("search", failure_threshold=1000, error_rate_threshold=0.5, min_samples=10, clock=clock)

    def mix(self, breaker: CircuitBreaker, text: str) -> None:
        for letter in text:
            breaker.call(healthy) if letter == "." else fail(breaker, ConnectionError())

    def test_half_of_enough_calls_open_it(self, breaker: CircuitBreaker) -> None:
        self.mix(breaker, ".....xxxxx")
        assert breaker.state is OPEN

    def test_less_than_half_do_not(self, breaker: CircuitBreaker) -> None:
        self.mix(breaker, "......xxxx")
        assert breaker.state is CLOSED

    def test_too_few_calls_do_not(self, breaker: CircuitBreaker) -> None:
        self.mix(breaker, "xxxxxxxxx")
        assert breaker.state is CLOSED

    def test_failures_older_than_the_window_do_not(self, breaker: CircuitBreaker, clock: VirtualClock) -> None:
        self.mix(breaker, "xxxxxxxxx")
        clock.advance(30.0)
        self.mix(breaker, "x")
        assert breaker.state is CLOSED

    def test_it_is_judged_afresh_after_it_closed(self, clock: VirtualClock) -> None:
        breaker = CircuitBreaker(
            failure_threshold=1000, error_rate_threshold=0.5, min_samples=10, recovery_timeout=1.0, clock=clock
        )
        self.mix(breaker, ".....xxxxx")
        clock.advance(1.0)
        breaker.call(healthy)
        self.mix(breaker, "xxxxxxxxx")
        assert breaker.state is CLOSED
        self.mix(breaker, "x")
        assert breaker.state is OPEN

    def test_without_a_threshold_the_rate_does_not_matter(self, clock: VirtualClock) -> None:
        breaker = CircuitBreaker(clock=clock)
        self.mix(breaker, "xxxx." * 20)
        assert breaker.state is CLOSED


class TestWhileOpen:
    def test_a_refusal_says_which_circuit_why_and_when(self, breaker: CircuitBreaker, clock: VirtualClock) -> None:
        trip(breaker)
        clock.advance(12.0)
        refusal = refusal_of(breaker)
        assert (refusal.key, refusal.retry_after) == ("search", 18.0)
        assert str(refusal).startswith("search: circuit open")
        assert "18.0 s" in str(refusal)

    def test_it_says_when_to_come_back_only_once(self, breaker: CircuitBreaker) -> None:
        trip(breaker)
        assert str(refusal_of(breaker)).count("30.0 s") == 1

    def test_nothing_passes_for_30_s(self, breaker: CircuitBreaker, clock: VirtualClock) -> None:
        trip(breaker)
        clock.advance(29.999)
        refusal_of(breaker)

    def test_looking_uses_up_no_probe(self, breaker: CircuitBreaker, clock: VirtualClock) -> None:
        trip(breaker)
        assert (breaker.state, breaker.is_available()) == (OPEN, False)
        clock.advance(30.0)
        for _ in range(100):
            assert (breaker.state, breaker.is_available()) == (HALF_OPEN, True)
            assert repr(breaker) == "<CircuitBreaker 'search' half_open>"
        assert breaker.call(healthy) == "fine"

    def test_being_polled_does_not_keep_it_open(self, clock: VirtualClock) -> None:
        breaker = CircuitBreaker(recovery_timeout=0.3, clock=clock)
        trip(breaker)
        polled_at = []
        while not polled_at or breaker.state is not CLOSED:
            polled_at.append(clock.now() - 1000.0)
            try:
                breaker.call(healthy)
            except CircuitOpenError:
                clock.advance(0.05)
        assert 0.3 <= polled_at[-1] < 0.3501
        assert len(polled_at) >= 7


class TestHalfOpen:
    @pytest.fixture
    def breaker(self, clock: VirtualClock) -> CircuitBreaker:
        breaker = CircuitBreaker("search", clock=clock)
        trip(breaker)
        clock.advance(30.0)
        return breaker

    def test_success_closes_it_and_healthy_calls_leave_it_closed(self, breaker: CircuitBreaker) -> None:
        for _ in range(1 + 8):
            assert breaker.call(healthy) == "fine"
            assert breaker.state is CLOSED

    def test_failure_opens_it_for_as_long_again(self, breaker: CircuitBreaker, clock: VirtualClock) -> None:
        fail(breaker, ConnectionError())
        assert (breaker.state, refusal_of(breaker).retry_after) == (OPEN, 30.0)
        clock.advance(30.0)
        assert breaker.call(healthy) == "fine"
        assert breaker.state is CLOSED

    def test_five_new_failures_are_needed_after_it_closed(self, breaker: CircuitBreaker) -> None:
        breaker.call(healthy)
        fail(breaker, ConnectionError(), 4)
        assert breaker.state is CLOSED
        fail(breaker, ConnectionError())
        assert breaker.state is OPEN

    @pytest.mark.parametrize("error", [HttpError(429), HttpError(404), KeyboardInterrupt(), WaitTooLongError("k", "r")])
    def test_a_probe_that_says_nothing_gives_its_slot_back(self, breaker: CircuitBreaker, error: Exception) -> None:
        fail(breaker, error, 10)
        assert breaker.state is HALF_OPEN
        assert breaker.call(healthy) == "fine"
        assert breaker.state is CLOSED

    def test_a_classifier_that_raises_does_not_keep_the_slot(self, clock: VirtualClock) -> None:
        verdicts = iter([Outcome.TRANSIENT] * 5)
        breaker = CircuitBreaker(clock=clock, classify=lambda error: next(verdicts))
        trip(breaker)
        clock.advance(30.0)
        with pytest.raises(ConnectionError):  # the error itself, judged as if nobody had been asked
            breaker.call(raiser(ConnectionError()))
        assert breaker.state is OPEN

    def test_who_is_refused_meanwhile_is_told_what_is_waited_for(self, breaker: CircuitBreaker) -> None:
        def probe() -> str:
            assert breaker.is_available() is False
            return str(refusal_of(breaker))

        assert breaker.call(probe).startswith("search: circuit half open; waiting for the result of a probe")

    def test_a_probe_that_is_never_heard_of_loses_its_slot(self, breaker: CircuitBreaker, clock: VirtualClock) -> None:
        def lost() -> None:
            clock.advance(29.9)
            refusal_of(breaker)
            clock.advance(0.1)
            assert breaker.call(healthy) == "fine"
            raise ConnectionError

        with pytest.raises(ConnectionError):
            breaker.call(lost)
        assert breaker.state is CLOSED

    def test_as_many_successes_as_asked_for_close_it(self, clock: VirtualClock) -> None:
        breaker = CircuitBreaker(successes_to_close=3, clock=clock)
        trip(breaker)
        clock.advance(30.0)
        states = []
        for _ in range(3):
            breaker.call(healthy)
            states.append(breaker.state)
        assert states == [HALF_OPEN, HALF_OPEN, CLOSED]


class TestLateAnswers:
    """Calls sent in one era, answered in another."""

    @pytest.mark.parametrize("late", [None, ConnectionError()], ids=repr)
    def test_of_two_probes_the_one_that_fails_decides(self, clock: VirtualClock, late: Exception | None) -> None:
        breaker = CircuitBreaker(half_open_probes=2, clock=clock)
        trip(breaker)
        clock.advance(30.0)

        def other_probe_fails() -> None:
            fail(breaker, ConnectionError())
            clock.advance(10.0)

        self.answered_late(breaker, other_probe_fails, late)
        assert (breaker.state, refusal_of(breaker).retry_after) == (OPEN, 20.0)

    def answered_late(self, breaker: CircuitBreaker, meanwhile: Callable[[], object], error: Exception | None) -> None:
        def slow() -> None:
            meanwhile()
            if error is not None:
                raise error

        if error is None:
            breaker.call(slow)
        else:
            with pytest.raises(type(error)):
                breaker.call(slow)

    def test_an_old_failure_does_not_reopen_it(self, breaker: CircuitBreaker, clock: VirtualClock) -> None:
        def open_and_close() -> None:
            trip(breaker)
            clock.advance(30.0)
            breaker.call(healthy)
            fail(breaker, ConnectionError(), 4)

        self.answered_late(breaker, open_and_close, ConnectionError())
        assert breaker.state is CLOSED

    def test_an_old_success_does_not_forgive_new_failures(self, breaker: CircuitBreaker, clock: VirtualClock) -> None:
        def open_and_close() -> None:
            trip(breaker)
            clock.advance(30.0)
            breaker.call(healthy)
            fail(breaker, ConnectionError(), 4)

        self.answered_late(breaker, open_and_close, None)
        fail(breaker, ConnectionError())
        assert breaker.state is OPEN

    def test_an_old_success_does_not_close_it(self, breaker: CircuitBreaker) -> None:
        self.answered_late(breaker, lambda: trip(breaker), None)
        assert breaker.state is OPEN

    def test_an_old_failure_does_not_make_it_stay_open_longer(
        self, breaker: CircuitBreaker, clock: VirtualClock
    ) -> None:
        def open_and_cool() -> None:
            trip(breaker)
            clock.advance(20.0)

        self.answered_late(breaker, open_and_cool, ConnectionError())
        assert refusal_of(breaker).retry_after == 10.0

    @pytest.mark.parametrize("error", [None, ConnectionError(), HttpError(429)])
    def test_an_old_answer_frees_no_slot(self, breaker: CircuitBreaker, clock: VirtualClock, error) -> None:
        async def main() -> None:
            sent, answer = asyncio.Event(), asyncio.Event()

            async def slow() -> None:
                await answer.wait()
                if error is not None:
                    raise error

            async def probe() -> None:
                sent.set()
                await asyncio.Event().wait()

            old = asyncio.create_task(breaker.call_async(slow))
            await asyncio.sleep(0)
            trip(breaker)
            clock.advance(30.0)
            probing = asyncio.create_task(breaker.call_async(probe))
            await sent.wait()
            answer.set()
            await asyncio.wait([old])
            old.exception()
            assert (breaker.state, breaker.is_available()) == (HALF_OPEN, False)
            probing.cancel()

        asyncio.run(main())


class TestSettings:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *((name, value) for name in ("failure_threshold", "half_open_probes") for value in (0, -1, nan, 1.5, "5")),
            *((name, value) for name in ("successes_to_close", "min_samples") for value in (0, -1, nan, 1.5, None)),
            *((name, value) for name in ("recovery_timeout", "window") for value in (0, -1, nan, inf, "30", None)),
            *(("error_rate_threshold", value) for value in (0, -0.1, 1.1, nan, "half")),
        ],
    )
    def test_a_bad_one_is_refused_by_its_own_name(self, name: str, value: object) -> None:
        with pytest.raises(ConfigError) as caught:
            CircuitBreaker("search", **{name: value})
        shown = "str" if isinstance(value, str) else repr(value)  # what is no number may be a secret
        assert f"{name}={shown} must be " in str(caught.value)
