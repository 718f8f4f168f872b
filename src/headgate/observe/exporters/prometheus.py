"""Prometheus: a collector over what runs here, and counts of what happens.

    metrics = Prometheus(sources)                  # runs, looked at on each scrape; may be left out
    metrics.instrument(limiter)                    # every call and event of a limiter, runner, crawler or manager
    metrics.listen_to(monitor)                     # ... or of a run in this process: calls from the first scrape on
    metrics.text()                                 # what /metrics answers, of type CONTENT_TYPE
    metrics.register(registry)                     # or into a registry of yours, beside your own metrics

As a listener of a hub it takes every kind of event. ``metrics.py`` lists all metrics.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ... import fork_safety
from ...events import EventRecord, PublicEvent
from ...limiter.events import CallObserver, EndedCall
from ..hub import EventEmitter, add_listener, limiter_of
from ..snapshot import KeyLine, MonitoredRun, MonitoredRuns, RunSnapshot
from .metrics import (
    BOUNDS,
    METRICS,
    OTHER,
    Counters,
    Histogram,
    LabelNames,
    MetricInfo,
    Number,
    count_event,
    is_counted,
    readable,
)

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError("metrics for Prometheus need prometheus-client: pip install 'headgate[metrics]'") from error

if TYPE_CHECKING:
    from ...limiter import AdaptiveRateLimiter
    from ..monitor import RunMonitor

CONTENT_TYPE = CONTENT_TYPE_LATEST

_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


class Prometheus(CallObserver, Collector):
    """Takes events and calls, and is a collector. Safe for threads."""

    takes_records = True
    wants = staticmethod(is_counted)

    def __init__(self, sources: MonitoredRun | MonitoredRuns | None = None) -> None:
        self._runs = None if sources is None else RunMetrics(sources)
        self._counters = Counters()
        self._listens = False
        self._unobserved: AdaptiveRateLimiter | None = None
        """Its calls are counted from the first scrape on."""
        self.inbox: deque[EndedCall] = deque()
        self._lock = fork_safety.lock()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    # ------------------------------------------------------------------ taking

    def __call__(self, event: EventRecord | PublicEvent) -> None:
        """Count an event of any kind."""
        count_event(event, self._counters.add)

    def take_inbox(self) -> None:
        self._counters.take_calls(self.inbox)

    def instrument(self, owner: EventEmitter) -> None:
        """Count every call of this limiter, or of the limiter behind a runner, crawler or manager, and their events."""
        limiter = limiter_of(owner)
        self._listens = True
        if self not in limiter.events.observers:
            limiter.watch(self)
            add_listener(limiter, self)
        if owner is not limiter:
            add_listener(owner, self)

    def listen_to(self, monitor: RunMonitor) -> None:
        """Count every event of a run in this process and of its credentials, and from the first scrape on every call:
        without a scrape, calls cost no more for it."""
        self._listens = True
        monitor.hub.add(self)
        if monitor.keys is not None:
            self._unobserved = monitor.keys.limiter

    # ------------------------------------------------------------------ giving

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def register(self, registry: CollectorRegistry) -> None:
        """Be scraped with all else that is in there."""
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """What there may be, without looking."""
        return (_family(info) for info in METRICS)

    def collect(self) -> Iterator[Metric]:
        """Metrics without a value are left out, unless it listens to a part: then they have their name and type."""
        with self._lock:
            limiter, self._unobserved = self._unobserved, None
            if limiter is not None and self not in limiter.events.observers:
                limiter.watch(self)
        families = {info.name: _family(info) for info in METRICS}
        self._add_calls(families)
        numbers = list(self._counters.read())
        if self._runs is not None:
            with self._lock:  # two scrapes may come at once
                numbers += self._runs.read()
        for metric, labels, value in numbers:
            families[metric].add_metric(labels, value)
        return (family for family in families.values() if family.samples or self._listens)

    def _add_calls(self, families: dict[str, Any]) -> None:
        self.take_inbox()
        with self._counters.lock:
            for key, counts in self._counters.calls.items():
                name = readable(key)
                for outcome, count in counts.outcomes.items():
                    families["headgate_calls"].add_metric([name, outcome.value], count)
                _add_spread(families["headgate_call_duration_seconds"], name, counts.latency)
                _add_spread(families["headgate_permit_wait_seconds"], name, counts.waited)


def _family(info: MetricInfo) -> Any:
    return _FAMILIES[info.kind](info.name, info.says, labels=info.labels)


def _add_spread(family: Any, key: str, spread: Histogram) -> None:
    buckets, so_far = [], 0
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], spread.counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    family.add_metric([key], buckets, spread.total)


# ---------------------------------------------------------------------- runs as numbers
# The runs that can be seen from here, as numbers for metrics: read on each scrape.


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


class RunMetrics:
    """Follows runs from scrape to scrape. Not safe for threads: its owner has a lock."""

    def __init__(self, sources: MonitoredRun | MonitoredRuns) -> None:
        self._sources = sources
        self._totals_of: dict[str, _KeyTotals] = {}

    def read(self) -> Iterator[Number]:
        found = [snapshot for source in self._runs() if (snapshot := _snapshot_of(source)) is not None]
        seen = {snapshot.run: snapshot for snapshot in reversed(found)}  # one that is reached in two ways is one
        self._totals_of = {run: self._totals_of.get(run) or _KeyTotals() for run in seen}
        for run, snapshot in seen.items():
            yield from _run(snapshot)
            yield from self._totals_of[run].read(snapshot)

    def _runs(self) -> Sequence[MonitoredRun]:
        runs = getattr(self._sources, "runs", None)
        return [self._sources] if runs is None else runs()[:MOST_RUNS]  # type: ignore[list-item]


def _snapshot_of(source: MonitoredRun) -> RunSnapshot | None:
    """A run may be over between being found and being read."""
    try:
        return source.snapshot()
    except Exception as error:
        log.debug("cannot read a run (%s)", type(error).__name__)
        return None


def _run(snapshot: RunSnapshot) -> Iterator[Number]:
    run, progress = readable(snapshot.run), snapshot.progress
    yield Number("headgate_run_info", (run, readable(snapshot.title), readable(snapshot.kind)), 1)
    for state in STATES:
        yield Number("headgate_run_state", (run, state), snapshot.state == state)
    yield Number("headgate_run_started_timestamp_seconds", (run,), snapshot.started_at)
    for state in ("done", "dead", "open", "in_flight", "parked"):
        yield Number("headgate_run_rows", (run, state), getattr(progress, state))
    if progress.total is not None:
        yield Number("headgate_run_rows_expected", (run,), progress.total)
    yield Number("headgate_run_rows_per_second", (run,), progress.rate)
    if progress.eta is not None:
        yield Number("headgate_run_eta_seconds", (run,), progress.eta)
    yield Number("headgate_run_tokens", (run,), progress.tokens)
    yield Number("headgate_run_cost", (run,), progress.cost)
    yield Number("headgate_run_blocked_rows", (run,), snapshot.blocked)
    yield Number("headgate_run_keys", (run,), len(snapshot.keys) + snapshot.more_keys)
    held = Counter(one.state for one in snapshot.credentials)
    for state in CREDENTIALS if snapshot.credentials else ():
        yield Number("headgate_run_credentials", (run, state), held[state])
    for name in list(snapshot.counters)[:MOST_COUNTERS]:
        yield Number("headgate_run_counter", (run, readable(name)), snapshot.counters[name])


class _KeyTotals:
    """The keys of one run, whose counts only grow, whichever of them have a name."""

    def __init__(self) -> None:
        self._names = LabelNames()
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
        for lost in self._names.lost:  # from now on it is one of the others
            for metric in COUNTED:
                self._totals.pop((lost, metric), None)
            named.setdefault(OTHER, []).extend(named.pop(lost, ()))
        self._names.lost.clear()
        if len(self._seen) > MOST_FOLLOWED:
            self._seen = {line.key: self._seen[line.key] for line in lines}
        run = readable(snapshot.run)
        for name, group in named.items():
            yield from _key((run, readable(name)), group)
        for (name, metric), total in self._totals.items():
            yield Number(metric, (run, readable(name)), total)

    def _count(self, name: str, line: KeyLine) -> None:
        """Add what was counted since the last scrape; a key that was evicted meanwhile starts at zero."""
        before = self._seen.setdefault(line.key, {})
        for metric, field in COUNTED.items():
            now: int = getattr(line, field)
            then = before.get(field, 0)
            before[field] = now
            place = (name, metric)
            self._totals[place] = self._totals.get(place, 0) + (now - then if now >= then else now)


def _key(labels: tuple[str, str], lines: list[KeyLine]) -> Iterator[Number]:
    """One key, or all the others together."""
    for metric, field in ADDED.items():
        known = [value for line in lines if (value := getattr(line, field)) is not None]
        if known:
            yield Number(metric, labels, sum(known))
    for metric, field in WORST.items():
        yield Number(metric, labels, max(getattr(line, field) for line in lines))
    states = Counter(line.circuit for line in lines)
    for state in CIRCUITS:
        yield Number("headgate_key_circuits", (*labels, state), states[state])
    yield Number("headgate_key_ramp_ratio", labels, min(line.returning for line in lines))
