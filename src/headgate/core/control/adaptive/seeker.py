"""Find a quota that only its refusals show, and hold it.

    START --refused--> BLOCK --let in--> START --refused again: measured--> CRUISE
    CRUISE --refused: measured again--> CRUISE      around the quota, on the cubic of growth.py
    CRUISE --nothing refused for long--> SEEK       the quota has grown: double, carefully
    SEEK --refused--> CRUISE, or far above: BLOCK, then START from below
    any --three refused in a row, or told to wait--> BLOCK      hold and probe, block.py

One episode, one cut: refusals of calls sent before the last cut say nothing new. Every
refusal is judged by when its call was sent.
"""

from __future__ import annotations

from enum import Enum

from ...ticket import Ticket
from .block import PROBE_GRACE, Block
from .books import Books
from .estimator import Meter
from .growth import DOUBLING, SLOWEST_QUOTA, SWING, WIDE_SWING, Curve, doubled
from .room import Room

LONG_FLOOR = 2.0
"""A Retry-After from here on is a block; a shorter one is rounded up from almost nothing."""

IN_A_ROW = 3
"""Refusals in a row, in the order of sending, that mean nothing gets in."""

ECHOES = 8
"""Refusals inside one window that are taken for the same news; then it is no echo."""

LEAST_RESTART = 0.25
"""The share of the initial pace to start over with when a block has taught nothing."""


class Phase(Enum):
    START = "start"
    CRUISE = "cruise"
    SEEK = "seek"
    BLOCK = "block"


