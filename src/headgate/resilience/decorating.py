"""``@guarded("tavily")``: every call of a function goes through the gate, and its callers notice nothing.

A function with a parameter named ``ctx`` gets the ``CallContext`` there, unless its caller passes one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, Unpack

from ..errors import ConfigError
from .executor import NOT_STOPPED, execute_with_resilience, execute_with_resilience_sync
from .terms import CallOptions

F = TypeVar("F", bound=Callable[..., Any])
GUARDED = "__headgate_guarded__"
"""Where a guarded function says for which provider it is."""


def guarded(provider: str, **options: Unpack[CallOptions]) -> Callable[[F], F]:
    """Decorate a function, a coroutine function or a generator function of either kind; options as in the executor.

    A call that failed in passing is made again, whatever it does: ``max_attempts=1`` where that must not be.
    """

    def decorate(func: Any) -> Any:
        import inspect  # here, because it is large

        if getattr(func, GUARDED, None) == provider:
            raise ConfigError(f"{provider}: the function is guarded already, and would wait in line twice")
        names = list(inspect.signature(func).parameters)
        place = names.index("ctx") if "ctx" in names else -1
        is_sync = not (inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func))
        if is_sync and place < 0 and options.get("attempt_timeout") is not None:
            raise ConfigError(NOT_STOPPED)

        def bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
            if len(args) <= place and "ctx" not in kwargs:
                return lambda ctx: func(*args, ctx=ctx, **kwargs)
            return lambda: func(*args, **kwargs)

        if inspect.isasyncgenfunction(func):
            from .streaming import stream_with_resilience

            @wraps(func)
            def stream(*args: Any, **kwargs: Any) -> Any:
                return stream_with_resilience(bound(args, kwargs), provider, **options)

            setattr(stream, GUARDED, provider)
            return stream

        if inspect.isgeneratorfunction(func):
            from .streaming import stream_sync

            @wraps(func)
            def stream_here(*args: Any, **kwargs: Any) -> Any:
                return stream_sync(bound(args, kwargs), provider, options)

            setattr(stream_here, GUARDED, provider)
            return stream_here

        if inspect.iscoroutinefunction(func):

            @wraps(func)
            async def call(*args: Any, **kwargs: Any) -> Any:
                return await execute_with_resilience(bound(args, kwargs), provider, **options)

            setattr(call, GUARDED, provider)
            return call

        @wraps(func)
        def call_sync(*args: Any, **kwargs: Any) -> Any:
            return execute_with_resilience_sync(bound(args, kwargs), provider, **options)

        setattr(call_sync, GUARDED, provider)
        return call_sync

    return decorate
