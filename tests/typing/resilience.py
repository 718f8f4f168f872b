"""Types of the breaker, of retries, of the executor and of errors as their users see them. Checked, never run."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any, assert_type

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
from headgate.credentials import CredentialCoordinator
from headgate.resilience import (
    CallContext,
    ErrorClassification,
    ProviderResilienceConfig,
    ProviderResilienceManager,
    RateLimiterConfig,
    execute_with_resilience,
    execute_with_resilience_sync,
    get_resilience_manager,
    guarded,
    stream_with_resilience,
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


async def ask(ctx: CallContext) -> bytes:
    assert_type((ctx.attempt, ctx.remaining, ctx.credential), tuple[int, float | None, str | None])
    assert_type(ctx.report(status_code=200, cost={"tokens": 12}), Outcome)
    ctx.attempt = 2  # type: ignore[misc]
    return b""


async def pieces(ctx: CallContext) -> AsyncIterator[str]:
    yield ctx.correlation_id


def classify(response: object | None, exception: Exception | None) -> ErrorClassification | None:
    return ErrorClassification(True, False, error_type="rate_limit") if exception else None


async def execute() -> None:
    assert_type(await execute_with_resilience(ten, "search"), int)
    assert_type(await execute_with_resilience(ask, "search", max_attempts=2), bytes)
    assert_type(await execute_with_resilience(lambda: fetch_async("https://example.com"), "search"), bytes)
    assert_type(
        await execute_with_resilience(
            ask,
            "search",
            time_budget=20.0,
            max_wait_seconds=5.0,
            attempt_timeout=3.0,
            cost={"tokens": 900},
            credentials=CredentialCoordinator(["secret"]),
            classify_error=classify,
            manager=ProviderResilienceManager(rng=random.Random(1)),
            resilience_config=ProviderResilienceConfig(rate_limiter=RateLimiterConfig(requests_per_second=2.0)),
            correlation_id="abc",
        ),
        bytes,
    )
    await execute_with_resilience(fetch, "search")  # type: ignore[arg-type]
    await execute_with_resilience(ten, "search", credentials=["secret"])  # type: ignore[arg-type]
    await execute_with_resilience(ten, "search", tiem_budget=3.0)  # type: ignore[call-arg]
    async with stream_with_resilience(pieces, "search", time_budget=3.0) as stream:
        async for piece in stream:
            assert_type(piece, str)


def execute_sync() -> None:
    assert_type(execute_with_resilience_sync(lambda: fetch("https://example.com"), "search"), bytes)
    manager = get_resilience_manager()
    assert_type(manager.get_breaker_state("search"), CircuitState)
    assert_type(manager.is_provider_available("search"), bool)
    assert_type(manager.get_provider_status("search").consecutive_failures, int)
    ProviderResilienceManager.reset_for_testing()
    manager.reset_for_testing()
    RateLimiterConfig(1, 5, 30)
    RateLimiterConfig(1, 5, 30, "fixed")  # type: ignore[call-arg]


@guarded("search", time_budget=20.0)
async def search(query: str, *, ctx: CallContext | None = None) -> list[str]:
    return [query]


@guarded("search")
async def search_last(query: str, ctx: CallContext) -> list[str]:
    return [query]


@guarded("search")
async def search_named(query: str, *, ctx: CallContext) -> bytes:
    return query.encode()


@guarded("search")
async def search_pieces(query: str, *, ctx: CallContext) -> AsyncIterator[str]:
    yield query


@guarded("search")
def plain(query: str, limit: int = 3) -> int:
    return limit


@guarded("search")
def anything(query: Any) -> int:
    return 3


class Searcher:
    @guarded("search")
    async def find(self, query: str, *, ctx: CallContext) -> list[str]:
        return [query]


async def decorated() -> None:
    assert_type(await search("owls"), list[str])
    assert_type(await search_last("owls"), list[str])
    assert_type(await search_named("owls"), bytes)
    async for piece in search_pieces("owls"):
        assert_type(piece, str)
    assert_type(plain("owls", limit=2), int)
    assert_type(anything(3), int)
    assert_type(await Searcher().find("owls"), list[str])
    plain(3)  # type: ignore[arg-type]
    plain()  # type: ignore[call-arg]
    guarded(plain)  # type: ignore[arg-type]
    await search(3)  # type: ignore[arg-type]
    guarded("search", tiem_budget=3.0)  # type: ignore[call-arg]


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
