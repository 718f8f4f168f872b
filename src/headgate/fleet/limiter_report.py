"""The keys of a member's limiter, and why they wait, as a report to the store has them: no secret, bounded."""

from __future__ import annotations

from ..core.gate_config import FASTEST
from ..formatting import for_display, printable
from ..limiter import AdaptiveRateLimiter
from ..limiter.snapshot import KeySnapshot, ToldRates
from ..reason_text import reason_text
from .member import MOST_KEYS, KeyReport, WaitReport

LONGEST_KEY, LONGEST_SENTENCE = 200, 200


class LimiterReporter:
    """Reads one limiter again and again."""

    def __init__(self, limiter: AdaptiveRateLimiter) -> None:
        self._limiter = limiter
        self._told = ToldRates()
        self._seen: list[KeySnapshot] = []

    def keys(self) -> tuple[KeyReport, ...]:
        """The keys that were used last."""
        self._seen = self._limiter.key_statuses(self._limiter.recent_keys(MOST_KEYS))
        return tuple(self._key(one) for one in self._seen)

    def waits(self, behind: int = 0) -> tuple[WaitReport, ...]:
        """Why the keys of the last ``keys()`` wait; ``behind``: rows that wait in this process, where that is known."""
        waiting = [one for one in self._seen if one.waiters]
        callers = max(1, sum(one.waiters for one in waiting))
        return tuple(_wait(one, max(one.waiters, behind * one.waiters // callers)) for one in waiting)

    def _key(self, seen: KeySnapshot) -> KeyReport:
        return KeyReport(
            key=_shown(seen.key),
            rate=seen.rate if seen.rate < FASTEST else 0.0,
            said=self._told.of(seen),
            sent=seen.sent,
            done=max(0, seen.answers - seen.refused - seen.failed),
            refused=seen.refused,
            failed=seen.failed,
            in_flight=seen.in_flight,
            waiting=seen.waiters,
            latency=seen.average_latency,
            circuit=seen.state,
            shared_by=seen.shared_by,
            reason=_cut(seen.reason),
            waits_for=seen.waits_for,
        )


def _wait(seen: KeySnapshot, behind: int) -> WaitReport:
    scope = _shown(seen.key)
    clause = _cut(seen.reason if seen.explanation is None else reason_text(seen.explanation))
    seconds = seen.not_before_ms / 1000 or None
    return WaitReport(
        scope=scope, sentence=f"{scope}: {clause}", clause=clause, behind=behind, seconds=seconds, code=seen.waits_for
    )


def _shown(key: str) -> str:
    return for_display(key)[:LONGEST_KEY]


def _cut(sentence: str) -> str:
    return printable(sentence)[:LONGEST_SENTENCE]
