"""The peers' circuit breakers, built with the same settings: failures to open, seconds to stay open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from bench.contenders import ours

SyncCall = Callable[[Callable[[], object]], object]
AsyncCall = Callable[[Callable[[], Awaitable[object]]], Awaitable[object]]


def aiobreaker(failures: int, recovery: float) -> Any:
    from aiobreaker import CircuitBreaker

    return CircuitBreaker(fail_max=failures, timeout_duration=timedelta(seconds=recovery))


def hyx(failures: int, recovery: float) -> Any:
    from hyx.circuitbreaker import consecutive_breaker

    return consecutive_breaker(failure_threshold=failures, recovery_time_secs=recovery, recovery_threshold=1)


def purgatory_sync(failures: int, recovery: float) -> Any:
    from purgatory import SyncCircuitBreakerFactory

    return SyncCircuitBreakerFactory(default_threshold=failures, default_ttl=recovery)


def purgatory_async(failures: int, recovery: float) -> Any:
    from purgatory import AsyncCircuitBreakerFactory

    return AsyncCircuitBreakerFactory(default_threshold=failures, default_ttl=recovery)


def pybreaker(failures: int, recovery: float) -> Any:
    from pybreaker import CircuitBreaker

    return CircuitBreaker(fail_max=failures, reset_timeout=recovery)


# One shape for the behaviour tests: a call that runs the function through the breaker.


def _purgatory_calls(failures: int, recovery: float) -> SyncCall:
    breaker = purgatory_sync(failures, recovery).get_breaker("api")

    def call(function: Callable[[], object]) -> object:
        with breaker:
            return function()

    return call


SYNC_BREAKERS: dict[str, Callable[[int, float], SyncCall]] = {
    ours.NAME: lambda failures, recovery: ours.circuit(failures, recovery).call,
    "aiobreaker": lambda failures, recovery: aiobreaker(failures, recovery).call,
    "purgatory": _purgatory_calls,
    "pybreaker": lambda failures, recovery: pybreaker(failures, recovery).call,
}


async def _ours_awaits(failures: int, recovery: float) -> AsyncCall:
    return ours.circuit(failures, recovery).call_async


async def _aiobreaker_awaits(failures: int, recovery: float) -> AsyncCall:
    return aiobreaker(failures, recovery).call_async


async def _hyx_awaits(failures: int, recovery: float) -> AsyncCall:
    breaker = hyx(failures, recovery)

    async def call(function: Callable[[], Awaitable[object]]) -> object:
        async with breaker:
            return await function()

    return call


async def _purgatory_awaits(failures: int, recovery: float) -> AsyncCall:
    breaker = await purgatory_async(failures, recovery).get_breaker("api")

    async def call(function: Callable[[], Awaitable[object]]) -> object:
        async with breaker:
            return await function()

    return call


ASYNC_BREAKERS: dict[str, Callable[[int, float], Awaitable[AsyncCall]]] = {
    ours.NAME: _ours_awaits,
    "aiobreaker": _aiobreaker_awaits,
    "hyx": _hyx_awaits,
    "purgatory": _purgatory_awaits,
}
