"""The workers of a crawl: so many fetches at once, and lanes that wait for one in turn.

A fetch may start while a worker is free, while not too many pages are on their way to disk, and while the bodies of
those in memory leave room for more (``room.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .room import Room

if TYPE_CHECKING:
    from .lanes import Lane


class Crew:
    def __init__(self, workers: int, room: Room, is_full: Callable[[], bool]) -> None:
        self.workers, self.room = workers, room
        self._is_full = is_full
        self.working = 0
        self.most_open = 2 * workers
        """Pages fetched or being fetched that are not on disk yet; more would be fetched again after a crash."""
        self.open = 0
        self._wanting: dict[Lane, None] = {}

    @property
    def free(self) -> int:
        return self.workers - self.working

    @property
    def is_free(self) -> bool:
        has_place = self.working < self.workers and self.open < self.most_open and self.room.is_open
        return has_place and not self._is_full()

    def written(self) -> None:
        """What came of a fetch is on disk, or is no page."""
        self.open -= 1
        self.pass_on()

    def want(self, lane: Lane) -> None:
        """The lane is rung when a worker is free and its turn has come."""
        self._wanting.setdefault(lane)

    def is_wanted_beside(self, lane: Lane) -> bool:
        return len(self._wanting) > (lane in self._wanting)

    def pass_on(self) -> None:
        """A worker is free: tell the next who wants one."""
        while self._wanting and self.is_free:
            lane = next(iter(self._wanting))
            del self._wanting[lane]
            if lane.waits_for == "workers":
                lane.has_turn = True
                lane.bell.ring()
                return
