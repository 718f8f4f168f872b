"""Machines behind an API that work first come, first served: latency grows long before anything is refused.

    arrival --> waiting (at most ``room``) --> one of ``servers`` --> answer
                   | full: 503

With ``thrash`` the work itself takes longer while others wait, so that asking for more than
the machines can do gets less done.
"""

from __future__ import annotations

import heapq
from collections import deque

from .scenario_parts import Queue


class Backend:
    __slots__ = ("_free_at", "_plan", "_speed", "_starts_at")

    def __init__(self, plan: Queue) -> None:
        self._plan = plan
        self._speed = 1.0
        self._free_at = [0.0] * plan.servers
        self._starts_at: deque[float] = deque()
        """When each waiting call will get its server."""

    def work(self, now: float, service: float) -> float | None:
        """Seconds until a call that arrives now is answered, or ``None`` if there is no room for it."""
        while self._starts_at and self._starts_at[0] <= now:
            self._starts_at.popleft()
        waiting = len(self._starts_at)
        if waiting >= self._plan.room:
            return None
        service *= (1.0 + self._plan.thrash * waiting / self._plan.servers) / self._speed
        start_at = max(now, self._free_at[0])
        heapq.heapreplace(self._free_at, start_at + service)
        if start_at > now:
            self._starts_at.append(start_at)
        return start_at + service - now

    def idle_in(self, now: float) -> float:
        """Seconds until a server is free."""
        return max(0.0, self._free_at[0] - now)

    def scale(self, factor: float) -> None:
        self._speed = factor
