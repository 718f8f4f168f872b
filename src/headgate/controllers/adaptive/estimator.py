"""Measure a quota instead of guessing it: count the calls that were let in, and divide by the time.

Between two refusals a rate quota admits exactly what it allows:

              accepted calls sent after the first, up to the second
    quota  =  -----------------------------------------------------
                      seconds between the two sends

Time in which nothing was sent on purpose is the doubtful part. A bucket goes on filling in a
silence, until it is full: so many seconds of silence are made up for, the rest is lost. How many that
are, the ``depth``, is learned; until it is known a measurement with a silence in it is an interval,

    calls / span   (all of it made up for)     to     calls / (span - silence)   (all of it lost)

and what was known before is moved no further than into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from ...core.policy import Ticket
from .call_history import CallHistory
from .call_sizes import CallSizes, tokens_of
from .state import Phase, Storable

FEWEST = 4.0
"""Accepted calls below which a measurement says nothing."""

FEW_SECONDS = 1.0
"""Seconds in which fewer calls than these still tell what the quota is at most."""

SPENT_TELLS, SPENT_LEAN = 0.3, 0.1
"""How far a look that ends because nothing is left moves what was known: it may have begun with something left. And how
far to lean from what was let in to the pace of the look: a small bucket has lost what came in while it was full."""

SHORTEST = 1e-6
"""A span that divides: two calls of one instant."""

FIRST_DEPTH = 0.3
"""Seconds of silence that are taken to be made up for, before anything is known."""

FALLEN = 0.85
"""A measurement below this share of what was known is no accident of a silence."""

SLACK, CATCH_UP, WITHIN = 3.0, 0.1, 3.0
"""More calls than this behind what the quota accrued: catch up, by a tenth of the quota at most, in so many seconds."""

TOWARDS_LOW = 0.3
"""How far a refusal at rest moves what was known to the low end of the interval."""


REPEATED, MOVED, SILENT, TWICE = 0.02, 0.03, 0.1, 2
"""Averages closer than the first share are the same; paces further apart than the second are not. With a silence of
more than the third share of the time, it takes so many."""


@dataclass(slots=True, eq=False, kw_only=True)
class QuotaEstimator(Storable):
    added = 5

    depth: float = FIRST_DEPTH
    """Seconds of silence that the server makes up for."""
    silence: float = 0.0
    """Seconds since the start in which we sent nothing on purpose."""
    since_at: float = 0.0
    since_seq: int = -1
    """The refused call the measurement starts at; -1 before the first."""
    excused: bool = False
    """Whether the last measurement seemed to have fallen, and only because nothing was made up for in a silence."""
    sizes: CallSizes | None = None
    """Where calls say what they take in tokens."""
    average: float = 0.0
    """Calls a second let in from the last refusal but one to the last; 0 before two of them."""
    refused_pace: float = 0.0
    """The pace at which the last one was sent."""
    repeats: int = 0
    """Times in a row that the average was the same."""

    def load_state(self, state: tuple[Any, ...]) -> None:
        sizes_at = self.stored.index("sizes")
        self.sizes = CallSizes() if len(state) > sizes_at and state[sizes_at] else None
        Storable.load_state(self, state)

    def note(self, ticket: Ticket) -> None:
        """A call was refused."""
        if self.sizes is not None:
            self.sizes.note_refused(tokens_of(ticket.cost))

    def restart(self, seq: int, sent_at: float) -> None:
        """Measure from the refused call ``seq`` on."""
        self.since_seq, self.since_at, self.silence = seq, sent_at, 0.0
        if self.sizes is not None:
            self.sizes.restart()

    def forget(self) -> None:
        """What was counted so far is of no use: the next refusal starts a new measurement."""
        self.since_seq, self.since_at, self.silence = -1, 0.0, 0.0
        self.average = self.refused_pace = 0.0

    @property
    def started(self) -> bool:
        return self.since_seq >= 0

    @property
    def counts_tokens(self) -> bool:
        """Whether the server counts tokens: a call that was refused may only have been too large."""
        return self.sizes is not None and self.sizes.tokens_are_counted

    @property
    def lost(self) -> float:
        """Seconds of the silence in which nothing accrued."""
        return max(0.0, self.silence - self.depth)

    def calls(self, history: CallHistory, until: float, refused_at: float | None = None) -> float:
        """Calls let in since the measurement began, up to that one; usual ones where the server counts tokens.

        ``refused_at``: it was refused, and sent then, so that this is a measurement.
        """
        calls, sizes = history.accepted_calls(self.since_seq, until), self.sizes
        if sizes is None:
            return calls
        if refused_at is not None:
            sizes.measure(calls, self.span(refused_at))
        return max(0.0, calls + sizes.surplus) if self.counts_tokens else calls

    def span(self, sent_at: float) -> float:
        return max(sent_at - self.since_at, SHORTEST)

    def accrued(self, until: float) -> float:
        """Seconds of quota that accrued since the measurement began."""
        return max(until - self.since_at - self.lost, SHORTEST)

    def surely_accrued(self, until: float) -> float:
        """The same, without what nothing has shown yet to be made up for."""
        return self.accrued(until) - (min(self.silence, self.depth) if self.depth == FIRST_DEPTH else 0.0)

    def catch_up(self, quota: float, history: CallHistory, now: float) -> float:
        """Calls a second to send beyond the pace where more has surely accrued than was sent."""
        behind = quota * self.surely_accrued(now) - self.calls(history, history.sends.seq_at(now)) - SLACK
        return max(0.0, min(CATCH_UP * quota, behind / WITHIN))

    def is_exact(self, accepted: float, sent_at: float, pace: float) -> bool:
        """Whether as much was let in as the last time though the pace that was refused is another: so it is the quota.

        Where little accrues in advance the average moves with the pace.
        """
        average, before, pace_before = accepted / self.span(sent_at), self.average, self.refused_pace
        self.average, self.refused_pace = average, pace
        is_repeated = abs(average - before) < REPEATED * before and abs(pace - pace_before) > MOVED * pace_before
        self.repeats = self.repeats + 1 if is_repeated else 0
        return is_repeated and (self.repeats >= TWICE or self.silence < SILENT * self.span(sent_at))

    def is_doubtful(self, sent_at: float) -> bool:
        """Whether much of the time was a silence, and nothing has shown yet whether it is made up for."""
        return self.depth == FIRST_DEPTH and self.silence > SILENT * self.span(sent_at)

    def most(self, accepted: float, sent_at: float) -> float:
        """What the quota may be at most though too few calls were let in to measure it: a call more would have been.

        Where none was let in, nothing gets in any more, whatever the quota is.
        """
        span = self.span(sent_at)
        tells = self.started and accepted >= 1.0 and span > FEW_SECONDS and not self.counts_tokens
        return (accepted + 1.0) / span if tells else inf

    def after_spent(self, accepted: float, sent_at: float, known: float, pace: float) -> float:
        """What the quota is after a look at this pace that nothing was left of, by the server's word."""
        measured = accepted / self.accrued(sent_at)
        measured += SPENT_LEAN * max(0.0, pace - measured)
        return known + SPENT_TELLS * (measured - known)

    def quota(self, accepted: float, sent_at: float, known: float | None, looked: bool) -> float | None:
        """Calls a second, if there is enough to go by.

        ``known`` is what earlier measurements said, if anything; ``looked`` says that we were refused
        above it on purpose, so that the refusal does not speak against it.
        """
        if accepted < FEWEST:
            return None
        calls, span = accepted + 0.5, self.span(sent_at)
        point = calls / self.accrued(sent_at)
        if known is None:
            return point
        silence = min(self.silence, span - SHORTEST)
        low, high = calls / span, calls / (span - silence)
        fell = not looked and point < FALLEN * known
        if fell and (self.excused or high < FALLEN * known):
            return point
        self.excused = fell
        if fell:
            self.depth = 0.0
        elif not looked and known > low:
            known -= TOWARDS_LOW * (known - low)
        quota = min(max(known, low), high)
        if silence > 0.0 and not fell:
            self._learn_depth(silence, silence - span + calls / quota)
        return quota

    def _learn_depth(self, silence: float, made_up: float) -> None:
        """So many seconds of a silence have been made up for."""
        if made_up >= 0.9 * silence:
            self.depth = max(self.depth, silence)
        else:
            self.depth += 0.5 * (max(made_up, 0.0) - self.depth)


