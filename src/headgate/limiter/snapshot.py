"""What a limiter looks like at one moment, for people and for dashboards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.decision import CircuitState, Explanation, WaitReason, blocked_by
from ..core.decision import explain as explain_wait
from ..core.quota import known_pace
from ..core.signal import Limit
from ..errors import ConfigError
from ..reason_text import reason_text
from .admission import Admission
from .completion import Completion
from .key_entry import KeyEntry
from .registry import KeyRegistry

if TYPE_CHECKING:
    from ..distributed.sync_loop import SyncLoop

PAUSED = Explanation(reason=WaitReason.PAUSED)
READ_AT_ONCE = 32
"""Keys that are read while the lock is held; callers get it in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySnapshot:
    """One key at one moment."""

    key: str
    rate: float
    """The learned pace in calls a second; what holds back more than it is in ``reason``."""
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
    """... by a 429 or a spent quota ..."""
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
    """The limits in the last answer that had any."""
    explanation: Explanation | None = None
    """What ``reason`` is made of, as data; None where no call would wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSnapshot:
    """The state of the store through which a limiter shares its keys."""

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


def key_snapshot(entry: KeyEntry, now: float, held: Explanation | None = None) -> KeySnapshot:
    """``held``: why nothing starts under any key."""
    gate = entry.gate
    failures, error_rate = entry.recent_failures(now)
    found = held or explain(entry, now)
    return KeySnapshot(
        key=entry.key,
        rate=gate.pacer.learned_rate,
        tokens=gate.pacer.refill(now),
        average_latency=gate.latency.ewma,
        p95_latency=gate.latency.p95(),
        error_rate=error_rate,
        state=gate.breaker.state_at(now).value,
        consecutive_failures=failures,
        not_before_ms=max(0.0, 1000.0 * (gate.hold.opens_at - now)),
        waiters=0 if entry.queue is None else len(entry.queue),
        in_flight=len(gate.in_flight),
        shared_by=entry.members,
        reason="" if found is None else reason_text(found),
        waits_for="" if found is None else found.code,
        explanation=found,
        sent=gate.seq,
        answers=gate.answers,
        refused=entry.refused,
        failed=entry.failed,
        returning=gate.pacer.ramp.share(now),
        limit=gate.ceiling,
        known=known_pace(gate.config.quotas),
        known_limits=tuple(map(str, gate.config.quotas)),
        told=entry.announced,
    )


def explain(entry: KeyEntry, now: float) -> Explanation | None:
    """Why a call would wait: for the gate, or behind calls whose turn has come just now."""
    found, queue = blocked_by(entry.gate, now), entry.queue
    head = None if queue is None else queue.head()
    if queue is not None and head is queue.forecast_head and queue.forecast.reason is WaitReason.QUOTA:
        return explain_wait(entry.gate, queue.forecast, now)  # of tokens, say: a call that takes none would not wait
    if found is not None:
        return found
    if head is None or queue is None or len(head.entries) > 1:  # of several keys it may be another one's turn
        return None
    return explain_wait(
        entry.gate, replace(queue.forecast, reason=queue.forecast.reason or WaitReason.PACE, until=now), now
    )


class SnapshotReader:
    """Reads the state of a limiter's parts, under their lock."""

    def __init__(
        self,
        registry: KeyRegistry,
        admission: Admission,
        completion: Completion,
        sync: SyncLoop | None = None,
    ) -> None:
        self._lock, self._now = admission.lock, admission.now
        self._registry = registry
        self._admission = admission
        self._completion = completion
        self._sync = sync

    def snapshot(self, top: int) -> LimiterSnapshot:
        if not top >= 0:
            raise ConfigError(f"top={top!r} must be 0 or more")
        registry = self._registry
        with self._lock:
            now = self._now()
            self._completion.tidy(now, len(registry))
            states = [entry.gate.breaker.state_at(now) for entry in registry.entries.values()]
            return LimiterSnapshot(
                total=registry.calls(),
                throttled=self._admission.throttled,
                denied=self._admission.denied,
                retries=self._completion.retries,
                open_circuits=states.count(CircuitState.OPEN),
                half_open_circuits=states.count(CircuitState.HALF_OPEN),
                keys=self._read_known(registry.recent_names(top), now),
                sharing=self._read_sharing(),
            )

    def totals(self) -> dict[str, int]:
        with self._lock:
            return {
                "calls": self._registry.calls(),
                "throttled": self._admission.throttled,
                "denied": self._admission.denied,
                "retries": self._completion.retries,
                "keys": len(self._registry),
            }

    def recent_keys(self, most: int) -> list[str]:
        with self._lock:
            return self._registry.recent_names(most)

    def key_statuses(self, keys: Iterable[str]) -> list[KeySnapshot]:
        found: list[KeySnapshot] = []
        names = list(keys)
        for first in range(0, len(names), READ_AT_ONCE):
            with self._lock:
                found += self._read_known(names[first : first + READ_AT_ONCE], self._now())
        return found

    def _read_known(self, names: list[str], now: float) -> list[KeySnapshot]:
        held = PAUSED if self._admission.is_paused else None
        entries = (self._registry.peek(name, now) for name in names)
        return [key_snapshot(entry, now, held) for entry in entries if entry is not None]

    def circuit_opens_in(self, key: str) -> float:
        entry = self._registry.entries.get(key)
        if entry is None or entry.gate.breaker.state is not CircuitState.OPEN:
            return 0.0
        with self._lock:
            now = self._now()
            found = entry.gate.breaker.check(now)
        return 0.0 if found is None or found.retry_at is None else max(0.0, found.retry_at - now)

    def held_for(self, key: str) -> float:
        entry = self._registry.entries.get(key)
        if entry is None:
            return 0.0
        with self._lock:
            return max(0.0, entry.gate.hold.opens_at - self._now())

    def sharing(self) -> SharingSnapshot | None:
        with self._lock:
            return self._read_sharing()

    def _read_sharing(self) -> SharingSnapshot | None:
        sync = self._sync
        if sync is None:
            return None
        members = max((entry.members for entry in self._registry.entries.values()), default=1)
        return SharingSnapshot(
            where=sync.store.where, members=max(1, members), is_lost=sync.is_down, failures=sync.failures
        )
