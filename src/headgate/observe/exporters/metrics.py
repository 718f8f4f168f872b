"""Every metric there is (``METRICS``), and what happens in this process, counted as it happens.

Every call passes here, so counting is a few additions under a lock of its own. Which event counts where is a table
(``RULES``). A metrics server pays for every value that a label has ever had, and keys come from outside (hosts, users,
models), so of each label only the busiest values have a name and all others are called ``other`` (``LabelNames``). A
key that loses its name takes its numbers along: they are no longer exported, and from then on it counts as one of the
others. So no exported number ever goes back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from ... import fork_safety
from ...core.decision import Outcome
from ...events import BatchEvent, CrawlEvent, Event, EventRecord, PublicEvent, ResilienceEvent, record_of
from ...limiter.events import EndedCall

# ---------------------------------------------------------------------- the metrics
# Tests hold docs and collectors to this list. Names follow Prometheus: a prefix, base units (seconds), ``_total`` for
# what only grows (added when it is written). Those that begin with ``headgate_run_`` and ``headgate_key_`` are read on
# each scrape, for every run that can be seen from here; the others are counted as it happens, in this process.


class MetricInfo(NamedTuple):
    name: str
    kind: str
    """counter, gauge or histogram."""
    labels: tuple[str, ...]
    says: str


METRICS = (
    MetricInfo("headgate_calls", "counter", ("key", "outcome"), "Calls that were sent and answered."),
    MetricInfo("headgate_call_duration_seconds", "histogram", ("key",), "Duration of calls, from permit to response."),
    MetricInfo("headgate_permit_wait_seconds", "histogram", ("key",), "Time that calls waited for their permit."),
    MetricInfo("headgate_refusals", "counter", ("key",), "Calls not started: circuit open, or the wait too long."),
    MetricInfo("headgate_holds", "counter", ("key",), "Times a key was held: Retry-After, or a pause."),
    MetricInfo("headgate_circuit_changes", "counter", ("key", "state"), "Circuit changes, by new state."),
    MetricInfo("headgate_cooldowns", "counter", ("key",), "Cooldowns of a batch: one per burst of 429s."),
    MetricInfo(
        "headgate_rows_put_aside", "counter", ("key", "state"), "Times a row was set aside: rate limited or to retry."
    ),
    MetricInfo("headgate_dead_rows", "counter", ("reason",), "Failed rows, by category."),
    MetricInfo("headgate_addresses", "counter", ("host", "fate"), "URLs of a crawl, by outcome."),
    MetricInfo("headgate_requests", "counter", ("provider", "result"), "Requests with resilience, by result."),
    MetricInfo(
        "headgate_retries", "counter", ("provider", "outcome"), "Retries, by the outcome of the attempt before."
    ),
    MetricInfo("headgate_request_wait_seconds", "counter", ("provider",), "Seconds that requests waited for permits."),
    MetricInfo(
        "headgate_credential_changes", "counter", ("provider", "change"), "Credentials rested, back or disabled."
    ),
    MetricInfo("headgate_store_failures", "counter", ("provider",), "Times a shared store could not be reached."),
    MetricInfo("headgate_run_info", "gauge", ("run", "title", "kind"), "1 for every visible run."),
    MetricInfo("headgate_run_state", "gauge", ("run", "state"), "1 for the current state of the run."),
    MetricInfo("headgate_run_started_timestamp_seconds", "gauge", ("run",), "Start of the run, Unix time."),
    MetricInfo("headgate_run_rows", "gauge", ("run", "state"), "Rows or pages: done, dead, open, in_flight, parked."),
    MetricInfo("headgate_run_rows_expected", "gauge", ("run",), "Total rows or pages, if known."),
    MetricInfo("headgate_run_rows_per_second", "gauge", ("run",), "Rows or pages finished per second, recently."),
    MetricInfo("headgate_run_eta_seconds", "gauge", ("run",), "Seconds until the run ends, if known."),
    MetricInfo("headgate_run_blocked_rows", "gauge", ("run",), "Rows, pages or callers behind blocked scopes."),
    MetricInfo("headgate_run_tokens", "gauge", ("run",), "Tokens used by the run."),
    MetricInfo("headgate_run_cost", "gauge", ("run",), "Cost of the run, in the currency of the prices."),
    MetricInfo("headgate_run_keys", "gauge", ("run",), "Keys in use."),
    MetricInfo("headgate_run_credentials", "gauge", ("run", "state"), "Credentials, by state; retired: disabled."),
    MetricInfo("headgate_run_counter", "gauge", ("run", "name"), "Further counters of the run's snapshot."),
    MetricInfo("headgate_key_calls", "counter", ("run", "key"), "Calls sent."),
    MetricInfo("headgate_key_refused", "counter", ("run", "key"), "Rate limited responses (429 and similar)."),
    MetricInfo("headgate_key_failed", "counter", ("run", "key"), "Failed responses."),
    MetricInfo("headgate_key_calls_per_second", "gauge", ("run", "key"), "Learned rate."),
    MetricInfo("headgate_key_said_calls_per_second", "gauge", ("run", "key"), "Rate stated by the server."),
    MetricInfo("headgate_key_limit_calls_per_second", "gauge", ("run", "key"), "Rate limit set by an operator."),
    MetricInfo("headgate_key_in_flight", "gauge", ("run", "key"), "Calls in flight."),
    MetricInfo("headgate_key_waiting", "gauge", ("run", "key"), "Waiting callers."),
    MetricInfo(
        "headgate_key_latency_seconds", "gauge", ("run", "key"), "Mean latency of recent calls; of other: the longest."
    ),
    MetricInfo(
        "headgate_key_latency_p95_seconds",
        "gauge",
        ("run", "key"),
        "95th percentile of latency; of other: the longest.",
    ),
    MetricInfo("headgate_key_circuits", "gauge", ("run", "key", "state"), "Circuits in this state: 0 or 1 for a key."),
    MetricInfo(
        "headgate_key_closed_seconds", "gauge", ("run", "key"), "Seconds until calls may start; of other: the longest."
    ),
    MetricInfo(
        "headgate_key_ramp_ratio",
        "gauge",
        ("run", "key"),
        "Share of the rate that the ramp allows; of other: the least.",
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}


class Number(NamedTuple):
    """What is exported of a metric."""

    metric: str
    labels: tuple[str, ...]
    """The values of its labels, in the order of ``METRICS``."""
    value: float


# ---------------------------------------------------------------------- names of labels

MOST_NAMED = 100
MOST_CANDIDATES = 10_000
"""Keys without a name whose uses are counted; then the counting starts over."""
TIMES_AS_BUSY = 2
LONGEST_NAME = 200
OTHER = "other"


class LabelNames:
    """Which values of a label have a name of their own.

    A name is given to the first that come, and goes to another key only once that one has been used twice as often:
    names that came and went with every scrape would be worth nothing. Not safe for threads: its owner has a lock.
    """

    def __init__(self, most: int = MOST_NAMED) -> None:
        self._most = most
        self._named: dict[str, list[int]] = {}
        """By key, how often it was used: a number that its owner may raise without asking for the name each time."""
        self._candidates: dict[str, int] = {}
        self._bar = 0
        """No key with fewer uses can get a name: that of the least busy is safe until then."""
        self.lost: list[str] = []
        """Names that were given up; the owner clears it."""

    def name(self, key: str, uses: int | None = None) -> str:
        """What the key is called. ``uses`` is how often it was used so far; without it, this is one more use."""
        named = self._named
        count = named.get(key)
        if count is not None:
            count[0] = count[0] + 1 if uses is None else uses
            return key
        if len(named) < self._most and key != OTHER:
            named[key] = [1 if uses is None else uses]
            return key
        if len(self._candidates) >= MOST_CANDIDATES:
            self._candidates.clear()
        total = self._candidates[key] = self._candidates.get(key, 0) + 1 if uses is None else uses
        if total < self._bar or key == OTHER:
            return OTHER
        least = min(named, key=named.__getitem__)
        self._bar = max(1, TIMES_AS_BUSY * named[least][0])
        if total < self._bar:
            return OTHER
        del named[least], self._candidates[key]
        named[key] = [total]
        self.lost.append(least)
        return key

    def uses(self, key: str) -> list[int]:
        """How often a key with a name was used: a counter that its owner raises with each use. Others have none."""
        return self._named.get(key) or [0]


def readable(key: str) -> str:
    """A key as a label's value: bounded, nothing in it that cannot be written, and two keys are never one."""
    value = key[:LONGEST_NAME].encode("utf-8", "replace").decode()
    return (
        value if value == key else f"{value}~{blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"
    )