class QuotaSeeker(Room):
    __slots__ = (
        "block",
        "books",
        "curve",
        "cut_seq",
        "echoes",
        "floor_until",
        "initial",
        "last_refused_at",
        "last_refused_seq",
        "meter",
        "pace",
        "phase",
        "probe_until",
        "resume_as",
        "trip",
    )

    def __init__(self, initial: float, pace: float, opened_at: float) -> None:
        self.initial = initial
        self.pace = pace
        self.phase = Phase.START
        self.resume_as = Phase.START
        """What the block that is going on has interrupted."""
        self.cut_seq = 0
        """The last call sent before the last cut: answers up to it are old news."""
        self.floor_until = 0.0
        self.probe_until = 0.0
        self.trip = 0.1
        """Seconds that a refusal takes to come back."""
        self.last_refused_seq = 0
        self.last_refused_at = 0.0
        self.echoes = 0
        self.books = Books(opened_at)
        self.meter = Meter()
        self.curve = Curve(initial)
        self.block = Block(opened_at)

    def note(self, ticket: Ticket, latency: float) -> None:
        """Write a refusal down, whoever judges it."""
        self.books.refusals.add(ticket.seq)
        self.trip += 0.2 * (max(latency, 0.0) - self.trip)
        self.curve.refused += 1
        if ticket.seq > self.last_refused_seq:
            self.last_refused_seq, self.last_refused_at = ticket.seq, ticket.sent_at

    # -- moving on ------------------------------------------------------------------------------

    def grow(self, dt: float, now: float, seq: int) -> None:
        """``dt`` seconds passed in which somebody waited for the pace."""
        if self.phase is Phase.CRUISE:
            self.pace = self.curve.cruise(dt)
            if self.curve.outgrown(self.meter.held):
                self.phase, self.curve.sought_from = Phase.SEEK, self.curve.quota
        elif self.phase is not Phase.BLOCK:
            doubling = max(DOUBLING, 1.0 / self.pace) if self.phase is Phase.START else self.curve.seek_doubling()
            self.pace = doubled(self.pace, dt, doubling, seq - self.books.sends.seq_at(now - 1.0), self.initial)

    def hold(self, until: float, now: float) -> None:
        """Nothing starts before ``until``; the meter must know that it was our own doing."""
        self.meter.held += max(0.0, until - max(now, self.floor_until))
        self.floor_until = max(self.floor_until, until)

    def cruise_from(self, seq: int) -> None:
        """Cut: settle just below the quota and let the period begin. Calls up to ``seq`` are old news."""
        self.phase, self.cut_seq = Phase.CRUISE, seq
        self.pace = self.curve.start()

    def go_on_from(self, quota: float, swing: float, seq: int) -> None:
        """Another rule has let go: cruise at what it reached, and measure anew."""
        self.curve.guess(quota, swing)
        self.meter.forget()
        self.cruise_from(seq)

    # -- refusals -------------------------------------------------------------------------------

    def refused(self, ticket: Ticket, floor: float, now: float) -> float:
        """Judge a refusal outside a block. Returns the slots to skip."""
        news, skip = ticket.seq > self.cut_seq, 0.0
        if floor >= LONG_FLOOR or self.books.refusals.streak(ticket.seq) >= IN_A_ROW:
            if news:
                self._measure(ticket, now)
            self._enter_block(floor, now)
            return 0.0
        if news and self._just_cut(ticket):
            skip = self._cut_deeper(ticket)
        elif news:
            skip = self._measure(ticket, now)
        if floor > 0.0:
            if not self.curve.window:
                self.curve.penalty = 0.3 * floor
            self.hold(now + floor, now)
        return skip

    def _just_cut(self, ticket: Ticket) -> bool:
        settling = 12.0 + self.pace * 2.0 * self.trip
        return self.phase is Phase.CRUISE and not self.curve.window and ticket.gate.seq - self.cut_seq < settling

    def _cut_deeper(self, ticket: Ticket) -> float:
        """Refused again right after a cut. Many of them: the quota fell far, cut by their share. Few: nothing."""
        latest, sent = ticket.gate.seq, ticket.seq - self.cut_seq
        refused = self.books.refusals.between(self.cut_seq, latest)
        if not ((refused >= 4 and refused > 0.15 * sent) or refused == sent == 3):
            return 0.0
        self.curve.guess(max(self.pace * (1.0 - min(0.9, refused / sent)) * 0.97, 0.02), SWING)
        self.meter.restart(ticket.seq, ticket.sent_at)
        self.cruise_from(latest)
        return 3.0

    def _measure(self, ticket: Ticket, now: float) -> float:
        """A refusal that is news: measure, learn, cut. Returns the slots to skip."""
        seq, sent_at, latest = ticket.seq, ticket.sent_at, ticket.gate.seq
        phase, pace, curve, meter = self.phase, self.pace, self.curve, self.meter
        if curve.window and phase is Phase.CRUISE and curve.age < 0.8 * curve.window and self.echoes < ECHOES:
            self.echoes += 1  # the window that was full is still the same one
            self.cruise_from(latest)
            return 3.0
        self.echoes = 0
        measured, calls, span = None, 0.0, 1.0
        if meter.started:
            calls, span = self.books.accepted_calls(meter.since_seq, seq), meter.span(sent_at)
            measured = meter.quota(calls, sent_at, steady=phase is Phase.CRUISE)
            if measured is None and phase is Phase.START:
                self.pace, self.cut_seq = max(calls, 1.0) / span, latest
                self._enter_block(0.0, now)
                return 0.0
        far = phase is Phase.SEEK and pace > 1.6 * (curve.sought_from or pace) and not curve.window
        if (phase is Phase.START and measured is None) or far:
            # Far over and nothing to measure by: empty the pipe, then measure on the way up.
            meter.restart(seq, sent_at)
            curve.refused = 0
            self.pace = max(pace / 8.0, min(pace, self.initial) / 2.0, curve.sought_from or 0.0)
            self.phase, self.cut_seq = Phase.START, latest
            self._enter_block(0.0, now)
            return 0.0
        quota, swing = self._judge(phase, pace, measured, calls / span, sent_at)
        if phase is Phase.CRUISE:
            curve.count_cost()
        curve.learn(min(quota, pace), swing)
        if phase is Phase.START:
            curve.period = max(curve.shortest(), curve.window)
        curve.refused = 0
        meter.restart(seq, sent_at)
        self.cruise_from(latest)
        return 2.0

    def _judge(
        self, phase: Phase, pace: float, measured: float | None, average: float, sent_at: float
    ) -> tuple[float, float]:
        """What the quota is, and how wide to swing around it, by what we were doing when refused."""
        curve = self.curve
        before = curve.sought_from or 0.0
        if phase is Phase.START:  # between the average since the pipe was empty and the last moments
            lately = max(0.4, 8.0 / pace)
            return max(average, 0.85 * self.books.accepted(sent_at - lately, sent_at) / lately, before), WIDE_SWING
        if phase is Phase.SEEK and curve.window:  # growth was slow: the trailing window is full now
            return max(before, self.books.accepted(sent_at - curve.window, sent_at) / curve.window), SWING
        if phase is Phase.SEEK:
            return max(before, 0.9 * pace), WIDE_SWING
        if measured is None:
            return max(0.9 * pace, 0.99 * min(curve.quota, pace)), SWING
        if pace < 1.2 * measured:  # small bursts leak through: lean to the pace that was refused
            return measured + 0.25 * (pace - measured), SWING
        return measured, SWING

    # -- blocks ---------------------------------------------------------------------------------

    def _enter_block(self, floor: float, now: float) -> None:
        if self.phase is not Phase.BLOCK:
            self.resume_as, self.phase = self.phase, Phase.BLOCK
        block = self.block
        block.enter(self.last_refused_seq, self.last_refused_at, floor >= LONG_FLOOR, now, self.curve.window)
        self.hold(now + max(floor, block.hold(now, self.trip, self.curve)), now)

    def send_blocked(self, ticket: Ticket, now: float) -> None:
        """A call leaves in a block: it is the probe, or proof that the probe was let in."""
        if not self.block.probe_seq:
            self.block.probe(ticket.seq, now)
            self.probe_until = now + 3.0 * self.trip + PROBE_GRACE
        else:
            self.resume(ticket.seq - 1)

    def refused_blocked(self, ticket: Ticket, floor: float, now: float) -> float:
        """A refusal in a block: of the probe, or of a call from before it."""
        block = self.block
        if not 0 < block.probe_seq <= ticket.seq:
            if floor > 0.0:
                self.hold(now + floor, now)
            return 0.0
        block.probe_refused(ticket.sent_at)
        self.probe_until = 0.0
        self.hold(now + max(floor, block.hold(now, self.trip, self.curve)), now)
        return 0.0

    def resume(self, latest: int) -> float:
        """The probe was let in. Returns the slots to skip."""
        block = self.block
        self.probe_until = 0.0
        if block.is_lesson(self.books.accepted):
            self._learn_window(latest)
        elif self.resume_as is Phase.START:  # up again from well below, and from a refusal to measure from
            self.phase, self.cut_seq = Phase.START, latest
        else:
            self.cruise_from(latest)
        block.probe_seq = 0
        return 1.0

    def _learn_window(self, latest: int) -> None:
        """A long block is over: the quota is a window, or refusals are punished."""
        curve, meter = self.curve, self.meter
        calls = self.books.accepted_calls(self.block.reopened_seq, self.block.probe_seq)
        quota, first = self.block.teach(curve, calls, self.books.accepted)
        self.echoes = 0
        curve.count_cost()
        curve.refused = 0
        meter.forget()
        if calls < 5.0:  # that taught nothing: start over, carefully
            self.phase, self.cut_seq = Phase.START, latest
            self.pace = max(LEAST_RESTART * self.initial, quota, SLOWEST_QUOTA)
            return
        doubtful = curve.agreed >= 2 and quota < 0.5 * curve.quota  # never believe a collapse at once
        curve.learn(max(quota, 0.5 * curve.quota) if doubtful else quota, WIDE_SWING if first or doubtful else SWING)
        self.cruise_from(latest)
