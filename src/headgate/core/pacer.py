"""The pacer: start calls at the controller's rate, and resume gently after a pause.

It is a token bucket that follows the controller's rate within the configured bounds:

    burst ----------------  full: that many may start at once, after a rest
        1 ----------------  a call may start
        0 ----------------
          debt              a cost above the burst was taken

The bucket can be held until an instant; what accrues until then is one call at most, so what was held back is never
made up for in a rush. Overflow is lost, with one exception: what a waiter was served late by, because a timer fired
late or an event loop was busy, is kept for a moment.

After a pause or an outage a ramp lets a growing share of the rate through:

    1.0 |            ........
        |       .
        | .                     share of the rate that may be used
        +------------------> time since the pause ended

The ramp fits the pause. After less than a second none is needed; after an outage it takes a share of the outage's
length, since a server that was down for ten seconds is more fragile than one that failed for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .decision import INSTANT, LONGEST_WAIT, NEVER, UNKNOWN, Explanation, Wait, WaitReason
from .policy import NUMBER, Cost, Demand, QueueDemand, Ticket, requests_of
from .quota import CATCH_UP

if TYPE_CHECKING:
    from .controller import Controller


class TokenBucket:
    __slots__ = ("burst", "filled_at", "has_waiters", "held", "late_until", "rate", "tokens")

    def __init__(self, burst: float, rate: float) -> None:
        self.burst = burst
        self.rate = rate
        self.tokens = burst
        """Calls that may start at once; below 0 is debt."""
        self.filled_at = NEVER
        self.held = False
        self.has_waiters = False
        """Whether callers wait: then being late is made up for."""
        self.late_until = NEVER
        """... and until when it still is, after the last one was served."""

    def try_take(self, now: float) -> bool:
        """Take one token if there is one."""
        tokens = self.tokens + (now - self.filled_at) * self.rate
        if tokens < 1.0:
            return False
        if tokens > self.burst:
            tokens = self.clamp(tokens, now) if now < self.late_until else self.burst
        self.tokens = tokens - 1.0
        self.filled_at = now
        return True

    def refill(self, now: float) -> float:
        """Bring the bucket up to now; returns what it holds."""
        if now > self.filled_at:
            tokens = self.tokens + (now - max(self.filled_at, now - LONGEST_WAIT)) * self.rate
            self.tokens = tokens if tokens <= self.burst else self.clamp(tokens, now)
            self.filled_at = now
        return self.tokens

    def clamp(self, tokens: float, now: float) -> float:
        """What is left of an overflowing bucket."""
        if now < self.late_until or (self.has_waiters and self.tokens < 1.0):
            return min(tokens, self.burst + CATCH_UP * self.rate)
        return self.burst

    def available_at(self, calls: float, now: float) -> float:
        """The instant at which the bucket holds that many calls; ``now`` if it does."""
        missing = calls - self.refill(now)
        return max(now, self.filled_at) + missing / self.rate if missing > INSTANT * self.rate else now

    def give_back(self, calls: float) -> None:
        """Calls that were not made after all. A full bucket stays full, a held one has one ready at most."""
        most = 1.0 if self.held else self.burst
        if self.tokens < most:
            self.tokens = min(most, self.tokens + calls)

    def skip(self, slots: float, now: float) -> None:
        """Start nothing for so many slots."""
        self.tokens = min(self.refill(now), 1.0 - slots)

    def hold(self, instant: float, now: float) -> None:
        """Nothing starts before that instant."""
        if self.filled_at != instant:
            tokens = self.refill(now)
            self.tokens = min(tokens + max(0.0, instant - max(now, self.filled_at)) * self.rate, 1.0)
            self.filled_at = instant
        self.held = True

    def reopen(self, now: float) -> None:
        """The hold is over, perhaps sooner than was said."""
        self.held = False
        self.filled_at = min(self.filled_at, now)

    def mark_late(self, is_late: bool, now: float) -> None:
        """Whether a waiter's turn has come that it has yet to take."""
        if is_late:
            self.late_until = UNKNOWN
        elif self.late_until == UNKNOWN:
            self.late_until = now

    def is_late(self, now: float) -> bool:
        """Whether callers wait, or did a moment ago: one that comes right back loses nothing."""
        return self.has_waiters or now < self.late_until


SHORTEST_PAUSE = 1.0
"""A pause below this needs no ramp."""
MOST_OF_AN_OUTAGE = 15.0
"""An outage longer than this is treated as one of this length."""


@dataclass(slots=True)
class ResumeRamp:
    starts_at: float = NEVER
    lasts: float = 0.0
    least: float = 1.0

    @property
    def ends_at(self) -> float:
        return self.starts_at + self.lasts

    def share(self, now: float) -> float:
        """Which share of the pace may be used now, within (0, 1]."""
        if now >= self.starts_at + self.lasts:
            return 1.0
        return self.least + (1.0 - self.least) * max(0.0, now - self.starts_at) / self.lasts


NO_RAMP = ResumeRamp()
"""At the full pace."""


def gentler_ramp(one: ResumeRamp, other: ResumeRamp) -> ResumeRamp:
    """Where two ramps meet: from the later start, the longer way, and up from no higher than either."""
    starts_at = max(one.starts_at, other.starts_at)
    if one.ends_at < starts_at:
        return other
    ends_at = max(one.ends_at, starts_at + other.lasts)
    return ResumeRamp(starts_at, ends_at - starts_at, min(one.share(starts_at), other.share(starts_at)))


