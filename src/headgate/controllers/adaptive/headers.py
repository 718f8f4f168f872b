"""Follow what the server's headers say is left, as long as they prove right.

    a window   (``reset`` counts down)            spread what is left over the time that is left
    a bucket   (``reset`` follows the fill level) settle at a third full: faster above, slower below;
                                                  hardly faster than it refills, if a burst was refused
    a log      (only what we sent is missing)     its limit over its window, evenly
    a short window (refills in one jump)          the same, as is any that is shorter than answers take

Which one it is shows in how remaining and reset move. What we sent after the answer that
carried the header is taken off what it said remains. Budgets of other kinds (tokens), and
windows too long to spread over, only stop us when they are empty.

Headers that do not describe what refuses us, or are too coarse to steer by, are left alone
for two minutes. Nothing in a header is believed for longer than a minute without a call
to confirm it: a header, unlike Retry-After, is no order to wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from ...core.decision import NEVER
from ...core.policy import Ticket
from ...core.signal import CALLS_BY_TOKENS, Limit
from .call_history import CallHistory, SendLog
from .fill_gauge import FillGauge
from .state import Storable
from .told_wait import LONG_FLOOR

MUTED, PATIENCE, PLENTY = 120.0, 5.0, 0.5
"""Seconds that headers which proved wrong are left alone: after so many refusals under their pace, of which each answer
forgives one percent; or one for seconds with this share of the limit left, which is not the header's."""

SMALLEST_LIMIT = 20.0
"""Below this, whole calls are too coarse to steer by."""

LONGEST_SPREAD, LONGEST_BELIEF = 3600.0, 60.0
"""Seconds: a longer window (a day's) is not spread over, it only stops us when it is empty; and to wait for an empty
budget before one call asks again."""

SHORT = 5.0
"""Seconds below which a window cannot be told from a bucket by its reset, which is in whole seconds."""

COARSE = 1.0, 0.02
"""Rounding of what a bucket says: seconds of its reset, and the share of its limit that remaining may be off."""

TARGET, TOKEN_TARGET = 0.35, 0.05
"""The fill level at which to settle in a bucket: high enough for several clients that do not know of each other. In one
of tokens it is low: they are many, and a minute's worth of them is not left unused."""

EVEN = 1.05
"""How many times a bucket's refill the pace is at most where bursts are refused."""

SURELY_LOG, LOG_LEARNING = 0.8, 2.0
"""How surely it must be a log, and how much of what one window says about that is remembered."""

JITTER = 0.25, 0.002
"""How much closer together calls may come in than they were sent: shares of a round trip and of the window."""

FRESH, EARLY = 0.95, 0.5
"""A window whose reset is further away than this share of it has just begun; a log may say so at any time. So many
calls more than are left are spread over a window, so that the last one is not late for it."""

JUMP, ROUNDED, LEAST_LEFT = 0.4, 0.9, 0.1
"""A short one refills in a jump if so much more of its limit is back than a bucket refills meanwhile. Its window may be
rounded up by so many seconds, but not by more than all but this share."""

FULL, PROOF = 8, 3
"""Answers in a row that make a budget full under load; so few prove it where a log would miss as many calls."""

SPENT = 4
"""Answers in a row that make a bucket empty, where calls leave so quickly that some come in together by chance."""

SAME_TURN = 1.5
"""Seconds within which two answers speak of the same turn of a window: resets are rounded."""

PLACES, CROSSED = 8, 8
"""Answers that make it a limit on calls in flight; of so many of those, one may have overtaken another."""

SLOWEST = 0.02
"""Calls a second to go on with, so that the next header comes at all."""


class HeaderReading(NamedTuple):
    """The limits in the headers of one answer, and what is needed to understand them."""

    limits: Iterable[Limit]
    ticket: Ticket
    """The call that was answered."""
    history: CallHistory
    usual_latency: float
    trip: float
    """Seconds that a refusal takes to come back."""
    now: float


