"""Spans and metrics through OpenTelemetry's own in-memory exporters, by its semantic conventions for HTTP clients."""

import asyncio
import io
import json
import random

import pytest
from aiohttp import web
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from headgate import AdaptiveRateLimiter, RateLimitConfig, exchange
from headgate.batch.config import BatchConfig
from headgate.batch.input import Rows
from headgate.batch.runner import BatchRunner
from headgate.batch.target import Target, TargetConfig
from headgate.crawl import CrawlConfig
from headgate.crawl.fetch.gated_fetcher import GatedFetcher
from headgate.crawl.fetch.response import FetchResponse
from headgate.crawl.frontier import Visit
from headgate.credentials import CredentialCoordinator
from headgate.errors import CircuitOpenError
from headgate.lab.virtual_time import VirtualClock, run
from headgate.observe.exporters import otel
from headgate.observe.exporters.metrics import MOST_NAMED, OTHER
from headgate.observe.exporters.otel import OpenTelemetry, address_facts, instrument, server_facts
from headgate.resilience.execute import execute_with_resilience, execute_with_resilience_sync
from headgate.resilience.manager import ProviderResilienceManager

SECRET = "sk-live-0123456789abcdef"


class Seen:
    """One program's providers, and what came out of them."""

    def __init__(self, sampler=None):
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def instrument(self, owner):
        return instrument(owner, tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def spans(self):
        return self._exporter.get_finished_spans()

    def points(self, name):
        found = self._reader.get_metrics_data()
        return [
            point
            for resource in (found.resource_metrics if found else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def everything(self):
        found = self._reader.get_metrics_data()
        return "".join(span.to_json() for span in self.spans) + ("" if found is None else found.to_json())


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setattr(exchange, "on_request", None)
    return Seen()


def limiter_at(rate=1e6, clock=None, **settings):
    settings = {"strategy": "fixed", "initial_rps": rate, "token_bucket_capacity": 1, **settings}
    return AdaptiveRateLimiter(RateLimitConfig(**settings), clock=clock or VirtualClock(), rng=random.Random(1))


# ------------------------------------------------------------------ spans of permits


def test_an_attempt_is_a_client_span_by_the_conventions(seen):
    clock = VirtualClock(start=500.0, wall=1_000_000.0)
    limiter = limiter_at(clock=clock)
    seen.instrument(limiter)
    with limiter.permit("api.example.com:8443") as permit:
        clock.advance(0.25)
        permit.report(status_code=200)
    (span,) = seen.spans
    assert span.name == "HTTP"
    assert span.kind is SpanKind.CLIENT
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes) == {
        "http.request.method": "_OTHER",
        "server.address": "api.example.com",
        "server.port": 8443,
        "http.response.status_code": 200,
        "headgate.key": "api.example.com:8443",
        "headgate.outcome": "ok",
        "headgate.permit.wait.duration": 0.0,
    }
    assert span.start_time == 1_000_000_000_000_000
    assert span.end_time - span.start_time == 250_000_000
    assert span.instrumentation_scope.name == "headgate"


def test_the_wait_for_the_permit_is_told_apart_from_the_attempt(seen):
    clock = VirtualClock()
    limiter = limiter_at(rate=2, clock=clock)
    seen.instrument(limiter)
    for _ in range(2):
        with limiter.permit("api") as permit:
            clock.advance(0.1)
            permit.report(status_code=200)
    first, second = seen.spans
    assert first.events == ()
    assert second.attributes["headgate.permit.wait.duration"] == pytest.approx(0.4)
    (event,) = second.events
    assert event.name == "headgate.permit"
    assert event.attributes["headgate.permit.wait.duration"] == pytest.approx(0.4)
    assert event.timestamp == second.start_time
    assert second.end_time - second.start_time == 100_000_000


def test_it_lies_in_the_callers_span_and_is_current_meanwhile(seen):
    limiter = limiter_at()
    seen.instrument(limiter)
    tracer = seen.tracers.get_tracer("the user's")
    with tracer.start_as_current_span("outside") as outside, limiter.permit("api") as permit:
        with tracer.start_as_current_span("inside"):
            pass
        permit.report(status_code=200)
    assert trace.get_current_span() is trace.INVALID_SPAN
    spans = {span.name: span for span in seen.spans}
    assert spans["HTTP"].parent.span_id == outside.get_span_context().span_id
    assert spans["inside"].parent.span_id == spans["HTTP"].context.span_id


def test_tasks_do_not_see_each_others_attempts(seen):
    async def main(clock):
        limiter = limiter_at(clock=clock, token_bucket_capacity=10)
        seen.instrument(limiter)
        tracer = seen.tracers.get_tracer("the user's")

        async def one(name):
            async with limiter.permit(name) as permit:
                await asyncio.sleep(1.0)
                with tracer.start_as_current_span(f"in {name}"):
                    await asyncio.sleep(1.0)
                permit.report(status_code=200)

        await asyncio.gather(*(one(f"key-{number}") for number in range(5)))

    run(main)
    attempts = {span.context.span_id: span for span in seen.spans if span.name == "HTTP"}
    inner = [span for span in seen.spans if span.name.startswith("in ")]
    assert len(attempts) == len(inner) == 5
    assert all(span.name == f"in {attempts[span.parent.span_id].attributes['headgate.key']}" for span in inner)


def test_a_permit_that_is_reported_by_hand_has_its_span_too(seen):
    clock = VirtualClock()
    limiter = limiter_at(clock=clock)
    seen.instrument(limiter)
    permit = limiter.acquire("api.example.com")
    clock.advance(0.5)
    permit.report(status_code=204)
    permit.report(status_code=500)
    (span,) = seen.spans
    assert span.attributes["http.response.status_code"] == 204
    assert span.end_time - span.start_time == 500_000_000


@pytest.mark.parametrize(
    ("ends", "error_type", "outcome"),
    [
        ({"status_code": 429, "retry_after": 7.0}, "429", "rate_limited"),
        ({"status_code": 503}, "503", "overloaded"),
        ({"answer": ConnectionResetError("secret words")}, "transient", "transient"),
    ],
)
def test_a_failure_is_an_error_with_its_type(seen, ends, error_type, outcome):
    limiter = limiter_at()
    seen.instrument(limiter)
    with limiter.permit("api") as permit:
        permit.report(**ends)
    (span,) = seen.spans
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes["error.type"], span.attributes["headgate.outcome"]) == (error_type, outcome)
    assert span.attributes.get("http.response.status_code") == ends.get("status_code")
    assert span.attributes.get("headgate.retry_after") == ends.get("retry_after")
    assert "secret words" not in seen.everything()


def test_an_exception_is_told_by_its_kind_alone(seen):
    limiter = limiter_at()
    seen.instrument(limiter)
    with pytest.raises(TimeoutError), limiter.permit("api"):
        raise TimeoutError(f"no answer for {SECRET}")
    (span,) = seen.spans
    assert span.attributes["error.type"] == "TimeoutError"
    assert span.events == ()
    assert SECRET not in seen.everything()


def test_what_nobody_will_know_and_what_was_not_sent_end_as_such(seen):
    limiter = limiter_at(token_bucket_capacity=5)
    watcher = seen.instrument(limiter)
    with limiter.permit("api"):
        pass
    with limiter.permit("api") as permit:
        permit.abandon()
    with pytest.raises(CircuitOpenError), limiter.permit("api"):
        raise CircuitOpenError("inside", "of another gate")
    assert [span.attributes["headgate.outcome"] for span in seen.spans] == ["unknown", "abandoned", "abandoned"]
    assert watcher._open == {}
    assert seen.points("http.client.request.duration") == []


def test_calls_go_on_if_the_tracer_fails(seen, caplog):
    limiter = limiter_at()
    watcher = seen.instrument(limiter)
    watcher._tracer = None
    with limiter.permit("api") as permit:
        permit.report(status_code=200)
    assert limiter.key_status("api").in_flight == 0
    assert "an observer failed" in caplog.text


# ------------------------------------------------------------------ where attempts happen


def test_the_executor_has_a_span_for_each_attempt(seen):
    async def main(clock):
        manager = ProviderResilienceManager(clock=clock, rng=random.Random(1))
        seen.instrument(manager)
        keys = CredentialCoordinator([SECRET], clock=clock)
        answers = iter([ConnectionError("reset"), "fine"])

        async def ask(ctx):
            await asyncio.sleep(0.1)
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            ctx.report(status_code=200)
            return answer

        assert await execute_with_resilience(ask, "api.openai.com", manager=manager, credentials=keys) == "fine"

    run(main)
    first, second = seen.spans
    assert first.attributes["error.type"] == "ConnectionError"
    assert "http.request.resend_count" not in first.attributes
    assert second.attributes["http.request.resend_count"] == 1
    assert second.attributes["headgate.outcome"] == "ok"
    assert second.attributes["headgate.credential"]
    assert second.attributes["server.address"] == "api.openai.com"
    assert [span.end_time - span.start_time for span in seen.spans] == pytest.approx([1e8] * 2, abs=1000)
    assert SECRET not in seen.everything()


def test_the_executor_for_threads_too(seen):
    manager = ProviderResilienceManager(clock=VirtualClock(), rng=random.Random(1))
    seen.instrument(manager)

    def ask():
        assert trace.get_current_span().is_recording()
        return "fine"

    assert execute_with_resilience_sync(ask, "openai", manager=manager) == "fine"
    (span,) = seen.spans
    assert span.attributes["headgate.key"] == "openai"


@pytest.mark.parametrize("in_threads", [False, True])
def test_a_batch_has_a_span_for_each_call_of_its_worker(seen, in_threads):
    calls = []

    def work(item, ctx):
        calls.append((item, trace.get_current_span().get_span_context().span_id))
        ctx.report(status_code=500 if len(calls) == 1 else 200)

    async def work_async(item, ctx):
        work(item, ctx)

    async def main():
        runner = BatchRunner(
            work if in_threads else work_async,
            workers=1,
            config=BatchConfig(base_delay=0.001, max_delay=0.002),
            limiter=AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6)),
        )
        seen.instrument(runner)
        return await runner.run(["a", "b", "c"])

    report = asyncio.run(main())
    assert report.done == 3
    assert len(seen.spans) == 4
    assert {span.context.span_id for span in seen.spans} == {span_id for _, span_id in calls}
    assert sorted(span.attributes.get("http.request.resend_count", 0) for span in seen.spans) == [0, 0, 0, 1]
    assert sum(point.value for point in seen.points("headgate.rows_put_aside")) == 1


