"""Measure a quota instead of guessing it.

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

from .history import CallHistory
from .state import Storable

FEWEST = 4.0
"""Accepted calls below which a measurement says nothing."""

SHORTEST = 1e-6
"""A span that divides: two calls of one instant."""

FIRST_DEPTH = 0.3
"""Seconds of silence that are taken to be made up for, before anything is known."""

FALLEN = 0.85
"""A measurement below this share of what was known is no accident of a silence."""

TOWARDS_LOW = 0.3
"""How far a refusal at rest moves what was known to the low end of the interval."""


@dataclass(slots=True, eq=False, kw_only=True)
class QuotaEstimator(Storable):
    depth: float = FIRST_DEPTH
    """Seconds of silence that the server makes up for."""
    silence: float = 0.0
    """Seconds since the start in which we sent nothing on purpose."""
    since_at: float = 0.0
    since_seq: int = -1
    """The refused call the measurement starts at; -1 before the first."""

    def restart(self, seq: int, sent_at: float) -> None:
        """Measure from the refused call ``seq`` on."""
        self.since_seq, self.since_at, self.silence = seq, sent_at, 0.0

    def forget(self) -> None:
        """What was counted so far is of no use: the next refusal starts anew."""
        self.since_seq, self.since_at, self.silence = -1, 0.0, 0.0

    @property
    def started(self) -> bool:
        return self.since_seq >= 0

    @property
    def lost(self) -> float:
        """Seconds of the silence in which nothing accrued."""
        return max(0.0, self.silence - self.depth)

    def span(self, sent_at: float) -> float:
        return max(sent_at - self.since_at, SHORTEST)

    def accrued(self, until: float) -> float:
        """Seconds of quota that accrued since the measurement began."""
        return max(until - self.since_at - self.lost, SHORTEST)

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
        if not looked and known > low:
            if point < FALLEN * known:
                return point
            known -= TOWARDS_LOW * (known - low)
        quota = min(max(known, low), high)
        if silence > 0.0:
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

MOST_CUT = 0.1
"""How far to cut when many are refused in a row: at any pace above its quota such a server refuses every other call."""

LIKELY_BURST = 0.15
"""Seconds of the last moments of a search that may owe what was let in to a burst."""

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

    look: float = 1.0
    """How far above the quota a look goes at most, where nothing accrues."""
    most: float = inf
    """Calls that are let in at once, at most."""
    volley: int = 0
    """The last call of the volley, while it is not counted yet."""

    @property
    def single(self) -> bool:
        """Whether nothing accrues: calls are kept apart, and that is all."""
        return self.most <= 1.0

    def count(self, history: CallHistory) -> None:
        """The answers to the volley are back."""
        if self.volley and self.most == inf:
            self.most = history.accepted_calls(0, self.volley)

    def rate_lately(self, history: CallHistory, seconds: float, pace: float, until: float) -> float:
        """Calls a second let in during the last ``seconds``; a little may have been a burst."""
        seconds = max(seconds, 8.0 / pace)
        accepted = history.accepted(until - seconds, until)
        return max(accepted / (seconds + LIKELY_BURST), (accepted - self.most) / seconds)

    def looked(self, excess: float) -> None:
        """A look that went so far was refused: the quota lies between."""
        self.look = max(0.5 * min(self.look, excess), LEAST_LOOK)

    def found(self) -> None:
        """A search upwards is over: how far the next one has to go is unknown."""
        self.look = 1.0
