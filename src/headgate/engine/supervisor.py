"""How a run or a crawl ends before its work does: on request, or because one of its own tasks failed.

stop(reason)       nothing new starts; what is under way is finished
stop(now=True)     ... and what is under way is cancelled too
fail(error)        the same, and the run raises the error at its end
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any

STANDSTILL = 15 * 60.0
"""Seconds without a call that could start, after which a command that was not told to wait stops."""


class StopReason(Enum):
    """The value is the first word of ``report.stopped``, which programs outside read."""

    STOPPED = "stopped"
    """A caller has asked for it."""
    CANCELLED = "cancelled"
    FAILED = "failed"
    """Something is wrong that no row or page is to blame for."""
    DEADLINE = "deadline"
    STANDSTILL = "standstill"
    """Nothing can start for longer than the caller wants to wait."""
    SILENT = "silent"
    """The target does not answer, or no row is done any more."""
    NO_CREDENTIAL = "no_credential"
    """A batch has no credential left that is accepted."""
    CREDENTIALS = "credentials"
    """The same for an origin of a crawl."""
    FAIL_FAST = "fail_fast"
    """A row has failed in a way that all others would."""
    HOPELESS = "hopeless"
    """The first rows have all failed with the same error."""
    NO_MODEL = "no_model"
    """The rows that are left ask for models that the server does not have."""
    CAPS = "caps"
    """The next row could spend more than is allowed."""
    MAX_PAGES = "max_pages"
    BROKEN = "broken"
    """A row of the input is invalid, and the caller wants to stop there."""
    INPUT = "input"
    """The input cannot be read to its end."""
    SHORTER = "shorter"
    """The input has fewer rows than the ledger knows."""
    OUTPUT = "output"
    """The output cannot be written."""


@dataclass(frozen=True, slots=True)
class Stop:
    reason: StopReason
    detail: str = ""

    def __str__(self) -> str:
        """The text of ``report.stopped``."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


class Supervisor:
    def __init__(self, on_stop: Callable[[Stop, bool], None]) -> None:
        """``on_stop(stop, now)`` is called for every request: the first has the reason, a later one may be urgent."""
        self._on_stop = on_stop
        self.stopped: Stop | None = None
        """Why nothing starts any more."""
        self.failure: BaseException | None = None

    def stop(self, reason: StopReason, detail: str = "", *, now: bool = False) -> None:
        if self.stopped is None:
            self.stopped = Stop(reason, detail)
        self._on_stop(self.stopped, now)

    def fail(self, error: BaseException) -> None:
        """End the run with this error; the first one counts."""
        if self.failure is None:
            self.failure = error
        self.stop(StopReason.FAILED, type(error).__name__, now=True)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that does the work; what it raises ends the run instead of being lost with the task."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._on_end)
        return task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fail(error)

    async def guarded(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """The same for work that is awaited here."""
        try:
            await work(*arguments)
        except Exception as error:
            self.fail(error)


class PauseSwitch:
    """Whether an operator lets nothing new start. May be set from any thread."""

    __slots__ = ("is_on",)

    def __init__(self) -> None:
        self.is_on = False
