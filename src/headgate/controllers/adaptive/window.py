"""Nothing gets in any more: hold still, probe with one call, and learn from how long it lasted.

    refused ----> hold ----> one probe ----> let in, or no refusal in time: go on
                    ^            |
                    +-- refused: hold longer

A refusal comes back within a round trip and an answer may take long, so a probe that was
not refused in time was let in. A short block is an empty bucket. A long one is a window
that had to turn: what was let in from one turn to the next is its quota, and ``WindowPhase`` keeps
step with it. Where one length that APIs use fits, and no other, it is the window's. Blocks of equal
length whose rates differ are no windows, but a penalty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt

from .call_history import CallHistory
from .pace_curve import SHORT_WINDOW, PaceCurve
from .state import Storable

LEAST_DOUBT = 0.03
"""The share of the spacing by which a turn may always come early or late."""

LONGEST_BLIND = 8.0
"""Seconds to wait without a probe; if the turn is further away, a good half of the way."""

FULL, CLEARLY = 0.9, 0.1
"""The share of what a window holds from which on it may be full, and of its length by which an instant is no turn."""

SAME = 0.01
"""Counts that differ by this share are the same."""

NEARLY = 0.06
"""The share of a length within which one distance shows it."""

USUAL_LENGTHS = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds over which APIs count calls."""


def usual_length(low: float, high: float) -> float:
    """The only usual length above ``low`` and up to ``high``; 0 where there is none, or more than one."""
    fitting = [length for length in USUAL_LENGTHS if low < length <= high]
    return fitting[0] if len(fitting) == 1 else 0.0


