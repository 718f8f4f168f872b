"""An event as a person reads it: when, what, about which key, and why; redacted, and not too long."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..clock import Clock
from ..core.decision import CircuitState
from ..events import BatchEvent, CrawlEvent, Event, EventRecord, PublicEvent, ResilienceEvent, record_of
from ..formatting import format_seconds, printable
from ..wire.redact import for_display, redact
from .snapshot import EventLine
from .waits import ORDINARY

LONGEST_REASON = 300
LONGEST_KEY = 200

ROUTINE = frozenset(
    [
        "rate_changed",
        "refused",
        "key_evicted",
        "item_done",
        "item_parked",
        "item_failed",
        "call",
        "page",
        "sent_on",
        "put_off",
        "robots",
        "sitemap",
        "rate_limit_wait",
        "credential_wait",
        "credential_pool_exhausted",
        "retry_attempt",
        "request_success",
    ]
)
"""Kinds that happen all the time."""
ALARMING = frozenset(
    [
        "cannot_learn",
        "store_lost",
        "store_failed",
        "circuit_open",
        "item_dead",
        "item_lost",
        "caps_reached",
        "failed",
        "credential_retired",
        "budget_exceeded",
        "all_providers_circuit_open",
        "request_failure",
    ]
)
"""Kinds that an operator should look at."""
_CIRCUIT_CHANGES = ("circuit_changed", "circuit_state_change")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventText:
    at: float
    """Unix time."""
    kind: str
    key: str
    reason: str
    """A sentence; empty where the kind says it all."""
    code: str
    level: int
    """Of the standard library's logging."""


def kind_of(event: EventRecord | PublicEvent) -> str:
    return event.event_type if isinstance(event, ResilienceEvent) else event.kind


def is_routine(line: EventLine | EventRecord) -> bool:
    """Whether it happens all the time. A pace that holds back the next call does, too."""
    code = line.code if isinstance(line, EventLine) else line.reason
    return line.kind in ROUTINE or (line.kind == "held" and code in ORDINARY)


def describe(event: EventRecord | PublicEvent, clock: Clock) -> EventText:
    """``clock``: that of the part that made the event."""
    record = record_of(event, clock)
    credential = record.fields.get("credential") if record.form is ResilienceEvent else None
    return EventText(
        at=record.unix_at,
        kind=record.kind,
        key=for_display(f"{record.scope}/{credential}" if credential else record.scope)[:LONGEST_KEY],
        reason=shortened(redact(", ".join(part for part in _parts(record) if part))),
        code=record.reason,
        level=_level(record),
    )


def shortened(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 4] + " ..."


def _level(record: EventRecord) -> int:
    if record.kind in ROUTINE:
        return logging.DEBUG
    circuit = record.fields.get("state" if record.form is Event else "breaker_state")
    is_alarming = record.kind in ALARMING or (record.kind in _CIRCUIT_CHANGES and circuit != CircuitState.CLOSED.value)
    return logging.WARNING if is_alarming else logging.INFO


def _parts(record: EventRecord) -> list[str]:
    """The least known comes last: what is cut off at the end is missed least."""
    fields, form = record.fields, record.form
    if form is ResilienceEvent:
        attempt, most, wait_ms = (fields.get(name) for name in ("attempt", "max_attempts", "wait_ms"))
        return [
            fields.get("error_classification") or "",
            fields.get("error_type") or "",
            f"attempt {attempt} of {most}" if attempt and most else "",
            f"for {format_seconds(wait_ms / 1000)}" if wait_ms else "",
            f"circuit {fields['breaker_state']}" if fields.get("breaker_state") else "",
        ]
    seconds = fields.get("seconds")
    lasting = f"for {format_seconds(seconds)}" if seconds else ""
    if form is BatchEvent:
        row = fields.get("index")
        return ["" if row is None else f"row {row + 1:,}", record.text, lasting]
    if form is CrawlEvent:
        has_time = record.detail and not record.reason  # a sentence about a wait says how long it takes
        status = f"answered {fields['status']}" if fields.get("status") else ""
        return [record.text, status, "" if has_time else lasting, fields.get("url", "")]
    return [record.text]