def test_a_row_that_is_sent_tells_its_method_and_where_it_goes(seen):
    """The worker of ``headgate run`` over a real socket: the address without its query, and no key."""
    line = json.dumps({"custom_id": "r", "url": "/v1/chat", "body": {"model": "m", "messages": []}}).encode()

    async def answer(request):
        assert request.headers["Authorization"] == f"Bearer {SECRET}"
        return web.json_response({"said": SECRET})

    async def main():
        app = web.Application()
        app.router.add_post("/v1/chat", answer)
        server = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await server.setup()
        site = web.TCPSite(server, "127.0.0.1", 0)
        await site.start()
        port = server.addresses[0][1]
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6))
        try:
            async with Target(TargetConfig(to=f"http://127.0.0.1:{port}")) as target:
                runner = BatchRunner(target.fetch, workers=1, limiter=limiter, credentials=[SECRET], key="the mock")
                seen.instrument(runner)
                report = await runner.run(Rows("-", stdin=io.BufferedReader(io.BytesIO(line))))
        finally:
            await server.cleanup()
        assert report.done == 1
        return port

    port = asyncio.run(main())
    (span,) = seen.spans
    assert span.name == "POST"
    assert span.attributes["http.request.method"] == "POST"
    assert span.attributes["url.full"] == f"http://127.0.0.1:{port}/v1/chat"
    assert span.attributes["server.address"] == "127.0.0.1"
    assert span.attributes["server.port"] == port
    assert span.attributes["http.response.status_code"] == 200
    (point,) = seen.points("http.client.request.duration")
    assert (point.attributes["http.request.method"], point.attributes["server.port"]) == ("POST", port)
    assert SECRET not in seen.everything()