@dataclass(slots=True, eq=False, kw_only=True)
class WindowPhase(Storable):
    """Keep step with a window that turns at fixed times.

    Each block that ends shows one turn, to within the time between two probes. Turns of a fixed window lie
    on a lattice; once two distances have agreed, the next turn is known and waited for instead of
    probed for.

            turn           turn                          turn
        -----|--------------|--------------|--------------|------>
                     known spacing     not seen: nothing was refused
    """

    added = 1

    last_at: float = 0.0
    """When the last turn that was seen happened."""
    last_error: float = 0.0
    """... and by how much that may be wrong."""
    seen: int = 0
    spacing: float = 0.0
    spacing_error: float = 0.0
    sure: int = 0
    """Distances in a row that fitted."""
    known: bool = False
    """Whether many refusals have shown length and times of its turns, and none has contradicted."""

    def saw(self, at: float, error: float) -> None:
        """A turn was seen."""
        last_at, last_error = self.last_at, self.last_error
        distance, doubt = at - last_at, error + last_error
        self.last_at, self.last_error = at, error
        self.seen += 1
        if self.seen < 2:
            return
        steps = max(1, round(distance / self.spacing)) if self.spacing else 1
        spacing, spacing_error = distance / steps, doubt / steps
        spacing = usual_length(spacing - spacing_error, spacing + spacing_error) or spacing
        if self.spacing and abs(spacing - self.spacing) <= spacing_error + self.spacing_error and steps < 50:
            self.sure += 1
            if spacing_error < self.spacing_error:
                self.spacing, self.spacing_error = spacing, spacing_error
            if self.known and last_error < error:
                self.last_at, self.last_error = last_at + steps * self.spacing, last_error
        elif distance > 0.0:
            spacing = usual_length(distance - doubt, distance + doubt) or distance
            self.spacing, self.spacing_error, self.sure, self.known = spacing, doubt, 0, False

    @property
    def is_likely(self) -> bool:
        """Whether the distances agree, or the only one so far is a length that APIs use, nearly enough."""
        return bool(self.sure) or (self.spacing in USUAL_LENGTHS and self.spacing_error <= NEARLY * self.spacing)

    def know(self, at: float, error: float, spacing: float) -> None:
        """It turned at ``at``, and turns every ``spacing`` seconds."""
        self.last_at, self.last_error, self.spacing, self.spacing_error = at, error, spacing, 0.0
        self.seen, self.sure, self.known = max(self.seen, 2), max(self.sure, 1), True

    def forget(self) -> None:
        """It does not turn at these times."""
        self.seen, self.sure, self.spacing, self.spacing_error, self.known = 0, 0, 0.0, 0.0, False

    def turn_before(self, at: float) -> tuple[float, float]:
        """When the last turn before ``at`` was, and by how much that may be wrong."""
        steps = (at - self.last_at) // self.spacing
        return self.last_at + steps * self.spacing, self.last_error + abs(steps + 1.0) * self.spacing_error

    def fits(self, seq: int, at: float, history: CallHistory, quota: float) -> bool:
        """Whether turns are known, and what was let in since the last one is about all, so that a refusal is due."""
        if not self.known:
            return False
        turn, error = self.turn_before(at)
        return history.accepted_since(turn - error, seq) >= FULL * quota * self.spacing - 1.0

    def turned(self, since: float, until: float) -> bool:
        """Whether a turn that is known may lie between two instants."""
        turn, error = self.turn_before(until)
        about = max(error, LEAST_DOUBT * self.spacing)
        return turn + about > since or turn + self.spacing - about < until

    def has_surely_turned(self, since: float, until: float) -> bool:
        """Whether a turn that is known lies well between two instants."""
        turn, error = self.turn_before(until)
        about = max(error, CLEARLY * self.spacing)
        return turn - about > since and turn + about < until

    def quota(self, seq: int, at: float, history: CallHistory, known: float | None) -> float:
        """Calls a second that it holds, by what was let in from its last turn to a refusal: as near to what is
        ``known``, if anything, as the error of the turn allows. 0 where its turns are not known, or just over."""
        if not self.known:
            return 0.0
        turn, error = self.turn_before(at)
        if at - turn <= error or at - turn >= self.spacing - error:
            return 0.0
        least, most = history.accepted_since(turn + error, seq), history.accepted_since(turn - error, seq)
        if known is None:
            return 0.5 * (least + most) / self.spacing
        about = SAME * most
        return min(max(known, (least - about) / self.spacing), (most + about) / self.spacing)

    def holds_more(self, curve: PaceCurve, history: CallHistory, known_at: float) -> bool:
        """Whether more was let in since the last turn, as far as is known by then, than the window held."""
        if not self.known or self.spacing != curve.window:
            return False
        turn, error = self.turn_before(known_at)
        let_in = history.accepted_since(turn + error, int(history.sends.seq_at(known_at)))
        return let_in > curve.quota * curve.window + 0.5

    def hold(self, now: float, refused_at: float, shortest: float, quota: float) -> float:
        """Seconds to wait for the next turn after ``refused_at``, or for a probe when it is due at any moment."""
        turn, error = self.turn_before(now)
        doubt, late = max(error, LEAST_DOUBT * self.spacing), now - turn
        shortest = max(shortest, min(sqrt(WORTH * doubt / quota), doubt))
        if turn > self.last_at and (late <= doubt or turn + error > refused_at):
            return max(shortest, 0.35 * late)
        if self.known:  # to be late costs less than to be refused once more
            return max(shortest, min(self.spacing - late + error, self.spacing))
        half = self.spacing / 2.0 + doubt - late  # perhaps only every second turn was seen so far
        early = half if half > 0.0 else self.spacing - late - doubt
        return max(shortest, min(early, max(LONGEST_BLIND, 0.6 * early)))


IN_A_ROW = 3
"""Refusals in a row that mean nothing gets in; where the turns of a window are known, and it is not short, one does."""

SHORTEST_HOLD = 0.2
FIRST_HOLD, FEW_CALLS = 1.0, 40
"""Refused after less than so many calls in all: this may be slow, hold longer."""

LONGER, LONGEST_HOLD = 0.6, 8.0
"""The next probe waits for this share of the time that has passed since the block began, or so many seconds ..."""

WORTH, MUCH_LONGER, LONGEST_SLOW = 16.0, 1.25, 30.0
"""... or longer: being late by so many calls is worth one refusal less. The most is this share, and so many seconds."""

