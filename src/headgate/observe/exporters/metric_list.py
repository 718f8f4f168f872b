"""Every metric there is: its name, its kind, its labels and what it says. Docs and collectors are held to this list.

Names follow Prometheus: a prefix, base units (seconds), ``_total`` for what only grows (added when it is written).
Those that begin with ``headgate_run_`` and ``headgate_key_`` are read on each scrape, for every run that
can be seen from here; the others are counted as it happens, in this process.
"""

from __future__ import annotations

from typing import NamedTuple


class MetricInfo(NamedTuple):
    name: str
    kind: str
    """counter, gauge or histogram."""
    labels: tuple[str, ...]
    says: str


METRICS = (
    MetricInfo("headgate_calls", "counter", ("key", "outcome"), "Calls that were let through and answered."),
    MetricInfo("headgate_call_duration_seconds", "histogram", ("key",), "How long calls took, from permit to answer."),
    MetricInfo("headgate_permit_wait_seconds", "histogram", ("key",), "How long calls waited for their permit."),
    MetricInfo("headgate_refusals", "counter", ("key",), "Calls refused by the gate: circuit open, or wait too long."),
    MetricInfo("headgate_holds", "counter", ("key",), "Times a key was closed for a while: Retry-After, or a pause."),
    MetricInfo("headgate_circuit_changes", "counter", ("key", "state"), "Changes of a circuit, by its new state."),
    MetricInfo("headgate_cooldowns", "counter", ("key",), "Cooldowns of a batch: one for each burst of refusals."),
    MetricInfo("headgate_rows_put_aside", "counter", ("key", "state"), "Times a row was put aside: parked or failed."),
    MetricInfo("headgate_dead_rows", "counter", ("reason",), "Dead rows by category."),
    MetricInfo("headgate_addresses", "counter", ("host", "fate"), "Addresses of a crawl, by what became of them."),
    MetricInfo("headgate_requests", "counter", ("provider", "result"), "Requests with resilience, by their result."),
    MetricInfo("headgate_retries", "counter", ("provider", "outcome"), "Retries, by how the attempt before ended."),
    MetricInfo("headgate_request_wait_seconds", "counter", ("provider",), "Seconds that requests waited for permits."),
    MetricInfo("headgate_credential_changes", "counter", ("provider", "change"), "Credentials rested, back, retired."),
    MetricInfo("headgate_store_failures", "counter", ("provider",), "Times a shared store could not be reached."),
    MetricInfo("headgate_run_info", "gauge", ("run", "title", "kind"), "1 for every run that can be seen."),
    MetricInfo("headgate_run_state", "gauge", ("run", "state"), "1 for the state the run is in."),
    MetricInfo("headgate_run_started_timestamp_seconds", "gauge", ("run",), "When the run started, Unix time."),
    MetricInfo("headgate_run_rows", "gauge", ("run", "state"), "Rows or pages: done, dead, open, in_flight, parked."),
    MetricInfo("headgate_run_rows_expected", "gauge", ("run",), "Rows or pages in all, where that is known."),
    MetricInfo("headgate_run_rows_per_second", "gauge", ("run",), "Rows or pages finished a second, of late."),
    MetricInfo("headgate_run_eta_seconds", "gauge", ("run",), "Seconds to go, where that can be said."),
    MetricInfo("headgate_run_blocked_rows", "gauge", ("run",), "Rows, pages or callers behind blocked scopes."),
    MetricInfo("headgate_run_tokens", "gauge", ("run",), "Tokens that the run has used."),
    MetricInfo("headgate_run_cost", "gauge", ("run",), "What it has cost, in the currency of the prices."),
    MetricInfo("headgate_run_keys", "gauge", ("run",), "Keys in use."),
    MetricInfo("headgate_run_credentials", "gauge", ("run", "state"), "Credentials: free, held, resting or retired."),
    MetricInfo(
        "headgate_run_counter", "gauge", ("run", "name"), "Further numbers of the run, as its snapshot has them."
    ),
    MetricInfo("headgate_key_calls", "counter", ("run", "key"), "Calls sent."),
    MetricInfo("headgate_key_refused", "counter", ("run", "key"), "Answers that were 429 or alike."),
    MetricInfo("headgate_key_failed", "counter", ("run", "key"), "Answers that were failures."),
    MetricInfo("headgate_key_calls_per_second", "gauge", ("run", "key"), "The pace that was learned."),
    MetricInfo("headgate_key_said_calls_per_second", "gauge", ("run", "key"), "The pace the server speaks of."),
    MetricInfo("headgate_key_limit_calls_per_second", "gauge", ("run", "key"), "The most that an operator allows."),
    MetricInfo("headgate_key_in_flight", "gauge", ("run", "key"), "Calls on their way."),
    MetricInfo("headgate_key_waiting", "gauge", ("run", "key"), "Callers in line."),
    MetricInfo("headgate_key_latency_seconds", "gauge", ("run", "key"), "Mean latency of late; of others the longest."),
    MetricInfo(
        "headgate_key_latency_p95_seconds", "gauge", ("run", "key"), "95 of 100 are faster; of others the longest."
    ),
    MetricInfo("headgate_key_circuits", "gauge", ("run", "key", "state"), "Circuits in this state: 0 or 1 for a key."),
    MetricInfo(
        "headgate_key_closed_seconds", "gauge", ("run", "key"), "Nothing starts for so long; of others the longest."
    ),
    MetricInfo(
        "headgate_key_ramp_ratio", "gauge", ("run", "key"), "Share of the pace that the ramp allows; least of others."
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}