SEARCHED, SOUGHT, CRUISED = 0.5, 0.9, 0.97
"""What of a pace that was refused to go on with: after the first search, after a search upwards, at rest."""

FIRST_CUT, MOST_CUT = 0.1, 0.5
"""How far to cut when many are refused in a row, twice as far each time: at any pace above its quota such a server
refuses every other call."""

MOST_SHARE, MANY = 0.9, 4
"""How far to cut elsewhere, and the refusals from which on their share alone tells."""

LIKELY_BURST = 0.15
"""Seconds of the last moments of a search that may owe what was let in to a burst."""

FULL, FELL = 2.0, 0.8
"""Seconds after a search in which a refusal may be a log's that is full of it, and the share of the pace to fall to."""

NOT_SINGLE = 4
"""Refusals in a row at rest, below what was let in before: where single calls are let in, there is hardly a second."""

LEAST_LOOK = 0.03
"""How far above the quota a look goes at least."""


@dataclass(slots=True, eq=False, kw_only=True)
class Burst(Storable):
    """How much a fresh server lets in at once, and what to do where that is a single call.

    The first search sends a volley; what is let in of it before the first refusal is, at most, the server's burst.
    Where it is one call, nothing accrues in advance: time spent below the quota is lost, so that what got
    through between two refusals measures our own pace. Only the paces themselves tell:

        let in at this pace             the quota is at least that
        refused a little above it       it is at most that: the next look goes half as far
    """

    added = 2

    look: float = 1.0
    """How far above the quota a look goes at most, where nothing accrues."""
    most: float = inf
    """Calls that are let in at once, at most."""
    volley: int = 0
    """The last call of the volley, while it is not counted yet."""
    cuts: int = 0
    """Cuts in a row that were refused at once."""
    falls: int = 0
    """Refusals in a row at rest."""

    @property
    def single(self) -> bool:
        """Whether nothing accrues: calls are kept apart, and that is all."""
        return self.most <= 1.0

    def count(self, history: CallHistory) -> None:
        """The answers to the volley are back."""
        if self.volley and self.most == inf:
            self.most = history.accepted_calls(0, self.volley)

    def cut_again(self, pace: float, refused: float, sent: float, seconds: float) -> float:
        """What the quota is where so many of the calls since the last cut are refused again.

        It fell by their share; where they are few, no further than what was let in says. Where single calls are let in
        the share tells nothing.
        """
        if self.single:
            self.cuts, self.look = self.cuts + 1, 1.0
            return pace * CRUISED * (1.0 - min(FIRST_CUT * 2.0 ** (self.cuts - 1), MOST_CUT))
        quota = pace * CRUISED * (1.0 - min(MOST_SHARE, refused / sent))
        if refused >= MANY or seconds < FEW_SECONDS:
            return quota
        return max(quota, min(CRUISED * pace, (sent - refused + 1.0) / seconds))

    def rate_lately(self, history: CallHistory, seconds: float, pace: float, until: float) -> float:
        """Calls a second let in during the last ``seconds``; a little may have been a burst."""
        seconds = max(seconds, 8.0 / pace)
        accepted = history.accepted(until - seconds, until)
        return max(accepted / (seconds + LIKELY_BURST), (accepted - self.most) / seconds)

    def rate_of_log(self, history: CallHistory, since: float, pace: float, until: float) -> float:
        """Calls a second that a log allows at least which is still full of a search, ``since`` seconds ago; else 0."""
        return min(FELL * pace, self.rate_lately(history, FULL, pace, until)) if since < FULL else 0.0

    def judge(self, phase: Phase, pace: float, quota: float, before: float, excess: float) -> tuple[float, bool]:
        """What the quota is after a refusal, where only the paces tell, and whether that is a guess.

        It was ``quota``, and ``before`` a search; a look goes ``excess`` above it.
        """
        if phase is Phase.START:
            return max(SEARCHED * pace, before), True
        self.falls = self.falls + 1 if phase is Phase.CRUISE else 0
        if phase is Phase.CLIMB:
            quota = max(SOUGHT * pace, before)
            self.found(pace / quota - 1.0)
        elif phase is Phase.PROBE:
            self.looked(excess)
        else:
            quota = CRUISED * min(pace, quota)
            if self.falls >= NOT_SINGLE:  # others use it too, and had emptied it when the volley was sent
                self.most, self.volley, self.look, self.falls = inf, 0, 1.0, 0
        return quota, False

    def looked(self, excess: float) -> None:
        """A look that went so far was refused: the quota lies between."""
        self.look = max(0.5 * min(self.look, excess), LEAST_LOOK)

    def found(self, excess: float) -> None:
        """A search upwards was refused so far above the quota that is kept: the next look goes half as far."""
        self.look = 1.0
        self.looked(excess)
