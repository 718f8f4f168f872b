"""Events as lines that people read, and the last of them, for pages and terminals: few enough to be read.

    EventRecord ──> describe: when, what, about which key, and why ──> EventLine ──> EventBuffer ──> pages, terminals

A line is made when it is read, by the reader's thread: redacting takes longer than all else that a row's event costs
the thread of its job.

Of each kind only so many a second are kept, and what happens all the time is kept apart from all else: ten thousand
rows that are done do not push out the one circuit that opened, neither in a second nor in an hour. Every event has a
number, also those that are left out: a gap says how many. (Changes of a pace are noted at most ten times a second.)
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from heapq import merge
from typing import TypeVar

from .. import fork_safety
from ..clock import Clock
from ..core.decision import CircuitState
from ..events import BatchEvent, CrawlEvent, Event, EventRecord, PublicEvent, ResilienceEvent, record_of
from ..formatting import for_display, format_seconds, redact, shortened
from .snapshot import EventLine
from .sources import ORDINARY

log = logging.getLogger("headgate")

LONGEST_KEY = 200

ROUTINE = frozenset(
    [
        "rate_changed",
        "refused",
        "key_evicted",
        "item_done",
        "item_parked",
        "item_failed",
        "call",
        "page",
        "sent_on",
        "put_off",
        "robots",
        "sitemap",
        "rate_limit_wait",
        "credential_wait",
        "credential_pool_exhausted",
        "retry_attempt",
        "request_success",
    ]
)
"""Kinds that happen all the time."""
ALARMING = frozenset(
    [
        "cannot_learn",
        "store_lost",
        "store_failed",
        "circuit_open",
        "item_dead",
        "item_lost",
        "caps_reached",
        "failed",
        "credential_retired",
        "budget_exceeded",
        "all_providers_circuit_open",
        "request_failure",
    ]
)
"""Kinds that an operator should look at."""
_CIRCUIT_CHANGES = ("circuit_changed", "circuit_state_change")


def is_routine(line: EventLine | EventRecord) -> bool:
    """Whether it happens all the time. A pace that holds back the next call does, too."""
    code = line.code if isinstance(line, EventLine) else line.reason
    return line.kind in ROUTINE or (line.kind == "held" and code in ORDINARY)


def describe(record: EventRecord, number: int = 0) -> EventLine:
    """The event as a line that people read: redacted, and not too long."""
    credential = record.fields.get("credential") if record.form is ResilienceEvent else None
    return EventLine(
        number=number,
        at=record.unix_at,
        kind=record.kind,
        key=for_display(f"{record.scope}/{credential}" if credential else record.scope)[:LONGEST_KEY],
        reason=shortened(redact(", ".join(filter(None, _parts(record))))),
        code=record.reason,
    )


def level_of(record: EventRecord) -> int:
    """A level of the standard library's logging."""
    if record.kind in ROUTINE:
        return logging.DEBUG
    circuit = record.fields.get("state" if record.form is Event else "breaker_state")
    is_alarming = record.kind in ALARMING or (record.kind in _CIRCUIT_CHANGES and circuit != CircuitState.CLOSED.value)
    return logging.WARNING if is_alarming else logging.INFO


def _parts(record: EventRecord) -> list[str]:
    """What the reason is made of, the most important first: a long one is cut at its end."""
    fields, form = record.fields, record.form
    if form is ResilienceEvent:
        attempt, most, wait_ms = (fields.get(name) for name in ("attempt", "max_attempts", "wait_ms"))
        return [
            fields.get("error_classification") or "",
            fields.get("error_type") or "",
            f"attempt {attempt} of {most}" if attempt and most else "",
            f"for {format_seconds(wait_ms / 1000)}" if wait_ms else "",
            f"circuit {fields['breaker_state']}" if fields.get("breaker_state") else "",
        ]
    seconds = fields.get("seconds")
    lasting = f"for {format_seconds(seconds)}" if seconds else ""
    if form is BatchEvent:
        row = fields.get("index")
        return ["" if row is None else f"row {row + 1:,}", record.text, lasting]
    if form is CrawlEvent:
        has_time = record.detail and not record.reason  # a sentence about a wait says how long it takes
        status = f"answered {fields['status']}" if fields.get("status") else ""
        return [record.text, status, "" if has_time else lasting, fields.get("url", "")]
    return [record.text]


# ---------------------------------------------------------------------- the last events

MOST_KEPT = 2_000
"""Of what happens all the time, and as many of all else."""
MOST_A_SECOND = 20
"""Of one kind."""
MOST_NEW = 100
"""That have not been described yet: then it is done, also if nothing reads them."""
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
        self._new: deque[tuple[int, EventRecord]] = deque(maxlen=MOST_KEPT)
        """Kept, by number, and not described yet."""
        self._describing = fork_safety.rlock()
        self._lock = fork_safety.rlock()  # garbage that is collected meanwhile may end a permit, and say so
        self._second = -1
        self._kept: Counter[str] = Counter()
        """Of this second, by kind."""
        self.number = 0
        """Events so far."""
        self.left_out = 0
        self.kinds: Counter[str] = Counter()

    def __call__(self, event: EventRecord | PublicEvent) -> None:
        record = record_of(event, self.clock)
        with self._lock:
            number = self._count(record.kind)
        if number is not None:
            self._new.append((number, record))
            if len(self._new) >= MOST_NEW and self._describing.acquire(blocking=False):  # else a reader does it
                try:
                    self._describe_new()
                finally:
                    self._describing.release()
            if self._also is not None:
                self._also(record)

    def wants(self, kind: str) -> bool:
        """Whether one more of these would be kept."""
        return self._kept.get(kind, 0) < MOST_A_SECOND or int(self.clock.now()) != self._second

    def missed(self, kind: str, count: int) -> None:
        """So many events were not made, because no listener wanted them."""
        with self._lock:
            self.number += count
            self.kinds[self._known(kind)] += count
            self.left_out += count

    def add(self, kind: str, key: str, reason: str, code: str = "") -> None:
        """Add something that no part of a run emits, such as what an operator did. It is always kept."""
        self._describe_new()  # they came first
        with self._lock:
            self.number += 1
            number = self.number
        line = EventLine(number=number, at=self.clock.wall(), kind=kind, key=key, reason=shortened(reason), code=code)
        self._keep(line)

    def after(self, number: int, most: int = 200) -> list[EventLine]:
        """The newest after that number, the oldest of them first; ``chosen`` where there are more."""
        self._describe_new()
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

    def _describe_new(self) -> None:
        """Under a lock of its own, as it takes a while: a reader goes on when all that came before is described."""
        with self._describing:
            while self._new:
                number, record = self._new.popleft()
                try:
                    self._keep(describe(record, number))
                except Exception as error:  # a program's own event may hold anything, and must not hide the others
                    log.warning("cannot describe an event %s: %s", record.kind, type(error).__name__)

    def _keep(self, line: EventLine) -> None:
        """Add a line in the order of numbers; threads may come out of order."""
        with self._lock:
            lines = self._routine if is_routine(line) else self._rare
            place = _place(lines, line.number)
            if place == len(lines):
                lines.append(line)
            elif len(lines) < MOST_KEPT:
                lines.insert(place, line)


def _place(lines: deque[EventLine], number: int) -> int:
    place = len(lines)
    while place and lines[place - 1].number > number:
        place -= 1
    return place


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
