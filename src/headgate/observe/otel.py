"""OpenTelemetry: a span for each attempt, and metrics, by the semantic conventions for HTTP clients.

    instrument(limiter)        # or a BatchRunner, a Crawler, a ProviderResilienceManager: whatever has a limiter

    your span
     └─ POST                   one attempt, from its permit to its answer; current while it is under way, so what your
        │                      HTTP library traces lies inside and the trace goes on at the server
        ├─ headgate.permit.wait.duration    how long it stood in line before
        └─ event headgate.permit            ... told again as an event, if it waited

Only the API is needed; without an SDK all of this does nothing. No secret goes into a span: of an address there is no
query, fragment or user, of an error there is its kind and never its message, of a credential its label.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
except ImportError as error:
    raise ImportError("traces need opentelemetry-api: pip install 'headgate[otel]'") from error

from .. import exchange
from .._version import __version__
from ..core.decision import Outcome
from ..limiter import AdaptiveRateLimiter
from ..limiter.watching import About, CallWatcher
from .attaching import Telling, also_tell, limiter_of
from .busiest import MOST_NAMED, OTHER, Busiest, readable
from .metric_list import METRICS
from .span_facts import address_facts, method_of, server_facts
from .tallies import Counting

if TYPE_CHECKING:
    from ..events import CallEvent
    from ..limiter import Permit

SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Seconds, as the conventions advise."""
UNNAMED = "HTTP"
"""The name of a span whose method is not known, and ..."""
UNKNOWN_METHOD = "_OTHER"
"""... that method."""
MOST_OPEN = 100_000
"""Spans of attempts that are under way; more are told when they are over."""


class _Attempt:
    """What must be known of an attempt apart from its span, which tells nothing and may not even be recorded."""

    __slots__ = ("error_type", "method", "server", "span")

    def __init__(self, span: Span, method: str, server: dict[str, str | int]) -> None:
        self.span, self.method, self.server = span, method, server
        self.error_type = ""


_under_way: ContextVar[_Attempt | None] = ContextVar("headgate_attempt", default=None)
"""The one that the current task or thread makes."""


class OpenTelemetry(CallWatcher):
    """Spans and metrics of one or several limiters. As a listener it counts every kind of event."""

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
            description="How long calls waited for their permit.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self._counting = _Counting(meter)
        self._open: dict[Permit, _Attempt] = {}
        self._limiters: weakref.WeakSet[AdaptiveRateLimiter] = weakref.WeakSet()
        for name, field, unit in (
            ("headgate.key.rate", "rate", "{call}/s"),
            ("headgate.key.in_flight", "in_flight", "{call}"),
            ("headgate.key.waiting", "waiters", "{call}"),
        ):
            meter.create_observable_gauge(name, [_Look(self._limiters, field)], unit=unit)

    def instrument(self, owner: Telling) -> None:
        """Trace every call of this limiter, or of the one behind a runner, crawler or manager; count their events."""
        limiter = limiter_of(owner)
        if self not in limiter.tell.watchers:
            limiter.watch(self)
            also_tell(limiter, self)
            self._limiters.add(limiter)
        if owner is not limiter:
            also_tell(owner, self)
        exchange.on_request = _describe

    def __call__(self, event: object) -> None:
        self._counting.take(event)

    wants = Counting.wants

    # ------------------------------------------------------------------ one attempt

    @contextmanager
    def around(self, permit: Permit, about: About) -> Iterator[None]:
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
            attempt = self._begin(permit, call.key, call.waited, About())
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
            span.end(_instant(permit, permit.gate.limiter.clock.now()))

    def _begin(self, permit: Permit, key: str, waited: float, about: About) -> _Attempt:
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
        key = self._counting.name("key", call.key)
        address = str(attempt.server.get("server.address", ""))
        server = attempt.server if OTHER not in (key, self._counting.name("server", address)) else {}
        method = attempt.method or UNKNOWN_METHOD
        self._duration.record(call.latency, {"http.request.method": method, **server, **facts, "headgate.key": key})
        self._waited.record(call.waited, {"headgate.key": key})


def instrument(
    owner: Telling,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> OpenTelemetry:
    """Trace and measure every call of a limiter, or of the limiter behind a runner, a crawler or a manager."""
    watcher = OpenTelemetry(tracer_provider=tracer_provider, meter_provider=meter_provider)
    watcher.instrument(owner)
    return watcher


class _Counting(Counting):
    """The counters of the metric list, under the names that OpenTelemetry would give them."""

    def __init__(self, meter: metrics.Meter) -> None:
        super().__init__()
        self.names["server"] = Busiest()  # a program may send all its rows, to whatever host, under one key
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

    def add(self, metric: str, label: str, value: str, *more: str, by: float = 1) -> None:
        labels = (f"headgate.{one}" for one in self._labels[metric])
        self._counters[metric].add(by, dict(zip(labels, (self.name(label, value), *more), strict=True)))

    def name(self, label: str, value: str) -> str:
        """What it is called: itself, if it is one of the busiest."""
        with self.lock:
            name = self.names[label].name(value)
            self.names[label].left.clear()
        return readable(name)


class _Look:
    """Looks at limiters when somebody collects; those that are gone are not kept for it."""

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
    clock = permit.gate.limiter.clock
    return round((clock.wall() - (clock.now() - at)) * 1e9)
