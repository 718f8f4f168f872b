"""Run a coroutine for a command: on uvloop where it is installed, and with a Ctrl-C that cleans up.

The first Ctrl-C cancels the coroutine, which may finish what it began and return; a
second one ends it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_quickest_loop()) as runner:
        return runner.run(main)


def _quickest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
