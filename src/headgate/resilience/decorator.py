"""``@guarded("tavily")``: every call of a function goes through the gate, and its callers notice nothing.

A function with a parameter named ``ctx`` gets the ``CallContext`` there, unless its caller passes one. A decoration
without a provider, or with an option that does not exist or cannot be, fails when the function is decorated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack, overload

from ..errors import ConfigError
from .call import Call
from .config import CallKeywords, CallOptions
from .context import CallContext
from .execute import (
    NEEDS_CONTEXT,
    NEEDS_TARGET,
    attempt_in_thread,
    drive,
    drive_sync,
    drive_targets,
    drive_targets_sync,
    with_context,
)
from .streaming import ResilientStream, stream_sync

if TYPE_CHECKING:
    from .fallback import Fallbacks

F = TypeVar("F", bound=Callable[..., Any])
GUARDED = "__headgate_guarded__"
"""Where a guarded function says for which provider it is."""
R_co = TypeVar("R_co", covariant=True)


# Functions that take ``ctx`` by name after so many other arguments; no type says "any parameters, and ctx".
class _After0(Protocol[R_co]):
    def __call__(self, *, ctx: CallContext) -> R_co: ...


class _After1(Protocol[R_co]):
    def __call__(self, a: Any, /, *, ctx: CallContext) -> R_co: ...


class _After2(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, /, *, ctx: CallContext) -> R_co: ...


class _After3(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, c: Any, /, *, ctx: CallContext) -> R_co: ...


class _After4(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, c: Any, d: Any, /, *, ctx: CallContext) -> R_co: ...


class _After5(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, c: Any, d: Any, e: Any, /, *, ctx: CallContext) -> R_co: ...


class _Optional0(Protocol):
    def __call__(self, *, ctx: CallContext | None = ...) -> Any: ...


class _Optional1(Protocol):
    def __call__(self, a: Any, /, *, ctx: CallContext | None = ...) -> Any: ...


class _Optional2(Protocol):
    def __call__(self, a: Any, b: Any, /, *, ctx: CallContext | None = ...) -> Any: ...


class _Optional3(Protocol):
    def __call__(self, a: Any, b: Any, c: Any, /, *, ctx: CallContext | None = ...) -> Any: ...


class _Optional4(Protocol):
    def __call__(self, a: Any, b: Any, c: Any, d: Any, /, *, ctx: CallContext | None = ...) -> Any: ...


class _Optional5(Protocol):
    def __call__(self, a: Any, b: Any, c: Any, d: Any, e: Any, /, *, ctx: CallContext | None = ...) -> Any: ...


M = TypeVar("M", bound=_Optional0 | _Optional1 | _Optional2 | _Optional3 | _Optional4 | _Optional5)


class Guarded(Protocol[R_co]):
    """A function whose ``ctx`` is passed by the gate."""

    def __call__(self, *args: Any, **kwargs: Any) -> R_co: ...


class Guard(Protocol):
    """What ``@guarded(...)`` is to a type checker: a function stays as it is, but for a ``ctx`` that callers leave out.

    No type can say "these parameters without that one", so the other arguments of a function that requires ``ctx`` are
    not checked where it is called; write ``ctx: CallContext | None = None`` to have them checked.
    """

    @overload
    def __call__(self, func: M, /) -> M: ...
    @overload
    def __call__(self, func: _After0[R_co], /) -> Guarded[R_co]: ...
    @overload
    def __call__(self, func: _After1[R_co], /) -> Guarded[R_co]: ...
    @overload
    def __call__(self, func: _After2[R_co], /) -> Guarded[R_co]: ...
    @overload
    def __call__(self, func: _After3[R_co], /) -> Guarded[R_co]: ...
    @overload
    def __call__(self, func: _After4[R_co], /) -> Guarded[R_co]: ...
    @overload
    def __call__(self, func: _After5[R_co], /) -> Guarded[R_co]: ...
    @overload
    def __call__(self, func: F, /) -> F: ...


def guarded(provider: str, *, fallback: Fallbacks | None = None, **options: Unpack[CallKeywords]) -> Guard:
    """Decorate a function, a coroutine function or a generator function of either kind.

    Options are those of ``execute_with_resilience``, checked when the function is decorated. A call that fails with a
    transient error is retried; pass ``max_attempts=1`` if the function must not run twice. It waits for the next probe
    of an open circuit; ``when_open="refuse"`` fails at once. With ``fallback`` it has a parameter ``ctx``, which says
    for which target it is called; a generator function cannot have any.
    """
    _check_provider(provider)
    keywords: CallKeywords = {"when_open": "wait", **options}
    checked = CallOptions(**keywords)
    if fallback is not None:
        from .fallback import read_fallbacks  # here, because few functions have fallbacks

        fallback = read_fallbacks(fallback)

    def decorate(func: Any) -> Any:
        import inspect  # here, because it is large

        is_stream = inspect.isasyncgenfunction(func) or inspect.isgeneratorfunction(func)
        is_async = inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func)
        bound = _Binder(func)
        if getattr(func, GUARDED, None) == provider:
            raise ConfigError(f"{provider}: the function is already guarded, and would wait twice")
        if not is_async and not bound.takes_context and checked.attempt_timeout is not None:
            raise ConfigError(NEEDS_CONTEXT)
        if fallback is not None and not bound.takes_context:
            raise ConfigError(NEEDS_TARGET)
        if fallback is not None and is_stream:
            raise ConfigError("fallback: a generator function cannot move to another target once it has begun")
        call: Any
        if is_stream:
            stream: Any = ResilientStream if is_async else stream_sync

            def call(*args: Any, **kwargs: Any) -> Any:
                return stream(bound(args, kwargs), provider, checked)

        elif is_async:

            async def call(*args: Any, **kwargs: Any) -> Any:
                if fallback is not None:
                    return await drive_targets(bound(args, kwargs), provider, checked, fallback)
                one = Call(provider, checked)
                return await drive(one, with_context(bound(args, kwargs), one))

        else:

            def call(*args: Any, **kwargs: Any) -> Any:
                if fallback is not None:
                    return drive_targets_sync(bound(args, kwargs), provider, checked, fallback)
                one = Call(provider, checked)
                return drive_sync(one, attempt_in_thread(bound(args, kwargs), one))

        wraps(func)(call)
        setattr(call, GUARDED, provider)
        return call

    return decorate


class _Binder:
    """Binds the arguments of one call to the function; what is left to pass, if it takes one, is the context."""

    def __init__(self, func: Callable[..., Any]) -> None:
        import inspect

        self._func = func
        parameters = inspect.signature(func).parameters
        kinds = [one.kind for one in parameters.values()]
        self.takes_context = "ctx" in parameters
        self._place = list(parameters).index("ctx") if self.takes_context else 0
        self._most = kinds.count(inspect.Parameter.POSITIONAL_ONLY) + kinds.count(
            inspect.Parameter.POSITIONAL_OR_KEYWORD
        )
        """Arguments that it takes by their place, but for ``*args`` ..."""
        self._takes_more = inspect.Parameter.VAR_POSITIONAL in kinds
        """... which take any number."""

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        func, place = self._func, self._place
        if not self.takes_context or "ctx" in kwargs:
            return lambda: func(*args, **kwargs)
        if len(args) <= place:
            return lambda ctx: func(*args, ctx=ctx, **kwargs)
        has_own = args[place] is None or isinstance(args[place], CallContext)
        if has_own or (len(args) >= self._most and not self._takes_more):  # there is no room for another
            return lambda: func(*args, **kwargs)
        return lambda ctx: func(*args[:place], ctx, *args[place:], **kwargs)


def _check_provider(provider: object) -> None:
    if callable(provider):
        name = getattr(provider, "__name__", "function")
        raise ConfigError(f'@guarded needs the name of a provider: write @guarded("...") above {name}')
    if not isinstance(provider, str) or not provider:
        raise ConfigError(f"provider={type(provider).__name__} must be a non-empty name")
