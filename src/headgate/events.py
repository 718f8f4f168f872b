"""Facts about what happened, in the order it happened: the one thing that logs, metrics and pages read.

An event names a key, never a credential. With the same seed and the same answers on a
virtual clock, two runs give the same events.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from .core.signal import Signal

log = logging.getLogger("headgate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened to one key."""

    at: float
    """On the limiter's clock."""
    kind: str
    """rate_changed, circuit_changed, held, refused, limited, key_evicted, cannot_learn, store_lost or store_back."""
    key: str
    reason: str
    rate: float
    """The pace after it, in calls a second."""
    state: str
    """The circuit after it: closed, open or half_open."""


class CallEvent(NamedTuple):
    """One call that was let through and has been answered, for whoever watches calls (``limiter.watch``).

    There is one for every call, so it is as light as can be and goes to nobody who has not asked for it.
    """

    at: float
    """When its end was reported, on the limiter's clock."""
    key: str
    sent_at: float
    """When it was let through ..."""
    waited: float
    """... after so many seconds in line."""
    latency: float
    status: int | None
    """Of HTTP, where it is known."""
    signal: Signal
    """What the answer said."""
    cost: float | Mapping[str, float] = 1
    draw: float = 0.0
    """What chance added to the wait that the answer asks for, as a share of the most it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResilienceEvent:
    """One thing that happened to one call to one provider, for telemetry that can be queried."""

    event_type: str
    """rate_limit_wait, retry_attempt, circuit_state_change, budget_exceeded, request_success, request_failure,
    all_providers_circuit_open, credential_wait, credential_pool_exhausted, credential_rested, credential_back,
    credential_retired, store_failed or store_back."""
    provider: str
    timestamp: datetime
    """In UTC, by the wall clock."""
    attempt: int | None = None
    max_attempts: int | None = None
    wait_ms: int | None = None
    breaker_state: str | None = None
    error_type: str | None = None
    error_classification: str | None = None
    budget_remaining_ms: int | None = None
    correlation_id: str | None = None
    credential: str | None = None
    """The label of the credential, never the secret."""


def is_wanted(listener: object, kind: str) -> bool:
    """Whether to make an event of this kind now: a listener that hears too many of them says so (``wants``). It is told
    of those that are not made (``missed``), so whoever asks must make it or not, as the answer says."""
    wants = getattr(listener, "wants", None)
    try:
        if wants is None or wants(kind):
            return True
    except Exception:
        log.exception("a listener could not say whether it wants %s", kind)
    tell_missed(listener, kind, 1)
    return False


def tell_missed(listener: object, kind: str, count: int) -> None:
    """So many events of this kind were not made, because the listener did not want them."""
    missed = getattr(listener, "missed", None)
    if callable(missed):
        try:
            missed(kind, count)
        except Exception:
            log.exception("a listener could not count %s", kind)
