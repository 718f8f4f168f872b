"""What the operations cost with nothing in them, and with the least that could be called an implementation."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def succeed() -> int:
    """The call that breakers and retries are put around."""
    return 200


async def succeed_async() -> int:
    return 200


class BareBucket:
    """A token bucket and a lock; no waiting, no keys, no outcome."""

    __slots__ = ("_filled_at", "_lock", "_rate", "_tokens")

    def __init__(self, rate: float) -> None:
        self._rate = self._tokens = rate
        self._filled_at = time.monotonic()
        self._lock = threading.Lock()

    def acquire(self) -> bool:
        lock = self._lock
        lock.acquire()
        try:
            now = time.monotonic()
            tokens = min(self._rate, self._tokens + (now - self._filled_at) * self._rate)
            self._filled_at = now
            self._tokens = tokens - 1.0
            return tokens >= 1.0
        finally:
            lock.release()

    async def acquire_async(self) -> bool:
        now = time.monotonic()
        tokens = min(self._rate, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        self._tokens = tokens - 1.0
        return tokens >= 1.0


def bare_breaker(function: Function) -> Function:
    """Count failures in a row, refuse above five."""
    failures = 0

    def call() -> Any:
        nonlocal failures
        if failures >= 5:
            raise RuntimeError("open")
        try:
            result = function()
        except Exception:
            failures += 1
            raise
        failures = 0
        return result

    return call


def bare_breaker_async(function: Function) -> Function:
    failures = 0

    async def call() -> Any:
        nonlocal failures
        if failures >= 5:
            raise RuntimeError("open")
        try:
            result = await function()
        except Exception:
            failures += 1
            raise
        failures = 0
        return result

    return call


def bare_retry(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for _attempt in range(2):
            try:
                return function(*args, **kwargs)
            except Exception:
                time.sleep(0.1)
        return function(*args, **kwargs)

    return call


def bare_retry_async(function: Function) -> Function:
    import asyncio

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        for _attempt in range(2):
            try:
                return await function(*args, **kwargs)
            except Exception:
                await asyncio.sleep(0.1)
        return await function(*args, **kwargs)

    return call
