"""Metrics for Prometheus: what is scraped is what happened, in names and labels that keep to their bounds."""

import random
import threading
import urllib.request
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Counter, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.report import BatchEvent
from headgate.core.decision import Outcome
from headgate.credentials import CredentialCoordinator
from headgate.events import CrawlEvent, Event, ResilienceEvent
from headgate.lab.virtual_time import VirtualClock
from headgate.observe.exporters.metrics import METRICS, MOST_NAMED, OTHER, LabelNames
from headgate.observe.exporters.prometheus import CONTENT_TYPE, Prometheus
from headgate.observe.monitor import RunMonitor
from headgate.observe.snapshot import CredentialLine, KeyLine, ProgressLine, RunSnapshot, WaitLine
from headgate.resilience.execute import execute_with_resilience_sync
from headgate.resilience.manager import ProviderResilienceManager

SECRET = "sk-live-0123456789abcdef"


def run_of(keys=(), **facts):
    base = RunSnapshot(
        run="run-1",
        title="rows.jsonl",
        kind="run",
        pid=1,
        host="here",
        started_at=1e9,
        at=1e9 + 60,
        progress=ProgressLine(total=100, done=40, dead=2, open=58, in_flight=5, parked=3, rate=1.5, eta=38.7),
        waits=(WaitLine(scope="api", sentence="paced", behind=53),),
        blocked=53,
        keys=tuple(keys),
        credentials=(CredentialLine(label="a", mark="aaaaaa", state="resting"),),
        counters={"calls": 45.0},
    )
    return replace(base, **facts)


class Looked:
    """A run that shows what it is told to show."""

    def __init__(self, snapshot):
        self.shown = snapshot

    def snapshot(self):
        if isinstance(self.shown, Exception):
            raise self.shown
        return self.shown


class Several:
    def __init__(self, *runs):
        self._runs = runs

    def runs(self):
        return self._runs


def parsed(text):
    """By name and labels, as Prometheus' own client reads the text; no sample may be there twice."""
    samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            place = (sample.name, tuple(sorted(sample.labels.items())))
            assert place not in samples, place
            samples[place] = sample.value
    return samples


def totals(metrics):
    """What only grows, without the way over a text."""
    samples = (sample for family in metrics.collect() for sample in family.samples)
    growing = [one for one in samples if one.name.endswith(("_total", "_count", "_sum", "_bucket"))]
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for one in growing}


def value(samples, metric, /, **labels):
    return samples[metric, tuple(sorted(labels.items()))]


def ended(metrics, key="api", outcome=Outcome.OK, latency=0.2, waited=0.0):
    """A call is over, as a limiter tells it."""
    metrics.inbox.append((key, outcome, latency, waited))


@pytest.fixture
def metrics():
    return Prometheus()


# ------------------------------------------------------------------ a scrape


def test_a_scrape_over_http_tells_every_call_of_a_limiter(metrics):
    clock = VirtualClock()
    limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=10), clock=clock, rng=random.Random(1))
    metrics.instrument(limiter)
    for status in (200, 200, 429, 503):
        with limiter.permit("api.example.com") as permit:
            clock.advance(0.3)
            permit.report(status_code=status)
        clock.advance(1.0)
    registry = CollectorRegistry()
    metrics.register(registry)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60) as answer:
            assert answer.status == 200
            samples = parsed(answer.read())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    key = "api.example.com"
    assert value(samples, "headgate_calls_total", key=key, outcome="ok") == 2
    assert value(samples, "headgate_calls_total", key=key, outcome="rate_limited") == 1
    assert value(samples, "headgate_calls_total", key=key, outcome="overloaded") == 1
    assert value(samples, "headgate_call_duration_seconds_count", key=key) == 4
    assert value(samples, "headgate_call_duration_seconds_sum", key=key) == pytest.approx(1.2)
    assert value(samples, "headgate_call_duration_seconds_bucket", key=key, le="0.25") == 0
    assert value(samples, "headgate_call_duration_seconds_bucket", key=key, le="0.5") == 4
    assert value(samples, "headgate_call_duration_seconds_bucket", key=key, le="+Inf") == 4


def test_the_wait_for_a_permit_is_told_apart_from_the_call(metrics):
    clock = VirtualClock()
    config = RateLimitConfig(strategy="fixed", initial_rps=1, token_bucket_capacity=1)
    limiter = AdaptiveRateLimiter(config, clock=clock, rng=random.Random(1))
    metrics.instrument(limiter)
    for _ in range(3):
        limiter.acquire("api").report(status_code=200, latency=0.001)
    samples = parsed(metrics.text())
    assert value(samples, "headgate_permit_wait_seconds_sum", key="api") == pytest.approx(2.0)
    assert value(samples, "headgate_call_duration_seconds_sum", key="api") == pytest.approx(0.003)


