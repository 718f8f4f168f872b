"""What one key may still do: calls and tokens by the minute, calls by the day. A call fits into all, or spends nothing.

    more tokens than ever fit     too_large      waiting does not help
    the day's calls are used up   daily          until midnight UTC
    over the calls or the tokens  rate_limited   until the slower of the two has room

Pure: instants are arguments. ``elapsed`` counts from the server's first call, as its steps do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..api import MockPlan
from ..dialects import Standings
from ..dialects.contract import DAY, HOUR, MINUTE, RETRY_WHEN_UNKNOWN
from ..quota import Quota, Standing, make_quota


@dataclass(frozen=True, slots=True)
class Refusal:
    trouble: str
    """too_large, daily or rate_limited."""
    unit: str
    """What the limit counts: calls or tokens."""
    standing: Standing
    """Where it stands; ``retry`` is this call's own wait."""
    requested: int

    @classmethod
    def scripted(cls, trouble: str, wait: float) -> Refusal:
        """One that no limit asked for: of a small limit on calls, which is used up."""
        window, wait = (DAY, HOUR) if trouble == "daily" else (MINUTE, wait)
        return cls(trouble, "calls", Standing(60.0, window, 60.0, 0.0, wait, wait, 60.0, wait), 1)


@dataclass(slots=True)
class KeyBudget:
    plan: MockPlan
    per_day: int | None
    today: int = 0
    _day: float = -1.0
    _steps_taken: int = 0
    _calls: Quota = field(init=False)
    _tokens: Quota | None = None

    def __post_init__(self) -> None:
        self._calls = self.plan.make_quota()
        rate = self.plan.tokens
        if rate is not None:
            counted = "bucket" if self.plan.algorithm == "concurrency" else self.plan.algorithm
            self._tokens = make_quota(counted, rate=rate, burst=max(1.0, rate.amount), at_once=1)

    def take(self, elapsed: float, wall: float, tokens: int) -> Refusal | None:
        """Let a call of so many tokens through, or say what keeps it out; ``end`` follows one that was let through."""
        self._catch_up(elapsed, wall)
        refusal = self._too_large(elapsed, tokens) or self._daily(wall) or self._rate_limited(elapsed, tokens)
        self.today += refusal is None
        for quota, amount in ((self._calls, 1), (self._tokens, tokens)):
            if quota is not None:
                (quota.take if refusal is None else quota.refuse)(elapsed, amount)
        return refusal

    def end(self, elapsed: float) -> None:
        self._calls.end(elapsed)

    def standings(self, elapsed: float, wall: float) -> Standings:
        self._catch_up(elapsed, wall)
        standings = [("calls", self._calls.standing(elapsed))]
        return standings if self._tokens is None else [*standings, ("tokens", self._tokens.standing(elapsed))]

    def _too_large(self, elapsed: float, tokens: int) -> Refusal | None:
        if self._tokens is None:
            return None
        standing = self._tokens.standing(elapsed)
        return Refusal("too_large", "tokens", standing, tokens) if tokens > standing.burst else None

    def _daily(self, wall: float) -> Refusal | None:
        if self.per_day is None or self.today < self.per_day:
            return None
        left = (self._day + 1) * DAY - wall
        standing = Standing(self.per_day, DAY, self.today, 0.0, left, left, self.per_day, left)
        return Refusal("daily", "calls", standing, 1)

    def _rate_limited(self, elapsed: float, tokens: int) -> Refusal | None:
        """By the limit that keeps it out longest."""
        longest, refusal = 0.0, None
        for unit, quota, amount in (("calls", self._calls, 1), ("tokens", self._tokens, tokens)):
            wait = 0.0 if quota is None else quota.wait(elapsed, amount)
            told = RETRY_WHEN_UNKNOWN if wait is None else wait
            if quota is not None and told > longest:
                longest = told
                refusal = Refusal("rate_limited", unit, replace(quota.standing(elapsed), retry=wait), amount)
        return refusal

    def _catch_up(self, elapsed: float, wall: float) -> None:
        """Take every step that fell due, at its own instant, and begin the day anew at midnight."""
        for step in self.plan.steps[self._steps_taken :]:
            if step.at > elapsed:
                break
            self._calls.scale(step.factor, step.at)
            if self._tokens is not None:
                self._tokens.scale(step.factor, step.at)
            self._steps_taken += 1
        if wall // DAY > self._day:
            self.today, self._day = 0, wall // DAY
