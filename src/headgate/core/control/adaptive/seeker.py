"""Find a quota that only its refusals show, and hold it.

    START --refused--> BLOCK --let in--> START --refused again: measured--> CRUISE
    CRUISE --refused: measured again--> CRUISE          around the quota, on the curve of growth.py
    CRUISE --a period is over--> LOOK                   well above it, for a moment
    LOOK --refused: it is what it was--> CRUISE
    LOOK, CRUISE --more let in than it accrues--> SEEK  it has grown: double, carefully
    SEEK --refused--> CRUISE
    any --three refused in a row (one, in step with a window), or told to wait for seconds--> BLOCK --let in--> CRUISE
                                                        hold and probe, blocked.py

One episode, one cut: refusals of calls sent before the last cut say nothing new. Every
refusal is judged by when its call was sent.
"""

from __future__ import annotations

from ...ticket import Ticket
from ...words import brief
from .blocked import LONG_FLOOR, Blocked, Phase
from .burst import CRUISED, MOST_CUT, SEARCHED, SOUGHT
from .growth import doubled, search_doubling

IN_A_ROW = 3
"""Refusals in a row, in the order of sending, that mean nothing gets in."""

ECHOES = 8
"""Refusals inside one window that are taken for the same news; then it is no echo."""

SLACK, CATCH_UP, WITHIN = 3.0, 0.1, 3.0
"""More calls than this behind what the quota accrued: catch up, by a tenth of the quota at most, in so many seconds."""

LATELY, LIKELY_BURST = 0.4, 0.15
"""Seconds that make "lately" in a search, and how many of them may owe what was let in to a burst."""

FEW = 12.0
"""Calls let in between two refusals of a search below which only their average counts."""

SKIP_AFTER_CUT, SKIP_WHEN_FULL = 2.0, 3.0
"""Slots to let pass, so that the pipe drains."""