def test_a_registry_of_the_users_own_has_both(metrics):
    registry = CollectorRegistry()
    Counter("theirs", "Something of the user's.", registry=registry).inc()
    metrics.register(registry)
    ended(metrics)
    names = {metric.name for metric in registry.collect()}
    assert {"theirs", "headgate_calls"} <= names
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.register(registry)


def test_the_content_type_is_that_of_the_text_format():
    assert CONTENT_TYPE.startswith("text/plain; version=")


# ------------------------------------------------------------------ what is counted


def test_events_of_every_kind_are_counted(metrics):
    from datetime import UTC, datetime

    def key_event(kind, state="closed"):
        return Event(at=1.0, kind=kind, key="api", reason="", rate=1.0, state=state)

    def told(kind, **facts):
        return ResilienceEvent(event_type=kind, provider="openai", timestamp=datetime.now(UTC), **facts)

    for event in (
        key_event("refused"),
        key_event("held"),
        key_event("rate_changed"),
        key_event("circuit_changed", "open"),
        BatchEvent(at=1.0, kind="item_done", key="api", tokens=7, cost=0.5, waited={"pace": 2.0}),
        BatchEvent(at=1.0, kind="item_dead", key="api", reason="invalid: HTTP 400", waited={"pace": 1.0}),
        BatchEvent(at=1.0, kind="item_parked", key="api"),
        BatchEvent(at=1.0, kind="item_failed", key="api"),
        BatchEvent(at=1.0, kind="cooldown_started", key="api"),
        CrawlEvent(at=1.0, kind="page", host="example.org"),
        CrawlEvent(at=1.0, kind="robots", host="example.org"),
        told("request_success"),
        told("retry_attempt", error_classification="transient"),
        told("rate_limit_wait", wait_ms=1500),
        told("credential_rested", credential="a"),
        told("store_failed"),
        object(),
    ):
        metrics(event)
    assert parsed(metrics.text()) == {
        ("headgate_refusals_total", (("key", "api"),)): 1,
        ("headgate_holds_total", (("key", "api"),)): 1,
        ("headgate_circuit_changes_total", (("key", "api"), ("state", "open"))): 1,
        ("headgate_rows_put_aside_total", (("key", "api"), ("state", "parked"))): 1,
        ("headgate_rows_put_aside_total", (("key", "api"), ("state", "failed"))): 1,
        ("headgate_dead_rows_total", (("reason", "invalid"),)): 1,
        ("headgate_cooldowns_total", (("key", "api"),)): 1,
        ("headgate_addresses_total", (("fate", "page"), ("host", "example.org"))): 1,
        ("headgate_requests_total", (("provider", "openai"), ("result", "success"))): 1,
        ("headgate_retries_total", (("outcome", "transient"), ("provider", "openai"))): 1,
        ("headgate_request_wait_seconds_total", (("provider", "openai"),)): 1.5,
        ("headgate_credential_changes_total", (("change", "rested"), ("provider", "openai"))): 1,
        ("headgate_store_failures_total", (("provider", "openai"),)): 1,
    }


def test_a_call_that_takes_two_permits_is_one_call(metrics):
    """With credentials a call asks for the pace of its credential, and for the circuit of its provider."""
    from headgate.credentials import CredentialCoordinator

    clock = VirtualClock()
    manager = ProviderResilienceManager(clock=clock, rng=random.Random(1))
    metrics.instrument(manager)
    keys = CredentialCoordinator([SECRET], clock=clock)
    assert execute_with_resilience_sync(lambda ctx: "fine", "openai", manager=manager, credentials=keys) == "fine"
    samples = parsed(metrics.text())
    calls = {place: count for place, count in samples.items() if place[0] == "headgate_calls_total"}
    assert list(calls.values()) == [1]
    assert value(samples, "headgate_requests_total", provider="openai", result="success") == 1
    assert SECRET not in metrics.text().decode()


def test_listeners_that_were_there_before_go_on_hearing(metrics):
    heard = []
    clock = VirtualClock()
    config = RateLimitConfig(consecutive_fail_threshold=1)
    limiter = AdaptiveRateLimiter(config, clock=clock, on_event=heard.append)
    metrics.instrument(limiter)
    limiter.acquire("api").report(status_code=500)
    assert "circuit_changed" in [event.kind for event in heard]
    assert value(parsed(metrics.text()), "headgate_circuit_changes_total", key="api", state="open") == 1