# ---------------------------------------------------------------------- which event counts where


class Rule(NamedTuple):
    """An event of some kind adds to a metric, under a label of bounded values and one of a few fixed ones."""

    metric: str
    label: str = ""
    """The value of the second label ..."""
    field: str = ""
    """... or the field that has it."""
    by: Callable[[EventRecord], float] = lambda record: 1
    of_reason: bool = False
    """Whether the first label is the reason, and not the scope."""


def _waited(record: EventRecord) -> float:
    return (record.fields.get("wait_ms") or 0) / 1e3


RULES: dict[tuple[type[Any], str], Rule] = {
    (Event, "refused"): Rule("headgate_refusals"),
    (Event, "held"): Rule("headgate_holds"),
    (Event, "circuit_changed"): Rule("headgate_circuit_changes", field="state"),
    (Event, "store_lost"): Rule("headgate_store_failures"),
    (BatchEvent, "cooldown_started"): Rule("headgate_cooldowns"),
    (BatchEvent, "item_parked"): Rule("headgate_rows_put_aside", "parked"),
    (BatchEvent, "item_failed"): Rule("headgate_rows_put_aside", "failed"),
    (BatchEvent, "item_dead"): Rule("headgate_dead_rows", of_reason=True),
    **{
        (CrawlEvent, kind): Rule("headgate_addresses", kind)
        for kind in ("page", "failed", "refused", "sent_on", "put_off")
    },
    (ResilienceEvent, "request_success"): Rule("headgate_requests", "success"),
    (ResilienceEvent, "request_failure"): Rule("headgate_requests", "failure"),
    (ResilienceEvent, "budget_exceeded"): Rule("headgate_requests", "budget_exceeded"),
    (ResilienceEvent, "retry_attempt"): Rule("headgate_retries", field="error_classification"),
    (ResilienceEvent, "rate_limit_wait"): Rule("headgate_request_wait_seconds", by=_waited),
    (ResilienceEvent, "credential_rested"): Rule("headgate_credential_changes", "rested"),
    (ResilienceEvent, "credential_back"): Rule("headgate_credential_changes", "back"),
    (ResilienceEvent, "credential_retired"): Rule("headgate_credential_changes", "retired"),
    (ResilienceEvent, "store_failed"): Rule("headgate_store_failures"),
}
is_counted = frozenset(kind for _, kind in RULES).__contains__
"""A listener's ``wants``: other kinds need not be made for it, least of all those that happen with every row."""


