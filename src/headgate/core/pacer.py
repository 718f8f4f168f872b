"""The pacer: start calls at the controller's rate, and resume gently after a pause.

It is a token bucket that follows the controller's rate within the configured bounds. After a pause or an outage the
``ResumeRamp`` lets a growing share of that rate through.
"""

from __future__ import annotations

from typing import Any

from .decision import INSTANT, UNKNOWN, Explanation, Wait, WaitReason
from .policy import Demand, Limits, QueueDemand, requests_of
from .quota import CATCH_UP
from .resume_ramp import NO_RAMP, ResumeRamp, after_outage, after_pause, gentler_ramp
from .ticket import Ticket
from .token_bucket import TokenBucket


class Pacer(TokenBucket):
    __slots__ = ("ceiling", "configured_most", "least", "limits", "most", "ramp")

    lost_store = ""
    """The store that cannot be reached, where this pacer stands in for it."""

    def __init__(self, limits: Limits, burst: float, least: float, most: float) -> None:
        super().__init__(burst, least)
        self.limits = limits
        self.least = least
        self.most = self.configured_most = most
        self.ceiling: float | None = None
        """An operator's limit."""
        self.ramp = NO_RAMP

    # ------------------------------------------------------------------ deciding

    def check(self, now: float, demand: Demand) -> Wait | None:
        paced_at = self.available_at(demand.requests_ahead + min(requests_of(demand.cost), self.burst), now)
        ramp = self.ramp
        if ramp is not NO_RAMP and paced_at > ramp.ends_at:  # from there on at the full pace
            paced_at = ramp.ends_at + (paced_at - ramp.ends_at) * ramp.share(now)
        if paced_at <= now + INSTANT:
            return None
        known_until = UNKNOWN
        if self.limits.is_guess and self.rate < self.most:
            known_until = now + (paced_at - now) * self.rate / self.most
        return Wait(WaitReason.PACE, paced_at, None, known_until)

    def admit(self, ticket: Ticket, now: float) -> None:
        self.refill(now)
        self.tokens -= requests_of(ticket.cost)

    def cancel(self, ticket: Ticket, now: float) -> None:
        self.give_back(requests_of(ticket.cost))

    def on_queue(self, queue: QueueDemand | None, now: float) -> None:
        self.has_waiters = queue is not None
        if queue is None:
            self.late_until = now + CATCH_UP

    def idle_from(self, now: float) -> float:
        return self.available_at(self.burst, now)

    # ------------------------------------------------------------------ the rate

    def set_ceiling(self, ceiling: float | None) -> None:
        self.ceiling = ceiling
        self.most = self.configured_most if ceiling is None else min(self.configured_most, ceiling)

    @property
    def is_at_ceiling(self) -> bool:
        return self.ceiling is not None and self.limits.rate >= self.ceiling

    def apply(self, opens_at: float, now: float) -> None:
        """Follow the controller's rate, the hold that ends at ``opens_at`` and the ramp as they are now."""
        rate = self.limits.rate
        if not rate >= self.least and not (rate > 0.0 and self.limits.is_told):  # below it only by the server's word
            rate = self.least
        if rate > self.most:
            rate = self.most
        if opens_at > now:
            self.hold(opens_at, now)
        elif self.held:
            self.reopen(now)
        if self.ramp is not NO_RAMP:
            if now < self.ramp.ends_at:
                rate *= self.ramp.share(now)
            else:
                self.refill(self.ramp.ends_at)
                self.ramp, self.rate = NO_RAMP, rate
        if rate != self.rate:
            self.refill(now)
            self.rate = rate

    @property
    def learned_rate(self) -> float:
        """The pace as it was learned, without the ramp after a pause."""
        rate = self.limits.learned
        if rate < self.least:
            return self.least
        return self.most if rate > self.most else rate

    def explain(self, wait: Wait, now: float) -> Explanation:
        left = wait.until - now
        if self.ceiling is not None and self.rate == self.ceiling:
            return Explanation(reason=wait.reason, seconds_left=left, ceiling=self.ceiling)
        return Explanation(
            reason=wait.reason,
            seconds_left=left,
            rate=self.learned_rate * self.ramp.share(now) if self.limits.is_told else self.rate,
            is_ramping=self.ramp is not NO_RAMP,
            controller_note=self.limits.why(),
        )

    def resume_after_outage(self, down: float, now: float) -> None:
        """The target was down for so long, and is back now."""
        self.ramp = gentler_ramp(self.ramp, after_outage(down, now))
        self.tokens = min(self.tokens, 1.0)

    def resume_after_pause(self, seconds: float, until: float) -> None:
        """Calls are held for so long, until then."""
        self.ramp = gentler_ramp(self.ramp, after_pause(seconds, until))

    # ------------------------------------------------------------------ putting away

    def to_state(self) -> tuple[Any, ...]:
        ramp = self.ramp
        return (self.tokens, self.filled_at, self.rate, self.held), (ramp.starts_at, ramp.lasts, ramp.least)

    def load_state(self, state: tuple[Any, ...]) -> None:
        (self.tokens, self.filled_at, self.rate, self.held), ramp = state
        if ramp[1]:
            self.ramp = ResumeRamp(*ramp)
