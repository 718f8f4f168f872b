"""The runs that can be seen from here, as numbers for metrics: looked at when somebody scrapes.

Of a run's keys the busiest have a name and the rest are one, called ``other``: their counts and paces are added up, of
their waits and latencies the worst is told. What a key has counted is followed from look to look, so that a total never
goes back when a key gains or loses its name.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .busiest import OTHER, Busiest, readable
from .snapshot import KeyLine, RunSnapshot
from .source import Source, Sources

log = logging.getLogger("headgate")

MOST_RUNS = 100
MOST_COUNTERS = 50
MOST_FOLLOWED = 2_000
"""Keys of one run whose counts are remembered; more than a snapshot shows."""
STATES = ("running", "paused", "stopping", "ended")
CIRCUITS = ("closed", "open", "half_open")
CREDENTIALS = ("free", "held", "resting", "retired")
COUNTED = {"headgate_key_calls": "sent", "headgate_key_refused": "refused", "headgate_key_failed": "failed"}
ADDED = {
    "headgate_key_calls_per_second": "rate",
    "headgate_key_said_calls_per_second": "said",
    "headgate_key_limit_calls_per_second": "limit",
    "headgate_key_in_flight": "in_flight",
    "headgate_key_waiting": "waiting",
}
WORST = {
    "headgate_key_latency_seconds": "latency",
    "headgate_key_latency_p95_seconds": "p95",
    "headgate_key_closed_seconds": "not_before",
}


class Number(NamedTuple):
    metric: str
    labels: Mapping[str, str]
    value: float


class RunMetrics:
    """Follows runs from look to look. Not safe for threads: whoever owns it has a lock."""

    def __init__(self, sources: Source | Sources) -> None:
        self._sources = sources
        self._following: dict[str, _Following] = {}

    def read(self) -> Iterator[Number]:
        looks = [snapshot for source in self._runs() if (snapshot := _look(source)) is not None]
        seen = {snapshot.run: snapshot for snapshot in reversed(looks)}  # one that can be seen in two ways is one
        self._following = {run: self._following.get(run) or _Following() for run in seen}
        for run, snapshot in seen.items():
            yield from _run(snapshot)
            yield from self._following[run].read(snapshot)

    def _runs(self) -> Sequence[Source]:
        runs = getattr(self._sources, "runs", None)
        return [self._sources] if runs is None else runs()[:MOST_RUNS]  # type: ignore[list-item]


def _look(source: Source) -> RunSnapshot | None:
    """A run may be over between being found and being looked at."""
    try:
        return source.snapshot()
    except Exception as error:
        log.debug("a run could not be looked at (%s)", type(error).__name__)
        return None


def _run(snapshot: RunSnapshot) -> Iterator[Number]:
    run, progress = {"run": readable(snapshot.run)}, snapshot.progress
    yield Number("headgate_run_info", run | {"title": readable(snapshot.title), "kind": readable(snapshot.kind)}, 1)
    for state in STATES:
        yield Number("headgate_run_state", run | {"state": state}, snapshot.state == state)
    yield Number("headgate_run_started_timestamp_seconds", run, snapshot.started_at)
    for state in ("done", "dead", "open", "in_flight", "parked"):
        yield Number("headgate_run_rows", run | {"state": state}, getattr(progress, state))
    if progress.total is not None:
        yield Number("headgate_run_rows_expected", run, progress.total)
    yield Number("headgate_run_rows_per_second", run, progress.rate)
    if progress.eta is not None:
        yield Number("headgate_run_eta_seconds", run, progress.eta)
    yield Number("headgate_run_tokens", run, progress.tokens)
    yield Number("headgate_run_cost", run, progress.cost)
    yield Number("headgate_run_blocked_rows", run, snapshot.blocked)
    yield Number("headgate_run_keys", run, len(snapshot.keys) + snapshot.more_keys)
    held = Counter(one.state for one in snapshot.credentials)
    for state in CREDENTIALS if snapshot.credentials else ():
        yield Number("headgate_run_credentials", run | {"state": state}, held[state])
    for name in list(snapshot.counters)[:MOST_COUNTERS]:
        yield Number("headgate_run_counter", run | {"name": readable(name)}, snapshot.counters[name])


class _Following:
    """One run's keys."""

    def __init__(self) -> None:
        self._names = Busiest()
        self._seen: dict[str, dict[str, int]] = {}
        """By key, what it had counted when it was last looked at."""
        self._totals: dict[tuple[str, str], int] = {}
        """By name and metric."""

    def read(self, snapshot: RunSnapshot) -> Iterator[Number]:
        lines = sorted(snapshot.keys, key=lambda line: -line.sent)
        named: dict[str, list[KeyLine]] = {}
        for line in lines:
            name = self._names.name(line.key, line.sent)
            named.setdefault(name, []).append(line)
            self._count(name, line)
        for lost in self._names.left:  # from now on it is one of the others
            for metric in COUNTED:
                self._totals.pop((lost, metric), None)
            named.setdefault(OTHER, []).extend(named.pop(lost, ()))
        self._names.left.clear()
        if len(self._seen) > MOST_FOLLOWED:
            self._seen = {line.key: self._seen[line.key] for line in lines}
        run = {"run": readable(snapshot.run)}
        for name, group in named.items():
            yield from _key(run | {"key": readable(name)}, group)
        for (name, metric), total in self._totals.items():
            yield Number(metric, run | {"key": readable(name)}, total)

    def _count(self, name: str, line: KeyLine) -> None:
        """What came on top since the last look; a key that was forgotten meanwhile starts from nothing."""
        before = self._seen.setdefault(line.key, {})
        for metric, field in COUNTED.items():
            now: int = getattr(line, field)
            then = before.get(field, 0)
            before[field] = now
            place = (name, metric)
            self._totals[place] = self._totals.get(place, 0) + (now - then if now >= then else now)


def _key(labels: dict[str, str], lines: list[KeyLine]) -> Iterator[Number]:
    """One key, or all the others together."""
    for metric, field in ADDED.items():
        known = [value for line in lines if (value := getattr(line, field)) is not None]
        if known:
            yield Number(metric, labels, sum(known))
    for metric, field in WORST.items():
        yield Number(metric, labels, max(getattr(line, field) for line in lines))
    states = Counter(line.circuit for line in lines)
    for state in CIRCUITS:
        yield Number("headgate_key_circuits", labels | {"state": state}, states[state])
    yield Number("headgate_key_ramp_ratio", labels, min(line.returning for line in lines))
