"""Come back slowly to a server that has just come back itself.

    rate
    target |            .--------   the rate climbs in a straight line from
           |        .-'             initial to target over ramp_duration; too
    initial|....-'                  many errors halve it (x 1/2, 1/4, 1/8) for
           +-----------------> t    BACKOFF seconds, few errors double it back

The ramp is over when its time is up *and* nothing is held back any more, so that it
never ends with a leap. Each change of the multiplier is judged by results that came
after the last one: the errors that halved the rate once cannot halve it again. A cut needs
enough results within the error window; on the way up the last ones count whatever their age, for at a cut pace
few calls fit into a window.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from math import ulp
from operator import itemgetter

from .decision import LONGEST_WAIT

CAPACITY = 1.0
"""Tokens the bucket holds: one call ahead, no bursts."""

ENOUGH_RESULTS = 5
"""Fewer results than this are no rate."""

BACKOFF = 60.0
"""Seconds for which a halved rate is left alone."""

RECOVERED_BELOW = 0.1
"""The error rate under which the multiplier climbs back."""

SMALLEST_MULTIPLIER = 0.125

SLOWEST_RATE = 1e-9
"""Calls per second below which a rate is a mistake: one call in thirty years."""

MOST_RESULTS = 1200
"""Results kept (a minute at 20 calls a second); of more in the error window the newest count."""


@dataclass(slots=True, eq=False)
class RecoveryRamp:
    """A token bucket whose rate climbs, and backs off from errors. All instants are of one clock, the caller's."""

    initial_rate: float = 5.0
    target_rate: float = 20.0
    ramp_duration: float = 300.0
    error_threshold: float = 0.3
    error_window: float = 60.0

    recovery_started_at: float = field(default=0.0, init=False)
    """When the ramp began; 0.0 means that there is none."""
    tokens: float = field(default=CAPACITY, init=False)
    refilled_at: float = field(default=0.0, init=False)
    rate_multiplier: float = field(default=1.0, init=False)
    backoff_until: float = field(default=0.0, init=False)
    results: list[tuple[float, bool]] = field(default_factory=list, init=False, repr=False)
    """(instant, success), oldest first."""
    _fresh: int = field(default=MOST_RESULTS, init=False, repr=False)
    """How many of the newest results came after the last change of the multiplier."""
    _latest: list[tuple[float, bool]] = field(default_factory=list, init=False, repr=False)
    """The last of those, whatever their age."""

    def __post_init__(self) -> None:
        if not SLOWEST_RATE <= self.target_rate < float("inf"):
            raise ValueError(f"target_rate={self.target_rate!r} must be within [{SLOWEST_RATE}, inf)")
        if not SLOWEST_RATE <= self.initial_rate <= self.target_rate:
            raise ValueError(
                f"initial_rate={self.initial_rate!r} must be within [{SLOWEST_RATE}, target_rate={self.target_rate!r}]"
            )
        if not 0.0 <= self.error_threshold <= 1.0:
            raise ValueError(f"error_threshold={self.error_threshold!r} must be within [0, 1]")
        for name in ("ramp_duration", "error_window"):
            if not 0.0 < getattr(self, name) <= LONGEST_WAIT:
                raise ValueError(f"{name}={getattr(self, name)!r} must be within (0, {LONGEST_WAIT:.0f}] seconds")

    def start_recovery_period(self, now: float) -> None:
        """Begin at the initial rate, with one token and a clean record."""
        self._reset()
        self.recovery_started_at = now or ulp(0.0)  # a clock may start at 0, which would mean "no ramp"
        self.refilled_at = now

    def end_recovery_period(self) -> None:
        """Stop limiting."""
        self._reset()

    def is_in_recovery_period(self, now: float) -> bool:
        """Whether the ramp limits: until its time is up and the multiplier is back at 1."""
        if self.recovery_started_at == 0.0:
            return False
        return now - self.recovery_started_at < self.ramp_duration or self.rate_multiplier < 1.0

    def current_rate(self, now: float) -> float:
        """Calls per second; the target rate where the ramp does not limit."""
        if not self.is_in_recovery_period(now):
            return self.target_rate
        progress = min(1.0, max(0.0, (now - self.recovery_started_at) / self.ramp_duration))
        return (self.initial_rate + (self.target_rate - self.initial_rate) * progress) * self.rate_multiplier

    def should_wait(self, now: float) -> float:
        """Take a token and return 0.0, or take nothing and return how long to wait before asking again."""
        if not self.is_in_recovery_period(now):
            return 0.0
        rate = self.current_rate(now)
        elapsed = max(0.0, now - self.refilled_at)
        self.tokens = min(CAPACITY, max(0.0, self.tokens) + elapsed * rate)
        self.refilled_at = now
        wait = (1.0 - self.tokens) / rate
        if wait > ulp(now):
            return min(wait, LONGEST_WAIT)
        # A wait under the clock's own resolution would be asked for again and again.
        self.tokens = 0.0
        return 0.0

    def record_result(self, success: bool, now: float) -> None:
        """Take how a call ended, and change the multiplier if the error rate says so."""
        del self.results[: self._first_in_window(now)]
        self.results.append((now, bool(success)))
        del self.results[:-MOST_RESULTS]
        self._fresh = min(self._fresh + 1, MOST_RESULTS)
        self._latest = [*self._latest[1 - ENOUGH_RESULTS :], (now, bool(success))]
        if self.is_in_recovery_period(now) and now >= self.backoff_until:
            self._judge(now)

    def error_rate(self, now: float) -> float:
        """The share of failures among the results in the error window; 0.0 if there are none."""
        return _failure_share(self.results[self._first_in_window(now) :])

    def _first_in_window(self, now: float) -> int:
        return bisect_left(self.results, now - self.error_window, key=itemgetter(0))

    def _judge(self, now: float) -> None:
        results = self.results[-self._fresh :]
        if len(results) >= ENOUGH_RESULTS and _failure_share(results) > self.error_threshold:
            self.rate_multiplier = max(SMALLEST_MULTIPLIER, self.rate_multiplier / 2)
            self.backoff_until = now + BACKOFF
        elif self.rate_multiplier < 1.0 and self._is_well(results):
            self.rate_multiplier = min(1.0, self.rate_multiplier * 2)
        else:
            return
        self._fresh, self._latest = 0, []

    def _is_well(self, results: list[tuple[float, bool]]) -> bool:
        """Whether few enough have failed: of the window's results, or of the latest where these are too few."""
        judged = results if len(results) >= ENOUGH_RESULTS else self._latest
        return len(judged) >= ENOUGH_RESULTS and _failure_share(judged) < RECOVERED_BELOW

    def _reset(self) -> None:
        self.recovery_started_at = self.refilled_at = self.backoff_until = 0.0
        self.tokens = CAPACITY
        self.rate_multiplier = 1.0
        self.results, self._latest = [], []
        self._fresh = MOST_RESULTS


def _failure_share(results: list[tuple[float, bool]]) -> float:
    return [success for _, success in results].count(False) / len(results) if results else 0.0
