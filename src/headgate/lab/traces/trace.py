"""A recording of a run: every call as it ended, and what was learned meanwhile.

One JSON object a line, so that a recording can be read while it is written, and one that was
broken off is still good up to its last line:

    {"headgate_trace": 1, "recorded_at": "2026-11-15T08:45:22Z", "calls": 3000, "workers": 48, "keys": 3}
    {"sent_at": 0.0312, "latency": 0.0418, "status": 200, "waited": 0.0, "key": 1, "credential": "key-1"}
    {"sent_at": 4.1021, "latency": 0.0034, "status": 429, "waited": 0.118, "key": 2, "credential": "key-2"}
    {"at": 4.2, "learned": 96.4, "key": 1}
    {"ended_at": 28.114}

A ``Recording`` of a limiter (``replay.py``) says more, enough to decide everything once more:

    {"sent_at": 4.102100731, "latency": 0.003411, "status": 429, "waited": 0.118, "key": 2, "told": {"number": 57,
        "outcome": "rate_limited", "at": 4.105511, "draw": 0.31, "limits": [{"limit": 50, "remaining": 0}]}}
    {"at": 4.105511, "circuit": "open", "key": 2}

Times are seconds since the recording began; status 0 is a call that got no answer; ``retry_after`` is there where
the server said so. Keys are numbers in the order in which they were first used; a call made with a credential
tells its label. No address, host or secret goes into a recording. ``reader.py`` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from ...config import RateLimitConfig
from ...core.signal import Limit

VERSION = 1
TOO_MANY = 429
MOST_LINES = 2_000_000
MOST_KEYS = 1_000
MOST_LIMITS = 4
"""Of one answer; more are left out."""
EXACTLY = 9
"""Digits of a second, and of a pace, where all is to be decided once more."""
RELEASED = "released"
LONGEST_SCOPE = 100
USUALLY_OPEN_FOR = RateLimitConfig().open_state_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What was asked of the run that is recorded."""

    calls: int
    """Items to get done; calls that were refused and sent again are still one."""
    workers: int
    keys: int = 1
    open_for: float = USUALLY_OPEN_FOR
    """Seconds for which the circuit stayed open before a probe."""
    recorded_at: str = ""


class Told(NamedTuple):
    """What was told of a call that has ended, where all of it is recorded."""

    outcome: str
    """One of ``Outcome``; RELEASED if that is unknown."""
    at: float
    """When the limiter heard of it."""
    number: int
    """Among the calls of its key, in the order in which they were let through."""
    draw: float = 0.0
    limits: tuple[Limit, ...] = ()
    scope: str | None = None
    cost: float | Mapping[str, float] = 1


class Call(NamedTuple):
    sent_at: float
    latency: float
    status: int
    """0 if no answer came."""
    waited: float = 0.0
    """Seconds at the gate before it was sent."""
    key: int = 1
    retry_after: float | None = None
    told: Told | None = None

    @property
    def is_served(self) -> bool:
        """Answered, in whatever way: an answer of 404 has used the quota too."""
        return 200 <= self.status < 500 and self.status != TOO_MANY


class Learned(NamedTuple):
    at: float
    rate: float
    key: int = 1


class Circuit(NamedTuple):
    """A circuit has changed."""

    at: float
    state: str
    key: int = 1


@dataclass(slots=True)
class Trace:
    heading: Heading
    calls: list[Call] = field(default_factory=list)
    """In the order in which they ended."""
    learned: list[Learned] = field(default_factory=list)
    ended_at: float = 0.0
    """When the run ended; where the recording breaks off, when its last call did."""
    is_whole: bool = False
    """Whether it was written to its end."""
    labels: dict[int, str] = field(default_factory=dict)
    """The credential that each key is of, as far as that is recorded."""
    circuits: list[Circuit] = field(default_factory=list)


OfKey = TypeVar("OfKey", Call, Learned, Circuit)


def by_key(facts: Iterable[OfKey]) -> dict[int, list[OfKey]]:
    keys: dict[int, list[OfKey]] = {}
    for fact in facts:
        keys.setdefault(fact.key, []).append(fact)
    return keys


class TraceWriter:
    """Writes a recording line by line; each is in the file before the next one is made.

    A disk that is full must not cost the run: what went wrong is kept in ``trouble``, and nothing
    more is written.
    """

    def __init__(self, path: Path, heading: Heading) -> None:
        """Raises ``OSError`` if the file cannot be opened."""
        self.trouble: OSError | None = None
        self._lines = 0
        self._keys: dict[str, int] = {}
        self._file: TextIO = path.open("w", encoding="ascii", buffering=1)
        recorded_at = heading.recorded_at or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._write(
            {
                "headgate_trace": VERSION,
                "recorded_at": recorded_at,
                "calls": heading.calls,
                "workers": heading.workers,
                "keys": heading.keys,
                "open_for": heading.open_for,
            }
        )

    def call(
        self,
        key: str,
        sent_at: float,
        latency: float,
        status: int,
        waited: float,
        retry_after: float | None,
        credential: str | None = None,
        told: Told | None = None,
    ) -> None:
        """``credential`` is the label of the one that was used, never the secret."""
        digits = 4 if told is None else EXACTLY
        line: dict[str, Any] = {
            "sent_at": round(sent_at, digits),
            "latency": round(latency, digits),
            "status": status,
            "waited": round(waited, digits),
            "key": self._number(key),
        }
        if credential is not None:
            line["credential"] = credential
        if retry_after is not None:
            line["retry_after"] = round(retry_after, 3 if told is None else EXACTLY)
        if told is not None:
            line["told"] = _told(told)
        self._write(line)

    def learned(self, key: str, at: float, rate: float, digits: int = 3) -> None:
        self._write({"at": round(at, digits), "learned": round(rate, digits), "key": self._number(key)})

    def circuit(self, key: str, at: float, state: str) -> None:
        self._write({"at": round(at, EXACTLY), "circuit": state, "key": self._number(key)})

    def end(self, at: float) -> None:
        """The run is over; nothing can be written after this."""
        self._write({"ended_at": round(at, 3)}, last=True)
        try:
            self._file.close()
        except OSError as error:
            self.trouble = self.trouble or error

    def _number(self, key: str) -> int:
        return self._keys.setdefault(key, min(len(self._keys) + 1, MOST_KEYS))

    def _write(self, line: dict[str, Any], *, last: bool = False) -> None:
        if self.trouble is not None or self._file.closed or (self._lines >= MOST_LINES - 1 and not last):
            return
        self._lines += 1
        try:
            self._file.write(json.dumps(line) + "\n")
        except OSError as error:
            self.trouble = error


def _told(told: Told) -> dict[str, Any]:
    """What is usual is left out."""
    facts: dict[str, Any] = {"outcome": told.outcome, "at": round(told.at, EXACTLY), "number": told.number}
    if told.draw:
        facts["draw"] = told.draw
    if told.limits:
        facts["limits"] = [
            {name: value for name, value in asdict(limit).items() if value is not None and name != "name"}
            for limit in told.limits[:MOST_LIMITS]
        ]
    if told.scope:
        facts["scope"] = told.scope[:LONGEST_SCOPE]
    if told.cost != 1:
        facts["cost"] = dict(told.cost) if isinstance(told.cost, Mapping) else told.cost
    return facts
