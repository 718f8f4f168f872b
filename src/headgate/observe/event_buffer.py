"""The last events, for pages and terminals: few enough to be read, however many there are.

Of each kind only so many a second are kept, and what happens all the time is kept apart from all else: ten thousand
rows that are done do not push out the one circuit that opened, neither in a second nor in an hour. Every event has a
number, also those that are left out: a gap says how many. (A pace that changes all the time is asked about ten times a
second; what lies between is no event.)
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from heapq import merge
from typing import TypeVar

from .. import fork_safety
from ..clock import Clock
from ..events import EventRecord, PublicEvent, record_of
from .event_text import describe, is_routine, kind_of, shortened
from .snapshot import EventLine

MOST_KEPT = 2_000
"""Of what happens all the time, and as many of all else."""
MOST_A_SECOND = 20
"""Of one kind."""
MOST_KINDS = 100
"""Kinds that are told apart; all others are one."""
OTHERS = "other"


class EventBuffer:
    """A listener for a ``Hub``. Safe for threads."""

    takes_records = True

    def __init__(self, clock: Clock, also: Callable[[EventRecord], None] | None = None) -> None:
        """``also`` is called with each event that is kept."""
        self.clock, self._also = clock, also
        self._routine: deque[EventLine] = deque(maxlen=MOST_KEPT)
        self._rare: deque[EventLine] = deque(maxlen=MOST_KEPT)
        self._lock = fork_safety.rlock()  # garbage that is collected meanwhile may end a permit, and say so
        self._second = -1
        self._kept: Counter[str] = Counter()
        """Of this second, by kind."""
        self.number = 0
        """Events so far."""
        self.left_out = 0
        self.kinds: Counter[str] = Counter()

    def __call__(self, event: EventRecord | PublicEvent) -> None:
        kind = kind_of(event)
        with self._lock:
            number = self._count(kind)
        if number is not None:
            record = record_of(event, self.clock)
            text = describe(record, self.clock)  # without the lock: it takes a while
            line = EventLine(
                number=number, at=text.at, kind=text.kind, key=text.key, reason=text.reason, code=text.code
            )
            self._keep(line)
            if self._also is not None:
                self._also(record)

    def wants(self, kind: str) -> bool:
        """Whether one more of these would be kept."""
        return self._kept.get(kind, 0) < MOST_A_SECOND or int(self.clock.now()) != self._second

    def missed(self, kind: str, count: int) -> None:
        """There were so many that no listener wanted."""
        with self._lock:
            self.number += count
            self.kinds[self._known(kind)] += count
            self.left_out += count

    def add(self, kind: str, key: str, reason: str, code: str = "") -> None:
        """Add something that no part of a run emits, such as what an operator did. It is always kept."""
        with self._lock:
            self.number += 1
            number = self.number
        line = EventLine(number=number, at=self.clock.wall(), kind=kind, key=key, reason=shortened(reason), code=code)
        self._keep(line)

    def after(self, number: int, most: int = 200) -> list[EventLine]:
        """The newest after that number, the oldest of them first; ``chosen`` where there are more."""
        with self._lock:
            found = [_newer(lines, number) for lines in (self._routine, self._rare)]
        merged = list(merge(*found, key=lambda line: line.number))
        return chosen(merged, most, is_routine)

    def _count(self, kind: str) -> int | None:
        """The number of an event that is to be kept, else None."""
        self.number = number = self.number + 1
        kind = self._known(kind)
        self.kinds[kind] += 1
        second = int(self.clock.now())
        if second != self._second:
            self._second = second
            self._kept.clear()
        if self._kept[kind] >= MOST_A_SECOND:
            self.left_out += 1
            return None
        self._kept[kind] += 1
        return number

    def _known(self, kind: str) -> str:
        return kind if kind in self.kinds or len(self.kinds) < MOST_KINDS else OTHERS

    def _keep(self, line: EventLine) -> None:
        """In the order of their numbers, though two threads may be quick and slow."""
        with self._lock:
            lines = self._routine if is_routine(line) else self._rare
            place = len(lines)
            while place and lines[place - 1].number > line.number:
                place -= 1
            if place == len(lines):
                lines.append(line)
            elif len(lines) < MOST_KEPT:
                lines.insert(place, line)


def _newer(lines: deque[EventLine], number: int) -> list[EventLine]:
    found: list[EventLine] = []
    for line in reversed(lines):
        if line.number <= number:
            break
        found.append(line)
    found.reverse()
    return found


T = TypeVar("T")


def chosen(lines: Sequence[T], most: int, is_routine: Callable[[T], bool]) -> list[T]:
    """The newest; but half of the places are for what does not happen all the time, if there is so much of it."""
    if len(lines) <= most:
        return list(lines)
    rare = [place for place, line in enumerate(lines) if not is_routine(line)]
    taken = set(rare[len(rare) - min(len(rare), most // 2) :])
    for place in reversed(range(len(lines))):
        if len(taken) >= most:
            break
        taken.add(place)
    return [lines[place] for place in sorted(taken)]