def test_a_visit_of_a_crawl_is_a_get_of_its_page(seen):
    async def main(clock):
        limiter = limiter_at(clock=clock)
        seen.instrument(limiter)

        async def fetch(visit):
            await asyncio.sleep(0.2)
            return FetchResponse(url=visit.url, status=404, content_type="", latency=0.2, took=0.2)

        visiting = GatedFetcher(limiter, fetch, CrawlConfig(), random.Random(1))
        visit = Visit(1, f"https://example.org/page?session={SECRET}", "example.org", 0)
        await visiting.fetch(visit, await visiting.acquire(visit.url))

    run(main)
    (span,) = seen.spans
    assert span.name == "GET"
    assert span.attributes["url.full"] == "https://example.org/page"
    assert span.attributes["server.address"] == "example.org"
    assert span.attributes["server.port"] == 443
    assert span.attributes["http.response.status_code"] == 404
    assert SECRET not in seen.everything()


# ------------------------------------------------------------------ metrics


def test_the_duration_of_requests_is_measured_by_the_conventions(seen):
    clock = VirtualClock()
    limiter = limiter_at(rate=10, clock=clock)
    seen.instrument(limiter)
    for status in (200, 200, 503):
        with limiter.permit("api.example.com") as permit:
            clock.advance(0.3)
            permit.report(status_code=status)
    measured = seen.points("http.client.request.duration")
    points = {point.attributes["http.response.status_code"]: point for point in measured}
    assert points[200].count == 2
    assert points[200].sum == pytest.approx(0.6)
    assert dict(points[503].attributes) == {
        "http.request.method": "_OTHER",
        "server.address": "api.example.com",
        "http.response.status_code": 503,
        "error.type": "503",
        "headgate.key": "api.example.com",
    }
    assert points[200].explicit_bounds[:3] == (0.005, 0.01, 0.025)
    (waits,) = seen.points("headgate.permit.wait.duration")
    assert waits.count == 3