@pytest.mark.no_cover
def test_threads_lose_no_count(metrics):
    def work():
        for _ in range(2000):
            ended(metrics)
            metrics(BatchEvent(at=1.0, kind="item_parked", key="api"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        parsed(metrics.text())
    for thread in threads:
        thread.join()
    samples = parsed(metrics.text())
    assert value(samples, "headgate_calls_total", key="api", outcome="ok") == 8000
    assert value(samples, "headgate_rows_put_aside_total", key="api", state="parked") == 8000


# ------------------------------------------------------------------ labels


def test_the_busiest_keys_have_names_and_all_others_are_one(metrics):
    for number in range(5 * MOST_NAMED):
        ended(metrics, f"host-{number}")
    for _ in range(50):
        ended(metrics, "late and busy")
    samples = parsed(metrics.text())
    named = {dict(labels)["key"] for name, labels in samples if name == "headgate_calls_total"}
    assert len(named) == MOST_NAMED + 1
    assert {"late and busy", OTHER} <= named
    assert value(samples, "headgate_calls_total", key=OTHER, outcome="ok") >= 4 * MOST_NAMED


@pytest.mark.no_cover
def test_a_total_never_goes_back_when_names_change_hands():
    """Keys of all sorts come and go; of every series that is there in two scrapes, the later is no less."""
    rng = random.Random(7)
    metrics = Prometheus()
    before = {}
    for _ in range(12):
        for _ in range(1000):
            ended(metrics, f"host-{int(rng.paretovariate(0.6)) % 1000}")
        samples = totals(metrics)
        for place, count in samples.items():
            assert count >= before.get(place, 0), place
        before = samples


def test_a_name_goes_only_to_a_key_that_is_twice_as_busy():
    names = LabelNames(most=2)
    assert [names.name(key) for key in ("a", "a", "b", "b", "c", "c", "c")] == ["a", "a", "b", "b", *[OTHER] * 3]
    assert names.name("c") == "c"
    assert names.lost == ["a"]
    assert names.name("a") == OTHER


def test_no_key_can_break_the_text(metrics):
    hostile = [
        '"} 1\nfake_metric 2',
        "back\\slash",
        "\ud800",
        "\ud801",
        "x" * 1000,
        "x" * 1000 + "y",
        "",
        "ü{}=,",
        "other",
    ]
    for key in hostile:
        ended(metrics, key)
        metrics(BatchEvent(at=1.0, kind="item_dead", key=key, reason=key))
    samples = parsed(metrics.text())
    assert {name for name, _ in samples} <= {
        f"{info.name}{end}" for info in METRICS for end in ("", "_total", "_bucket", "_count", "_sum")
    }
    assert sum(count for (name, _), count in samples.items() if name == "headgate_calls_total") == len(hostile)
    assert max(len(dict(labels).get("key", "")) for _, labels in samples) < 220


# ------------------------------------------------------------------ runs


def test_a_run_is_looked_at_on_each_scrape():
    api = KeyLine(key="api", rate=9.5, said=10.0, sent=45, refused=3, failed=1, in_flight=5, waiting=7, latency=0.4,
                  p95=1.1, circuit="half_open", not_before=2.5, returning=0.25)  # fmt: skip
    source = Looked(run_of([api]))
    metrics = Prometheus(source)
    samples = parsed(metrics.text())
    assert value(samples, "headgate_run_info", run="run-1", title="rows.jsonl", kind="run") == 1
    assert value(samples, "headgate_run_state", run="run-1", state="running") == 1
    assert value(samples, "headgate_run_state", run="run-1", state="paused") == 0
    assert value(samples, "headgate_run_rows", run="run-1", state="done") == 40
    assert value(samples, "headgate_run_rows_expected", run="run-1") == 100
    assert value(samples, "headgate_run_eta_seconds", run="run-1") == 38.7
    assert value(samples, "headgate_run_blocked_rows", run="run-1") == 53
    assert value(samples, "headgate_run_credentials", run="run-1", state="resting") == 1
    assert value(samples, "headgate_run_counter", run="run-1", name="calls") == 45
    key = {"run": "run-1", "key": "api"}
    assert value(samples, "headgate_key_calls_per_second", **key) == 9.5
    assert value(samples, "headgate_key_said_calls_per_second", **key) == 10.0
    assert value(samples, "headgate_key_calls_total", **key) == 45
    assert value(samples, "headgate_key_refused_total", **key) == 3
    assert value(samples, "headgate_key_circuits", state="half_open", **key) == 1
    assert value(samples, "headgate_key_circuits", state="closed", **key) == 0
    assert value(samples, "headgate_key_closed_seconds", **key) == 2.5
    assert value(samples, "headgate_key_ramp_ratio", **key) == 0.25
    assert ("headgate_key_limit_calls_per_second", tuple(sorted(key.items()))) not in samples
    source.shown = run_of([replace(api, sent=60)], state="paused")
    samples = parsed(metrics.text())
    assert value(samples, "headgate_key_calls_total", **key) == 60
    assert value(samples, "headgate_run_state", run="run-1", state="paused") == 1


def test_of_a_thousand_keys_the_rest_is_added_up():
    keys = [KeyLine(key=f"k{number}", rate=1.0, sent=number, waiting=1, latency=number) for number in range(1000)]
    samples = parsed(Prometheus(Looked(run_of(keys, more_keys=500))).text())
    calls = {
        dict(labels)["key"]: count for (name, labels), count in samples.items() if name == "headgate_key_calls_total"
    }
    assert len(calls) == MOST_NAMED + 1
    assert "k999" in calls
    assert sum(calls.values()) == sum(range(1000))
    assert value(samples, "headgate_key_waiting", run="run-1", key=OTHER) == 900
    assert value(samples, "headgate_key_latency_seconds", run="run-1", key=OTHER) == 899
    assert value(samples, "headgate_key_circuits", run="run-1", key=OTHER, state="closed") == 900
    assert value(samples, "headgate_run_keys", run="run-1") == 1500


@pytest.mark.no_cover
def test_totals_of_a_runs_keys_never_go_back():
    rng = random.Random(3)
    sent = {f"k{number}": 0 for number in range(300)}
    source = Looked(run_of())
    metrics = Prometheus(source)
    before = {}
    for _ in range(40):
        for key in rng.sample(list(sent), 30):
            sent[key] += rng.randrange(200)
        if rng.random() < 0.2:
            sent[rng.choice(list(sent))] = 0  # it was forgotten, and came back
        source.shown = run_of([KeyLine(key=key, rate=1.0, sent=count) for key, count in sent.items()])
        samples = totals(metrics)
        for place, count in samples.items():
            assert count >= before.get(place, 0), place
        before = samples


def test_a_run_that_cannot_be_looked_at_costs_the_others_nothing():
    metrics = Prometheus(Several(Looked(OSError("gone")), Looked(run_of()), Looked(run_of(run="run-2"))))
    samples = parsed(metrics.text())
    assert {dict(labels)["run"] for _, labels in samples} == {"run-1", "run-2"}


def test_a_run_that_is_seen_twice_is_told_once():
    samples = parsed(Prometheus(Several(Looked(run_of()), Looked(run_of(title="a file")))).text())
    assert value(samples, "headgate_run_info", run="run-1", title="rows.jsonl", kind="run") == 1


# ------------------------------------------------------------------ the list


def test_names_and_units_follow_prometheus():
    for info in METRICS:
        assert info.name.startswith("headgate_")
        assert not info.name.endswith(("_total", "_count", "_sum", "_bucket", "_info_total"))
        assert info.says.endswith(".")
        assert not any(unit in info.name for unit in ("_ms", "millisecond", "minute"))
        if info.kind == "histogram":
            assert info.name.endswith("_seconds")


def test_all_that_a_run_consists_of_is_heard_once(metrics):
    limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=100))
    keys = CredentialCoordinator(["a", "b"], provider="api")
    with RunMonitor(limiter=limiter, credentials=keys) as watched:
        metrics.listen_to(watched)
        metrics.listen_to(watched)
        limiter.acquire("api").report(status_code=200)
        metrics.text()  # from here on calls are counted
        limiter.acquire("api").report(status_code=200)
        limiter.pause("api", 5.0)
        keys.retire("a")
    samples = parsed(metrics.text())
    assert value(samples, "headgate_calls_total", key="api", outcome="ok") == 1
    assert value(samples, "headgate_credential_changes_total", provider="api", change="retired") == 1
    assert value(samples, "headgate_holds_total", key="api") == 1
    names = {family.name for family in text_string_to_metric_families(metrics.text().decode())}
    assert names == {info.name for info in METRICS}
