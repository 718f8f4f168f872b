"""An event as people read it: what happened, to whom, and why; without a secret in it, and not too long."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..clock import Clock
from ..core.words import printable, span
from ..events import Event, ResilienceEvent
from ..wire.redaction import for_display, redact
from .snapshot import EventLine
from .waiting import is_usual

if TYPE_CHECKING:
    from ..batch.report import BatchEvent
    from ..crawl.report import CrawlEvent
    from .hub import AnyEvent

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
"""What happens all the time."""
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
"""What somebody should look at."""


def is_routine(line: EventLine) -> bool:
    """A pace that holds back the next call is nothing that anybody need know either."""
    return line.kind in ROUTINE or (line.kind == "held" and is_usual(f": {line.reason}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    at: float
    """Unix time."""
    kind: str
    key: str
    reason: str

    @property
    def level(self) -> int:
        """Of the standard library's logging."""
        if self.kind in ROUTINE:
            return logging.DEBUG
        opened = self.kind in ("circuit_changed", "circuit_state_change") and self.reason.endswith("open")
        return logging.WARNING if opened or self.kind in ALARMING else logging.INFO


def kind_of(event: AnyEvent) -> str:
    return event.event_type if isinstance(event, ResilienceEvent) else event.kind


def in_words(event: AnyEvent, clock: Clock) -> Wording:
    """``clock``: that of whoever made the event."""
    if isinstance(event, ResilienceEvent):
        at = event.timestamp.timestamp()
        key = event.provider + (f"/{event.credential}" if event.credential else "")
        return _wording(at, event.event_type, key, redact(", ".join(_of_call(event))))
    at = clock.wall() - (clock.now() - event.at)
    if isinstance(event, Event):
        return _wording(at, event.kind, event.key, redact(event.reason))
    if hasattr(event, "host"):  # so that who does not crawl need not load what crawls
        crawled = cast("CrawlEvent", event)
        return _wording(at, crawled.kind, crawled.host, redact(", ".join(_of_crawl(crawled))))
    return _wording(at, event.kind, event.key, ", ".join(_of_batch(event)))


def _of_call(event: ResilienceEvent) -> list[str]:
    """The least known comes last: what is cut off at the end is missed least."""
    parts = [event.error_classification or "", event.error_type or ""]
    parts += [f"attempt {event.attempt} of {event.max_attempts}"] if event.attempt and event.max_attempts else []
    parts += [f"for {span(event.wait_ms / 1000)}"] if event.wait_ms else []
    parts += [f"circuit {event.breaker_state}"] if event.breaker_state else []
    return [part for part in parts if part]


def _of_crawl(event: CrawlEvent) -> list[str]:
    parts = [event.reason, f"answered {event.status}" if event.status else ""]
    parts += [f"for {span(event.seconds)}"] if event.seconds and "to go" not in event.reason else []
    parts += [event.url]
    return [part for part in parts if part]


def _of_batch(event: BatchEvent) -> list[str]:
    row = "" if event.index is None else f"row {event.index + 1:,}"
    reason = event.reason and redact(event.reason)  # of a row that is done there is none
    parts = [row, reason, f"for {span(event.seconds)}" if event.seconds else ""]
    return [part for part in parts if part]


def _wording(at: float, kind: str, key: str, reason: str) -> Wording:
    return Wording(at=at, kind=kind, key=for_display(key)[:LONGEST_KEY], reason=shortened(reason))


def shortened(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 4] + " ..."