AGAIN = 0.15
"""... and the first one for this share of how long the last block was."""

PROBE_GRACE = 0.02
"""Seconds added to three round trips before a silent probe counts as let in."""

PLAIN = 20.0
"""Calls accepted just before a block that make it worth a lesson, unless it was very long."""

VERY_LONG = 10.0

HANDFUL, TOO_FEW = 8.0, 0.5
"""Calls from one block to the next that may show at once that they are too few for a quota, and the share of it."""

LATELY, LIKELY_BURST = 1.5, 1.0
"""Seconds before a block that count as lately, and how many of them may owe what was let in to a burst."""

FARTHEST = 2.0
"""Blocks that are further apart than so many times what they show of a window may be so by chance."""

EQUAL, TOLD_EQUAL = 0.15, 0.03
"""Blocks are equally long within this share of their length; where the server says how long, more nearly so."""


@dataclass(slots=True, eq=False, kw_only=True)
class Block(Storable):
    added = 3

    began_at: float = 0.0
    """When the last call before the silence was sent, and refused."""
    began_seq: int = 0
    busy_after: int = 0
    busy_from: float = 0.0
    """When, and after which call, callers last began to wait for the pace: what came before says nothing."""
    holds: int = 0
    """Probes refused."""
    last_length: float = 0.0
    """The proven length of the last long block; 0 before the first."""
    last_rate: float = 0.0
    """Calls a second that were let in from the last one but one to the last."""
    probe_at: float = 0.0
    probe_seq: int = 0
    """The call that probes, 0 while none is out."""
    refused_at: float = 0.0
    """When the last refused probe was sent."""
    reopened_at: float = 0.0
    """When the last long block ended; before the first, when the key began."""
    reopened_seq: int = 0
    told: bool = False
    """The server itself said how long (a Retry-After of seconds)."""
    window_phase: WindowPhase = field(default_factory=WindowPhase)
    ended_at: float = 0.0
    """When the last block ended, long or short."""
    before: float = 0.0
    """How long the last block was, while another goes on."""
    odd: bool = False
    """Whether it began though a window whose turns are known should not have been full."""

    def enter(self, seq: int, sent_at: float, told: bool, now: float, window: float, odd: bool = False) -> None:
        self.probe_seq, self.holds, self.odd = 0, 0, odd
        self.told, self.refused_at = told, sent_at
        self.before = max(0.0, self.ended_at - self.began_at) if self.ended_at else 0.0
        if not (self.last_length and now - self.reopened_at < 0.8 * window):
            self.began_at, self.began_seq = sent_at, seq  # else the old window is not over: the same block goes on

    def is_shut(self, in_a_row: int, window: float) -> bool:
        """Whether so many refusals, in the order of sending, mean that nothing gets in any more."""
        return in_a_row >= (1 if self.window_phase.sure and window > SHORT_WINDOW else IN_A_ROW)

    def probe(self, seq: int, now: float) -> None:
        self.probe_seq, self.probe_at = seq, now

    def probe_refused(self, sent_at: float) -> None:
        self.probe_seq, self.refused_at = 0, sent_at
        self.holds += 1

    def hold(self, now: float, trip: float, curve: PaceCurve, floor: float) -> float:
        """Seconds until the next probe; the server asks to wait for ``floor``, or 0."""
        return floor if floor and self.window_phase.sure else max(floor, self._hold(now, trip, curve))

    def _hold(self, now: float, trip: float, curve: PaceCurve) -> float:
        phase = self.window_phase
        if not self.odd and (phase.sure or (phase.is_likely and curve.window == phase.spacing)):
            return phase.hold(now, self.refused_at, max(SHORTEST_HOLD, 2.0 * trip), curve.quota)
        slow = 2.0 / curve.sought_from if curve.sought_from else 0.0
        first = FIRST_HOLD if self.began_seq < FEW_CALLS else SHORTEST_HOLD
        calls = self.began_seq - self.reopened_seq  # none if the last block goes on
        blocked = max(0.0, now - self.began_at)  # the clock may go back
        per_second = calls / max(now - self.reopened_at, SHORTEST_HOLD) if calls > 0 else curve.quota
        worth = min(sqrt(WORTH * blocked / per_second), MUCH_LONGER * blocked, LONGEST_SLOW)
        return max(first, 2.0 * trip, slow, worth, min(max(AGAIN * self.before, LONGER * blocked), LONGEST_HOLD))

    def rate_if_too_few(self, calls: float, refused_at: float, curve: PaceCurve) -> float:
        """Calls a second since the block before began, where they are too few for the quota; else 0."""
        span = refused_at - self.began_at
        rate = (calls + 0.5) / max(span, 1e-3)
        return rate if rate < TOO_FEW * curve.quota and span >= curve.window else 0.0

    @property
    def length(self) -> float:
        return self.probe_at - self.began_at

    def is_lesson(self, accepted: Callable[[float, float], float]) -> bool:
        """Whether the block that just ended was long enough, and its cause plain enough, to teach."""
        length = self.length
        proven = (length > 1.0 and (self.holds >= 1 or self.told)) or (length > 0.4 and self.holds >= 2)
        since = max(self.began_at - 2.0 * length, self.ended_at)
        return proven and (length > VERY_LONG or accepted(since, self.began_at) >= PLAIN)

    def teach(
        self, curve: PaceCurve, calls: float, accepted: Callable[[float, float], float], sought: bool
    ) -> tuple[float, bool]:
        """Learn window and penalty; ``calls`` were accepted since the last lesson. Returns the quota, and if first.

        ``sought``: there was a search upwards meanwhile, so only the window that was full tells.
        """
        length, first = self.length, not self.last_length
        proven = length - 1.0 if self.told else self.refused_at - self.began_at
        turned_at = self.probe_at - 0.5 if self.told else (self.refused_at + self.probe_at) / 2.0
        error = 0.5 if self.told else (self.probe_at - self.refused_at) / 2.0
        span = max(turned_at - self.reopened_at, 1e-3)
        usual = usual_length(span - error - self.window_phase.last_error, span + error + self.window_phase.last_error)
        span = usual or span
        self.window_phase.saw(turned_at, error)
        horizon = 3.0 * max(length, self.window_phase.spacing if self.window_phase.sure else curve.window)
        since = max(self.reopened_at, self.busy_from, turned_at - horizon)
        if since > self.reopened_at and not first:  # what was long ago, or idle, says nothing
            short = turned_at - since < max(curve.window, 2.0 * length)
            known = max(curve.quota if curve.window else 0.0, calls / span)
            quota = known if short else accepted(since, turned_at) / (turned_at - since)
        else:
            quota = calls / span
        if sought and curve.window:
            quota = max(quota, accepted(turned_at - curve.window, turned_at) / curve.window)
        if first and not usual and length < 0.5 * span:  # the slow start pulls the average down
            quota = sqrt(quota * max(quota, accepted(self.began_at - length, self.began_at) / length))
        punished, curve.penalty = curve.penalty > 0.0, 0.0
        about = (TOLD_EQUAL if self.told else EQUAL) * length
        equal = not first and length >= 2.0 and abs(proven - self.last_length) < about
        agrees, self.last_rate = abs(quota - self.last_rate) < 0.15 * quota, quota
        if equal and (punished or not agrees) and not self.window_phase.sure:
            since = self.reopened_at if punished else max(self.began_at - LATELY, self.reopened_at)
            quota = max(quota, accepted(since, self.began_at) / (self.began_at - since + LIKELY_BURST))
            curve.penalty, curve.window = length, 0.0
        elif self.window_phase.sure:
            curve.window = self.window_phase.spacing
        else:
            likely = max(0.97 * curve.window, proven, min(span, 1.6 * proven))
            curve.window = usual if 0.0 < usual <= FARTHEST * likely else likely
        self.last_length = max(proven, 1e-9)
        self.reopened_at, self.reopened_seq = turned_at, self.probe_seq
        return quota, first
