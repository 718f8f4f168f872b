"""What happens in this process, counted as it happens: the numbers behind the metrics.

Every call passes here, so counting is a few additions under a lock of its own. What is counted is a table
(``metric_list.py``); whose numbers they are is told by labels, and of each label there are at most so many values
(``busiest.py``). A key that loses its name takes its numbers along: they are no longer told, and from then on it counts
as one of the others. So no number that is told ever goes back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .. import fork_safety
from ..core.decision import Outcome
from ..events import Event, ResilienceEvent
from ..limiter.watching import Ended
from .busiest import Busiest, readable
from .metric_list import BY_NAME

if TYPE_CHECKING:
    from ..batch.report import BatchEvent
    from ..crawl.report import CrawlEvent

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds; models may take minutes, and waits too."""

_OF_KEYS = {"refused": "headgate_refusals", "held": "headgate_holds"}
_PUT_ASIDE = {"item_parked": "parked", "item_failed": "failed"}
_FATES = ("page", "failed", "refused", "sent_on", "put_off")
_RESULTS = {"request_success": "success", "request_failure": "failure", "budget_exceeded": "budget_exceeded"}
_CREDENTIALS = {"credential_rested": "rested", "credential_back": "back", "credential_retired": "retired"}

COUNTED = frozenset(
    ("circuit_changed", "item_dead", "cooldown_started", "retry_attempt", "rate_limit_wait", "store_failed")
).union(_OF_KEYS, _PUT_ASIDE, _FATES, _RESULTS, _CREDENTIALS)
"""The kinds of events that are."""


class Spread:
    """How long something took: a histogram."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        """For each bound those up to it and above the one before; the last are above all."""
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class CallTally:
    """The calls of one key."""

    __slots__ = ("latency", "outcomes", "uses", "waited")

    def __init__(self, uses: list[int]) -> None:
        self.uses = uses
        self.outcomes: dict[Outcome, int] = {}
        self.latency = Spread()
        self.waited = Spread()


class Counting:
    """Takes every kind of event and says what there is to count. Safe for threads."""

    def __init__(self) -> None:
        self.lock = fork_safety.lock()
        self.names = {label: Busiest() for label in ("key", "host", "provider", "reason")}
        """For the labels that need bounds."""
        self._takers: dict[str, Callable[[Any], None]] = {  # by name: who does not crawl should not load the crawler
            "Event": self._take_event,
            "BatchEvent": self._take_batch,
            "CrawlEvent": self._take_crawl,
            "ResilienceEvent": self._take_resilience,
        }

    wants = staticmethod(COUNTED.__contains__)
    """What nobody counts need not be told, least of all what happens with every row."""

    def take(self, event: object) -> None:
        """What is no event of a kind that is counted is passed over."""
        taker = self._takers.get(type(event).__name__)
        if taker is not None:
            taker(event)

    def _take_event(self, event: Event) -> None:
        if event.kind == "circuit_changed":
            self.add("headgate_circuit_changes", "key", event.key, event.state)
        elif event.kind in _OF_KEYS:
            self.add(_OF_KEYS[event.kind], "key", event.key)

    def _take_crawl(self, event: CrawlEvent) -> None:
        if event.kind in _FATES:
            self.add("headgate_addresses", "host", event.host, event.kind)

    def _take_batch(self, event: BatchEvent) -> None:
        if event.kind in _PUT_ASIDE:
            self.add("headgate_rows_put_aside", "key", event.key, _PUT_ASIDE[event.kind])
        elif event.kind == "item_dead":
            self.add("headgate_dead_rows", "reason", event.reason.partition(":")[0])
        elif event.kind == "cooldown_started":
            self.add("headgate_cooldowns", "key", event.key)

    def _take_resilience(self, event: ResilienceEvent) -> None:
        kind, provider = event.event_type, event.provider
        if kind in _RESULTS:
            self.add("headgate_requests", "provider", provider, _RESULTS[kind])
        elif kind == "retry_attempt":
            self.add("headgate_retries", "provider", provider, event.error_classification or "unknown")
        elif kind == "rate_limit_wait":
            self.add("headgate_request_wait_seconds", "provider", provider, by=(event.wait_ms or 0) / 1e3)
        elif kind in _CREDENTIALS:
            self.add("headgate_credential_changes", "provider", provider, _CREDENTIALS[kind])
        elif kind == "store_failed":
            self.add("headgate_store_failures", "provider", provider)

    def add(self, metric: str, label: str, value: str, *more: str, by: float = 1) -> None:
        """Count; ``label`` is the metric's first, the one whose values are bounded."""
        raise NotImplementedError


class Tallies(Counting):
    """The numbers, kept."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, CallTally] = {}
        self.counts: dict[str, dict[tuple[str, ...], float]] = {}
        """By metric and by its labels' values, of which the first is the bounded one."""

    def take_calls(self, inbox: deque[Ended]) -> None:
        """Count what is in there."""
        with self.lock:
            for _ in range(len(inbox)):  # others may put more into it meanwhile
                key, outcome, latency, waited = inbox.popleft()
                tally = self.calls.get(key)
                if tally is None:
                    tally = self._tally(key)
                else:
                    tally.uses[0] += 1
                outcomes = tally.outcomes
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                tally.latency.add(latency)
                tally.waited.add(waited)

    def _tally(self, key: str) -> CallTally:
        name = self._name("key", key)
        if name not in self.calls:
            self.calls[name] = CallTally(self.names["key"].uses(name))
        return self.calls[name]

    def add(self, metric: str, label: str, value: str, *more: str, by: float = 1) -> None:
        with self.lock:
            counts = self.counts.setdefault(metric, {})
            place = (self._name(label, value), *more)
            counts[place] = counts.get(place, 0) + by

    def _name(self, label: str, value: str) -> str:
        """Under the lock."""
        names = self.names[label]
        name = names.name(value)
        if names.left:
            self._forget(label, names.left.pop())
        return name

    def _forget(self, label: str, name: str) -> None:
        """A key has lost its name: nothing is told of it alone any more."""
        if label == "key":
            self.calls.pop(name, None)
        for metric, counts in self.counts.items():
            if BY_NAME[metric].labels[0] == label:
                for place in [place for place in counts if place[0] == name]:
                    del counts[place]

    def read(self) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Every counter but those of calls: its name, its labels, its value."""
        with self.lock:
            copies = {metric: dict(counts) for metric, counts in self.counts.items()}
        for metric, counts in copies.items():
            for place, value in counts.items():
                yield metric, dict(zip(BY_NAME[metric].labels, map(readable, place), strict=True)), value
