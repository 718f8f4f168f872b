"""How many calls may be in flight where a server refuses nothing and only gets slower.

Answers are compared in cohorts, by when their calls were *sent*: the answers that come in first are the fast ones, and
say little. A cohort's median is known as soon as more than half of it has come back and the rest has been out for
longer than that.

    median under twice the usual          nothing to do
    above it, and no more gets done       cap what is in flight at about one usual latency's worth
    capped                                follow the median; every 30 s try 30 % more, and keep it
                                          if more gets done
    a third fewer in flight, none faster  it was not the load that slowed them: as many as before
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import inf

from .state import Storable, no_floats

FEWEST, MOST = 16, 32
"""Samples in a cohort."""

COHORT = 0.5
"""Seconds of calls that a cohort spans, if they suffice."""

OVERDUE = 3.0
"""A cohort of which less than half is back after so many times the usual latency is slow; how slow, time tells."""

LOST = 30.0
"""Seconds after which a first cohort that does not come back is given up: those calls are never reported."""

HOT, HOT_SAMPLES = 2.0, 2 * MOST
"""A median this many times the usual one is slow; and the samples of slow cohorts in a row that prove it."""

QUICK = 0.02
"""Seconds. A usual latency below this counts as this, and one slow cohort proves nothing. A delay so short is often the
caller's own event loop (a proxy with 32 clients on loopback: 0.5 ms for one call at a time, 8 ms for all), and a cap
would only keep that loop idle."""

TRY_EVERY = 30.0
TRY_FACTOR = 1.3
SMALLEST_CAP = 2.0

SHRUNK, FASTER, AVERAGED = 0.65, 0.9, 0.25
"""A cap that is down to the first share must have brought the average median down to the second, else it is taken back;
and what a median counts for in that average."""


@dataclass(slots=True, eq=False, kw_only=True)
class LatencyModel(Storable):
    added = 3

    best: float = 0.0
    cap: float = inf
    """Calls in flight at most; infinite while delay is no concern."""
    done: int = 0
    done_at: float = 0.0
    ended_at: float = 0.0
    every: int = 1
    first: int = 0
    hot: int = 0
    last: int = 0
    mean: float = 0.0
    """Latency, averaged over the last fifty samples or so."""
    samples: array[float] = field(default_factory=no_floats)
    seen: int = 0
    throughput: float = 0.0
    trial: tuple[float, float] | None = None
    """Best throughput and cap before the try that is going on."""
    trial_at: float = 0.0
    usual: float = 0.0
    """The median of a cohort when all is well; 0 before the first."""
    wanted: int = 0
    average: float = 0.0
    """Of the medians while capped."""
    compared: float = 0.0
    """... when it was last compared, and next, the cap then; 0 before the first time."""
    compared_cap: float = 0.0

    def begin(self, latest: int, done: int, now: float) -> None:
        """The next cohort begins with the next call."""
        size = self.throughput * COHORT
        self.every = max(1, int(size / MOST))
        self.wanted = int(min(max(size, FEWEST), MOST))
        self.first = (latest // self.every + 1) * self.every
        self.last = self.first + (self.wanted - 1) * self.every
        self.ended_at = 0.0
        self.done, self.done_at = done, now
        del self.samples[:]

    def drop(self, seq: int) -> None:
        """A call of the cohort, perhaps, was answered but not served: it says nothing about delay."""
        if self.first <= seq <= self.last and seq % self.every == 0:
            self.wanted -= 1

    def sample(self, seq: int, latest: int, latency: float, done: int, now: float) -> float | None:
        """Take an answer. Returns the cohort's median when this one completes it."""
        if self.first <= seq <= self.last:
            self.samples.append(latency)
            self.seen = min(self.seen + 1, 50)
            self.mean += (latency - self.mean) / self.seen
        if latest < self.last:
            return None
        if not self.ended_at:
            self.ended_at = now
        waited = now - self.ended_at
        half = self.wanted // 2
        if self.wanted < FEWEST // 2:
            self.begin(latest, done, now)
        elif len(self.samples) > half:
            median = sorted(self.samples)[half]
            if waited >= median or len(self.samples) >= self.wanted:
                return median
        elif self.usual and waited > OVERDUE * self.usual:
            if done - self.done < 0.5 * (latest - self.first):
                return waited
            self.begin(latest, done, now)  # as many came back as left: samples are missing, not answers
        elif waited > LOST:
            self.begin(latest, done, now)
        return None

    def judge(self, median: float, depth: int, done: int, free: bool, searching: bool, now: float) -> float | None:
        """A cohort is complete. Returns the throughput to go on with if a cap has become necessary, else None.

        Only a pace that is ``free`` of other caps and blocks is judged; one that is ``searching`` sooner.
        """
        throughput = (done - self.done) / max(now - self.done_at, 1e-3)
        grew = throughput > 1.2 * self.throughput
        self.throughput = throughput
        self.usual = max(self.usual or median, 1e-6)
        heat = median / max(self.usual, QUICK)
        self.usual += (0.1 if median < self.usual else 0.003) * (median - self.usual)
        if not free:
            return None
        if self.cap < inf:
            self._adjust(median, heat, depth, now)
            return None
        self.hot = self.hot + 1 if heat > HOT and not grew else 0
        if self.hot * self.wanted < (1 if searching and self.usual >= QUICK else HOT_SAMPLES):
            return None
        self.hot, self.best, self.trial, self.trial_at = 0, throughput, None, now
        self.average = self.compared = self.compared_cap = 0.0
        self.cap = max(SMALLEST_CAP, 1.2 * throughput * max(self.usual, QUICK))
        return throughput

    def _adjust(self, median: float, heat: float, depth: int, now: float) -> None:
        """Capped: keep about one usual latency's worth in flight, and try more now and then."""
        self.best = max(self.throughput, self.best * 0.995)
        self.average += AVERAGED * (median - self.average) if self.average else median
        full = depth >= 0.8 * self.cap
        if self.trial is not None:
            if now - self.trial_at > 1.5 + 4.0 * median:
                best, cap = self.trial
                if self.best > 1.15 * best:  # more in flight got more done: this was not the limit
                    self.usual, self.trial_at = max(self.usual, median), now - TRY_EVERY + 2.0
                else:
                    self.cap, self.best, self.trial_at = cap, best, now
                self.trial = None
        elif full and now - self.trial_at > TRY_EVERY:
            self.trial, self.trial_at = (self.best, self.cap), now
            self.cap, self.best = self.cap * TRY_FACTOR, 0.0
        elif heat > 1.3:
            self._shrink()
        elif heat < 1.15 and full:
            self.cap += 1.0
        if self.trial is None and self.cap > 4.0 * self.best * max(self.usual, QUICK) + 8.0:
            self.cap = inf

    def _shrink(self) -> None:
        """Answers are slow still: hold less in flight, unless that has not helped so far."""
        self.cap = max(SMALLEST_CAP, self.cap * 0.96)
        if not self.compared_cap:
            self.compared, self.compared_cap = self.average, self.cap
        elif self.cap < SHRUNK * self.compared_cap:
            if self.average > FASTER * self.compared:  # the load did not slow them: the usual latency was taken too low
                self.usual, self.cap = max(self.usual, self.average), self.compared_cap
            self.compared, self.compared_cap = self.average, self.cap
