"""Call a function with everything around it: credential, pace, circuit, retries, and one time budget over all.

``Call`` decides; here is only the waiting, once with ``await`` and once without.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ..core.decision import UNKNOWN
from ..errors import ConfigError
from .call import Call
from .call_holdings import CIRCUIT, CREDENTIAL, PERMIT, SEND, WAITING
from .config import CallKeywords, CallOptions
from .context import CallContext

if TYPE_CHECKING:
    from .fallback import Fallbacks
    from .fallback_call import FallbackCalls

R = TypeVar("R")
NEEDS_CONTEXT = (
    "attempt_timeout: a thread cannot be stopped; accept a parameter ctx and pass ctx.remaining as the timeout of the "
    "request"
)
NEEDS_TARGET = "fallback: the function must take ctx, and ask ctx.provider and ctx.model which target it is called for"
_COROUTINE = 0x80 | 0x100
"""The flags of code whose calls can be awaited (``inspect.CO_COROUTINE``, ``CO_ITERABLE_COROUTINE``)."""
_AWAITABLES = re.compile(r"\b(?:Awaitable|Coroutine|Future|Task)\b")
"""Types of results that can be awaited, by their names in an annotation."""


async def execute_with_resilience(
    func: Callable[[], Awaitable[R]] | Callable[[CallContext], Awaitable[R]],
    provider: str,
    *,
    fallback: Fallbacks | None = None,
    **options: Unpack[CallKeywords],
) -> R:
    """Call ``func()`` or ``func(ctx)`` once the provider's rate allows it, and retry while that can help.

    Options, each ``None`` unless given, are those of ``CallOptions``: ``time_budget``, ``max_wait_seconds``,
    ``attempt_timeout``, ``max_attempts``, ``cost=1``, ``credentials``, ``classify_error``, ``manager``,
    ``resilience_config``, ``correlation_id``, ``when_open="refuse"``.

    Raises what the function raised last; a ``Refused`` (``CircuitOpenError``, ``WaitTooLongError``,
    ``NoCredentialError``) if it was not let through; ``TimeBudgetExceededError`` when the time is up, or
    at once if what comes next would not fit into it. A response that is an error is classified like an
    exception and, after the last attempt, returned as it is. ``math.inf`` is no bound. ``when_open="wait"`` waits for
    the next probe of an open circuit, up to an hour and without a time budget unless they are given, and goes again
    after an outage.

    ``fallback``: other targets (``Fallback``) for a call that this one cannot take, within the same time budget. The
    function then takes ``ctx`` and asks ``ctx.provider`` and ``ctx.model`` which target it is called for.
    """
    check_awaitable(func)
    result: R
    if fallback is not None:
        result = await drive_targets(func, provider, CallOptions(**options), fallback)
        return result
    call = Call(provider, CallOptions(**options))
    result = await drive(call, with_context(func, call))
    return result


def execute_with_resilience_sync(
    func: Callable[[], R] | Callable[[CallContext], R],
    provider: str,
    *,
    fallback: Fallbacks | None = None,
    **options: Unpack[CallKeywords],
) -> R:
    """The same for a thread. No wait and no attempt starts past the budget.

    An attempt under way cannot be stopped from outside: pass ``ctx.remaining`` on as the request's timeout. A function
    that does not take the context cannot keep an ``attempt_timeout``, and is refused with one.
    """
    result: R
    if fallback is not None:
        result = drive_targets_sync(func, provider, CallOptions(**options), fallback)
        return result
    call = Call(provider, CallOptions(**options))
    result = drive_sync(call, attempt_in_thread(func, call))
    return result


def fallback_calls(func: Callable[..., Any], provider: str, options: CallOptions, fallback: Fallbacks) -> FallbackCalls:
    """The calls to several targets."""
    from .fallback import read_fallbacks  # here, because few calls have fallbacks
    from .fallback_call import FallbackCalls

    found = read_fallbacks(fallback)
    if found and not wants_context(func):
        raise ConfigError(NEEDS_TARGET)
    return FallbackCalls(provider, options, found)


async def drive_targets(func: Callable[..., Any], provider: str, options: CallOptions, fallback: Fallbacks) -> Any:
    """Call the function for one target after the other, until one takes it."""
    calls = fallback_calls(func, provider, options, fallback)
    while calls.has_next:
        with calls:
            result = await drive(calls.call, with_context(func, calls.call))
    return result


def drive_targets_sync(func: Callable[..., Any], provider: str, options: CallOptions, fallback: Fallbacks) -> Any:
    """The same for a thread."""
    calls = fallback_calls(func, provider, options, fallback)
    while calls.has_next:
        with calls:
            result = drive_sync(calls.call, attempt_in_thread(func, calls.call))
    return result


def attempt_in_thread(func: Callable[..., Any], call: Call) -> Callable[[], Any]:
    """The function with the context of its call, which it must take if its attempts have a timeout."""
    attempt = with_context(func, call)
    if attempt is func and call.attempt_timeout != UNKNOWN:
        raise ConfigError(NEEDS_CONTEXT)
    return attempt


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


def with_context(func: Callable[..., Any], call: Call) -> Callable[[], Any]:
    """The function with the context of its call, if it takes one."""
    return partial(func, CallContext(call)) if wants_context(func) else func


def wants_context(func: Callable[..., Any]) -> bool:
    """Whether a function takes the context: it has one parameter without a default, or its first is called ctx."""
    code = getattr(func, "__code__", None)
    if code is None:
        return _wants_by_signature(func)
    if code.co_argcount == 0:
        return False
    bound = getattr(func, "__self__", None) is not None
    places = code.co_argcount - bound
    defaults = getattr(func, "__defaults__", None)
    required = places - (len(defaults) if defaults else 0)
    return bool(required == 1 or (required < 1 <= places and code.co_varnames[bound] == "ctx"))


def _wants_by_signature(func: Callable[..., Any]) -> bool:
    """The same for what is no plain function: a partial, an object that can be called."""
    import inspect  # here, because it is large and seldom needed

    try:
        parameters = list(inspect.signature(func).parameters.values())
    except (TypeError, ValueError):
        return False
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = [one for one in places if one.default is one.empty]
    return len(required) == 1 or (not required and bool(places) and places[0].name == "ctx")


def drive_sync(call: Call, attempt: Callable[[], Any]) -> Any:
    """Take a call to its end in this thread, or to where its answer is open."""
    limiter, held = call.limiter, call.held
    result = None
    try:
        while True:
            try:
                while (step := call.next_step()) is not SEND:
                    if step is PERMIT or step is CIRCUIT:
                        assert limiter is not None
                        permit = limiter.acquire(*call.request)
                        if step is PERMIT:
                            held.permit = permit
                        else:
                            held.circuit = permit
                    elif step is CREDENTIAL:
                        assert call.credentials is not None
                        held.lease = call.credentials.acquire(call.wait)
                    else:
                        call.clock.sleep(call.wait)
                if call.observers is None:
                    result = attempt()
                else:
                    with call.observers:
                        result = attempt()
                if isinstance(result, CoroutineType):
                    result.close()
                    raise ConfigError("func is a coroutine function; use execute_with_resilience, with await")
                if isinstance(result, GeneratorType):
                    raise ConfigError("func is a generator function and was not run; use @guarded")
            except Exception as error:
                if call.failed(error):
                    raise
            else:
                call.answered(result)
            if call.state is not WAITING:
                return result
    except BaseException as error:
        call.close(error)
        raise


async def drive(call: Call, attempt: Callable[[], Awaitable[Any]]) -> Any:
    """The same with ``await``, on an event loop that also ends it when its time budget does."""
    timeout = None if call.time_budget == UNKNOWN else CallTimeout(call.time_budget)
    limiter, held = call.limiter, call.held
    result = None
    try:
        while True:
            try:
                while (step := call.next_step()) is not SEND:
                    if step is PERMIT or step is CIRCUIT:
                        assert limiter is not None
                        permit = await limiter.acquire_async(*call.request)
                        if step is PERMIT:
                            held.permit = permit
                        else:
                            held.circuit = permit
                    elif step is CREDENTIAL:
                        assert call.credentials is not None
                        held.lease = await call.credentials.acquire_async(call.wait)
                    else:
                        await call.clock.sleep_async(call.wait)
                if call.observers is None and call.attempt_timeout == UNKNOWN:
                    result = await attempt()
                else:
                    result = await _bounded_attempt(call, attempt)
            except Exception as error:
                if timeout is not None and timeout.has_expired:  # its last words were not the cancellation itself
                    raise call.out_of_time() from None
                if call.failed(error):
                    raise
            else:
                call.answered(result)
            if call.state is not WAITING:
                return result
    except BaseException as error:
        if timeout is not None and timeout.caused(error):
            spent = call.out_of_time()
            call.close(spent)
            raise spent from call.last_error
        call.close(error)
        raise
    finally:
        if timeout is not None:
            timeout.stop()


async def _bounded_attempt(call: Call, attempt: Callable[[], Awaitable[Any]]) -> Any:
    """One attempt with a time limit of its own, or with observers around it."""
    import asyncio  # here, because a program without an event loop should not load one

    with call.observers or nullcontext():
        async with asyncio.timeout(None if call.attempt_timeout == UNKNOWN else call.attempt_timeout):
            return await attempt()


class CallTimeout:
    """One timer for a whole call, however many waits and attempts it has.

    It works as ``asyncio.timeout`` does, by cancelling the task from outside and taking that back on the way out,
    but costs half of it: every call with a time budget pays for one.
    """

    __slots__ = ("_cancelling", "_task", "_timer", "has_expired")

    def __init__(self, seconds: float) -> None:
        import asyncio  # here, because a program without an event loop should not load one

        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time budget needs a running task")
        self._task = task
        self._cancelling = task.cancelling()
        self.has_expired = False
        loop = task.get_loop()
        self._timer = loop.call_at(loop.time() + seconds, self._expire)

    def _expire(self) -> None:
        self.has_expired = True
        self._task.cancel()

    def caused(self, error: BaseException) -> bool:
        """Whether the error is this timeout's own cancellation, and nothing else has cancelled the task."""
        if not self.has_expired or isinstance(error, Exception | KeyboardInterrupt | SystemExit):
            return False
        return self._task.cancelling() <= self._cancelling + 1

    def stop(self) -> None:
        """Stop the timer, once, and take its cancellation back."""
        self._timer.cancel()
        if self.has_expired:
            self._task.uncancel()
