"""Where rows wait: a bounded number of them, by priority and then in the order of the input.

    later: failed rows, by time ──due──┐
                                       v
    input ──> shelf of a gate key:  again (retries, under their budget) ─┐
                                    fresh (first calls, and parked rows) ─┴─first in order──> a lane

A lane asks for leave first and takes a row then. Where the first row costs more than can be had
now, a smaller one behind it may go before it, but no row is passed more than ``MOST_PASSES`` times.

Nothing here waits or reads a clock.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from heapq import heapify, heappop, heappush

from ..core.budget import RetryBudget
from ..core.decision import UNKNOWN
from ..limiter.checks import Cost
from .item import Item

MOST_PASSES = 100
"""Smaller rows that may go before a bigger one out of turn."""
LOOK_AHEAD = 32
"""How far behind the first row a smaller one is looked for."""
GONE_BEFORE_SWEEP = 64

Place = tuple[float, int, Item]


class Queue:
    """Rows in order. The first few are kept sorted, so that any of them can be taken; the rest is a heap."""

    __slots__ = ("_gone", "front", "rest")

    def __init__(self) -> None:
        self.front: list[Place] = []
        self.rest: list[Place] = []
        self._gone = 0

    def __len__(self) -> int:
        return len(self.front) + len(self.rest)

    def put(self, item: Item) -> None:
        place = (-item.priority, item.index, item)
        front = self.front
        if len(front) < LOOK_AHEAD and not self.rest:
            insort(front, place)
        elif front and place < front[-1]:
            insort(front, place)
            if len(front) > LOOK_AHEAD:
                heappush(self.rest, front.pop())
        else:
            heappush(self.rest, place)
            self.fill()

    def fill(self) -> None:
        """Bring the front up to its length, without those that are gone."""
        front, rest = self.front, self.rest
        while rest and len(front) < LOOK_AHEAD:
            place = heappop(rest)
            if place[2].gone:
                self._gone -= 1
            else:
                front.append(place)

    def take(self, position: int) -> Item:
        item = self.front.pop(position)[2]
        self.fill()
        return item

    def remove(self, item: Item) -> None:
        """Take a row out wherever it stands."""
        item.gone = True
        for position, place in enumerate(self.front):
            if place[2] is item:
                self.take(position)
                return
        self._gone += 1
        if self._gone > GONE_BEFORE_SWEEP and self._gone > len(self.rest) // 2:
            self.sweep()

    def sweep(self) -> None:
        self.rest = [place for place in self.rest if not place[2].gone]
        heapify(self.rest)
        self._gone = 0


class Shelf:
    """The rows of one gate key."""

    __slots__ = ("again", "budget", "failures_in_a_row", "fresh", "has_limits", "key", "probing")

    def __init__(self, key: str, retry_budget: float) -> None:
        self.key = key
        self.has_limits = True
        """Whether limits are known for this key, so that rows differ in what they ask for."""
        self.probing = False
        """Whether its circuit is open: then another row probes each time, so that an outage uses none up."""
        self.failures_in_a_row = 0
        """Of all its lanes together: with several credentials each circuit sees a part of an outage only."""
        self.fresh = Queue()
        self.again = Queue()
        self.budget = RetryBudget(retry_budget)

    def __len__(self) -> int:
        return len(self.fresh) + len(self.again)

    def put(self, item: Item) -> None:
        (self.again if item.failed else self.fresh).put(item)

    def remove(self, item: Item) -> None:
        (self.again if item.failed else self.fresh).remove(item)

    def cut_back(self, keep: int) -> list[Item]:
        """Take out the last rows, all but so many: those that were never sent, or of which the ledger knows nothing."""
        queue = self.fresh
        places = [*queue.front, *sorted(queue.rest)]
        taken = [item for _, _, item in places[keep:] if not item.put_aside and not item.gone]
        for item in taken:
            item.gone, item.place = True, ""
        queue.front = [place for place in queue.front if not place[2].gone]
        queue.sweep()
        queue.fill()
        return taken

    def next_queue(self, now: float) -> Queue | None:
        """Whose first row is next: retries take their turn in order, but only within their budget."""
        fresh, again = self.fresh.front, self.again.front
        if self.probing and fresh:
            return self.fresh
        if again and (not fresh or again[0] < fresh[0]) and self.budget.allows(now):
            return self.again
        return self.fresh if fresh else None

    def first(self, now: float) -> Item | None:
        queue = self.next_queue(now)
        return None if queue is None else queue.front[0][2]

    def smaller(self, now: float) -> Item | None:
        """The cheapest row that may go before the first one; None if there is none, or it was passed often enough."""
        queue = self.next_queue(now)
        if queue is None:
            return None
        best = queue.front[0][2]
        least = best.size
        for _, _, item in queue.front:
            if item.size < least:
                best, least = item, item.size
            if item.passed >= MOST_PASSES:  # nobody goes before this one
                break
        return best if best is not queue.front[0][2] else None

    def take(self, cost: Cost, now: float) -> Item | None:
        """The first row that asks for this and may go; those before it are passed."""
        queue = self.next_queue(now)
        if queue is None:
            return None
        for position, (_, _, item) in enumerate(queue.front):
            if item.asks == cost:
                if position:
                    for _, _, passed in queue.front[:position]:
                        passed.passed += 1
                if item.failed:
                    self.budget.take(now)
                else:
                    self.budget.called(now)
                return queue.take(position)
            if item.passed >= MOST_PASSES:
                return None
        return None


class Window:
    """All rows that wait: on the shelf of their key, or for their time."""

    def __init__(self, retry_budget: float) -> None:
        self.shelves: dict[str, Shelf] = {}
        self._retry_budget = retry_budget
        self._later: list[tuple[float, int, Item]] = []
        self._deadlines: OrderedDict[int, Item] = OrderedDict()
        """All rows have the same time, so the first that came is the first that is late."""

    def shelf(self, key: str) -> Shelf:
        shelf = self.shelves.get(key)
        if shelf is None:
            shelf = self.shelves[key] = Shelf(key, self._retry_budget)
        return shelf

    def put(self, item: Item, now: float) -> bool:
        """Let it wait; true if it may go at once, as far as it is concerned."""
        if item.ready_at > now:
            item.place = "later"
            heappush(self._later, (item.ready_at, item.index, item))
            return False
        item.place = "shelf"
        self.shelf(item.key).put(item)
        return True

    def watch(self, item: Item) -> None:
        """It must be done by ``item.deadline_at``; until ``forget``."""
        self._deadlines[item.index] = item

    def forget(self, item: Item) -> None:
        self._deadlines.pop(item.index, None)

    def due(self, now: float) -> list[Item]:
        """Rows whose time to be tried again has come; they wait no longer."""
        ready = []
        while self._later and self._later[0][0] <= now:
            item = heappop(self._later)[2]
            item.place = ""
            ready.append(item)
        return ready

    def late(self, now: float) -> list[Item]:
        """Rows that waited past their deadline; they wait no longer."""
        late = []
        while self._deadlines and (item := next(iter(self._deadlines.values()))).deadline_at <= now:
            self.forget(item)
            if item.place:
                late.append(item)
        for item in late:
            if item.place == "shelf":
                self.shelf(item.key).remove(item)
            item.gone, item.place = True, ""
        if late:
            self._later = [entry for entry in self._later if not entry[2].gone]
            heapify(self._later)
        return late

    def later(self) -> tuple[int, float]:
        """How many wait for their time, and when the first one's comes."""
        return len(self._later), self._later[0][0] if self._later else UNKNOWN

    def next_at(self) -> float:
        """When to look again."""
        _, later = self.later()
        return min(later, next(iter(self._deadlines.values())).deadline_at) if self._deadlines else later

    def clear(self) -> list[Item]:
        """Everybody who waits; nobody does afterwards."""
        queues = [queue for shelf in self.shelves.values() for queue in (shelf.fresh, shelf.again)]
        places = [place for queue in queues for place in (*queue.front, *queue.rest)]
        waiting = [item for _, _, item in (*places, *self._later) if not item.gone]
        self.shelves.clear()
        self._later.clear()
        self._deadlines.clear()
        return waiting
