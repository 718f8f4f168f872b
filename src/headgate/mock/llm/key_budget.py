"""What a key of a mocked language model may still do: calls and tokens, as its vendor counts them, and calls a day."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ...units import Rate
from ..api import MockPlan
from ..dialects import LimitStatuses
from ..dialects.dialect import DAY, RETRY_WHEN_UNKNOWN
from ..quota import LimitStatus, Quota, make_quota
from .language_api import Answer, Counting, Refusal

TOKENS = ("tokens", "input_tokens", "output_tokens")
"""What plans may limit beside calls."""
AS_IT_COMES = Counting()
WITHIN = "calls_within"
"""Calls over the shorter time for which a vendor judges them too, and tells nothing of that."""


def midnight_utc(wall: float) -> float:
    return (wall // DAY + 1.0) * DAY


@dataclass(slots=True)
class KeyBudget:
    """What a key may still do: calls and tokens by the minute, input and output tokens apart, calls by the day.

    A call fits into all of them, or spends nothing.
    """

    plan: MockPlan
    counting: Counting = AS_IT_COMES
    day_end: Callable[[float], float] = midnight_utc
    """When a day ends, by the wall clock."""
    today: int = 0
    _day_ends_at: float = -1.0
    _steps_taken: int = 0
    _quotas: dict[str, Quota] = field(init=False)
    """By what they count; calls first."""

    def __post_init__(self) -> None:
        self._quotas = {"calls": self.plan.make_quota()}
        if (within := self._calls_within(self.counting.calls_within)) is not None:
            self._quotas[WITHIN] = within
        algorithm = "bucket" if self.plan.algorithm == "concurrency" else self.plan.algorithm
        for unit in TOKENS:
            rate: Rate | None = getattr(self.plan, unit)
            if rate is not None:
                self._quotas[unit] = make_quota(algorithm, rate=rate, burst=max(1.0, rate.amount), at_once=1)

    def _calls_within(self, within: float | None) -> Quota | None:
        """What of a limit on calls may come at once, if the vendor judges that too."""
        rate = self.plan.rate
        if within is None or within >= rate.window or self.plan.algorithm == "concurrency":
            return None
        part = max(1.0, rate.amount * within / rate.window)
        return make_quota(self.plan.algorithm, rate=Rate(part, within), burst=part, at_once=1)

    def admit(self, elapsed: float, wall: float, parsed: Answer) -> Refusal | None:
        """Let a call through as its vendor counts it, or say what keeps it out."""
        tokens, written = self.counting.admission(parsed), parsed.tokens_out
        if "output_tokens" in self.counting.produced:
            written = min(1, written)
        return self.take(elapsed, wall, tokens, parsed.tokens_in, written)

    def settle(self, elapsed: float, parsed: Answer) -> None:
        """Its answer is written: take what counts only now, give back what the cache held."""
        for unit in self.counting.produced:
            left = parsed.tokens_out - (unit == "output_tokens")
            if unit in self._quotas and left > 0:
                self._quotas[unit].yield_to(elapsed, left)
        if self.counting.cached_is_free and parsed.cached:
            for unit in ("tokens", "input_tokens"):
                if unit in self._quotas:
                    self._quotas[unit].give_back(elapsed, parsed.cached)

    def take(self, elapsed: float, wall: float, tokens: int, tokens_in: int = 0, tokens_out: int = 0) -> Refusal | None:
        """Let a call of so many tokens through, or say what keeps it out; ``end`` follows one that was let through."""
        self._catch_up(elapsed, wall)
        amounts = {"calls": 1, WITHIN: 1, "tokens": tokens, "input_tokens": tokens_in, "output_tokens": tokens_out}
        refusal = self._too_large(elapsed, amounts) or self._daily(wall) or self._rate_limited(elapsed, amounts)
        self.today += refusal is None
        for unit, quota in self._quotas.items():
            (quota.take if refusal is None else quota.refuse)(elapsed, amounts[unit])
        return refusal

    def end(self, elapsed: float) -> None:
        self._quotas["calls"].end(elapsed)

    def statuses(self, elapsed: float, wall: float, tells_day: bool = False) -> LimitStatuses:
        """``tells_day``: of calls the limit of the day, if there is one."""
        self._catch_up(elapsed, wall)
        statuses = [(unit, quota.status(elapsed)) for unit, quota in self._quotas.items() if unit != WITHIN]
        if tells_day and self.plan.per_day is not None:
            statuses[0] = ("calls", self._status_of_day(self.plan.per_day, wall))
        return statuses

    def _too_large(self, elapsed: float, amounts: Mapping[str, int]) -> Refusal | None:
        for unit in TOKENS:
            status = self._quotas[unit].status(elapsed) if unit in self._quotas else None
            if status is not None and amounts[unit] > status.burst:
                return Refusal("too_large", unit, status, amounts[unit])
        return None

    def _daily(self, wall: float) -> Refusal | None:
        if self.plan.per_day is None or self.today < self.plan.per_day:
            return None
        return Refusal("daily", "calls", self._status_of_day(self.plan.per_day, wall), 1)

    def _status_of_day(self, limit: int, wall: float) -> LimitStatus:
        left, rest = self._day_ends_at - wall, max(0.0, limit - self.today)
        return LimitStatus(limit, DAY, self.today, rest, left, 0.0 if rest else left, limit, left)

    def _rate_limited(self, elapsed: float, amounts: Mapping[str, int]) -> Refusal | None:
        """By the limit that keeps it out longest."""
        longest, refusal = 0.0, None
        for unit, quota in self._quotas.items():
            wait = quota.wait(elapsed, amounts[unit])
            told = RETRY_WHEN_UNKNOWN if wait is None else wait
            if told > longest:
                longest = told
                of = "calls" if unit == WITHIN else unit
                refusal = Refusal("rate_limited", of, replace(quota.status(elapsed), retry=wait), amounts[unit])
        return refusal

    def _catch_up(self, elapsed: float, wall: float) -> None:
        """Take every step that fell due, at its own instant, and start a new day at midnight."""
        for step in self.plan.steps[self._steps_taken :]:
            if step.at > elapsed:
                break
            for quota in self._quotas.values():
                quota.scale(step.factor, step.at)
            self._steps_taken += 1
        if wall >= self._day_ends_at:
            self.today, self._day_ends_at = 0, self.day_end(wall)
