"""OpenTelemetry: a span for each attempt, and metrics, by the semantic conventions for HTTP clients.

    instrument(limiter)        # or a BatchRunner, a Crawler, a ProviderResilienceManager: anything with a limiter

    your span
     └─ POST                   one attempt, from its permit to its answer; current while it is under way, so what your
        │                      HTTP library traces lies inside and the trace goes on at the server
        ├─ headgate.permit.wait.duration    how long it waited in the queue before
        └─ event headgate.permit            ... once more as an event, if it waited

Only the API is needed; without an SDK all of this does nothing. No secret goes into a span: of an address there is no
query, fragment or user, of an error there is its kind and never its message, of a credential its label.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ... import exchange, fork_safety
from ..._version import __version__
from ...core.decision import Outcome
from ...events import EventRecord, PublicEvent
from ...formatting import redact
from ...limiter import AdaptiveRateLimiter
from ...limiter.events import CallInfo, CallObserver
from ...wire.urls import host_key
from ..hub import EventEmitter, add_listener, limiter_of
from .metrics import METRICS, MOST_NAMED, OTHER, LabelNames, count_event, is_counted, readable

if TYPE_CHECKING:
    from ...events import CallEvent
    from ...limiter import Permit


try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError("traces need opentelemetry-api: pip install 'headgate[otel]'") from error


SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds, as the conventions advise."""
UNNAMED = "HTTP"
"""The name of a span whose method is not known, and ..."""
UNKNOWN_METHOD = "_OTHER"
"""... that method."""
MOST_OPEN = 100_000
"""Attempts under way that have a span; further ones get theirs when they end."""


class _Attempt:
    """What must be known of an attempt beside its span, which cannot be read and may not even be recorded."""

    __slots__ = ("error_type", "method", "server", "span")

    def __init__(self, span: Span, method: str, server: dict[str, str | int]) -> None:
        self.span, self.method, self.server = span, method, server
        self.error_type = ""


_under_way: ContextVar[_Attempt | None] = ContextVar("headgate_attempt", default=None)
"""The one that the current task or thread makes."""


