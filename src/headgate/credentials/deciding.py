"""Decide under one lock, whatever strikes in the middle of it.

| what strikes                    | when                         | what is done about it                            |
|---------------------------------|------------------------------|--------------------------------------------------|
| Ctrl-C, any handler that raises | in the middle of a decision  | ``_torn`` stays set; the next who decides mends  |
| garbage collection of a lease   | anywhere, even in a decision | ``_soon``: if the lock is taken, its holder acts |
| ``os.fork``                     | while another thread decides | the fork waits for it; the child starts over     |

A decision is ``with self._lock: now = self._begin(); ...; self._torn = False`` and, after the lock,
``_after()``. Whoever could not get the lock has left word before trying, and whoever had it looks
for such words after letting go, so none is overlooked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .. import fork_safety
from ..clock import Clock, SystemClock


class Deciding:
    """The lock of a coordinator, and what keeps it sound."""

    def __init__(self, clock: Clock | None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.generation = 0
        """Grows in a forked child, where nobody holds what the parent's threads hold."""
        self._now = self.clock.now
        self._lock = fork_safety.lock()
        self._torn = False
        """Whether somebody is deciding; if it is found so, that one was interrupted."""
        self._left: deque[Callable[[], None]] = deque()
        """What was left to the holder of the lock; at most one for each lease and each waiter."""
        fork_safety.start_over_in_child(self._start_over_in_child)

    def _begin(self) -> float:
        """Start a decision: mend what an interrupted one left, and read the clock."""
        raise NotImplementedError

    def _serve(self, now: float) -> None:
        """Hand out what has become free."""
        raise NotImplementedError

    def _after(self) -> None:
        """Do what must not be done under the lock."""
        self._catch_up()

    def _soon(self, act: Callable[[], None]) -> None:
        """Act under the lock: now if it is free, else whoever has it does so after it."""
        self._left.append(act)
        self._catch_up()

    def _catch_up(self) -> None:
        while self._left and self._lock.acquire(blocking=False):
            try:
                now = self._begin()
                while self._left:
                    self._left.popleft()()
                self._serve(now)
                self._torn = False
            finally:
                self._lock.release()

    def _start_over_in_child(self) -> None:
        """In a forked child there is one thread, and it holds nothing."""
        self.generation += 1
        self._left.clear()
