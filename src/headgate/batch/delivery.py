"""Results on their way out: as they finish or in the order of the input, each only once it is written down.

A result that nobody has taken yet keeps its place in the window, so a slow consumer slows the run
down instead of filling the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable

from ..clock import Clock
from .bell import Bell
from .item import Result


class Delivery:
    def __init__(self, clock: Clock, in_order: bool, taken: Callable[[], None]) -> None:
        self.in_order = in_order
        self._bell = Bell(clock)
        self._ready: deque[Result] = deque()
        self._turns: deque[int] | None = deque() if in_order else None
        """Rows in the order of the input, from the first that was not handed out."""
        self._early: dict[int, Result | None] = {}
        self._taken = taken
        self._closed = False

    def expect(self, index: int) -> None:
        """A row was taken up; its result will come, or ``skip``."""
        if self._turns is not None:
            self._turns.append(index)

    def put(self, result: Result) -> None:
        if self._turns is None:
            self._ready.append(result)
        else:
            self._early[result.index] = result
            self._line_up()
        self._bell.ring()

    def skip(self, index: int) -> None:
        """There will be no result of this row here."""
        if self._turns is not None:
            self._early[index] = None
            self._line_up()
            self._bell.ring()

    def close(self) -> None:
        """Nothing comes any more. What could not be handed out in order, because of gaps, follows as it is."""
        self._closed = True
        self._ready.extend(self._early[index] for index in sorted(self._early) if self._early[index])  # type: ignore[misc]
        self._early.clear()
        self._bell.ring()

    async def results(self) -> AsyncIterator[Result]:
        while True:
            while self._ready:
                result = self._ready.popleft()
                self._taken()
                yield result
            if self._closed:
                return
            await self._bell.wait()

    def _line_up(self) -> None:
        turns = self._turns
        while turns and turns[0] in self._early:
            result = self._early.pop(turns.popleft())
            if result is not None:
                self._ready.append(result)
