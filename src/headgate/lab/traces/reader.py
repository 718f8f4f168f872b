"""Read a recording that another program may have written, or that a killed run has left unfinished.

Numbers beyond their bounds are refused with the line they stand in, but for the last line: that is
where a killed run breaks off, so it is passed over if anything is wrong with it. Fields that are not
known are passed over, so that later versions may say more; ones that older versions did not write may be missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...core.decision import CircuitState, Outcome
from ...core.signal import Limit
from ...credentials.credential import LONGEST_LABEL
from .trace import (
    LONGEST_SCOPE,
    MOST_KEYS,
    MOST_LIMITS,
    MOST_LINES,
    RELEASED,
    USUALLY_OPEN_FOR,
    VERSION,
    Call,
    Circuit,
    Heading,
    Learned,
    Told,
    Trace,
)

MOST_SERVED = 1_000_000
"""Calls that got an answer which a recording may have: as many items as can wait for the workers of a simulation."""
LONGEST_LINE = 1_000
"""Bytes; lines of our own have about 120."""
MOST_CALLS = 10_000_000
MOST_WORKERS = 100_000
LONGEST_TIME = 31 * 86400.0
FASTEST = 1e9
"""Calls a second that may be said to have been learned."""
MOST_LIMITED = 1e18
"""What a server may be said to allow, of whatever it counts."""
_OUTCOMES = (*(outcome.value for outcome in Outcome), RELEASED)
_STATES = tuple(state.value for state in CircuitState)


class TraceError(ValueError):
    """This is not a recording that can be read: which line, and what is wrong with it."""


def read_trace(path: Path) -> Trace:
    """Read a recording; raises ``OSError`` or ``TraceError``.

    A last line that is broken is passed over: that is how a killed run ends.
    """
    with path.open("rb") as file:
        trace = Trace(_heading(_first_line(path, file)))
        for number in range(2, MOST_LINES + 2):
            line = file.readline(LONGEST_LINE + 1)
            if not line:
                break
            if number > MOST_LINES:
                raise TraceError(f"{path} has more than {MOST_LINES:,} lines; split the recording")
            try:
                _take(trace, _read_line(path, number, line))
            except TraceError:
                if _goes_on(file, line):
                    raise
                trace.is_whole = False
    if sum(call.is_served for call in trace.calls) > MOST_SERVED:
        raise TraceError(f"{path} has more than {MOST_SERVED:,} served calls; simulate a shorter recording")
    trace.ended_at = max(
        trace.ended_at,
        max((call.sent_at + call.latency for call in trace.calls), default=0.0),
        trace.learned[-1].at if trace.learned else 0.0,
    )
    return trace


class _Line(NamedTuple):
    path: Path
    number: int
    facts: dict[str, Any]

    def wrong(self, what: str) -> TraceError:
        return TraceError(f"{self.path}, line {self.number}: {what}")

    def value(self, name: str, low: float, high: float, default: float | None = None) -> float:
        value = self.facts.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            found = "is missing" if value is None else f"is {str(value)[:40]!r}"
            raise self.wrong(f"{name} {found}; expected a number from {low:,g} to {high:,g}")
        return float(value)

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self.value(name, low, high, default)
        if value != math.floor(value):
            raise self.wrong(f"{name} is {value:g}; expected a whole number")
        return int(value)


def _first_line(path: Path, file: BinaryIO) -> _Line:
    try:
        line = _read_line(path, 1, file.readline(LONGEST_LINE + 1))
    except TraceError:
        line = None
    if line is None or "headgate_trace" not in line.facts:
        raise TraceError(f"{path} is not a recording; `headgate demo --trace FILE` makes one")
    return line


def _read_line(path: Path, number: int, line: bytes) -> _Line:
    if len(line) > LONGEST_LINE:
        raise TraceError(f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes")
    try:
        facts = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise TraceError(f"{path}, line {number}: not JSON") from None
    if not isinstance(facts, dict):
        raise TraceError(f"{path}, line {number}: not a JSON object")
    return _Line(path, number, facts)


def _goes_on(file: BinaryIO, line: bytes) -> bool:
    """Whether another line comes after this one, which may not have been read to its end."""
    while line and not line.endswith(b"\n"):
        line = file.readline(LONGEST_LINE)
    return bool(file.read(1))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not valid JSON")


def _heading(line: _Line) -> Heading:
    version = line.whole("headgate_trace", 0, 10**6)
    if version != VERSION:
        raise line.wrong(f"a recording of version {version}; this headgate reads version {VERSION}")
    recorded_at = line.facts.get("recorded_at", "")
    return Heading(
        calls=line.whole("calls", 1, MOST_CALLS),
        workers=line.whole("workers", 1, MOST_WORKERS),
        keys=line.whole("keys", 1, MOST_KEYS, 1),
        open_for=max(line.value("open_for", 0.0, LONGEST_TIME, USUALLY_OPEN_FOR), 0.001),
        recorded_at=recorded_at[:40] if isinstance(recorded_at, str) and recorded_at.isprintable() else "",
    )


def _take_call(trace: Trace, line: _Line) -> None:
    told, key, label = line.facts.get("retry_after"), line.whole("key", 1, MOST_KEYS, 1), line.facts.get("credential")
    if isinstance(label, str) and label.isprintable():
        trace.labels.setdefault(key, label[:LONGEST_LABEL])
    trace.calls.append(
        Call(
            sent_at=line.value("sent_at", 0.0, LONGEST_TIME),
            latency=line.value("latency", 0.0, LONGEST_TIME),
            status=line.whole("status", 0, 999),
            waited=line.value("waited", 0.0, LONGEST_TIME, 0.0),
            key=key,
            retry_after=None if told is None else line.value("retry_after", 0.0, LONGEST_TIME),
            told=_told(line),
        )
    )


def _told(line: _Line) -> Told | None:
    """What was told of the call, where all of it is recorded."""
    facts = line.facts.get("told")
    if facts is None:
        return None
    if not isinstance(facts, dict) or facts.get("outcome") not in _OUTCOMES:
        raise line.wrong(f"told must have an outcome: one of {', '.join(_OUTCOMES)}")
    inner, scope, cost = line._replace(facts=facts), facts.get("scope"), facts.get("cost", 1)
    if isinstance(cost, dict):
        costs = line._replace(facts=cost)
        cost = {str(name)[:LONGEST_SCOPE]: costs.value(name, 0.0, FASTEST) for name in list(cost)[:MOST_LIMITS]}
    else:
        cost = inner.value("cost", 0.0, FASTEST, 1)
    limits = facts.get("limits", [])
    if not isinstance(limits, list) or not all(isinstance(one, dict) for one in limits):
        raise line.wrong("limits must be a list of objects")
    return Told(
        outcome=facts["outcome"],
        at=inner.value("at", 0.0, 2 * LONGEST_TIME),
        number=inner.whole("number", 0, MOST_CALLS * MOST_KEYS),
        draw=inner.value("draw", 0.0, 1.0, 0.0),
        limits=tuple(_limit(line._replace(facts=one)) for one in limits[:MOST_LIMITS]),
        scope=scope[:LONGEST_SCOPE] if isinstance(scope, str) else None,
        cost=cost,
    )


def _limit(line: _Line) -> Limit:
    dimension = line.facts.get("dimension", "requests")

    def value(name: str, most: float) -> float | None:
        return None if line.facts.get(name) is None else line.value(name, 0.0, most)

    return Limit(
        dimension=str(dimension)[:LONGEST_SCOPE],
        limit=value("limit", MOST_LIMITED),
        remaining=value("remaining", MOST_LIMITED),
        reset=value("reset", LONGEST_TIME),
        window=value("window", LONGEST_TIME),
    )


def _take_circuit(trace: Trace, line: _Line) -> None:
    state = line.facts["circuit"]
    if state not in _STATES:
        raise line.wrong(f"circuit must be one of {', '.join(_STATES)}")
    trace.circuits.append(Circuit(line.value("at", 0.0, LONGEST_TIME), state, line.whole("key", 1, MOST_KEYS, 1)))


def _take_learned(trace: Trace, line: _Line) -> None:
    at = line.value("at", trace.learned[-1].at if trace.learned else 0.0, LONGEST_TIME)
    trace.learned.append(Learned(at, line.value("learned", 0.0, FASTEST), line.whole("key", 1, MOST_KEYS, 1)))


def _take_end(trace: Trace, line: _Line) -> None:
    trace.ended_at = line.value("ended_at", 0.0, LONGEST_TIME)
    trace.is_whole = True


_KINDS: dict[str, Callable[[Trace, _Line], None]] = {
    "sent_at": _take_call,
    "learned": _take_learned,
    "circuit": _take_circuit,
    "ended_at": _take_end,
}


def _take(trace: Trace, line: _Line) -> None:
    """A line is known by the one field that no other kind has."""
    for name, take in _KINDS.items():
        if name in line.facts:
            if trace.is_whole:
                raise line.wrong("the line with ended_at must be the last")
            return take(trace, line)
    raise line.wrong(f"not a call, a learned rate or the end: it has none of {', '.join(_KINDS)}")
