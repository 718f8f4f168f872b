"""Call a function with everything around it: credential, pace, circuit, retries, and one time budget over all.

``Call`` decides; here is only the waiting, once with ``await`` and once without.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from types import CoroutineType, GeneratorType
from typing import Any, TypeVar

from ..core.decision import UNKNOWN
from ..errors import ConfigError
from ..limiter.checks import Cost, WhenOpen
from .alarm import Alarm
from .call import Call
from .config import ProviderResilienceConfig
from .context import CallContext, Credentials
from .manager import ProviderResilienceManager
from .taxonomy import ClassifyError

R = TypeVar("R")
NOT_STOPPED = (
    "attempt_timeout: a thread cannot be stopped; take a parameter ctx and pass ctx.remaining on as the timeout of the "
    "request"
)
_COROUTINE = 0x80 | 0x100
"""The flags of code whose calls can be awaited (``inspect.CO_COROUTINE``, ``CO_ITERABLE_COROUTINE``)."""
_AWAITABLES = re.compile(r"\b(?:Awaitable|Coroutine|Future|Task)\b")
"""Types of results that can be awaited, by their names in an annotation."""


async def execute_with_resilience(
    func: Callable[[], Awaitable[R]] | Callable[[CallContext], Awaitable[R]],
    provider: str,
    *,
    time_budget: float | None = None,
    max_wait_seconds: float | None = None,
    attempt_timeout: float | None = None,
    max_attempts: int | None = None,
    cost: Cost = 1,
    credentials: Credentials | None = None,
    classify_error: ClassifyError | None = None,
    manager: ProviderResilienceManager | None = None,
    resilience_config: ProviderResilienceConfig | None = None,
    correlation_id: str | None = None,
    when_open: WhenOpen = "refuse",
) -> R:
    """Call ``func()`` or ``func(ctx)`` when the provider will take it, and again while that makes sense.

    Raises what the function raised last; a ``Refused`` (``CircuitOpenError``, ``WaitTooLongError``,
    ``NoCredentialError``) if it was not let through; ``TimeBudgetExceededError`` when the time is up, or
    at once if what comes next would not fit into it. A response that is an error is classified like an
    exception and, after the last attempt, returned as it is. ``math.inf`` is no bound. ``when_open="wait"`` waits for
    the next probe of an open circuit, up to an hour and without a time budget unless they are given, and goes again
    after an outage.
    """
    check_awaitable(func)
    call = Call(
        provider,
        time_budget,
        max_wait_seconds,
        attempt_timeout,
        max_attempts,
        cost,
        credentials,
        classify_error,
        manager,
        resilience_config,
        correlation_id,
        when_open,
    )
    result: R = await drive(call, call.bind(func))
    return result


def execute_with_resilience_sync(
    func: Callable[[], R] | Callable[[CallContext], R],
    provider: str,
    *,
    time_budget: float | None = None,
    max_wait_seconds: float | None = None,
    attempt_timeout: float | None = None,
    max_attempts: int | None = None,
    cost: Cost = 1,
    credentials: Credentials | None = None,
    classify_error: ClassifyError | None = None,
    manager: ProviderResilienceManager | None = None,
    resilience_config: ProviderResilienceConfig | None = None,
    correlation_id: str | None = None,
    when_open: WhenOpen = "refuse",
) -> R:
    """The same for a thread. No wait and no attempt starts past the budget.

    An attempt under way cannot be stopped from outside: pass ``ctx.remaining`` on as the request's timeout. A function
    that does not take the context cannot keep an ``attempt_timeout``, and is refused with one.
    """
    call = Call(
        provider,
        time_budget,
        max_wait_seconds,
        attempt_timeout,
        max_attempts,
        cost,
        credentials,
        classify_error,
        manager,
        resilience_config,
        correlation_id,
        when_open,
    )
    bound = call.bind(func)
    if bound is func and call.attempt_timeout != UNKNOWN:
        raise ConfigError(NOT_STOPPED)
    result: R = drive_sync(call, bound)
    return result


def check_awaitable(func: Callable[..., Any]) -> None:
    """Refuse, before anything is sent, a plain function: what it returns could not be awaited.

    A lambda or an object that is called may return an awaitable, and so may a function that is annotated so or that
    wraps a coroutine function; what they return is seen when they do.
    """
    code = getattr(func, "__code__", None)
    if code is None or code.co_flags & _COROUTINE or code.co_name == "<lambda>":
        return
    import inspect  # here, because it is large and seldom needed

    if inspect.isasyncgenfunction(func):
        raise ConfigError("func is an async generator function; use stream_with_resilience, or @guarded")
    returns = getattr(func, "__annotations__", {}).get("return")
    if not inspect.iscoroutinefunction(inspect.unwrap(func)) and not _AWAITABLES.search(str(returns)):
        raise ConfigError("func is not a coroutine function; use execute_with_resilience_sync, or write async def")


def drive_sync(call: Call, attempt: Callable[[], Any]) -> Any:
    """Take a call to its end in this thread: the waiting of ``execute_with_resilience_sync``."""
    wait = 0.0
    try:
        while True:
            try:
                if wait > 0.0:
                    call.manager.clock.sleep(wait)
                call.still_in_time()
                if call.is_keyed and call.limiter is not None and call.waits_for_circuit:
                    call.circuit = call.limiter.acquire(*call.circuit_request())
                if call.credentials is not None:
                    call.look_at_circuit()
                    call.lease = call.credentials.acquire(call.patience())
                if call.limiter is not None:
                    if call.is_keyed:
                        call.look_at_circuit()
                    call.permit = call.limiter.acquire(*call.request())
                    if call.circuit is None and call.permit.gate.key != call.target.key:
                        call.circuit = call.limiter.acquire(*call.circuit_request())
                call.leaves()
                result = attempt() if not call.is_watched else _watched(call, attempt)
                if isinstance(result, CoroutineType):
                    result.close()
                    raise ConfigError("func is a coroutine function; use execute_with_resilience, with await")
                if isinstance(result, GeneratorType):
                    raise ConfigError("func is a generator function, of which nothing was run; use @guarded")
            except Exception as error:
                again = call.failed(error)
                if again is None and not call.falls_back:
                    raise
            else:
                again = call.answered(result)
            if again is None:
                return result
            wait = again
    except BaseException as error:
        call.close(error)
        raise


async def drive(call: Call, attempt: Callable[[], Awaitable[Any]]) -> Any:
    """Take a call to its end: the waiting of ``execute_with_resilience``."""
    alarm = None if call.time_budget == UNKNOWN else Alarm(call.time_budget)
    wait = 0.0
    try:
        while True:
            try:
                if wait > 0.0:
                    await call.manager.clock.sleep_async(wait)
                    call.still_in_time()
                if call.is_keyed and call.limiter is not None and call.waits_for_circuit:
                    call.circuit = await call.limiter.acquire_async(*call.circuit_request())
                if call.credentials is not None:
                    call.look_at_circuit()
                    call.lease = await call.credentials.acquire_async(call.patience())
                if call.limiter is not None:
                    if call.is_keyed:
                        call.look_at_circuit()
                    call.permit = await call.limiter.acquire_async(*call.request())
                    if call.circuit is None and call.permit.gate.key != call.target.key:
                        call.circuit = await call.limiter.acquire_async(*call.circuit_request())
                call.leaves()
                if call.is_watched:
                    result = await _watched_async(call, attempt)
                elif call.attempt_timeout == UNKNOWN:
                    result = await attempt()
                else:
                    result = await _within(call.attempt_timeout, attempt)
            except Exception as error:
                if alarm is not None and alarm.rang:  # its last words were not the cancellation itself
                    raise call.out_of_time() from None
                again = call.failed(error)
                if again is None and not call.falls_back:
                    raise
            else:
                again = call.answered(result)
            if again is None:
                return result
            wait = again
    except BaseException as error:
        if alarm is not None and alarm.took(error):
            spent = call.out_of_time()
            call.close(spent)
            raise spent from call.last_error
        call.close(error)
        raise
    finally:
        if alarm is not None:
            alarm.stop()


async def _within(seconds: float | None, attempt: Callable[[], Awaitable[Any]]) -> Any:
    """One attempt, with a time limit of its own."""
    import asyncio  # here, because a program without an event loop should not load one

    async with asyncio.timeout(seconds):
        return await attempt()


def _watched(call: Call, attempt: Callable[[], R]) -> R:
    """One attempt, with those around it who watch every call."""
    with call.around():
        return attempt()


async def _watched_async(call: Call, attempt: Callable[[], Awaitable[Any]]) -> Any:
    with call.around():
        return await _within(None if call.attempt_timeout == UNKNOWN else call.attempt_timeout, attempt)
