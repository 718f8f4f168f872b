"""Ask a run something without waiting on the event loop: a run that hangs must not take the page with it.

Each question has a thread of its own for the moment it takes. These are daemons and not a pool: a pool is waited for at
the program's end, and a question that never comes back would then keep the program.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

MOST_AT_ONCE = 8
"""Questions that are out; those that hang count for as long as they do."""
PATIENCE = 2.0
"""Seconds after which a run counts as one that does not answer."""


class NotAnsweringError(Exception):
    """The run was asked and has not answered, or too many questions are out already."""


class Apart:
    def __init__(self) -> None:
        self._out = 0

    async def ask(self, question: Callable[[], T], patience: float = PATIENCE) -> T:
        """What it returns or raises; ``NotAnsweringError`` if that takes too long."""
        if self._out >= MOST_AT_ONCE:
            raise NotAnsweringError
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            self._out -= 1
            if answer.done():
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]
            else:
                answer.set_exception(error)

        def go() -> None:
            result: T | None = None
            failed: BaseException | None = None
            try:
                result = question()
            except Exception as error:
                failed = error
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(settle, result, failed)

        self._out += 1
        threading.Thread(target=go, name="headgate-web-question", daemon=True).start()
        try:
            async with asyncio.timeout(patience):
                return await answer
        except TimeoutError:
            if answer.done() and not answer.cancelled():  # the question itself ended so
                raise
            raise NotAnsweringError from None
