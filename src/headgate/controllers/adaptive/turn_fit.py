"""Recognize a window that turns at fixed times, and what it holds, from its refusals.

A window of N calls in W seconds refuses whatever comes once N were let in, until it turns. So every run of refusals
ends at a turn, and turns lie on a lattice; and what was let in since the last turn is the same at the beginning of
every run, whenever in the window that was:

    let in    |||||||||||||        |||||||||||||            |  |  |  | ...
    refused                xx  x               x   x                        x
    turns     ^                    ^                   ^                  ^

Lengths that APIs use are tried. One fits if a turn can lie at the end of every run and none inside one, and if the
counts agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import NamedTuple

from .call_history import CallHistory
from .pace_curve import PaceCurve
from .window import USUAL_LENGTHS, Block, WindowPhase

FEWEST, SURELY = 3, 9.0
"""Counts that must agree, and how unlikely that must be by chance, as a logarithm: 1 in 8,000."""

FEWEST_CALLS, COLLAPSED = 3.0, 0.1
"""Calls below which a count tells nothing, and the share of the quota."""

SAME, CALLS = 0.02, 1.0
"""Counts are the same within this share, or so many calls."""

ROUNDED, LEAST = 1.0, 0.1
"""Seconds by which a Retry-After is rounded up at most; and by which clocks may differ."""

MORE = 1.05, 3.0
"""A window that was not refused lets in no more than it holds, times the first, and so many calls around its turns."""


class Turn(NamedTuple):
    """What a window that fits the refusals looks like."""

    length: float
    at: float
    """When it last turned."""
    error: float
    calls: float
    """... that it holds."""


@dataclass(slots=True, eq=False)
class _Lattice:
    """Where the turns of a window of one length may lie."""

    length: float
    too_short: bool = False
    """Whether a run of refusals was longer than it."""
    low: float = 0.0
    """One of its turns came after this ..."""
    high: float = 0.0
    """... and by then; 0 as long as none was seen."""
    surprise: float = 0.0
    """How unlikely it is, as a logarithm, that the ends of the runs fit by chance."""
    least: float = 0.0
    most: float = 0.0
    """What was let in since the last turn at the beginning of every run: at least, and at most."""
    counts: int = 0
    """How many counts have agreed in that."""
    agreement: float = 0.0
    """... and how unlikely that is."""
    misfits: int = 0
    """Runs that did not fit: the more have been tried, the more fit by chance."""

    def ended(self, began_at: float, low: float, high: float) -> None:
        """A run of refusals that began at ``began_at`` ended at a turn between ``low`` and ``high``."""
        length = self.length
        self.too_short = self.too_short or low - began_at >= length
        if self.too_short or high - low >= length:
            self._forget()
            return
        if self.high:
            ahead = round((low + high - self.low - self.high) / (2.0 * length)) * length
            self.low, self.high = self.low + ahead, self.high + ahead
            if max(self.low, low) < min(self.high, high):
                self.surprise -= log(min(1.0, (high - low + self.high - self.low) / length))
                self.low, self.high = max(self.low, low), min(self.high, high)
                return
            self._forget()
        self.low, self.high = low, high

    def began(self, seq: int, at: float, history: CallHistory) -> None:
        """A run of refusals begins: count what was let in since the last turn."""
        if not self.high:
            return
        ahead = (at - self.high) // self.length * self.length
        low, high = self.low + ahead, self.high + ahead
        if at > low + self.length:  # it may just have turned
            return
        least, most = history.accepted_since(high, seq), history.accepted_since(low, seq)
        about = SAME * most
        if not self.counts or least > self.most + about or most < self.least - about:
            self.misfits += self.counts > 0
            self.least, self.most, self.counts, self.agreement = least, most, 1, 0.0
            return
        before = history.accepted(low - self.length, low)
        if before > MORE[0] * most + MORE[1]:
            self.counts = 0
            return
        self.agreement -= log(min(1.0, (most - least + self.most - self.least + 2.0 * about + 1.0) / max(most, 1.0)))
        self.least, self.most = max(self.least, least), min(self.most, most)
        self.counts += 1

    def turn(self, now: float) -> Turn | None:
        """Its last turn and what it holds, where that is sure."""
        if self.counts < FEWEST or self.surprise + self.agreement < SURELY + log(1 + self.misfits):
            return None
        calls = max(self.least, self.most)
        if calls < FEWEST_CALLS or abs(self.most - self.least) > max(SAME * calls, CALLS):
            return None
        ahead = (now - self.high) // self.length * self.length
        return Turn(self.length, 0.5 * (self.low + self.high) + ahead, 0.5 * (self.high - self.low), calls)

    def _forget(self) -> None:
        self.misfits += 1
        self.low = self.high = self.surprise = self.agreement = 0.0
        self.counts = 0


@dataclass(slots=True, eq=False)
class TurnFit:
    """The lattices of all lengths, and the run of refusals that is going on."""

    lattices: tuple[_Lattice, ...] = ()
    began_at: float = 0.0
    last_at: float = 0.0
    last_seq: int = 0
    """The last refused call of the run, and when it left; 0 as long as none was refused."""
    ends_at: float = 0.0
    """By when a call after it has left; 0 as long as none did."""
    told_at: float = 0.0
    """From when on calls get in, as the server says, rounded up; 0 where it says nothing."""
    found: Turn | None = None
    """The window that explains the refusals up to the last one, if one does."""

    def forget(self) -> None:
        self.lattices, self.last_seq, self.ends_at, self.found = (), 0, 0.0, None

    def sent(self, seq: int, now: float) -> None:
        """Call ``seq`` leaves: if it is not refused, the run is over."""
        if seq > self.last_seq and not self.ends_at:
            self.ends_at = now

    def refused(self, seq: int, sent_at: float, floor: float, history: CallHistory) -> None:
        """Learn from a refusal, in the order of sending; the server asks to wait for ``floor`` seconds, or 0."""
        self.found = None
        told_at = sent_at + floor if floor else 0.0
        if seq <= self.last_seq + 1 or sent_at <= self.ends_at:  # the same run
            if seq > self.last_seq:
                self.last_seq, self.last_at, self.ends_at, self.told_at = seq, sent_at, 0.0, told_at or self.told_at
            return
        self.lattices = self.lattices or tuple(_Lattice(length) for length in USUAL_LENGTHS)
        low, high = self.last_at, self.ends_at
        if self.told_at > low:
            low, high = max(low, min(self.told_at - ROUNDED, high - LEAST)), min(high, self.told_at + LEAST)
        for lattice in self.lattices:
            if self.last_seq and self.ends_at:
                lattice.ended(self.began_at, low, high)
            lattice.began(seq, sent_at, history)
            self.found = self.found or lattice.turn(sent_at)
        self.began_at = self.last_at = sent_at
        self.last_seq, self.ends_at, self.told_at = seq, 0.0, told_at

    def follow(self, curve: PaceCurve, phase: WindowPhase) -> bool:
        """Go by the window that was found, if it is another than the one that is known. True if it was new."""
        turn, is_known = self.found, phase.known and curve.window == phase.spacing
        if turn is None or curve.sharing.on or (is_known and turn.length != phase.spacing):
            return False
        phase.know(turn.at, turn.error, turn.length)
        if is_known:
            return False
        curve.log, curve.window, curve.penalty = 0.0, turn.length, 0.0
        curve.learn(turn.calls / turn.length, False)
        return True

    def probe_refused(self, block: Block, sent_at: float, curve: PaceCurve) -> None:
        """A probe that left then was refused: where the window has surely turned since, it is not the only one."""
        if block.window_phase.known and block.window_phase.has_surely_turned(block.began_at, sent_at):
            self._give_up(block.window_phase, curve)

    def resumed(self, block: Block, history: CallHistory, curve: PaceCurve) -> None:
        """A call gets in again: has the window turned when it should? One that refused and was not full has fallen.

        One that refused when next to nothing had been let in since its turn was none.
        """
        phase = block.window_phase
        if phase.sure and not phase.turned(block.refused_at, block.probe_at):
            self._give_up(phase, curve)
        elif block.odd and (quota := phase.quota(block.began_seq, block.began_at, history, None)):
            if quota * phase.spacing < FEWEST_CALLS or quota < COLLAPSED * curve.quota:
                self._give_up(phase, curve)
            else:
                curve.learn(quota, False)

    def _give_up(self, phase: WindowPhase, curve: PaceCurve) -> None:
        """It does not turn at these times, or not it alone refuses."""
        if phase.known:
            curve.window = 0.0
            self.forget()
        phase.forget()
