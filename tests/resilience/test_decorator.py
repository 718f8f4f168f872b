"""``@guarded``: functions, coroutine functions, streams; with a context or without."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial

import pytest

from headgate.resilience import CallContext, get_resilience_manager, guarded
from headgate.resilience.execute import wants_context


class TestGuarded:
    def test_a_function(self) -> None:
        @guarded("api")
        def add(one: int, two: int = 2) -> int:
            """Adds."""
            calls.append(one)
            if len(calls) < 3:
                raise ConnectionError
            return one + two

        calls: list[int] = []
        assert add(1, two=4) == 5
        assert len(calls) == 3
        assert (add.__name__, add.__doc__) == ("add", "Adds.")

    def test_a_coroutine_function(self) -> None:
        @guarded("api", max_attempts=1)
        async def fail() -> None:
            raise ConnectionError

        assert inspect.iscoroutinefunction(fail)
        with pytest.raises(ConnectionError):
            asyncio.run(fail())
        assert get_resilience_manager().get_provider_status("api").consecutive_failures == 1

    def test_a_method_that_asks_for_the_context(self) -> None:
        class Client:
            @guarded("api", correlation_id="abc")
            async def search(self, query: str, ctx: CallContext | None = None) -> tuple[str, str]:
                assert ctx is not None
                return query, ctx.correlation_id

        assert asyncio.run(Client().search("owls")) == ("owls", "abc")

    def test_a_context_of_the_callers_own_is_left_alone(self) -> None:
        @guarded("api")
        def search(*, ctx: object = None) -> object:
            return ctx

        assert search(ctx="mine") == "mine"
        assert isinstance(search(), CallContext)

    def test_an_async_generator_function_becomes_a_stream(self) -> None:
        @guarded("api")
        async def count(upto: int):
            for number in range(upto):
                yield number

        async def main() -> list[int]:
            return [number async for number in count(3)]

        assert asyncio.run(main()) == [0, 1, 2]
        assert get_resilience_manager().get_provider_status("api").in_flight == 0


def test_which_functions_are_given_the_context() -> None:
    class Thing:
        async def none(self): ...
        async def one(self, ctx): ...
        def __call__(self, context): ...

    def optional(ctx=None): ...
    def bound(url="x"): ...

    assert wants_context(lambda ctx: ctx)
    assert wants_context(lambda anything: anything)
    assert wants_context(optional)
    assert wants_context(Thing().one)
    assert wants_context(Thing())
    assert wants_context(partial(lambda url, ctx: ctx, "x"))
    assert not wants_context(lambda: None)
    assert not wants_context(lambda i=3: i)
    assert not wants_context(bound)
    assert not wants_context(Thing().none)
    assert not wants_context(partial(lambda url: url, "x"))
    assert not wants_context(dict)


def test_a_context_tells_nothing_secret(play) -> None:
    async def scenario(lab):
        async def func(ctx):
            assert ctx.credential == "secret-of-key-1"
            assert ctx.permit is not None
            return repr(ctx), str(ctx), ctx.provider

        told = await lab.execute(func, credentials=lab.credentials())
        assert told == ("<CallContext 'api', attempt 1 of 3>",) * 2 + ("api",)

    play(scenario)