@pytest.mark.no_cover
def test_gauges_look_at_the_limiter_and_do_not_keep_it(seen):
    limiter = limiter_at(rate=40)
    seen.instrument(limiter)
    permit = limiter.acquire("api")
    (rate,) = seen.points("headgate.key.rate")
    assert (rate.value, dict(rate.attributes)) == (40, {"headgate.key": "api"})
    assert [point.value for point in seen.points("headgate.key.in_flight")] == [1]
    del limiter, permit
    import gc

    gc.collect()
    assert seen.points("headgate.key.rate") == []


def test_events_are_counted(seen):
    limiter = limiter_at(consecutive_fail_threshold=1)
    seen.instrument(limiter)
    limiter.acquire("api").report(status_code=500)
    with pytest.raises(CircuitOpenError):
        limiter.acquire("api")
    (change,) = seen.points("headgate.circuit_changes")
    assert (change.value, dict(change.attributes)) == (1, {"headgate.key": "api", "headgate.state": "open"})
    assert [point.value for point in seen.points("headgate.refusals")] == [1]


@pytest.mark.no_cover
def test_label_values_are_bounded(seen):
    limiter = limiter_at()
    seen.instrument(limiter)
    for number in range(3 * MOST_NAMED):
        limiter.acquire(f"host-{number}.example.com").report(status_code=200)
    points = seen.points("http.client.request.duration")
    assert len(points) == MOST_NAMED + 1
    (rest,) = [point for point in points if point.attributes["headgate.key"] == OTHER]
    assert rest.count == 2 * MOST_NAMED
    assert "server.address" not in rest.attributes