class Adder(Protocol):
    def __call__(self, metric: str, value: str, *more: str, by: float = 1) -> None:
        """Count; ``value`` is that of the metric's first label, whose values are bounded."""
        ...


def count_event(event: EventRecord | PublicEvent, add: Adder) -> None:
    """Add an event to the metric it belongs to; one of another kind is ignored."""
    rule = RULES.get((event.form, event.kind)) if isinstance(event, EventRecord) else _rule_of(event)
    if rule is not None:
        record = record_of(event)
        value = (record.reason or str(record.detail)) if rule.of_reason else record.scope
        label = (record.fields.get(rule.field) or "unknown") if rule.field else rule.label
        add(rule.metric, value, *((label,) if label else ()), by=rule.by(record))


def _rule_of(event: PublicEvent) -> Rule | None:
    kind = event.event_type if isinstance(event, ResilienceEvent) else getattr(event, "kind", "")
    return RULES.get((type(event), kind))


# ---------------------------------------------------------------------- the numbers, kept

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds; models may take minutes, and waits too."""


class Histogram:
    """How long something took."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        """For each bound those up to it and above the one before; the last are above all."""
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class CallCounts:
    """The calls of one key."""

    __slots__ = ("latency", "outcomes", "uses", "waited")

    def __init__(self, uses: list[int]) -> None:
        self.uses = uses
        self.outcomes: dict[Outcome, int] = {}
        self.latency = Histogram()
        self.waited = Histogram()


class Counters:
    """Counts of calls and events. Safe for threads."""

    def __init__(self) -> None:
        self.lock = fork_safety.lock()
        self.calls: dict[str, CallCounts] = {}
        self.counts: dict[str, dict[tuple[str, ...], float]] = {}
        """By metric and by its labels' values, of which the first is the bounded one."""
        self._names = {label: LabelNames() for label in ("key", "host", "provider", "reason")}

    def take_calls(self, inbox: deque[EndedCall]) -> None:
        """Count what is in there."""
        with self.lock:
            for _ in range(len(inbox)):  # other threads may put more into it meanwhile
                key, outcome, latency, waited = inbox.popleft()
                counts = self.calls.get(key)
                if counts is None:
                    counts = self._calls_of(key)
                else:
                    counts.uses[0] += 1
                outcomes = counts.outcomes
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                counts.latency.add(latency)
                counts.waited.add(waited)

    def _calls_of(self, key: str) -> CallCounts:
        name = self._name("key", key)
        if name not in self.calls:
            self.calls[name] = CallCounts(self._names["key"].uses(name))
        return self.calls[name]

    def add(self, metric: str, value: str, *more: str, by: float = 1) -> None:
        with self.lock:
            counts = self.counts.setdefault(metric, {})
            place = (self._name(BY_NAME[metric].labels[0], value), *more)
            counts[place] = counts.get(place, 0) + by

    def _name(self, label: str, value: str) -> str:
        """What the value is called in metrics. Call it under the lock."""
        names = self._names[label]
        name = names.name(value)
        if names.lost:
            self._forget(label, names.lost.pop())
        return name

    def _forget(self, label: str, name: str) -> None:
        """A key has lost its name: nothing is exported of it alone any more."""
        if label == "key":
            self.calls.pop(name, None)
        for metric, counts in self.counts.items():
            if BY_NAME[metric].labels[0] == label:
                for place in [place for place in counts if place[0] == name]:
                    del counts[place]

    def read(self) -> Iterator[Number]:
        """Every counter but those of calls."""
        with self.lock:
            copies = {metric: dict(counts) for metric, counts in self.counts.items()}
        for metric, counts in copies.items():
            for place, value in counts.items():
                yield Number(metric, tuple(map(readable, place)), value)
