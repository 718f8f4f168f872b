"""How many bytes of answers are in memory: bounded for all of them together, however large each one may be.

    a body comes in ──grow──> being read ──keep──> kept until its page is on disk ──release──> room for others
                        └ no room: the reading pauses, and so does the sender; the one that began first goes on

One half is for whatever comes. The other is for the reading that began first, beside what is kept: it need not wait for
other readings, which may wait for it, but for pages to be written, unless there are none. Pages are small, so the first
bytes of each (``FREE``) never pause: servers that send slowly and much hold up others that do the same, and no page.

All bodies together are at most ``most``, ``FREE`` for each page under way, and one answer of the largest size.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

FREE = 1 << 16
"""Bytes of each answer for which there is always room."""


class MemoryBudget:
    def __init__(self, most: int) -> None:
        self._half = most // 2
        self.held = 0
        """Bytes in memory: of bodies that are being read, and of those ..."""
        self.kept = 0
        """... that are read and not on disk yet."""
        self._readings: dict[MemoryShare, None] = {}
        """In the order in which they began; as many as there are workers."""
        self.paused: set[MemoryShare] = set()

    @property
    def is_open(self) -> bool:
        """Whether it makes sense to begin more; not while what is there must be written first."""
        return not self.kept or (self.kept < self._half and next(iter(self._readings), None) not in self.paused)

    def keep(self, count: int) -> None:
        """A body was read, and stays for now."""
        self.held += count
        self.kept += count

    def release(self, count: int) -> None:
        self.held -= count
        self.kept -= count
        self.wake_paused()

    def has_room(self, share: MemoryShare, count: int) -> bool:
        """Whether this reading may go on with so many bytes."""
        if share.size + count <= FREE or self.held + count <= self._half:
            return True
        is_first = next(iter(self._readings), None) is share
        return is_first and (not self.kept or self.kept + share.size + count <= self._half)

    def wake_paused(self) -> None:
        """There is more room, or another is the first: every paused reading checks whether it may go on."""
        while self.paused:
            self.paused.pop().wake()

    def add(self, share: MemoryShare) -> None:
        self._readings[share] = None

    def remove(self, share: MemoryShare) -> None:
        self._readings.pop(share, None)
        self.held -= share.size
        self.wake_paused()


class MemoryShare:
    """What one body takes while it is being read: ``with MemoryShare(budget) as share``."""

    __slots__ = ("_budget", "_waking", "size")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._waking: asyncio.Future[None] | None = None
        self.size = 0

    def grow(self, count: int) -> bool:
        """Whether there is room for so many bytes more; if not, ``wait`` and ask again."""
        if not self._budget.has_room(self, count):
            return False
        self.size += count
        self._budget.held += count
        return True

    async def wait(self) -> None:
        """Until something has changed."""
        self._waking = asyncio.get_running_loop().create_future()
        self._budget.paused.add(self)
        try:
            await self._waking
        finally:
            self._budget.paused.discard(self)
            self._waking = None

    def wake(self) -> None:
        if self._waking is not None and not self._waking.done():
            self._waking.set_result(None)

    def __enter__(self) -> Self:
        self._budget.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.remove(self)
