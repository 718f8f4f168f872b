"""The keys of a limiter as lines: what is learned of each, what its server says, and why a call would wait."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.decision import LONGEST_WAIT
from ..core.gate_policy import FASTEST
from ..core.signal import Limit
from ..limiter import AdaptiveRateLimiter
from ..limiter.snapshot import KeySnapshot, SharingSnapshot
from ..wire.redaction import for_display
from .snapshot import MOST_KEYS, KeyLine
from .wording import shortened

MOST_REMEMBERED = 4 * MOST_KEYS
LONGEST_WINDOW = 3600.0
"""Seconds: a day's quota says nothing of the pace, unless it is all that is said."""
SHORTEST_WINDOW = 1.0


class KeysSeen:
    """Looks again and again, and remembers what one look cannot tell."""

    def __init__(self, limiter: AdaptiveRateLimiter) -> None:
        self.limiter = limiter
        self._shown: dict[str, str] = {}
        """Keys as people see them: whoever has put a secret into one shall not see it here."""
        self._hidden: dict[str, str] = {}
        """... and the other way round, where they differ."""
        self._resets: dict[str, float] = {}
        """The longest time to a reset that a key's server has spoken of, where it does not say its window."""

    def look(self) -> list[KeyLine]:
        """Those with the most going on first, then those used last."""
        seen = self.limiter.look_at(self.limiter.newest(MOST_KEYS))
        lines = [self._line(one) for one in seen]
        lines.sort(key=lambda line: -(line.waiting + line.in_flight))
        return lines

    def key_of(self, shown: str) -> str:
        return self._hidden.get(shown, shown)

    def name_of(self, key: str) -> str:
        name = self._shown.get(key)
        if name is None:
            if len(self._shown) >= MOST_REMEMBERED:
                self._shown.clear()
                self._hidden.clear()
            name = self._shown[key] = for_display(key)
            if name != key:
                self._hidden[name] = key
        return name

    def _line(self, seen: KeySnapshot) -> KeyLine:
        return KeyLine(
            key=self.name_of(seen.key),
            rate=seen.rate if seen.rate < FASTEST else 0.0,
            said=self._said(seen.key, seen.told) if seen.told else None,
            sent=seen.sent,
            done=max(0, seen.answers - seen.refused - seen.failed),
            refused=seen.refused,
            failed=seen.failed,
            in_flight=seen.in_flight,
            waiting=seen.waiters,
            latency=seen.average_latency,
            p95=seen.p95_latency,
            circuit=seen.state,
            not_before=min(seen.not_before_ms / 1000, LONGEST_WAIT),
            returning=seen.returning,
            limit=seen.limit,
            known=seen.known,
            known_limits=seen.known_limits,
            shared_by=seen.shared_by,
            reason=shortened(seen.reason),
            waits_for=seen.waits_for,
        )

    def _said(self, key: str, told: Sequence[Limit]) -> float | None:
        """The least of the paces that the server speaks of."""
        paces = []
        for limit in told:
            if limit.dimension != "requests" or not limit.limit:
                continue
            window = limit.window or self._longest_reset(key, limit.reset)
            if window:
                paces.append((window > LONGEST_WINDOW, limit.limit / window))
        return min(paces)[1] if paces else None

    def _longest_reset(self, key: str, reset: float | None) -> float | None:
        """A reset that counts down has once been as long as its window."""
        longest = max(self._resets.get(key, 0.0), reset or 0.0)
        if longest < SHORTEST_WINDOW:
            return None
        if len(self._resets) >= MOST_REMEMBERED:
            self._resets.clear()
        self._resets[key] = longest
        return longest


def in_words(sharing: SharingSnapshot | None) -> str:
    """Where quotas are shared, and whether that can be reached."""
    if sharing is None:
        return ""
    where = for_display(sharing.where)
    if sharing.is_lost:
        how = "as without a store" if sharing.members == 1 else "at this process's own share"
        return f"{where} cannot be reached; calls go on {how}"
    return f"{where}, shared by {sharing.members:,} process{'' if sharing.members == 1 else 'es'}"