class OpenTelemetry(CallObserver):
    """Spans and metrics of one or several limiters. As a listener it counts every kind of event."""

    takes_records = True
    wants = staticmethod(is_counted)

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        """Without providers it takes those that are set for the whole program."""
        self._tracer = trace.get_tracer("headgate", __version__, tracer_provider, SCHEMA)
        meter = metrics.get_meter("headgate", __version__, meter_provider, SCHEMA)
        self._duration = meter.create_histogram(
            "http.client.request.duration",
            unit="s",
            description="Duration of HTTP client requests.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._waited = meter.create_histogram(
            "headgate.permit.wait.duration",
            unit="s",
            description="Time that calls waited for their permit.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._counters = _Counters(meter)
        self._open: dict[Permit, _Attempt] = {}
        self._limiters: weakref.WeakSet[AdaptiveRateLimiter] = weakref.WeakSet()
        for name, field, unit in (
            ("headgate.key.rate", "rate", "{call}/s"),
            ("headgate.key.in_flight", "in_flight", "{call}"),
            ("headgate.key.waiting", "waiters", "{call}"),
        ):
            meter.create_observable_gauge(name, [_Gauge(self._limiters, field)], unit=unit)

    def instrument(self, owner: EventEmitter) -> None:
        """Trace every call of this limiter, or of the one behind a runner, crawler or manager; count their events."""
        limiter = limiter_of(owner)
        if self not in limiter.events.observers:
            limiter.watch(self)
            add_listener(limiter, self)
            self._limiters.add(limiter)
        if owner is not limiter:
            add_listener(owner, self)
        exchange.on_request = _describe

    def __call__(self, event: EventRecord | PublicEvent) -> None:
        count_event(event, self._counters.add)

    # ------------------------------------------------------------------ one attempt

    @contextmanager
    def around(self, permit: Permit, about: CallInfo) -> Iterator[None]:
        if len(self._open) >= MOST_OPEN:
            yield
            return
        attempt = self._open[permit] = self._begin(permit, permit.key, permit.waited, about)
        token = contexts.attach(trace.set_span_in_context(attempt.span))
        mine = _under_way.set(attempt)
        try:
            yield
        except BaseException as error:
            attempt.error_type = type(error).__qualname__
            raise
        finally:
            _under_way.reset(mine)
            contexts.detach(token)

    def ended(self, permit: Permit, call: CallEvent) -> None:
        attempt = self._open.pop(permit, None)
        if attempt is None:  # acquired and reported by hand
            attempt = self._begin(permit, call.key, call.waited, CallInfo())
        outcome, span = call.signal.outcome, attempt.span
        facts: dict[str, str | int] = {}
        if call.status is not None:
            facts["http.response.status_code"] = call.status
        if outcome is not Outcome.OK:
            failed = call.status is not None and call.status >= 400
            facts["error.type"] = str(call.status) if failed else attempt.error_type or outcome.value
            span.set_status(StatusCode.ERROR)
            if call.signal.retry_after is not None:
                span.set_attribute("headgate.retry_after", call.signal.retry_after)
        span.set_attributes({**facts, "headgate.outcome": outcome.value})
        span.end(_instant(permit, call.at))
        self._measure(attempt, call, facts)

    def dropped(self, permit: Permit, sent: bool) -> None:
        attempt = self._open.pop(permit, None)
        if attempt is not None:
            span = attempt.span
            if attempt.error_type:
                span.set_attribute("error.type", attempt.error_type)
                span.set_status(StatusCode.ERROR)
            span.set_attribute("headgate.outcome", "unknown" if sent else Outcome.ABANDONED.value)
            span.end(_instant(permit, permit.clock.now()))

    def _begin(self, permit: Permit, key: str, waited: float, about: CallInfo) -> _Attempt:
        method = method_of(about.method)
        where = address_facts(about.url) if about.url else server_facts(key)
        facts: dict[str, str | int | float] = {
            "http.request.method": method or UNKNOWN_METHOD,
            "headgate.key": readable(key),
            "headgate.permit.wait.duration": waited,
            **where,
        }
        if about.attempt > 1:
            facts["http.request.resend_count"] = about.attempt - 1
        if about.credential:
            facts["headgate.credential"] = about.credential
        sent_at = _instant(permit, permit.sent_at)
        span = self._tracer.start_span(method or UNNAMED, kind=SpanKind.CLIENT, attributes=facts, start_time=sent_at)
        if waited > 0.0:
            span.add_event("headgate.permit", {"headgate.permit.wait.duration": waited}, sent_at)
        return _Attempt(span, method, _server_of(where))

    def _measure(self, attempt: _Attempt, call: CallEvent, facts: dict[str, str | int]) -> None:
        key = self._counters.name("key", call.key)
        address = str(attempt.server.get("server.address", ""))
        server = attempt.server if OTHER not in (key, self._counters.name("server", address)) else {}
        method = attempt.method or UNKNOWN_METHOD
        self._duration.record(call.latency, {"http.request.method": method, **server, **facts, "headgate.key": key})
        self._waited.record(call.waited, {"headgate.key": key})


def instrument(
    owner: EventEmitter,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> OpenTelemetry:
    """Trace and measure every call of a limiter, or of the limiter behind a runner, a crawler or a manager."""
    watcher = OpenTelemetry(tracer_provider=tracer_provider, meter_provider=meter_provider)
    watcher.instrument(owner)
    return watcher


class _Counters:
    """The counters of the metric list, under the names that OpenTelemetry would give them. Safe for threads."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._lock = fork_safety.lock()
        self._names = {label: LabelNames() for label in ("key", "host", "provider", "reason", "server")}
        """A program may send all its rows, to any host, under one key: servers are bounded apart."""
        self._labels = {info.name: info.labels for info in METRICS if info.kind == "counter"}
        self._counters = {
            info.name: meter.create_counter(
                info.name.removesuffix("_seconds").replace("headgate_", "headgate."),
                unit="s" if info.name.endswith("_seconds") else "1",
                description=info.says,
            )
            for info in METRICS
            if info.kind == "counter" and not info.name.startswith(("headgate_key_", "headgate_calls"))
        }

    def add(self, metric: str, value: str, *more: str, by: float = 1) -> None:
        labels = self._labels[metric]
        values = (self.name(labels[0], value), *more)
        self._counters[metric].add(by, dict(zip((f"headgate.{one}" for one in labels), values, strict=True)))

    def name(self, label: str, value: str) -> str:
        """What it is called: itself, if it is one of the busiest."""
        with self._lock:
            name = self._names[label].name(value)
            self._names[label].lost.clear()
        return readable(name)


class _Gauge:
    """Reads limiters on each collection, and keeps none of them alive."""

    def __init__(self, limiters: Iterable[AdaptiveRateLimiter], field: str) -> None:
        self._limiters, self._field = limiters, field

    def __call__(self, options: CallbackOptions) -> Iterator[Observation]:
        for limiter in list(self._limiters):
            for key in limiter.snapshot(MOST_NAMED).keys:
                yield Observation(getattr(key, self._field), {"headgate.key": readable(key.key)})


def _describe(method: str, url: object) -> None:
    """A request of our own is about to be sent: its attempt now knows where it goes."""
    attempt = _under_way.get()
    if attempt is None:
        return
    attempt.method, where = method_of(method), address_facts(str(url))
    attempt.server = _server_of(where)
    attempt.span.update_name(attempt.method or UNNAMED)
    attempt.span.set_attributes({"http.request.method": attempt.method or UNKNOWN_METHOD, **where})


def _server_of(where: dict[str, str | int]) -> dict[str, str | int]:
    return {name: value for name, value in where.items() if name.startswith("server.")}


def _instant(permit: Permit, at: float) -> int:
    """An instant on the limiter's clock in nanoseconds of Unix time."""
    clock = permit.clock
    return round((clock.wall() - (clock.now() - at)) * 1e9)


# ---------------------------------------------------------------------- where a call goes, without any secret

METHODS = frozenset(("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"))
LONGEST_URL = 500
_PORTS = {"http": 80, "https": 443}


def method_of(method: str) -> str:
    """A method as the conventions have it; empty for one that is not known."""
    upper = method.upper()
    return upper if upper in METHODS else ""


def address_facts(url: str) -> dict[str, str | int]:
    """Where a request goes: scheme, host and path. Query, fragment and user are left out."""
    scheme, found, rest = url.partition("://")
    if not found:
        return server_facts(url)
    bare = rest.partition("#")[0].partition("?")[0]
    location, slash, path = bare.partition("/")
    host = location.rpartition("@")[2]
    facts = server_facts(host)
    port = host.rpartition(":")[2]
    if "server.address" in facts and (port.isdecimal() or scheme.lower() in _PORTS):
        facts["server.port"] = int(port) if port.isdecimal() else _PORTS[scheme.lower()]
    facts["url.full"] = redact(f"{scheme.lower()}://{host}{slash}{path}"[:LONGEST_URL])
    return facts


def server_facts(key: str) -> dict[str, str | int]:
    """The host that a key names, if it names one: ``api.example.com/label`` does, ``openai`` does not."""
    host = host_key(key.partition("/")[0])
    name, colon, port = host.rpartition(":")
    if not (colon and port.isdecimal() and (name.startswith("[") or ":" not in name)):
        name, port = host, ""
    is_host = name.startswith("[") or name == "localhost" or ("." in name and " " not in name)
    if not is_host:
        return {}
    facts: dict[str, str | int] = {"server.address": name.strip("[]")}
    if port:
        facts["server.port"] = int(port)
    return facts