@pytest.mark.no_cover
def test_servers_are_bounded_too_where_all_calls_have_one_key(seen):
    limiter = limiter_at()
    seen.instrument(limiter)
    for number in range(3 * MOST_NAMED):
        with limiter.permit("all") as permit:
            exchange.on_request("GET", f"https://host-{number}.example.com/")
            permit.report(status_code=200)
    points = seen.points("http.client.request.duration")
    assert len(points) == MOST_NAMED + 1
    (rest,) = [point for point in points if "server.address" not in point.attributes]
    assert (rest.count, rest.attributes["headgate.key"]) == (2 * MOST_NAMED, "all")


def test_what_is_not_sampled_is_measured_all_the_same():
    seen = Seen(sampler=ALWAYS_OFF)
    limiter = limiter_at()
    seen.instrument(limiter)
    with limiter.permit("api") as permit:
        permit.report(status_code=200)
    assert seen.spans == ()
    assert [point.count for point in seen.points("http.client.request.duration")] == [1]


def test_without_an_sdk_nothing_happens_and_nothing_is_kept():
    limiter = limiter_at()
    watcher = OpenTelemetry()
    watcher.instrument(limiter)
    watcher.instrument(limiter)
    with limiter.permit("api") as permit:
        permit.report(status_code=200)
    assert watcher._open == {}
    assert limiter.events.observers == (watcher,)


def test_what_has_no_limiter_is_refused_by_name():
    with pytest.raises(TypeError, match="dict has no limiter"):
        instrument({})


def test_spans_that_never_end_are_bounded(seen, monkeypatch):
    monkeypatch.setattr(otel, "MOST_OPEN", 2)
    limiter = limiter_at(token_bucket_capacity=10)
    watcher = seen.instrument(limiter)
    contexts = [limiter.permit("api") for _ in range(4)]
    permits = [context.__enter__() for context in contexts]
    assert len(watcher._open) == 2
    for context, permit in reversed(list(zip(contexts, permits, strict=True))):
        permit.report(status_code=200)
        context.__exit__(None, None, None)
    assert len(seen.spans) == 4


# ------------------------------------------------------------------ where a call goes


@pytest.mark.parametrize(
    ("url", "host", "port", "full"),
    [
        ("https://u:p@Example.org/a?b=c#d", "example.org", 443, "https://Example.org/a"),
        ("http://example.org:443/", "example.org", 443, "http://example.org:443/"),
        ("http://[2001:db8::1]:8080/", "2001:db8::1", 8080, "http://[2001:db8::1]:8080/"),
        (f"https://example.org/v1/{SECRET}/x", "example.org", 443, "https://example.org/v1/sk-***/x"),
        ("https://example.org?key=x", "example.org", 443, "https://example.org"),
    ],
)
def test_an_address_is_told_without_what_may_be_secret(url, host, port, full):
    assert address_facts(url) == {"server.address": host, "server.port": port, "url.full": full}


@pytest.mark.parametrize(
    ("key", "facts"),
    [
        ("api.example.com", {"server.address": "api.example.com"}),
        ("api.example.com:99/label", {"server.address": "api.example.com", "server.port": 99}),
        ("localhost:8080", {"server.address": "localhost", "server.port": 8080}),
        ("[::1]:81", {"server.address": "::1", "server.port": 81}),
        ("openai/gpt-4o", {}),
        ("tenant A", {}),
        ("", {}),
    ],
)
def test_a_key_names_a_server_only_if_it_is_an_address(key, facts):
    assert server_facts(key) == facts
