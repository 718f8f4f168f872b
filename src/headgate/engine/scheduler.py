"""Where work waits in memory: by priority and then in the order it came in, separately for each key.

    delayed: by time ──due──┐
                            v
    new ──> queue of a key: retries (under their budget) ─┐
                            fresh (first calls) ──────────┴─first in order──> a lane

A lane gets its permit first and takes work then. Where the first item costs more than can be had now, a smaller one
behind it may go before it, but no item is passed more than ``MOST_PASSES`` times.

Nothing here waits or reads a clock.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from ..core.decision import UNKNOWN
from ..core.retry import RetryBudget

MOST_PASSES = 100
"""Smaller items that may go before a bigger one out of turn."""
LOOK_AHEAD = 32
"""How far behind the first item a smaller one is looked for."""
GONE_BEFORE_SWEEP = 64


class Place(Enum):
    """Where an item waits."""

    NOWHERE = "nowhere"
    QUEUED = "queued"
    DELAYED = "delayed"


class Queued(Protocol):
    """What the queues know of an item."""

    index: int
    """Its position in the input."""
    key: str
    priority: float
    asks: Any
    """What a permit for it must cover: it is taken only for an equal one."""
    size: float
    """One number to compare that by."""
    is_retry: bool
    """Whether its next call repeats one that failed."""
    is_stored: bool
    """Whether the store knows that it waits, and until when."""
    is_gone: bool
    """No longer waiting: a queue that finds it drops it."""
    place: Place
    times_passed: int
    ready_at: float
    deadline_at: float


I = TypeVar("I", bound=Queued)  # noqa: E741 - an item


class OrderedQueue(Generic[I]):
    """Items in order. The first few are kept sorted, so that any of them can be taken; the rest is a heap, and empty
    unless the front is full."""

    __slots__ = ("_gone", "front", "rest")

    def __init__(self) -> None:
        self.front: list[tuple[float, int, I]] = []
        self.rest: list[tuple[float, int, I]] = []
        self._gone = 0

    def __len__(self) -> int:
        return len(self.front) + len(self.rest)

    def put(self, item: I) -> None:
        entry = (-item.priority, item.index, item)
        front = self.front
        if len(front) < LOOK_AHEAD:
            insort(front, entry)
        elif entry < front[-1]:
            insort(front, entry)
            heappush(self.rest, front.pop())
        else:
            heappush(self.rest, entry)

    def take(self, position: int) -> I:
        """Take out one of the first."""
        item = self.front.pop(position)[2]
        if self.rest:
            self._fill()
        return item

    def remove(self, item: I) -> None:
        """Take an item out wherever it is."""
        item.is_gone = True
        for position, entry in enumerate(self.front):
            if entry[2] is item:
                self.take(position)
                return
        self._gone += 1
        if self._gone > GONE_BEFORE_SWEEP and self._gone > len(self.rest) // 2:
            self.sweep()

    def sweep(self) -> None:
        """Drop the items that are gone."""
        self.front = [entry for entry in self.front if not entry[2].is_gone]
        self.rest = [entry for entry in self.rest if not entry[2].is_gone]
        heapify(self.rest)
        self._gone = 0
        self._fill()

    def _fill(self) -> None:
        """Bring the front up to its length, without those that are gone."""
        front, rest = self.front, self.rest
        while rest and len(front) < LOOK_AHEAD:
            entry = heappop(rest)
            if entry[2].is_gone:
                self._gone -= 1
            else:
                front.append(entry)


class KeyQueue(Generic[I]):
    """What waits for one key."""

    __slots__ = ("budget", "fresh", "is_probing", "key", "retries")

    def __init__(self, key: str, retry_budget: float) -> None:
        self.key = key
        self.is_probing = False
        """Whether its circuit is open: then a fresh item probes each time, so that an outage uses none up."""
        self.fresh: OrderedQueue[I] = OrderedQueue()
        self.retries: OrderedQueue[I] = OrderedQueue()
        self.budget = RetryBudget(retry_budget)

    def __len__(self) -> int:
        return len(self.fresh) + len(self.retries)

    def put(self, item: I) -> None:
        (self.retries if item.is_retry else self.fresh).put(item)

    def remove(self, item: I) -> None:
        (self.retries if item.is_retry else self.fresh).remove(item)

    def cut_back(self, keep: int) -> list[I]:
        """Take out the last fresh items, all but so many, that the store may hand out again as they are."""
        queue = self.fresh
        entries = [*queue.front, *sorted(queue.rest)]
        taken = [item for _, _, item in entries[keep:] if not item.is_stored and not item.is_gone]
        for item in taken:
            item.is_gone, item.place = True, Place.NOWHERE
        queue.sweep()
        return taken

    def any(self) -> I | None:
        """One of its items; None if it has none."""
        for queue in (self.fresh, self.retries):
            if queue.front:
                return queue.front[0][2]
        return None

    def pull(self, most: int) -> list[I]:
        """Take out the first items, at most so many: they go elsewhere."""
        taken: list[I] = []
        for queue in (self.fresh, self.retries):
            while queue.front and len(taken) < most:
                taken.append(item := queue.take(0))
                item.place = Place.NOWHERE
        return taken

    def first(self, now: float) -> I | None:
        """The item whose turn it is; None if there is none, or only retries that their budget does not allow."""
        queue = self._next_queue(now)
        return None if queue is None else queue.front[0][2]

    def smaller(self, now: float) -> I | None:
        """The cheapest item that may go before the first; None if there is none, or it was passed often enough."""
        queue = self._next_queue(now)
        if queue is None:
            return None
        best = first = queue.front[0][2]
        for _, _, item in queue.front:
            if item.size < best.size:
                best = item
            if item.times_passed >= MOST_PASSES:  # none goes before this one
                break
        return best if best is not first else None

    def take(self, permitted: object, now: float) -> I | None:
        """The first item that asks for just what is permitted; those before it are passed."""
        queue = self._next_queue(now)
        if queue is None:
            return None
        for position, (_, _, item) in enumerate(queue.front):
            if item.asks == permitted:
                for _, _, passed in queue.front[:position]:
                    passed.times_passed += 1
                if item.is_retry:
                    self.budget.take(now)
                else:
                    self.budget.called(now)
                return queue.take(position)
            if item.times_passed >= MOST_PASSES:
                return None
        return None

    def _next_queue(self, now: float) -> OrderedQueue[I] | None:
        """The queue whose first item is next: retries take their turn in order, but only within their budget."""
        fresh, retries = self.fresh.front, self.retries.front
        if self.is_probing and fresh:
            return self.fresh
        if retries and (not fresh or retries[0] < fresh[0]) and self.budget.allows(now):
            return self.retries
        return self.fresh if fresh else None


class Scheduler(Generic[I]):
    """Everything that waits: in the queue of its key, or for its time."""

    def __init__(self, retry_budget: float) -> None:
        self.queues: dict[str, KeyQueue[I]] = {}
        self._retry_budget = retry_budget
        self._delayed: list[tuple[float, int, I]] = []
        self._deadlines: OrderedDict[int, I] = OrderedDict()
        """All items have the same time, so the first that came is the first that is late."""

    def queue(self, key: str) -> KeyQueue[I]:
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = KeyQueue(key, self._retry_budget)
        return queue

    def put(self, item: I, now: float) -> bool:
        """Let it wait; true if it may go at once, as far as it is concerned."""
        if item.ready_at > now:
            item.place = Place.DELAYED
            heappush(self._delayed, (item.ready_at, item.index, item))
            return False
        item.place = Place.QUEUED
        self.queue(item.key).put(item)
        return True

    def set_deadline(self, item: I, at: float) -> None:
        """The item must be done by then, unless ``forget`` comes first."""
        item.deadline_at = at
        self._deadlines[item.index] = item

    def forget(self, item: I) -> None:
        self._deadlines.pop(item.index, None)

    def due(self, now: float) -> list[I]:
        """Take out the delayed items whose time has come."""
        ready = []
        while self._delayed and self._delayed[0][0] <= now:
            item = heappop(self._delayed)[2]
            item.place = Place.NOWHERE
            ready.append(item)
        return ready

    def late(self, now: float) -> list[I]:
        """Take out the items that waited past their deadline."""
        late = []
        while self._deadlines and (item := next(iter(self._deadlines.values()))).deadline_at <= now:
            self.forget(item)
            if item.place is not Place.NOWHERE:
                late.append(item)
        for item in late:
            if item.place is Place.QUEUED:
                self.queue(item.key).remove(item)
            item.is_gone, item.place = True, Place.NOWHERE
        if late:
            self._delayed = [entry for entry in self._delayed if not entry[2].is_gone]
            heapify(self._delayed)
        return late

    def delayed(self) -> tuple[int, float]:
        """How many wait for their time, and when the first one's comes."""
        return len(self._delayed), self._delayed[0][0] if self._delayed else UNKNOWN

    def next_at(self) -> float:
        """When something is due or late."""
        _, due_at = self.delayed()
        return min(due_at, next(iter(self._deadlines.values())).deadline_at) if self._deadlines else due_at

    def clear(self) -> list[I]:
        """Take out everything."""
        queues = [queue for one in self.queues.values() for queue in (one.fresh, one.retries)]
        entries = [entry for queue in queues for entry in (*queue.front, *queue.rest)]
        waiting = [item for _, _, item in (*entries, *self._delayed) if not item.is_gone]
        self.queues.clear()
        self._delayed.clear()
        self._deadlines.clear()
        return waiting
