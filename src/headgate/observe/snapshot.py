"""A run at one moment: the one shape that pages, terminals, files and ``/api/snapshot`` show.

A snapshot is plain data without a secret in it: credentials are labels, keys are what events call them. It is small
whatever the run's size: every list has a bound, and what did not fit is counted.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

from ..limiter.key_lines import KeyLine as KeyLine
from ..limiter.key_lines import WaitLine as WaitLine

try:
    from orjson import dumps as _orjson_dumps
except ImportError:
    _orjson_dumps = None  # type: ignore[assignment]

T = TypeVar("T")

SCHEMA = 1
"""Grows when a field changes its meaning or goes; new fields may come at any time."""
MOST_KEYS = 1_000
MOST_CREDENTIALS = 1_000
MOST_WAITS = 20
MOST_DEAD = 20
MOST_MEMBERS = 100
STALE = 15.0
"""Seconds without a new snapshot after which a run counts as one that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressLine:
    total: int | None = None
    """Rows or pages in all, where that is known."""
    done: int = 0
    dead: int = 0
    open: int = 0
    """Seen and not finished."""
    in_flight: int = 0
    parked: int = 0
    rate: float = 0.0
    """Finished a second, recently."""
    eta: float | None = None
    """Seconds to go, where that can be said."""
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialLine:
    label: str
    mark: str
    """Six hex digits that tell apart credentials of one label."""
    provider: str = ""
    group: str = ""
    state: str = "free"
    """free, held, resting or retired."""
    rests: float = 0.0
    """Seconds until it is back."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLine:
    reason: str
    count: int
    example: str = ""
    """The name or number of one such row."""
    remedy: str = ""
    """What to do about it, as a code: check_address, check_key, ...; empty where nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLine:
    """One worker of a fleet run."""

    name: str
    """Its process and machine: ``1234@host``."""
    host: str = ""
    state: str = "working"
    """working, or lost: it has not reported for some seconds."""
    done: int = 0
    failed: int = 0
    rate: float = 0.0
    in_flight: int = 0
    refused: int = 0
    """429s."""
    tokens: int = 0
    cost: float = 0.0
    seen_ago: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    run: str
    """A name that no other run has."""
    title: str
    kind: str
    """run, crawl, demo, fleet or program."""
    pid: int
    host: str
    started_at: float
    at: float
    """Unix time."""
    state: str = "running"
    """running, paused, stopping or ended."""
    silent: bool = False
    """Whether it does not answer: it lives, and has not written a snapshot for long. The reader finds that out."""
    ending: str = ""
    """How it ended: done, stopped (before its end), failed (by an error), or lost: its process is gone without having
    said so, which the reader finds out. Empty while it goes."""
    progress: ProgressLine = field(default_factory=ProgressLine)
    waits: tuple[WaitLine, ...] = ()
    blocked: int = 0
    """Rows, pages or callers behind all of these, each counted once."""
    keys: tuple[KeyLine, ...] = ()
    more_keys: int = 0
    charted: tuple[str, ...] = ()
    """The keys that have a time line, those with the most going on first."""
    credentials: tuple[CredentialLine, ...] = ()
    dead: tuple[DeadLine, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    waited: Mapping[str, float] = field(default_factory=dict)
    """Seconds that rows or pages have waited so far, added up, by what for."""
    store: str = ""
    """Where quotas are shared, and whether that can be reached; empty if they are not."""
    members: tuple[MemberLine, ...] = ()
    """The workers of a fleet, lost ones first; other runs have none."""
    more_members: int = 0
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """One thing that happened, as a person reads it."""

    number: int
    """Of this run's events, from 1; a gap says that some were left out."""
    at: float
    """Unix time."""
    kind: str
    key: str = ""
    reason: str = ""
    """A sentence."""
    code: str = ""
    """... and its reason in a word, where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """How one key has been going: one entry for each instant, the oldest first."""

    key: str
    at: tuple[float, ...] = ()
    """Unix time."""
    rate: tuple[float, ...] = ()
    said: tuple[float | None, ...] = ()
    done: tuple[float, ...] = ()
    """Calls that succeeded, a second."""
    refused: tuple[float, ...] = ()
    """429s a second."""
    latency: tuple[float, ...] = ()
    waiting: tuple[int, ...] = ()
    state: tuple[str, ...] = ()
    """open, circuit, held, ramp: what the key was doing."""

    def after(self, since: float) -> Timeline:
        """The part after that instant (Unix time), without it."""
        first = bisect_right(self.at, since)
        if first == 0:
            return self
        columns = {one.name: getattr(self, one.name)[first:] for one in fields(self) if one.name != "key"}
        return Timeline(key=self.key, **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What an operator wants: pause, resume, stop, park, free, limit."""

    kind: str
    target: str = ""
    """A credential's label and mark (``label/mark``), or a key."""
    value: float | None = None
    """Seconds to park for, or calls a second."""


def from_fields(kind: type[T], told: Mapping[str, Any]) -> T:
    """A line from its JSON; fields that are not known are left out."""
    known = {one.name for one in fields(kind)}  # type: ignore[arg-type]  # all of them are dataclasses
    return kind(**{name: tuple(one) if isinstance(one, list) else one for name, one in told.items() if name in known})


def is_silent(snapshot: RunSnapshot, now: float) -> bool:
    """``now`` is Unix time."""
    return snapshot.state != "ended" and now - snapshot.at > STALE


def plain(value: Any) -> Any:
    """A snapshot as dicts, lists, numbers and texts."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value


def to_json(value: Any) -> bytes:
    """JSON that every browser and version of this program reads, in one line: numbers that are not finite are null.

    ``orjson`` writes a thousand keys in about a millisecond and is used where it is installed; what it does not write
    (half a surrogate pair, a number of a hundred digits) the standard library does.
    """
    if _orjson_dumps is not None:
        try:
            return _orjson_dumps(value, default=plain)
        except TypeError:
            pass
    try:
        return _json_dumps(value)
    except ValueError:
        return _json_dumps(finite(plain(value)))


def _json_dumps(value: Any) -> bytes:
    return json.dumps(value, default=_shallow, allow_nan=False, separators=(",", ":")).encode("ascii")


def _shallow(value: Any) -> Any:
    """One level only: the encoder is far quicker at the rest."""
    names = _field_names(value.__class__)
    return {name: getattr(value, name) for name in names} if names else plain(value)


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()


def finite(value: Any) -> Any:
    """What ``plain`` returns, with None for infinity and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---------------------------------------------------------------------- runs in this process, or read from files


class ActionRefusedError(Exception):
    """An action cannot be done; the message tells the operator why."""


class MonitoredRun(Protocol):
    """One run. Safe for threads; every call is cheap enough to be made a few times a second."""

    def snapshot(self) -> RunSnapshot:
        """Its state; once it has ended, how it ended."""
        ...

    def events(self, after: int, most: int = 200) -> Sequence[EventLine]:
        """The newest events after that number, the oldest of them first; bounded."""
        ...

    def timelines(self, keys: Sequence[str], since: float) -> Sequence[Timeline]:
        """The history of these keys since then (Unix time), for a chart; at most a few hundred instants each."""
        ...

    def act(self, action: Action) -> str:
        """Do what an operator wants; returns a sentence that says what was done. Raises ``ActionRefusedError``."""
        ...


class MonitoredRuns(Protocol):
    """All runs that can be seen from here."""

    def runs(self) -> Sequence[MonitoredRun]: ...
