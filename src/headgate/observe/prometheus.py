"""Prometheus: a collector over what runs here, and counts of what happens.

    metrics = Prometheus(sources)                  # runs, looked at on each scrape; may be left out
    metrics.instrument(limiter)                    # every call and event of a limiter, runner, crawler or manager
    metrics.listen_to(watched)                     # ... or of a run in this process: calls from the first scrape on
    metrics.text()                                 # what /metrics answers, of type CONTENT_TYPE
    metrics.register(registry)                     # or into a registry of yours, beside your own metrics

As a listener of a hub it takes every kind of event. ``metric_list.py`` lists all metrics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError("metrics for Prometheus need prometheus-client: pip install 'headgate[metrics]'") from error

from .. import fork_safety
from ..limiter.watching import CallWatcher, Ended
from .attaching import Telling, also_tell, limiter_of
from .busiest import readable
from .metric_list import BY_NAME, METRICS, MetricInfo
from .run_metrics import RunMetrics
from .source import Source, Sources
from .tallies import BOUNDS, Spread, Tallies

if TYPE_CHECKING:
    from ..limiter import AdaptiveRateLimiter
    from .watched import Watched

CONTENT_TYPE = CONTENT_TYPE_LATEST

_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


class Prometheus(CallWatcher, Collector):
    """Takes events and calls, and is a collector. Safe for threads."""

    def __init__(self, sources: Source | Sources | None = None) -> None:
        self._runs = None if sources is None else RunMetrics(sources)
        self._tallies = Tallies()
        self._is_told = False
        self._unwatched: AdaptiveRateLimiter | None = None
        """Whose calls are to be counted once somebody scrapes."""
        self.inbox: deque[Ended] = deque()
        self._lock = fork_safety.lock()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    # ------------------------------------------------------------------ taking

    def __call__(self, event: object) -> None:
        """Count an event of any kind."""
        self._tallies.take(event)

    wants = Tallies.wants

    def take_inbox(self) -> None:
        self._tallies.take_calls(self.inbox)

    def instrument(self, owner: Telling) -> None:
        """Hear every call of this limiter, or of the limiter behind a runner, crawler or manager, and their events."""
        limiter = limiter_of(owner)
        self._is_told = True
        if self not in limiter.tell.watchers:
            limiter.watch(self)
            also_tell(limiter, self)
        if owner is not limiter:
            also_tell(owner, self)

    def listen_to(self, watched: Watched) -> None:
        """Hear every event of a run in this process and of its credentials, and from the first scrape on every call:
        where nobody scrapes, a call costs no more for it."""
        self._is_told = True
        watched.hub.add(self)
        if watched.keys is not None:
            self._unwatched = watched.keys.limiter

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
        """Where calls and events are told, also what has not happened yet has its name and kind."""
        with self._lock:
            limiter, self._unwatched = self._unwatched, None
            if limiter is not None and self not in limiter.tell.watchers:
                limiter.watch(self)
        families = {info.name: _family(info) for info in METRICS}
        self._add_calls(families)
        for name, labels, value in self._tallies.read():
            families[name].add_metric(_values(name, labels), value)
        if self._runs is not None:
            with self._lock:  # two may scrape at once
                for name, labels, value in self._runs.read():
                    families[name].add_metric(_values(name, labels), value)
        return (family for family in families.values() if family.samples or self._is_told)

    def _add_calls(self, families: dict[str, Any]) -> None:
        self.take_inbox()
        with self._tallies.lock:
            for key, tally in self._tallies.calls.items():
                name = readable(key)
                for outcome, count in tally.outcomes.items():
                    families["headgate_calls"].add_metric([name, outcome.value], count)
                _add_spread(families["headgate_call_duration_seconds"], name, tally.latency)
                _add_spread(families["headgate_permit_wait_seconds"], name, tally.waited)


def _family(info: MetricInfo) -> Any:
    return _FAMILIES[info.kind](info.name, info.says, labels=info.labels)


def _values(name: str, labels: Mapping[str, str]) -> list[str]:
    return [labels[label] for label in BY_NAME[name].labels]


def _add_spread(family: Any, key: str, spread: Spread) -> None:
    buckets, so_far = [], 0
    for bound, count in zip([*map(str, BOUNDS), "+Inf"], spread.counts, strict=True):
        so_far += count
        buckets.append((bound, so_far))
    family.add_metric([key], buckets, spread.total)
