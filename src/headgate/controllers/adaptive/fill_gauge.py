"""Measure how fast a bucket refills from what its answers say is left, without a refusal.

    left + let in |              ____/   full: no less came in than was let in
                  |         ____/
                  |    ____/             else: calls left in it, and let in since, grow by exactly what came in
                  |___/______________
                                  time

So two answers that found it less than full tell the refill, though a thousand calls pass between them. Answers come
back late and in any order, and are put into the order in which their calls were sent.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

from ...core.decision import NEVER
from ...core.policy import Ticket, requests_of
from ...core.signal import Limit
from .call_history import CallHistory

LEAST_LIMIT, NEARLY_FULL = 5.0, 0.75
"""Calls that a bucket must hold for its level to tell enough in whole numbers; and the share of them from which on it
may be full, or was a moment ago."""

KEPT = 24
"""Answers of each kind that are remembered, evenly over the memory."""

FEWEST_CALLS, LATENCIES, LEAST_SPAN = 48.0, 4.0, 2.0
"""The memory: so many calls, times the usual latency, and seconds, whichever is longest."""

TELLING = 16.0
"""Calls from one answer to another that measure the refill."""

LEAST_REFILL = 0.25
"""A refill below this share of what was let in is none: it is a window that has not turned."""

UNEVEN, UNEVENLY, FEWEST_LEVELS = 2.0, 0.1, 5
"""Calls, and a share of what it holds, by which a bucket may seem to refill less evenly than it does; and the
levels it takes to see that."""

TARGET = 0.4
"""The level to settle at, as a share of what the bucket holds."""

SLOWEST, ON_THE_WAY, LEAST_RISE, MOST_RISE = 0.7, 1.0, 0.02, 0.25
"""How far below the refill the pace goes at least; and above it while the bucket stays full: so that the calls that are
on their way when it no longer is exceed the refill by about what it holds, within these shares."""

PATIENCE, LONGEST_PATIENCE, PAUSE = 8.0, 60.0, 1.0
"""Calls for whose time it is believed without an answer, and seconds at most; and the seconds beyond those in which it
fills up, after which it is full again."""

LONGEST_HOLD = 1.0
"""Seconds to wait at most for a call to come in, and the time of two."""


class Level(NamedTuple):
    """What was left after a call, by its answer."""

    seq: int
    at: float
    left: float
    is_full: bool


@dataclass(slots=True, eq=False)
class FillGauge:
    limit: float = 0.0
    rate: float = 0.0
    """Calls a second that come in, where ``is_sure``; else 0."""
    latency: float = 0.0
    levels: list[Level] = field(default_factory=list)
    """In the order of sending."""

    @property
    def is_sure(self) -> bool:
        return self.rate > 0.0

    @property
    def patience(self) -> float:
        """Seconds without an answer for which it is believed."""
        return min(PATIENCE / self.rate, LONGEST_PATIENCE) if self.rate else 0.0

    def forget(self) -> None:
        self.rate = 0.0
        self.levels.clear()

    def read(self, ticket: Ticket, told: Limit, history: CallHistory, latency: float) -> None:
        """An answer says how many calls were left after its own."""
        limit, left, levels = told.limit or 0.0, max(told.remaining or 0.0, 0.0), self.levels
        went_back = bool(levels) and (ticket.seq - levels[-1].seq) * (ticket.sent_at - levels[-1].at) < 0.0
        if limit != self.limit or went_back or requests_of(ticket.cost) != 1.0:
            self.limit = limit
            self.forget()  # another bucket, a clock that went back, or calls that take more or less than one
        if limit < LEAST_LIMIT or requests_of(ticket.cost) != 1.0:
            return
        paused = bool(levels) and self.rate > 0.0 and ticket.sent_at - levels[-1].at > PAUSE + limit / self.rate
        if paused:
            levels.clear()
        self.latency, is_full = latency, paused or left >= NEARLY_FULL * limit
        level = Level(ticket.seq, ticket.sent_at, min(left + 0.5, limit - 1.0), is_full)
        if self._keep(level):
            self._measure(history)

    def _keep(self, level: Level) -> bool:
        """Put it in its place. False if others of its kind are near: only the newest of them is kept."""
        levels, near = self.levels, self._memory / KEPT
        place = bisect_left(levels, (level.seq,))
        if place < len(levels):
            around = levels[max(0, place - 1) : place + 1]
            if any(other.is_full == level.is_full and abs(other.seq - level.seq) < near for other in around):
                return False
        elif len(levels) > 1:
            last, before = levels[-1], levels[-2]
            if before.is_full == last.is_full == level.is_full and last.seq - before.seq < near:
                levels[-1] = level
                return False
        levels.insert(place, level)
        oldest = levels[-1].seq - self._memory
        while len(levels) > 2 * KEPT or levels[0].seq < oldest:
            del levels[0]
        return True

    @property
    def _memory(self) -> float:
        """Calls that are looked back at."""
        return max(FEWEST_CALLS, self.rate * max(LATENCIES * self.latency, LEAST_SPAN))

    def _measure(self, history: CallHistory) -> None:
        levels = self.levels
        last = levels[-1]
        start = (
            next((at for at, level in enumerate(levels) if level.is_full), 0) if last.is_full else self._last_full + 1
        )
        first, between = levels[start], levels[start + 1 : -1]
        calls, span = history.accepted_calls(first.seq, last.seq), last.at - first.at
        if calls < TELLING or span <= 0.0:
            return
        if last.is_full:  # no less came in than was let in
            self.rate = max(self.rate, calls / span) if self.rate else 0.0
            return
        if all(level.left < 1.0 for level in levels[start:]):  # nothing tells whether it is a bucket at all
            self.rate = 0.0
            return
        if not self.rate and len(between) + 2 < FEWEST_LEVELS:
            return
        came_in = last.left - first.left + calls
        for level in between:
            so_far = level.left - first.left + history.accepted_calls(first.seq, level.seq)
            if abs(so_far - came_in * (level.at - first.at) / span) > UNEVEN + UNEVENLY * self.limit:
                self.rate = 0.0
                return
        if came_in > LEAST_REFILL * calls:
            self.rate = came_in / span

    @property
    def _last_full(self) -> int:
        """The place of the last level that was full; -1 where none was."""
        return next((at for at in range(len(self.levels) - 1, -1, -1) if self.levels[at].is_full), -1)

    def pace(self, seq: int, now: float) -> tuple[float, float]:
        """Calls a second, and the instant before which nothing is left. ``seq`` is the last call sent."""
        rate, last = self.rate, self.levels[-1]
        left = min(self.limit, last.left + rate * max(0.0, now - last.at) - (seq - last.seq))
        rise = (left - TARGET * self.limit) / self._memory
        if last.is_full:
            most = max(LEAST_RISE, min(ON_THE_WAY * self.limit / (rate * self.latency or 1.0), MOST_RISE))
            below = next((level for level in reversed(self.levels) if not level.is_full), self.levels[0])
            rise = max(rise, most * min(1.0, 2.0 * (last.seq - below.seq) / self._memory))
        pace = rate * max(SLOWEST, min(1.0 + rise, 1.0 + MOST_RISE))
        missing = 1.0 - left
        return pace, now + min(missing / rate, LONGEST_HOLD + 2.0 / rate) if missing > 0.0 else NEVER
