"""Types of the breaker, of retries and of errors as their users see them. Checked by mypy, never run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import assert_type

from headgate import (
    CircuitBreaker,
    CircuitOpenError,
    CircuitState,
    ConfigError,
    CostTooLargeError,
    HeadgateError,
    Outcome,
    Refused,
    Signal,
    SystemClock,
    TimeBudgetExceededError,
    TooManyKeysError,
    WaitTooLongError,
    async_retry_with_backoff,
    retry_with_backoff,
)


def fetch(url: str, *, timeout: float = 1.0) -> bytes:
    return b""


async def fetch_async(url: str, *, timeout: float = 1.0) -> bytes:
    return b""


async def ten() -> int:
    return 10


def fails(error: Exception) -> Outcome:
    return Outcome.TRANSIENT


def means(error: Exception) -> Signal:
    return Signal(outcome=Outcome.OVERLOADED, retry_after=2.0)


def break_circuits() -> None:
    breaker = CircuitBreaker("search", failure_threshold=3, error_rate_threshold=0.5, classify=fails)
    assert_type(breaker.state, CircuitState)
    assert_type(breaker.is_available(), bool)
    assert_type(breaker.call(fetch, "https://example.com", timeout=2.0), bytes)
    assert_type(breaker.call(lambda: 3), int)
    breaker.call(fetch)  # type: ignore[call-arg]
    breaker.call(fetch, 3)  # type: ignore[arg-type]
    breaker.call(fetch, "https://example.com", tiemout=2.0)  # type: ignore[call-arg]
    breaker.state = CircuitState.OPEN  # type: ignore[misc]
    CircuitBreaker(failure_threshold="3")  # type: ignore[arg-type]
    CircuitBreaker(classify=means)  # type: ignore[arg-type]


async def break_circuits_async(breaker: CircuitBreaker) -> None:
    assert_type(await breaker.call_async(fetch_async, "https://example.com", timeout=2.0), bytes)
    await breaker.call_async(fetch_async)  # type: ignore[call-arg]
    await breaker.call_async(fetch, "https://example.com")  # type: ignore[arg-type]


def retry() -> None:
    assert_type(retry_with_backoff(lambda: fetch("https://example.com")), bytes)
    number: Callable[[], int] = lambda: 3  # noqa: E731 - the type is the point
    assert_type(
        retry_with_backoff(
            number,
            name="search",
            max_attempts=5,
            base_delay=0.1,
            max_delay=2.0,
            time_budget=30.0,
            classify=means,
            clock=SystemClock(),
            rng=random.Random(1),
        ),
        int,
    )
    retry_with_backoff(fetch)  # type: ignore[arg-type]
    retry_with_backoff(number, classify=fails)  # type: ignore[arg-type]


async def retry_async() -> None:
    assert_type(await async_retry_with_backoff(ten, time_budget=3.0), int)
    assert_type(await async_retry_with_backoff(lambda: fetch_async("https://example.com")), bytes)
    await async_retry_with_backoff(lambda: 3)  # type: ignore[arg-type, return-value]


def catch() -> None:
    try:
        fetch("https://example.com")
    except TimeBudgetExceededError as spent:
        assert_type((spent.elapsed, spent.attempts), tuple[float, int])
    except (CircuitOpenError, WaitTooLongError, TooManyKeysError, CostTooLargeError) as refused:
        assert_type((refused.key, refused.reason), tuple[str, str])
        assert_type(refused.retry_after, float | None)
        family: Refused = refused
        root: HeadgateError = family
        raise ConfigError(str(root)) from None
