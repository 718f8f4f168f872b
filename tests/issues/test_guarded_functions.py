"""Functions around calls: each kind goes through the gate or is refused before anything is sent."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable

import pytest

from headgate import (
    ConfigError,
    ProviderResilienceConfig,
    ProviderResilienceManager,
    execute_with_resilience,
    execute_with_resilience_sync,
    guarded,
)
from headgate.lab.virtual_time import VirtualClock


@pytest.fixture
def manager():
    return ProviderResilienceManager(clock=VirtualClock())


def look(manager):
    return manager.limiter.key_status("search")


# ---------------------------------------------------------------------- a generator


def test_a_generator_holds_its_permit_to_the_last_piece(manager):
    @guarded("search", manager=manager)
    def pieces(number):
        yield from range(number)

    stream = pieces(3)
    assert next(stream) == 0
    assert look(manager).in_flight == 1
    assert list(stream) == [1, 2]
    assert (look(manager).in_flight, look(manager).sent) == (0, 1)


def test_a_generator_that_fails_before_its_first_piece_is_started_again(manager):
    starts = []

    @guarded("search", manager=manager)
    def pieces(ctx):
        starts.append(ctx.attempt)
        if len(starts) < 3:
            raise ConnectionError
        yield "piece"

    assert list(pieces()) == ["piece"]
    assert starts == [1, 2, 3]


def test_a_generator_that_breaks_off_is_a_failure_and_not_started_again(manager):
    starts = []

    @guarded("search", manager=manager)
    def pieces():
        starts.append(1)
        yield "piece"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        list(pieces())
    assert (len(starts), look(manager).consecutive_failures, look(manager).in_flight) == (1, 1, 0)


def test_a_generator_that_is_left_gives_all_back(manager):
    closed = []

    @guarded("search", manager=manager)
    def pieces():
        try:
            yield 1
            yield 2
        finally:
            closed.append(1)

    stream = pieces()
    next(stream)
    stream.close()
    assert (closed, look(manager).in_flight, look(manager).consecutive_failures) == ([1], 0, 0)


def test_a_generator_function_is_not_for_the_executor(manager):
    def pieces():
        yield 1

    with pytest.raises(ConfigError, match="generator"):
        execute_with_resilience_sync(pieces, "search", manager=manager)


# ---------------------------------------------------------------------- a sync function for the async executor


class Search:
    def __init__(self):
        self.sent = 0

    def method(self):
        self.sent += 1

    def with_context(self, ctx):
        self.sent += 1

    async def pieces(self):
        self.sent += 1
        yield 1


@pytest.mark.parametrize("kind", ["method", "with_context", "pieces"])
def test_what_cannot_be_awaited_is_refused_before_it_is_called(manager, kind):
    search = Search()
    with pytest.raises(ConfigError, match="func"):
        asyncio.run(execute_with_resilience(getattr(search, kind), "search", manager=manager))
    assert (search.sent, look(manager)) == (0, None)


def test_what_returns_something_to_await_is_called(manager):
    async def call(value=7):
        return value

    @functools.wraps(call)
    def wrapping():
        return call()

    def annotated() -> Awaitable[int]:
        return call()

    class Callable:
        async def __call__(self):
            return 7

    for func in (call, lambda: call(), functools.partial(call, 7), wrapping, annotated, Callable()):
        assert asyncio.run(execute_with_resilience(func, "search", manager=manager)) == 7


# ---------------------------------------------------------------------- a time limit that a thread cannot keep


def test_an_attempt_timeout_of_a_function_without_context_is_refused(manager):
    called = []
    config = ProviderResilienceConfig(attempt_timeout=1.0)
    for options in ({"attempt_timeout": 1.0}, {"resilience_config": config}):
        with pytest.raises(ConfigError, match="attempt_timeout"):
            execute_with_resilience_sync(lambda: called.append(1), "search", manager=manager, **options)
    assert not called


def test_a_function_with_context_is_told_its_attempt_timeout(manager):
    assert execute_with_resilience_sync(lambda ctx: ctx.remaining, "x", manager=manager, attempt_timeout=1.5) == 1.5


def test_a_decorated_function_is_refused_when_it_is_decorated():
    def call():
        pass

    def pieces():
        yield

    for func in (call, pieces):
        with pytest.raises(ConfigError, match="attempt_timeout"):
            guarded("search", attempt_timeout=1.0)(func)


# ---------------------------------------------------------------------- twice


def test_a_function_that_is_guarded_twice_is_refused():
    async def call():
        pass

    def pieces():
        yield

    for func in (call, pieces, lambda: None):
        with pytest.raises(ConfigError, match="twice"):
            guarded("search")(guarded("search")(func))
        guarded("account")(guarded("search")(func))
