"""What a limiter looks like at one moment, for people and for dashboards."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.bucket import known_pace
from ..core.decision import Wait
from ..core.signal import Limit
from .key_gate import KeyGate


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
    """Share of the calls in the statistics window that failed; of an open circuit, when it opened."""
    state: str
    """The circuit: closed, open or half_open."""
    consecutive_failures: int
    """Failures in a row; of an open circuit, those that opened it."""
    not_before_ms: float
    """Nothing starts for so many milliseconds."""
    waiters: int
    in_flight: int
    shared_by: int
    """Members that share its quota, this one included, as far as is known; 0 where it is not shared."""
    reason: str
    """Why a call would wait now, in one sentence; empty if it would not."""
    waits_for: str = ""
    """... in a word: circuit_open, probe_in_flight, floor, hold, depth, pace, share, paused,
    ceiling, or a known limit's dimension."""
    sent: int = 0
    """Calls let through so far."""
    answers: int = 0
    """... whose outcome was reported ..."""
    refused: int = 0
    """... as 429 or alike ..."""
    failed: int = 0
    """... or as anything else but a success."""
    returning: float = 1.0
    """Which share of its pace the ramp after a pause or an outage allows."""
    limit: float | None = None
    """Calls a second that an operator has set as the most."""
    known: float | None = None
    """Calls a second by the limit on requests that its config has; never exceeded, whatever is learned."""
    known_limits: tuple[str, ...] = ()
    """All limits that its config has, for people: ``("15 requests per 60 s", "1,500 requests per day")``."""
    told: tuple[Limit, ...] = ()
    """The limits that the last answer with any spoke of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSnapshot:
    """How it stands with the store through which a limiter shares its keys."""

    where: str
    members: int
    """Limiters that are there, this one included: of the keys in use, the most under one."""
    is_lost: bool
    """Whether the store cannot be reached: calls go on at this limiter's own share, or as without a store if it knows
    of no other limiter."""
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


def key_snapshot(gate: KeyGate, now: float, held: str = "") -> KeySnapshot:
    """``held``: why nothing starts whatever the key."""
    failures, error_rate = gate.ailment(now)
    code, words = why(gate, now)
    return KeySnapshot(
        key=gate.key,
        rate=gate.learned_rate,
        tokens=gate.level(now),
        average_latency=gate.latency.ewma,
        p95_latency=gate.latency.p95(),
        error_rate=error_rate,
        state=gate.breaker.state_at(now).value,
        consecutive_failures=failures,
        not_before_ms=max(0.0, 1000.0 * (gate.opens_at - now)),
        waiters=0 if gate.line is None else len(gate.line),
        in_flight=len(gate.flight),
        shared_by=gate.members,
        reason=held or words,
        waits_for="paused" if held else code,
        sent=gate.seq,
        answers=gate.answers,
        refused=gate.refused,
        failed=gate.failed,
        returning=gate.comeback.share(now),
        limit=gate.ceiling,
        known=known_pace(gate.policy.quotas),
        known_limits=tuple(map(str, gate.policy.quotas)),
        told=gate.heard,
    )


def why(gate: KeyGate, now: float) -> tuple[str, str]:
    """Why a call would wait, as a code and in a sentence: for the gate, or for those whose turn has come just now."""
    words, line = gate.why(now), gate.line
    if words and (objection := gate.objection(now)) is not None:
        return gate.cause(objection, now), words
    head = None if line is None else line.head()
    if head is None or line is None or len(head.gates) > 1:  # of several keys it may be another one's turn
        return "", ""
    turn = Wait(now, line.forecast.code or "pace")
    return turn.code, gate.reason(turn, now)