@dataclass(slots=True, eq=False, kw_only=True)
class HeaderModel(Storable):
    added = 13
    not_stored = ("counted", "target", "gauge")

    counted: str = "requests"
    """The dimension of the limits that are followed; they are given in calls."""
    target: float = TARGET
    bucket_gain: float = 1.0
    counts_down: float = 0.5
    """How surely this is a window: 0 to 1, undecided at a half."""
    empty_until: float = NEVER
    fill_count: int = 0
    fill_sum: float = 0.0
    gain_at: float = 0.0
    heard_at: float = 0.0
    is_log: float = 0.0
    """How surely what is left follows what we sent a window ago."""
    jumps: float = 0.0
    """How surely a short one refills in one jump."""
    limit: float = 0.0
    muted_until: float = NEVER
    remaining: float = 0.0
    reset_at: float = 0.0
    seq: int = 0
    """The newest call whose answer carried a header; 0 before the first."""
    steered: bool = False
    """Whether the pace follows it."""
    trim: float = 0.95
    trimmed_at: float = NEVER
    trip: float = 0.0
    """Seconds that a refusal takes to come back: what a log's calls may be closer together on arrival."""
    vague: float = 0.0
    window: float = 0.0
    wrong: float = 0.0
    full: int = 0
    """Answers in a row that say that nothing but their own call is missing."""
    refills: bool = False
    """Whether it was full for a while under load: it is a bucket."""
    places: int = 0
    """Answers, less twice those that say otherwise, whose limit seems to be on calls in flight."""
    even_after: int = 0
    """The last call before bursts were given up: what is left may be plenty, but is judged over a shorter time too."""
    brim: float = 0.0
    """What was left where all is back within a call's time: a full bucket's burst, perhaps far below its limit."""
    late: bool = False
    """Whether answers take so long that what they say is left of a short window is long gone."""
    spent: int = 0
    """Answers in a row that say that nothing is left; one that could not come in with another counts as enough."""
    sent_at: float = 0.0
    """When the newest call that is heard of was sent."""
    trim_seq: int = 0
    """The last call before a refusal was taken off the pace: more refusals up to it say nothing new."""
    sway: float = 0.0
    """Seconds by which a turn moves more from answer to answer when it is timed by them than by their calls."""
    turn_by_answer: float = 0.0
    turn_by_call: float = 0.0
    """The turn that the last answer spoke of."""
    doubted: int = 0
    """Answers for which a full budget is no news, since a look that it had asked for was refused."""
    gauge: FillGauge = field(default_factory=FillGauge)
    """How fast a bucket refills whose headers do not say so: it is small, or answers take longer than it does."""

    # -- listening ------------------------------------------------------------------------------

    @classmethod
    def of_tokens(cls) -> HeaderModel:
        return cls(counted=CALLS_BY_TOKENS, target=TOKEN_TARGET)

    def read(self, reading: HeaderReading) -> bool:
        """Follow the limit on what is ``counted``. False: the headers are of no use, and are muted from now on."""
        ticket, now, counted = reading.ticket, reading.now, self.counted
        main, empty_until = None, NEVER
        for limit in reading.limits:
            reset, remaining = limit.reset, limit.remaining
            if reset is None or remaining is None:
                continue
            if limit.dimension == counted == "requests" and self._counts_places(limit, ticket):
                return True
            if limit.dimension != counted or max(reset, limit.window or 0.0) > LONGEST_SPREAD or not limit.limit:
                if remaining <= 0.0:
                    empty_until = max(empty_until, now + min(reset, LONGEST_BELIEF))
            elif main is None or _per_second(limit) < _per_second(main):
                main = limit
        if now < self.muted_until:
            return True
        if main is not None and (self.late or (main.limit or 0.0) < SMALLEST_LIMIT):
            self.gauge.read(ticket, main, reading.history, reading.usual_latency)
        if ticket.seq < self.seq:
            return True
        self.empty_until = empty_until
        return main is None or self._follow(main, reading)

    def _counts_places(self, told: Limit, ticket: Ticket) -> bool:
        """Whether what is used are the calls in flight: it has no window, and never takes long to come back."""
        used, depth = (told.limit or 0.0) - (told.remaining or 0.0), ticket.depth + 1.0
        fits = 0.0 < used <= depth + ticket.depth // CROSSED and depth <= 3.0 * used + 2.0
        if fits and told.window is None and not told.reset:
            self.places = min(self.places + 1, 2 * PLACES)
        else:
            self.places = max(0, self.places - 2)
        if self.places < PLACES:
            return False
        self.seq, self.limit = 0, told.limit or 0.0
        return True

    def _reset_at(self, by_call: float, by_answer: float) -> float:
        """When the window turns: by the side from which the same turn is seen at the same instant.

        Servers count the seconds when a call comes in or when they answer, and some name the instant itself. Where
        that cannot be told, as answers take equally long, it is the later one.
        """
        swayed, moved = abs(by_answer - self.turn_by_answer), abs(by_call - self.turn_by_call)
        if moved < SAME_TURN:
            self.sway += 0.05 * (swayed - moved - self.sway)
        self.turn_by_call, self.turn_by_answer = by_call, by_answer
        return by_call if self.sway > 0.0 else by_answer

    def _follow(self, told: Limit, reading: HeaderReading) -> bool:
        _, ticket, history, usual_latency, trip, now = reading
        limit, remaining, reset = told.limit or 0.0, max(told.remaining or 0.0, 0.0), max(told.reset or 0.0, 0.0)
        first, self.trip = not self.seq, trip
        passed, self.sent_at = max(0.0, ticket.sent_at - self.sent_at), ticket.sent_at
        reset_at = self._reset_at(ticket.sent_at + 0.5 * trip + reset, now - 0.5 * trip + reset)
        if first:
            self.reset_at, self.window, self.gain_at = reset_at, max(reset, 1.0), now
        window = self.window = told.window or max(self.window, reset)
        self.vague += 0.1 * ((told.window is None and reset <= 0.0 and remaining < limit) - self.vague)
        if self.vague > 0.5:
            self.mute(now)
            return False
        self.late = SHORT * 2.0 > window < (4.0 if self.late else 2.0) * usual_latency
        if window >= SHORT:
            as_window = abs(reset_at - self.reset_at) < SAME_TURN
            off = abs(reset - (limit - remaining) * window / limit)
            if not as_window or off > COARSE[0] + COARSE[1] * window:  # else it may be either, with its reset rounded
                self.counts_down += 0.1 * (as_window - self.counts_down)
        else:
            self.counts_down = 0.0
            if not first:
                shortest = max(window - ROUNDED, LEAST_LEFT * window)
                jumped = remaining - self.remaining > 1.0 + limit * (JUMP + passed / shortest)
                self.jumps = min(3.0, self.jumps + 1.0) if jumped else max(0.0, self.jumps - 0.5 * passed / window)
        spent = ticket.seq - history.sends.seq_at(ticket.sent_at - window)
        self.full = self.full + 1 if remaining >= limit - 1.0 > 0.0 else 0
        self.doubted = max(0, self.doubted - 1)
        self.spent = self.spent + (1 if passed < trip else SPENT) if remaining < 1.0 else 0
        is_full = (self.full >= FULL and spent >= PROOF) or (self.full >= PROOF and spent >= max(PROOF, 0.5 * limit))
        self.refills = self.refills or is_full
        is_near = abs(limit - spent - remaining) < min(0.1 * limit + 1.0, 0.4 * limit)
        as_log = is_near and spent < limit + max(0.5, 0.02 * limit) and not self.refills
        if spent > 0.3 * limit > 0.3:  # a bucket refills meanwhile, a log does not
            learned = LOG_LEARNING * max(1.0 / limit, passed / window)
            self.is_log += min(0.1, learned) * (as_log - self.is_log)
        if as_log and spent > 0.1 * limit and reset > FRESH * window >= SHORT:  # nor has it just begun, as windows do
            self.is_log += 0.1 * (1.0 - self.is_log)
        same = reset_at - self.reset_at < SAME_TURN and now < self.reset_at
        self.reset_at = min(reset_at, self.reset_at) if same else reset_at
        self.seq, self.heard_at, self.remaining, self.limit = ticket.seq, now, remaining, max(limit, remaining)
        self.brim = remaining if reset * limit / window <= 1.0 else 0.0
        self.wrong *= 0.99
        if self.leads and self._is_bucket and not self.even_after:
            self._tune_bucket(now, usual_latency)
        return True

    def yield_to_another(self, now: float) -> None:
        """Another limit leaves less: how full this one is does not come from the pace it asks for."""
        self.steered = False
        self.fill_sum, self.fill_count, self.gain_at = 0.0, 0, now

    @property
    def _is_bucket(self) -> bool:
        return self.is_log <= SURELY_LOG and self.counts_down <= 0.5 and self.jumps < 2.0

    def _tune_bucket(self, now: float, usual_latency: float) -> None:
        """A window in whole seconds misstates a bucket's rate: correct it by where the fill level settles."""
        self.fill_sum += self.remaining / self.limit
        self.fill_count += 1
        if self.fill_count >= 4 and now - self.gain_at > max(0.5, usual_latency):
            fill = self.fill_sum / self.fill_count
            if fill > 1.2 * self.target:
                self.bucket_gain = min(200.0, self.bucket_gain * 1.1)
            elif fill < 0.6 * self.target:
                self.bucket_gain = max(0.05, self.bucket_gain / 1.1)
            self.fill_sum, self.fill_count, self.gain_at = 0.0, 0, now

    # -- steering -------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether what was heard is of use: a bucket of a few calls, in whole numbers, is too coarse."""
        if self.is_log > SURELY_LOG or self.jumps >= 2.0:
            return self.seq > 0
        if self.is_gauged:
            return True
        if self.late or not self.seq:
            return self.seq > 0 and not self.refills and self.limit >= SMALLEST_LIMIT
        return self.limit >= SMALLEST_LIMIT or self.counts_down > (0.3 if self.steered else 0.6)

    # A budget too small to steer by still makes looks for more free: they need no refusal to begin or to end.

    @property
    def is_gauged(self) -> bool:
        """Whether it is a bucket whose headers do not tell how fast it refills, but how much is left."""
        is_untold = self.late or self.limit < SMALLEST_LIMIT
        return self.gauge.is_sure and is_untold and self.refills and self._is_bucket and self.jumps < 1.0

    @property
    def is_full(self) -> bool:
        """It never falls: the quota is larger than the pace."""
        return self.full >= FULL and not self.doubted and not self.leads

    @property
    def is_spent(self) -> bool:
        """Nothing is left of a bucket."""
        return self.refills and self.spent >= SPENT and not self.leads

    @property
    def told_rate(self) -> float:
        """Calls a second that the headers speak of."""
        return self._at_least(self.gauge.rate if self.is_gauged else self.limit / self.window)

    def steers(self, depth: int, now: float) -> bool:
        """Whether there is a header to go by: one that is fresh, or whose calls are still out."""
        return self.leads and now - self.heard_at <= max(2.0, 2.0 * self.window, self.gauge.patience) * (
            2.0 if depth else 1.0
        )

    def pace(self, seq: int, log: SendLog, now: float) -> tuple[float, float]:
        """Calls a second, and the instant before which nothing is left. ``seq`` is the last call sent."""
        self.steered = True
        limit, window = self.limit, self.window
        remaining, left = self.remaining - (seq - self.seq), self.reset_at - now
        if self.is_gauged:
            pace, none_before = self.gauge.pace(seq, now)
            return self._at_least(pace), none_before
        if self.is_log > SURELY_LOG:  # it never fills up by waiting: what is left unused is lost
            full_until = log.instant_of(seq + 1 - limit) + self._loosened
            return self._even_pace(now), NEVER if remaining >= 1.0 else full_until
        if self.jumps < 2.0 and (self.counts_down > 0.5 or limit < SMALLEST_LIMIT):
            if left <= 0.0:  # it has turned since: count what we sent in the new one
                left += ceil((1e-9 - left) / window) * window
                remaining = limit - (seq - log.seq_at(now + left - window))
            if remaining < 1.0:
                return self._at_least(limit / window), now + min(left, LONGEST_BELIEF) + 0.01
            return self._at_least((remaining + EARLY) / max(left, 0.2)), NEVER
        if self.jumps >= 2.0 or self.late:
            return self._even_pace(now), NEVER
        refilled = limit / window * max(0.0, now - self.heard_at)
        left = max(0.0, min(limit, self.remaining + refilled) - (seq - self.seq))
        gain = self.bucket_gain * min(4.0, (left / limit / self.target) ** 2)
        if self.brim and left >= 0.5 * self.brim:
            gain = max(gain, 1.0)
        gain = max(gain, 1.0 / limit)  # one call asks again once it has surely refilled
        return self._at_least(limit / window * (min(gain, EVEN) if self.even_after else gain)), NEVER

    def _even_pace(self, now: float) -> float:
        """All of the limit, spread over its window. What a refusal has taken off it comes back slowly."""
        self.trim = min(1.0, self.trim + 0.005 * min(max(0.0, now - self.trimmed_at), 1.0))
        self.trimmed_at = now
        return self._at_least(self.limit / self._loosened * self.trim)

    @property
    def _loosened(self) -> float:
        """Its window, for calls that come in closer together than they were sent."""
        return self.window + min(JITTER[0] * self.trip + JITTER[1] * self.window, self.trip)

    @staticmethod
    def _at_least(rate: float) -> float:
        return max(rate, SLOWEST)

    def refused(self, refused_seq: int, seq: int, floor: float, now: float) -> bool:
        """A call was refused under these headers, for ``floor`` seconds. False: they are left alone from now on.

        Once too often, or for long while the headers speak of plenty: what refuses is something else. For a moment
        while a bucket speaks of plenty: it takes no bursts. ``seq`` is the last call sent.
        """
        plenty = self.remaining - (seq - self.seq) > PLENTY * self.limit
        if self._is_bucket and self.window >= SHORT and plenty and floor < LONG_FLOOR and not self.even_after:
            self.even_after = seq
        if refused_seq <= self.even_after or (self.is_gauged and refused_seq <= self.trim_seq):
            return True
        self.wrong += 1.0
        if refused_seq > self.trim_seq:
            self.trim, self.trim_seq = max(0.05, 0.93 * self.trim), seq
        if self.wrong > PATIENCE or (plenty and floor >= LONG_FLOOR):
            self.mute(now)
            return False
        return True

    def mute(self, now: float) -> None:
        """Forget all that was heard, and listen for a while to nothing but how many places there are."""
        fresh = HeaderModel(muted_until=now + MUTED, places=self.places)
        for name in self.stored:
            setattr(self, name, getattr(fresh, name))
        self.gauge.forget()


def _per_second(limit: Limit) -> float:
    return (limit.limit or 0.0) / max(limit.window or limit.reset or 1.0, 1e-3)
