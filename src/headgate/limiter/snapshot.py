"""What a limiter looks like at one moment, for people and for dashboards."""

from __future__ import annotations

from dataclasses import dataclass

from .keys import KeyGate


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySnapshot:
    """One key at one moment."""

    key: str
    rate: float
    """The learned pace in calls a second; what holds back more than it stands in ``reason``."""
    tokens: float
    """Calls that may start at once; below 0 is debt."""
    average_latency: float
    p95_latency: float
    error_rate: float
    """Share of the calls in the statistics window that failed."""
    state: str
    """The circuit: closed, open or half_open."""
    consecutive_failures: int
    not_before_ms: float
    """Nothing starts for so many milliseconds."""
    waiters: int
    in_flight: int
    reason: str
    """Why a call would wait now, in one sentence; empty if it would not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSnapshot:
    """How it stands with the store through which a limiter shares its keys."""

    where: str
    members: int
    """Limiters that are there, this one included: of the keys in use, the most under one."""
    is_lost: bool
    """Whether the store cannot be reached, so that calls go on at this limiter's own share."""
    failures: int
    """How often it could not be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimiterSnapshot:
    """Totals, and the keys that were used last."""

    total: int
    """Calls let through."""
    throttled: int
    """... of which so many had to wait."""
    denied: int
    """Calls refused: an open circuit, or a wait too long."""
    retries: int
    """Answers that ask to be sent again: rate limited, overloaded or failed in passing."""
    open_circuits: int
    half_open_circuits: int
    keys: list[KeySnapshot]
    """The keys used last, newest first."""
    sharing: SharingSnapshot | None = None
    """None where nothing is shared."""


def key_snapshot(gate: KeyGate, now: float) -> KeySnapshot:
    counts = gate.breaker.counts
    return KeySnapshot(
        key=gate.key,
        rate=gate.learned_rate,
        tokens=gate.level(now),
        average_latency=gate.latency.ewma,
        p95_latency=gate.latency.p95(),
        error_rate=0.0 if counts is None else counts.error_rate(now),
        state=gate.breaker.state_at(now).value,
        consecutive_failures=gate.breaker.failures,
        not_before_ms=max(0.0, 1000.0 * (gate.opens_at - now)),
        waiters=0 if gate.line is None else len(gate.line),
        in_flight=len(gate.flight),
        reason=gate.why(now),
    )
