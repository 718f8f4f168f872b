"""How many calls may be in flight: two models, for servers that refuse a crowd and for servers that slow down.

``ConcurrencyCap`` tells a cap on calls in flight from a quota, and keeps just below it. A quota refuses at any depth. A
cap always refuses at the same one, and never lets a deeper call in: that shows at once where it is deep. A shallow one
is blurred by the calls that are under way, and shows in that those it refuses are crowded, and those it lets in at the
same pace are not. Then the pace is left free and the depth is held; a little more is tried every period, as the budget
of refusals allows, and soon twice as much while tries succeed.

    off --refused at one depth, or in a crowd, again and again--> on --refused where it was fine--> off for a while

``LatencyModel`` notices a server that refuses nothing and only gets slower. Answers are compared in cohorts, by when
their calls were *sent*: the answers that come in first are the fast ones, and say little. A cohort's median is known as
soon as more than half of it has come back and the rest has been out for longer than that.

    median under twice the usual          nothing to do
    above it, and no more gets done       cap what is in flight at about one usual latency's worth
    capped                                follow the median; every 30 s try 30 % more, and keep it
                                          if more gets done
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum
from math import inf, log

from ...core.decision import NEVER
from .growth_probe import BUDGET, PENALTY_BUDGET
from .state import Storable, no_floats, no_singles

SHALLOWEST, SHALLOW = 2, 8
"""Depths below the first happen to every quota: equal ones prove nothing, and at the first only if nothing deeper was
let in. Below the second a crowd may."""

KEPT = 4
"""Depths of refusals that are compared."""

EXACT_ENOUGH = 1
"""Equal measurements in a row that rule a cap out for now."""

LET_IN, ENOUGH_LET_IN = 64, 16
"""Calls let in recently whose crowd is remembered, and how many it takes to compare with."""

SURPRISE, CERTAIN = 1.5, 4.0
"""A refusal is evidence of a cap by the logarithm of how rarely calls were let in in such a crowd, above the first
(a quota's gives 1 on average), and so much of it is enough."""

COMMON = 0.3
"""When this share of the calls let in were as crowded as the one refused, it is no cap that refuses."""

NEARLY = 0.06
"""The share of a depth within which another is equal."""

ALIKE = 1e-4
"""Crowds that differ by less are the same."""

FIRST_PERIOD, FIRST_SHARE = 3.0, 0.3
"""Seconds at the cap before a little more is tried, at least, and this share of what the budget asks for."""

MISSES = 4
"""Refusals at depths that were fine, in a row, after which it was no cap."""

MOST_REFUSED, TO_JUDGE = 0.012, 10
"""A cap that is kept is refused less often than this share of the calls, tries apart; judged from so many on."""

SHRINK, SOONER = 0.75, 0.7
"""What is left of a cap that refuses where it was fine, and of the period until more is tried: others may share it."""

SHRUNK, SETTLED = 0.85, 8.0
"""The share of a cap below which it has shrunk, and the period, in seconds, at which others who shared it are gone."""

TRIAL, TRIAL_CALLS = 2, 32
"""Refusals in the first period at a cap that end it (the first may mean that it is one less); its calls at least."""

FIRST_REST = 60.0
"""Seconds before looking for a cap again after a mistake; doubles with each."""

MOST_REST_DOUBLINGS = 10


class Verdict(Enum):
    MINE = "handled"
    NOT_MINE = "not a cap"
    LET_GO = "no cap after all"


@dataclass(slots=True, eq=False, kw_only=True)
class ConcurrencyCap(Storable):
    added = 2

    age: float = 0.0
    """Seconds spent at the cap since it last moved."""
    cap: int = 0
    common: bool = False
    """Whether calls are let in in crowds like that of the last one refused."""
    cut_seq: int = 0
    depths: tuple[int, ...] = ()
    evidence: float = 0.0
    fine: int = 0
    """The greatest depth known to be let in."""
    found: int = 0
    """The cap as it was first seen; what shrinks to a quarter of it was none."""
    let_in: array[float] = field(default_factory=no_singles)
    """The crowds, depth over pace, in which calls were let in recently."""
    let_in_at: int = 0
    """The place of the next of them."""
    misses: int = 0
    mistakes: int = 0
    on: bool = False
    period: float = FIRST_PERIOD
    refusals: int = 0
    """Refusals while it is on."""
    refused_since: int = 0
    """The call they are counted from."""
    rest_until: float = NEVER
    step: int = 1
    """How much more the next try takes: it doubles while tries succeed."""
    told: int = 0
    """The cap as the server's headers state it; 0 where they do not."""
    trial: int = 0
    """Refusals that still speak for another cap, in the first period of one; 0 when it is over."""

    def hear(self, places: int, latest: int, now: float) -> None:
        """The server says how many places it has: no more is tried than that."""
        if places == self.told or now < self.rest_until:
            return
        self.told = places
        if not self.on:
            self._begin(places, latest)
        self.cap = self.fine = self.found = places
        self.cut_seq, self.trial = latest, 0

    def served(self, crowd: float) -> None:
        """A call that left at a steady pace was let in."""
        if len(self.let_in) < LET_IN:
            self.let_in.append(crowd)
        else:
            self.let_in[self.let_in_at] = crowd
            self.let_in_at = (self.let_in_at + 1) % LET_IN

    def weigh(self, crowd: float, depth: int) -> None:
        """A call that left at a steady pace was refused: are others let in in such a crowd?

        One that was refused deep, above any shallow cap, is no evidence of one.
        """
        self.common = False
        if len(self.let_in) < ENOUGH_LET_IN:
            return
        as_crowded = sum(other > crowd * (1.0 + ALIKE) for other in self.let_in)
        alike = sum(abs(other - crowd) <= crowd * ALIKE for other in self.let_in)
        share = (as_crowded + 0.5 * alike + 0.5) / (len(self.let_in) + 1)
        self.common = share > COMMON
        if depth < SHALLOW:
            self.evidence = max(0.0, self.evidence - log(share) - SURPRISE)

    def rest(self) -> None:
        """Forget what was let in recently: it is old when calls come again."""
        self.let_in, self.let_in_at = array("f"), 0

    def grow(self, dt: float, depth: int, seq: int, trip: float) -> bool:
        """A call leaves as number ``depth``; after a period at the cap, try a little more.

        True where it is time to ask whether it is one: a trial ends, or it had to shrink and refuses tries alone since.
        """
        if depth < self.cap - 1 or self.told:
            return False
        self.age += dt
        trying = self.cap > self.fine
        if self.trial and seq - self.refused_since < TRIAL_CALLS:
            return False
        if self.age <= (max(0.5, 4.0 * trip) if trying and self.step > 1 else self.period):
            return False
        shrunk = self.fine < SHRUNK * self.found and not self.misses and self.period > SETTLED
        doubted, self.trial = shrunk or bool(self.trial), 0
        self.step = 2 * self.step if trying else 1
        self.fine = self.cap
        self.cap += max(self.step, self.cap // 50)
        self.misses = 0 if trying else self.misses
        self.age, self.cut_seq = 0.0, seq
        return doubted

    def refused(self, seq: int, latest: int, throughput: float, cost: float, now: float, floor: float = 0.0) -> Verdict:
        """A refusal while the cap is on, for ``floor`` seconds."""
        if seq <= self.cut_seq:
            return Verdict.MINE
        if self.trial:
            return self._refused_on_trial(latest, now)
        trying = self.cap > self.fine
        self.refusals += not trying
        too_many = self.refusals >= TO_JUDGE and self.refusals > MOST_REFUSED * (seq - self.refused_since)
        if trying and not too_many:
            self.misses = max(0, self.misses - 1)
            self.cap = self.fine
            affordable = max(cost / (BUDGET * max(0.1, throughput)), floor / PENALTY_BUDGET)
            self.period = max(min(self.period * 1.6, affordable), FIRST_PERIOD, FIRST_SHARE * affordable)
        else:
            self.misses += 1
            shrunk = max(1, min(self.cap - 1, int(SHRINK * self.cap)) if self.misses > 1 else self.cap - 1)
            if too_many or self.misses > MISSES or 4 * shrunk < self.found or self.cap == 1:
                return self.let_go(now)
            self.cap = self.fine = shrunk
            self.period = max(FIRST_PERIOD, SOONER * self.period)
        self.step, self.age, self.cut_seq = 1, 0.0, latest
        return Verdict.MINE

    def _refused_on_trial(self, latest: int, now: float) -> Verdict:
        """A quota refuses in the first period again, and not only at the cap."""
        self.trial -= 1
        if not self.trial:
            self.let_go(now)
            return Verdict.NOT_MINE
        self.cap = self.fine = self.found = self.cap - 1
        self.age, self.cut_seq = 0.0, latest
        return Verdict.MINE

    def let_go(self, now: float) -> Verdict:
        """It was no cap; look for one again after a rest."""
        self.on, self.misses, self.depths, self.told = False, 0, (), 0
        self.rest_until = now + FIRST_REST * 2.0 ** min(self.mistakes, MOST_REST_DOUBLINGS)
        self.mistakes += 1
        return Verdict.LET_GO

    def suspect(self, depth: int, deepest: int, exact: int, latest: int, now: float, doubts: int = 0) -> Verdict:
        """A refusal that is news while the cap is off: does it always happen at this depth?

        ``deepest`` is the greatest depth at which a call was let in recently; ``exact`` how often in a row the
        quota was measured to be the same number, which speaks for a quota. A quota may be refused at one depth twice,
        too, so a cap begins on trial. It must show as often again as there are ``doubts``: one where others share it,
        so that it may pass by chance, and two where the server says how long to wait, which quotas do.
        """
        if now < self.rest_until:
            return Verdict.NOT_MINE
        self.depths = (*self.depths, depth)[-KEPT:]
        if self.evidence >= CERTAIN and depth < SHALLOW:
            return self._begin(max(1, min(self.depths)), latest)
        if exact >= EXACT_ENOUGH or self.common:
            return Verdict.NOT_MINE
        seen = self.depths[-2 - doubts :]
        low, high = min(seen), max(seen)
        equal = high - low <= (0 if depth < SHALLOW else max(1, int(NEARLY * depth)))
        blur = 2 + high // 8 if low > SHALLOWEST else 0
        if len(seen) < 2 + doubts or low < SHALLOWEST or not equal or deepest > high + blur:
            return Verdict.NOT_MINE
        return self._begin(low, latest)

    def _begin(self, cap: int, latest: int) -> Verdict:
        self.on = True
        self.cap = self.fine = self.found = cap
        self.period, self.age, self.misses, self.step, self.cut_seq = FIRST_PERIOD, 0.0, 0, 1, latest
        self.refusals, self.refused_since = 0, latest
        self.evidence, self.trial = 0.0, TRIAL if cap > SHALLOWEST else 1
        return Verdict.MINE


FEWEST, MOST = 16, 32
"""Samples in a cohort."""

COHORT = 0.5
"""Seconds of calls that a cohort spans, if they suffice."""

OVERDUE = 3.0
"""A cohort of which less than half is back after so many times the usual latency is slow; how slow, time tells."""

LOST = 30.0
"""Seconds after which a first cohort that does not come back is given up: those calls are never reported."""

HOT = 2.0
"""A median this many times the usual one is slow."""

QUICK = 0.02
"""Seconds. A usual latency below this counts as this, and one slow cohort proves nothing. A delay so short is often the
caller's own event loop (a proxy with 32 clients on loopback: 0.5 ms for one call at a time, 8 ms for all), and a cap
would only keep that loop idle."""

TRY_EVERY = 30.0
TRY_FACTOR = 1.3
SMALLEST_CAP = 2.0


@dataclass(slots=True, eq=False, kw_only=True)
class LatencyModel(Storable):
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
        if self.hot < (1 if searching and self.usual >= QUICK else 2):
            return None
        self.hot, self.best, self.trial, self.trial_at = 0, throughput, None, now
        self.cap = max(SMALLEST_CAP, 1.2 * throughput * max(self.usual, QUICK))
        return throughput

    def _adjust(self, median: float, heat: float, depth: int, now: float) -> None:
        """Capped: keep about one usual latency's worth in flight, and try more now and then."""
        self.best = max(self.throughput, self.best * 0.995)
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
            self.cap = max(SMALLEST_CAP, self.cap * 0.96)
        elif heat < 1.15 and full:
            self.cap += 1.0
        if self.trial is None and self.cap > 4.0 * self.best * max(self.usual, QUICK) + 8.0:
            self.cap = inf