class QuotaSeeker(Blocked):
    __slots__ = ()

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
            self._cruise(dt, now, seq)
        elif self.phase is Phase.LOOK:
            if self.lookout.has_proof(self.curve, self.meter, self.books, self.trip, now):
                self._seek(now)
        elif self.phase is not Phase.BLOCK:
            if self.phase is Phase.START:
                doubling = max(self.doubling, search_doubling(self.pace))
            else:
                doubling = self.curve.seek_doubling(now - self.lookout.since_at)
            self.pace = doubled(self.pace, dt, doubling, seq - self.books.sends.seq_at(now - 1.0), self.initial)

    def _cruise(self, dt: float, now: float, seq: int) -> None:
        curve, meter = self.curve, self.meter
        self.pace = curve.cruise(self.pace, dt)
        if curve.sharing.on:
            return
        if not curve.quick:
            if self.lookout.has_slow_proof(curve, meter, self.books, now):
                self.lookout.begin(seq, now)
                self._seek(now)
            return
        if meter.started and not curve.rough:
            calls = self.books.accepted_calls(meter.since_seq, self.books.sends.seq_at(now))
            behind = curve.quota * meter.accrued(now) - calls - SLACK
            if behind > 0.0:
                self.pace += min(CATCH_UP * curve.quota, behind / WITHIN)
        if curve.age >= curve.period:
            self.phase = Phase.LOOK
            self.lookout.begin(seq, now)
            self.pace = curve.quota * (1.0 + min(curve.excess(self.trip), self.burst.look))
            if self.tell:
                self.tell(
                    now,
                    "raise",
                    f"{curve.age:.1f} s at {brief(curve.quota)}/s: a look at {brief(self.pace)}/s, is there more?",
                )

    def _seek(self, now: float) -> None:
        self.phase, self.curve.sought_from = Phase.SEEK, self.curve.quota
        if self.tell:
            self.tell(now, "raise", f"more is let in than {brief(self.curve.quota)}/s: it has grown, searching upwards")

    def go_on_from(self, quota: float, seq: int) -> None:
        """Another rule has let go: cruise at what it reached, and measure anew."""
        self.curve.guess(quota)
        self.meter.forget()
        self.cruise_from(seq)

    # -- refusals -------------------------------------------------------------------------------

    def refused(self, ticket: Ticket, floor: float, now: float) -> float:
        """Judge a refusal outside a block. Returns the slots to skip."""
        news, skip = ticket.seq > self.cut_seq, 0.0
        in_a_row = 1 if self.block.turns.sure and self.curve.window else IN_A_ROW
        if floor >= LONG_FLOOR or self.books.refusals.streak(ticket.seq) >= in_a_row:
            sought = self.phase is Phase.SEEK and self.curve.window > 0.0 and floor >= LONG_FLOOR
            if news and not sought:  # the end of the block will tell better what the window holds
                self._measure(ticket, now)
            if self.phase is not Phase.BLOCK or floor > 0.0:
                self.enter_block(floor, now)
            return 0.0
        if news and self._just_cut(ticket):
            skip = self._cut_deeper(ticket, now)
        elif news:
            skip = self._measure(ticket, now)
        if floor > 0.0:
            if not self.curve.window:
                self.curve.penalty = max(0.2 * floor, floor - self.meter.depth)
            self.hold(now + floor, now)
        return skip

    def _just_cut(self, ticket: Ticket) -> bool:
        settling = 12.0 + self.pace * 2.0 * self.trip
        return self.steady and not self.curve.window and ticket.gate.seq - self.cut_seq < settling

    def _cut_deeper(self, ticket: Ticket, now: float) -> float:
        """Refused again right after a cut. Many of them: the quota fell far, cut by their share. Few: nothing."""
        latest, sent = ticket.gate.seq, ticket.seq - self.cut_seq
        refused = self.books.refusals.between(self.cut_seq, latest)
        many = refused >= 4 and refused > 0.15 * sent
        most = refused >= 2 and sent >= 3 and refused > 0.25 * sent
        if not (many or most):
            return 0.0
        cut = min(MOST_CUT if self.burst.single else 0.9, refused / sent)
        self.curve.guess(max(self.pace * (1.0 - cut) * 0.97, 0.02))
        self.meter.restart(ticket.seq, ticket.sent_at)
        self.cruise_from(latest)
        if self.tell:
            self.tell(now, "cut", f"{refused:.0f} of {sent} refused right after a cut: down to {brief(self.pace)}/s")
        return SKIP_WHEN_FULL

    def _measure(self, ticket: Ticket, now: float) -> float:
        """A refusal that is news: measure, learn, cut. Returns the slots to skip."""
        seq, sent_at, latest = ticket.seq, ticket.sent_at, ticket.gate.seq
        phase, pace, curve, meter, steady = self.phase, self.pace, self.curve, self.meter, self.steady
        if curve.window and steady and curve.age < 0.8 * curve.window and self.echoes < ECHOES:
            self.echoes += 1  # the window that was full is still the same one
            self.cruise_from(latest)
            return SKIP_WHEN_FULL
        self.echoes = 0
        measured, calls, span = None, 0.0, 1.0
        if meter.started:
            calls, span = self.books.accepted_calls(meter.since_seq, seq), meter.span(sent_at)
            known = curve.quota if steady and not curve.rough and curve.agreed else None
            measured = meter.quota(calls, sent_at, known, phase is Phase.LOOK)
        if measured is None and phase is Phase.START:
            self._fall_back(ticket, calls / span, now)
            return 0.0
        if steady:
            curve.count_cost()
            clean = measured is not None and not curve.rough and not meter.silence
            if clean and curve.sharing.compare(measured or 0.0) and self.tell:
                ours = "others take from it too: yielding" if curve.sharing.on else "it is ours alone again"
                self.tell(
                    now, "learn", f"measurements of the quota {'wander' if curve.sharing.on else 'agree'}: {ours}"
                )
        if phase is Phase.LOOK:
            curve.looked(self.lookout.surplus(curve, self.books, seq, sent_at))
        quota, rough = self._judge(measured, calls, span, sent_at)
        curve.learn(min(quota, pace), rough)
        if phase is Phase.START:
            curve.period = max(curve.shortest(), curve.window)
        curve.refused = 0
        silence = meter.silence
        meter.restart(seq, sent_at)
        self.cruise_from(latest)
        if self.tell:
            self.tell(now, "cut", self._sentence(pace, measured, calls, span, silence))
        return SKIP_AFTER_CUT

    def _sentence(self, pace: float, measured: float | None, calls: float, span: float, silence: float) -> str:
        """What was measured, and what has been made of it."""
        curve = self.curve
        seen = f"{calls:.0f} let in within {span:.3g} s of the last refusal, {brief(calls / span)}/s"
        if silence >= 0.05 * span:
            seen += f" with {min(silence, span):.2g} s of silence"
        if curve.sharing.on:
            made = "others share this quota, so a part is given up"
        elif measured is None:
            seen, made = "too few let in to measure by", f"taken for {brief(curve.quota)}/s"
        else:
            made = f"the quota is {'about ' if curve.rough else ''}{brief(curve.quota)}/s"
        return f"refused at {brief(pace)}/s; {seen}: {made}; going on at {brief(self.pace)}/s"

    def _fall_back(self, ticket: Ticket, average: float, now: float) -> None:
        """Refused in a search with nothing to measure by: let the pipe drain, then measure on the way up."""
        if self.meter.started:
            self.pace = max(average, 1.0 / self.meter.span(ticket.sent_at))
        else:
            self.meter.restart(ticket.seq, ticket.sent_at)
            self.burst.volley = ticket.gate.seq
            self.curve.refused = 0
            self.pace = max(self.pace / 8.0, min(self.pace, self.initial) / 2.0, self.curve.sought_from or 0.0)
        self.cut_seq = ticket.gate.seq
        if self.tell:
            self.tell(now, "cut", f"refused in a search: back to {brief(self.pace)}/s, to measure on the way up")
        self.enter_block(0.0, now)

    def _judge(self, measured: float | None, calls: float, span: float, sent_at: float) -> tuple[float, bool]:
        """What the quota is, and whether that is a rough guess, by what we were doing when refused."""
        curve, phase, pace = self.curve, self.phase, self.pace
        before = curve.sought_from or 0.0
        if phase is Phase.START:
            self.burst.count(self.books)
        if self.burst.single and not curve.window and not curve.sharing.on:
            return self._judge_single(before)
        if phase is Phase.START:  # between the average since the pipe was empty and the last moments
            if calls < FEW:
                return max(calls / span, before), True
            return max(measured or 0.0, self._lately(LATELY, sent_at), before), True
        if phase is Phase.SEEK:
            if curve.window:  # growth was slow: the trailing window is full now
                return max(before, self.books.accepted(sent_at - curve.window, sent_at) / curve.window), False
            sought = sent_at - self.lookout.since_at
            lately = max(self._lately(LATELY, sent_at), self._lately(sought, sent_at))
            return max(before, measured or 0.0, lately), True
        if curve.sharing.on and phase is Phase.CRUISE:
            return pace, False
        if measured is None:
            return (curve.quota if phase is Phase.LOOK else max(0.9 * pace, 0.99 * min(curve.quota, pace))), False
        return curve.leaned(measured, curve.quota * (1.0 + curve.swing) if phase is Phase.LOOK else pace), False

    def _judge_single(self, before: float) -> tuple[float, bool]:
        """The same where nothing accrues, so that only the paces tell."""
        curve, pace = self.curve, self.pace
        if self.phase is Phase.START:
            return max(SEARCHED * pace, before), True
        if self.phase is Phase.SEEK:
            self.burst.found()
            return max(SOUGHT * pace, before), False
        if self.phase is Phase.LOOK:
            self.burst.looked(curve.excess(self.trip))
            return curve.quota, False
        return CRUISED * min(pace, curve.quota), False

    def _lately(self, seconds: float, sent_at: float) -> float:
        """Calls a second let in of late; a little may have been a burst."""
        seconds = max(seconds, 8.0 / self.pace)
        accepted = self.books.accepted(sent_at - seconds, sent_at)
        return max(accepted / (seconds + LIKELY_BURST), (accepted - self.burst.most) / seconds)
