"""The keys of a limiter as lines for people: what is learned of each, what its server says, and why callers wait.

    AdaptiveRateLimiter ── KeySnapshot ──> KeySource ──> KeyLine, WaitLine ──> pages, terminals, reports of a fleet

A line has no secret in it and is bounded; ``cause_of`` is where an ``Explanation`` becomes a clause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..core.decision import LONGEST_WAIT, Explanation, WaitReason
from ..core.gate_config import FASTEST
from ..core.signal import CALLS_BY_TOKENS
from ..formatting import for_display, shortened
from ..reason_text import reason_text
from .limiter import AdaptiveRateLimiter
from .snapshot import KeySnapshot

NAMES_PER_KEY = 4
"""Names that are remembered for each key that is read."""
PACED = frozenset((WaitReason.PACE, WaitReason.SHARE, WaitReason.CEILING))
"""A pace lets the next call go in some milliseconds and the last of a thousand much later: no time is shown."""
LONGEST_WINDOW = 3600.0
"""Seconds: a day's quota says nothing of the pace, unless it is all that is known."""
SHORTEST_WINDOW = 1.0
MOST_RESETS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLine:
    key: str
    rate: float
    """Calls a second as learned; 0 where it has no pace, as a provider whose credentials have one each."""
    said: float | None = None
    """Calls a second that the server states."""
    sent: int = 0
    done: int = 0
    """Answers that were a success."""
    refused: int = 0
    """Answers that were rate limited: 429 and the like."""
    failed: int = 0
    in_flight: int = 0
    waiting: int = 0
    latency: float = 0.0
    p95: float = 0.0
    circuit: str = "closed"
    """closed, open or half_open."""
    not_before: float = 0.0
    """Nothing starts for so many seconds."""
    returning: float = 1.0
    """Which share of the pace the ramp after a pause allows."""
    limit: float | None = None
    """Calls a second that an operator has set as the most."""
    known: float | None = None
    """Calls a second by a limit that was known before; never exceeded, whatever is learned."""
    known_limits: tuple[str, ...] = ()
    """All limits that were known before, in words."""
    shared_by: int = 0
    """Processes that share this quota; 0 if it is not shared."""
    reason: str = ""
    """Why a call would wait now, in one sentence; empty if it would not."""
    waits_for: str = ""
    """... in a word: paused, floor, hold, depth, pace, ... as the limiter's snapshot has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLine:
    """One blocked scope."""

    scope: str
    """A key, a credential, or what else holds rows back."""
    sentence: str
    said: str = ""
    """What the last call that failed was told, in the server's own words, redacted."""
    behind: int = 0
    """Rows, pages or callers that wait for it."""
    seconds: float | None = None
    """... for so long, where that is known."""
    key: str = ""
    """The key that it is about, as ``KeyLine`` has it; empty if it is about none, or about the scope itself."""
    code: str = ""
    """What it waits for, in a word: pace, share, ceiling, quota, depth, floor, hold, circuit_open, workers, ..."""
    clause: str = ""
    """What follows the scope, where the scope begins the sentence: for displays that show the scope beside it."""

    @classmethod
    def about(cls, scope: str, clause: str, **more: Any) -> WaitLine:
        """``api.example.com: paced at 5 calls/s``, from its two parts."""
        return cls(scope=scope, sentence=f"{scope}: {clause}", clause=clause, **more)


class Cause(NamedTuple):
    """What a lane waits for: the lane's own code, the reason behind it, and a clause."""

    waits_for: str = ""
    code: str = ""
    text: str = ""


def cause_of(explanation: Explanation, waits_for: str = "pace") -> Cause:
    code = explanation.reason.value
    is_paced = code in PACED or explanation.ceiling is not None
    told = replace(explanation, seconds_left=None) if is_paced else explanation
    return Cause(waits_for, WaitReason.CEILING if explanation.ceiling is not None else code, reason_text(told))


def paced(rate: float) -> Explanation:
    """Where nothing else is known of callers that wait."""
    return Explanation(reason=WaitReason.PACE, rate=rate)


class ToldRates:
    """The calls a second that servers state, by what they said of each key."""

    def __init__(self) -> None:
        self._resets: dict[str, float] = {}
        """The longest time to a reset that a key's server has mentioned, where it does not say its window."""

    def of(self, seen: KeySnapshot) -> float | None:
        """The least of the paces that the server states."""
        paces = []
        for limit in seen.told:
            if limit.dimension not in ("requests", CALLS_BY_TOKENS) or not limit.limit:
                continue
            window = limit.window or self._longest_reset(seen.key, limit.reset)
            if window:
                paces.append((window > LONGEST_WINDOW, limit.limit / window))
        return min(paces)[1] if paces else None

    def _longest_reset(self, key: str, reset: float | None) -> float | None:
        """A reset that counts down has once been as long as its window."""
        longest = max(self._resets.get(key, 0.0), reset or 0.0)
        if longest < SHORTEST_WINDOW:
            return None
        if len(self._resets) >= MOST_RESETS:
            self._resets.clear()
        self._resets[key] = longest
        return longest


class KeySource:
    """Reads a limiter again and again, and remembers what one snapshot cannot show."""

    def __init__(self, limiter: AdaptiveRateLimiter, most: int) -> None:
        """``most``: keys that are read, those used last."""
        self.limiter, self._most = limiter, most
        self.lines: list[KeyLine] = []
        """The busiest first, then those used last."""
        self.waits: list[WaitLine] = []
        """Callers that stand in queues."""
        self._shown: dict[str, str] = {}
        """Keys as people see them: a secret that a program has put into one is not shown."""
        self._hidden: dict[str, str] = {}
        """... and the other way round, where they differ."""
        self._told = ToldRates()

    def refresh(self) -> list[KeyLine]:
        seen = self.limiter.key_statuses(self.limiter.recent_keys(self._most))
        self.lines = sorted((self._line(one) for one in seen), key=lambda line: -(line.waiting + line.in_flight))
        self.waits = [self._wait(one) for one in seen if one.waiters]
        return self.lines

    def key_of(self, shown: str) -> str:
        return self._hidden.get(shown, shown)

    def name_of(self, key: str) -> str:
        name = self._shown.get(key)
        if name is None:
            if len(self._shown) >= NAMES_PER_KEY * self._most:
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
            said=self._told.of(seen),
            sent=seen.sent,
            done=max(0, seen.answers - seen.refused - seen.failed),
            refused=seen.refused,
            failed=seen.failed,
            in_flight=seen.in_flight,
            waiting=seen.waiters,
            latency=seen.average_latency,
            p95=seen.p95_latency,
            circuit=seen.state,
            not_before=_held(seen),
            returning=seen.returning,
            limit=seen.limit,
            known=seen.known,
            known_limits=seen.known_limits,
            shared_by=seen.shared_by,
            reason=shortened(seen.reason),
            waits_for=seen.waits_for,
        )

    def _wait(self, seen: KeySnapshot) -> WaitLine:
        name, cause = self.name_of(seen.key), cause_of(seen.explanation or paced(seen.rate))
        return WaitLine.about(
            name, shortened(cause.text), behind=seen.waiters, seconds=_held(seen) or None, code=cause.code
        )


def _held(seen: KeySnapshot) -> float:
    """Seconds for which nothing starts."""
    return min(seen.not_before_ms / 1000, LONGEST_WAIT)