def after_outage(down: float, now: float) -> ResumeRamp:
    """The circuit closed after ``down`` seconds: start at a quarter to nearly all of the pace, by its length."""
    if down < SHORTEST_PAUSE:
        return ResumeRamp()
    return ResumeRamp(now, 0.4 * min(down, MOST_OF_AN_OUTAGE), max(0.25, 1.0 - 0.05 * down))


def after_pause(pause: float, until: float) -> ResumeRamp:
    """The server asked for a pause that ends at ``until``: half of the pace at first, for a tenth of the pause."""
    if pause < SHORTEST_PAUSE:
        return ResumeRamp()
    return ResumeRamp(until, min(0.1 * pause, 3.0), 0.5)


AT_ONCE = 0.004
"""Seconds of the rate that may start at once, where that is more than the burst: a busy event loop handles calls in
batches, and a queue for a batch of thirty at 6,000 calls a second costs more than the time it spreads them over."""


class Pacer(TokenBucket):
    __slots__ = ("calls", "ceiling", "configured_burst", "configured_most", "controller", "least", "most", "ramp")

    lost_store = ""
    """The store that cannot be reached, where this pacer replaces it."""

    def __init__(self, controller: Controller, burst: float, least: float, most: float) -> None:
        super().__init__(burst, least)
        self.configured_burst = burst
        self.controller = controller
        self.least = least
        self.most = self.configured_most = most
        self.ceiling: float | None = None
        """An operator's limit."""
        self.calls: TokenBucket | None = None
        """How many calls may start, where some take less of the pace than one: they are bounded by ``most`` too."""
        self.ramp = NO_RAMP

    # ------------------------------------------------------------------ deciding

    def check(self, now: float, demand: Demand) -> Wait | None:
        paced_at = self.available_at(demand.requests_ahead + min(demand.requests, self.burst), now)
        if self.calls is not None and not isinstance(demand.cost, NUMBER):
            paced_at = max(paced_at, self.calls.available_at(min(requests_of(demand.cost), self.calls.burst), now))
        ramp = self.ramp
        if ramp is not NO_RAMP and paced_at > ramp.ends_at:  # from there on at the full pace
            paced_at = ramp.ends_at + (paced_at - ramp.ends_at) * ramp.share(now)
        if paced_at <= now + INSTANT:
            return None
        known_until = UNKNOWN
        if self.controller.is_guess and self.rate < self.most:
            known_until = now + (paced_at - now) * self.rate / self.most
        return Wait(WaitReason.PACE, paced_at, None, known_until)

    def admit(self, ticket: Ticket, now: float) -> None:
        if now > self.filled_at:
            self.refill(now)
        cost = ticket.cost
        if isinstance(cost, NUMBER):
            self.tokens -= cost
            return
        calls = requests_of(cost)
        taken = max(self.controller.take(cost), self._least_worth(calls))
        self.tokens -= taken
        if taken < calls and self.calls is None:
            self.calls = TokenBucket(self._burst_at(self.most), self.most)
        if self.calls is not None:
            self.calls.refill(now)
            self.calls.tokens -= calls

    def worth(self, cost: Cost) -> float:
        """How much of the pace a cost takes: never so little that calls could start faster than is allowed."""
        return max(self.controller.worth(cost), self._least_worth(requests_of(cost)))

    def _least_worth(self, calls: float) -> float:
        return calls * min(1.0, self.rate / self.most)

    def cancel(self, ticket: Ticket, now: float) -> None:
        self.give_back(self.worth(ticket.cost))

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
        self.calls = None

    @property
    def is_at_ceiling(self) -> bool:
        return self.ceiling is not None and self.controller.rate >= self.ceiling

    def apply(self, opens_at: float, now: float) -> None:
        """Follow the controller's rate, the hold that ends at ``opens_at`` and the ramp as they are now."""
        rate = self.controller.rate
        if not rate >= self.least and not (rate > 0.0 and self.controller.is_told):  # below it only by the server
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
            at_once = AT_ONCE * rate  # as _burst_at, which would be called for every answer
            self.burst = at_once if at_once > self.configured_burst > 1.0 else self.configured_burst

    def _burst_at(self, rate: float) -> float:
        """With a burst of 1, calls must never start together."""
        return max(self.configured_burst, AT_ONCE * rate) if self.configured_burst > 1.0 else self.configured_burst

    @property
    def learned_rate(self) -> float:
        """The pace as it was learned, without the ramp after a pause."""
        rate = self.controller.learned
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
            rate=self.learned_rate * self.ramp.share(now) if self.controller.is_told else self.rate,
            is_ramping=self.ramp is not NO_RAMP,
            controller_note=self.controller.why(),
        )

    def resume_after_outage(self, down: float, now: float) -> None:
        """The target was down for so long, and is back now."""
        ramp = after_outage(down, now)
        self.ramp = gentler_ramp(self.ramp, ramp) if self.ramp.lasts else ramp
        self.tokens = min(self.tokens, 1.0)

    def resume_after_pause(self, seconds: float, until: float) -> None:
        """Calls are held for so long, until then."""
        ramp = after_pause(seconds, until)
        self.ramp = gentler_ramp(self.ramp, ramp) if self.ramp.lasts else ramp

    # ------------------------------------------------------------------ putting away

    def to_state(self) -> tuple[Any, ...]:
        ramp = self.ramp
        return (self.tokens, self.filled_at, self.rate, self.held), (ramp.starts_at, ramp.lasts, ramp.least)

    def load_state(self, state: tuple[Any, ...]) -> None:
        (self.tokens, self.filled_at, self.rate, self.held), ramp = state
        self.burst = self._burst_at(self.rate)
        if ramp[1]:
            self.ramp = ResumeRamp(*ramp)
