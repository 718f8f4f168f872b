"""One timer for a whole call, however many waits and attempts it has.

It works as ``asyncio.timeout`` does, by cancelling the task from outside and taking that back on the way out,
but costs half of it: every call with a time budget pays for one.
"""

from __future__ import annotations


class Alarm:
    __slots__ = ("_cancelling", "_task", "_timer", "rang")

    def __init__(self, seconds: float) -> None:
        import asyncio  # here, because a program without an event loop should not load one

        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time budget needs a running task")
        self._task = task
        self._cancelling = task.cancelling()
        self.rang = False
        loop = task.get_loop()
        self._timer = loop.call_at(loop.time() + seconds, self._ring)

    def _ring(self) -> None:
        self.rang = True
        self._task.cancel()

    def took(self, error: BaseException) -> bool:
        """Whether the error is this alarm's own cancellation, and nobody else wants the task to end."""
        if not self.rang or isinstance(error, Exception | KeyboardInterrupt | SystemExit):
            return False
        return self._task.cancelling() <= self._cancelling + 1

    def stop(self) -> None:
        """Switch it off, once, and take its cancellation back."""
        self._timer.cancel()
        if self.rang:
            self._task.uncancel()
