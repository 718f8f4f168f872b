"""Decide under one lock, whatever strikes in the middle of it.

| what strikes                    | when                         | what is done about it                            |
|---------------------------------|------------------------------|--------------------------------------------------|
| Ctrl-C, any handler that raises | in the middle of a decision  | ``_torn`` stays set; the next who decides mends  |
| garbage collection of a lease   | anywhere, even in a decision | ``_soon``: if the lock is taken, its holder acts |
| ``os.fork``                     | while another thread decides | the child gets a new lock, and starts over       |

A decision is ``with self._lock: now = self._begin(); ...; self._torn = False`` and, after the lock,
``_after()``. Whoever could not get the lock has left word before trying, and whoever had it looks
for such words after letting go, so none is overlooked.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable

from ..clock import Clock, SystemClock


class Deciding:
    """The lock of a coordinator, and what keeps it sound."""

    def __init__(self, clock: Clock | None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.generation = 0
        """Grows in a forked child, where nobody holds what the parent's threads hold."""
        self._now = self.clock.now
        self._lock = threading.Lock()
        self._torn = False
        """Whether somebody is deciding; if it is found so, that one was interrupted."""
        self._left: deque[Callable[[], None]] = deque()
        """What was left to the holder of the lock; at most one for each lease and each waiter."""
        _EVERYBODY.add(self)

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
        self._lock = threading.Lock()
        self._left.clear()


_EVERYBODY: weakref.WeakSet[Deciding] = weakref.WeakSet()


def _after_fork() -> None:
    for one in _EVERYBODY:
        one._start_over_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
