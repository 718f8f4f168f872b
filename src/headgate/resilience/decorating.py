"""``@guarded("tavily")``: every call of a function goes through the gate, and its callers notice nothing.

A function with a parameter named ``ctx`` gets the ``CallContext`` there, unless its caller passes one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, Unpack

from .executor import execute_with_resilience, execute_with_resilience_sync
from .terms import CallOptions

F = TypeVar("F", bound=Callable[..., Any])


def guarded(provider: str, **options: Unpack[CallOptions]) -> Callable[[F], F]:
    """Decorate a function, a coroutine function or an async generator function; options as in the executor."""

    def decorate(func: Any) -> Any:
        import inspect  # here, because it is large

        names = list(inspect.signature(func).parameters)
        place = names.index("ctx") if "ctx" in names else -1

        def bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
            if len(args) <= place and "ctx" not in kwargs:
                return lambda ctx: func(*args, ctx=ctx, **kwargs)
            return lambda: func(*args, **kwargs)

        if inspect.isasyncgenfunction(func):
            from .streaming import stream_with_resilience

            @wraps(func)
            def stream(*args: Any, **kwargs: Any) -> Any:
                return stream_with_resilience(bound(args, kwargs), provider, **options)

            return stream

        if inspect.iscoroutinefunction(func):

            @wraps(func)
            async def call(*args: Any, **kwargs: Any) -> Any:
                return await execute_with_resilience(bound(args, kwargs), provider, **options)

            return call

        @wraps(func)
        def call_sync(*args: Any, **kwargs: Any) -> Any:
            return execute_with_resilience_sync(bound(args, kwargs), provider, **options)

        return call_sync

    return decorate
