"""The history of keys: one sample a second, further apart the longer ago, of the busiest keys
and of those that a client shows.

    ├ · · · · · ┼ ·  ·  ·  ┼ · · · · · · · · · · · · · · ┤ now
      minutes      seconds         one a second

When a line is full, each two neighbours of its older half become one: a rate becomes their mean, a number of
waiters the higher one, a state the worse one. So an hour and a day have the same length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from .. import fork_safety
from .snapshot import KeyLine, Timeline

EVERY = 1.0
"""Seconds between two samples."""
MOST_TIMELINES = 50
MOST_WANTED = 20
"""Keys that keep a place because they are looked at, however little goes on ..."""
WANTED_FOR = 30.0
"""... for so many seconds after they were last asked for."""
MOST_SAMPLES = 600
MOST_SHOWN = 300
"""Samples of one line that are shown at once."""
FADES = 0.9
"""What is left of a key's importance from one instant to the next."""
STATES = ("open", "ramp", "held", "circuit")
"""What a key may be doing, the worst last."""


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    rate: float
    said: float | None
    done: float
    refused: float
    latency: float
    waiting: int
    state: str


@dataclass(slots=True)
class KeyHistory:
    """One key."""

    samples: list[Sample] = field(default_factory=list)
    done: int = 0
    refused: int = 0
    sent: int = 0
    """As it was counted at the last instant."""
    importance: float = 0.0


class History:
    """Safe for threads."""

    def __init__(self) -> None:
        self._histories: dict[str, KeyHistory] = {}
        self._wanted: dict[str, float] = {}
        """When they were asked for, the last one last."""
        self._at = -inf
        self._lock = fork_safety.lock()

    def is_due(self, at: float) -> bool:
        return not self._at <= at < self._at + EVERY  # also where the clock was set back

    def add(self, at: float, keys: Iterable[KeyLine]) -> None:
        """Record the state of these keys at this instant (Unix time), if a record is due."""
        with self._lock:
            if self.is_due(at):
                self._add_all(at, keys)

    def _add_all(self, at: float, keys: Iterable[KeyLine]) -> None:
        passed = min(max(at - self._at, EVERY), 3600.0)
        self._at = at
        self._wanted = {key: since for key, since in self._wanted.items() if at - since < WANTED_FOR}
        for history in self._histories.values():
            history.importance *= FADES
        others = []
        for line in keys:
            known = self._histories.get(line.key)
            if known is None:
                others.append(line)
            else:
                self._add(known, line, at, passed)
        for line in sorted(others, key=self._worth, reverse=True):
            new = self._begin(line)
            if new is None:
                break
            self._add(new, line, at, passed)

    def _worth(self, line: KeyLine) -> float:
        return inf if line.key in self._wanted else line.waiting + line.in_flight

    def _begin(self, line: KeyLine) -> KeyHistory | None:
        """Begin the history of a key; where there are too many, it replaces the least important one or is left out."""
        if len(self._histories) >= MOST_TIMELINES:
            unwanted = (key for key in self._histories if key not in self._wanted)
            least = min(unwanted, key=lambda key: self._histories[key].importance)
            if self._histories[least].importance >= self._worth(line):
                return None
            del self._histories[least]
        history = self._histories[line.key] = KeyHistory(done=line.done, refused=line.refused, sent=line.sent)
        return history

    def _add(self, history: KeyHistory, line: KeyLine, at: float, passed: float) -> None:
        before = history.done, history.refused, history.sent
        history.done, history.refused, history.sent = line.done, line.refused, line.sent
        done, refused, sent = (
            max(0, now - then if now >= then else now)  # a key that was forgotten counts from 0 again
            for now, then in zip((line.done, line.refused, line.sent), before, strict=True)
        )
        history.importance += sent + line.waiting + line.in_flight
        paces = done / passed, refused / passed
        history.samples.append(Sample(at, line.rate, line.said, *paces, line.latency, line.waiting, state_of(line)))
        if len(history.samples) >= MOST_SAMPLES:
            older, newer = history.samples[: MOST_SAMPLES // 2], history.samples[MOST_SAMPLES // 2 :]
            history.samples = thinned(older, 2) + newer

    def want(self, keys: Iterable[str]) -> None:
        """Keep these: they have a place from the next instant on."""
        with self._lock:
            for key in keys:
                self._wanted.pop(key, None)
                self._wanted[key] = self._at
            for key in list(self._wanted)[:-MOST_WANTED]:
                del self._wanted[key]

    def keys(self) -> list[str]:
        """The most important first."""
        with self._lock:
            return sorted(self._histories, key=lambda key: -self._histories[key].importance)

    def timelines(self, keys: Sequence[str], since: float, most: int = MOST_SHOWN) -> list[Timeline]:
        """Those of these keys that have one, with what came after ``since`` (Unix time)."""
        with self._lock:
            chosen = {key: self._histories[key].samples for key in keys if key in self._histories}
            new = {key: samples[bisect_right(samples, since, key=_instant) :] for key, samples in chosen.items()}
        return [timeline(key, thinned(samples, -(-len(samples) // most))) for key, samples in new.items()]


def _instant(sample: Sample) -> float:
    return sample.at


def state_of(line: KeyLine) -> str:
    if line.circuit != "closed":
        return "circuit"
    if line.not_before > 0:
        return "held"
    return "ramp" if line.returning < 1 else "open"


def thinned(samples: list[Sample], by: int) -> list[Sample]:
    """Each ``by`` neighbours as one."""
    if by <= 1:
        return samples
    return [_one(samples[first : first + by]) for first in range(0, len(samples), by)]


def _one(some: list[Sample]) -> Sample:
    count, last = len(some), some[-1]
    return Sample(
        at=last.at,
        rate=sum(one.rate for one in some) / count,
        said=last.said,
        done=sum(one.done for one in some) / count,
        refused=sum(one.refused for one in some) / count,
        latency=sum(one.latency for one in some) / count,
        waiting=max(one.waiting for one in some),
        state=max((one.state for one in some), key=STATES.index),
    )


def timeline(key: str, samples: list[Sample]) -> Timeline:
    return Timeline(
        key=key,
        at=tuple(round(one.at, 3) for one in samples),
        rate=tuple(round(one.rate, 4) for one in samples),
        said=tuple(one.said for one in samples),
        done=tuple(round(one.done, 3) for one in samples),
        refused=tuple(round(one.refused, 3) for one in samples),
        latency=tuple(round(one.latency, 5) for one in samples),
        waiting=tuple(one.waiting for one in samples),
        state=tuple(one.state for one in samples),
    )
