"""Find a quota that only its refusals show, and hold it.

    START --refused--> BLOCK --let in--> START --refused again: measured--> CRUISE
    CRUISE --refused: measured again--> CRUISE              around the quota, on the curve of pace_curve.py
    CRUISE --a period is over--> PROBE                      well above it, for a moment
    PROBE --refused: it is what it was--> CRUISE
    PROBE, CRUISE --more let in than it accrues--> CLIMB    it has grown: double, carefully
    CLIMB --refused--> CRUISE
    any --three refused in a row (one, in step with a long window), or told to wait for seconds--> BLOCK
    BLOCK --a probe is let in--> CRUISE, or START again     hold and probe; a long block tells a window or a penalty

One episode, one cut: refusals of calls sent before the last cut say nothing new. Each is judged by when it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.decision import NEVER
from ...core.policy import Ticket
from .call_history import CallHistory
from .estimator import Burst, QuotaEstimator
from .growth_probe import GRACE, GrowthProbe
from .judgement import FEW, LATELY, Refused, is_crowd, judge, shows_sharing
from .pace_curve import QUICK, SLOWEST_QUOTA, SPENT, PaceCurve, doubled, search_doubling
from .state import STEADY, Phase, Storable
from .told_wait import LONG_FLOOR, ToldWait
from .trace import Step, Trace
from .turn_fit import TurnFit
from .window import HANDFUL, PROBE_GRACE, Block
from .window_fit import Count, WindowFit

LEAST_RESTART, MOST_RESTARTS, DOUBTS, ECHOES = 0.25, 12, 3, 3
"""The share of the initial pace to start over with, halved so many times at most, when blocks have taught nothing, so
often in a row; and refusals in one window that are the same news."""

AFTER_BLOCK, SHORT_BLOCK, SILENT = 4.0, 2.0, 0.25
"""Calls to search on with in the time of a block; a first one of fewer seconds may be a bucket's and ends no search.
The share of the time between two refusals that may be silence if what was let in is to tell what accrued."""

SKIP_AFTER_BLOCK, SKIP_AFTER_CUT, SKIP_WHEN_FULL = 1.0, 2.0, 3.0
"""Slots to let pass, so that the pipe drains."""


@dataclass(slots=True, eq=False, kw_only=True)
class RateSearch(Storable):
    not_stored = ("trace", "window_fit", "turn_fit", "wait")
    added = 1

    block: Block
    history: CallHistory
    burst: Burst = field(default_factory=Burst)
    curve: PaceCurve
    cut_seq: int = 0
    """The last call sent before the last cut: answers up to it are old news."""
    doubling: float = 0.0
    """Seconds that a search takes to double at least: longer after a long block."""
    doubts: int = 0
    """Blocks in a row after a handful of calls."""
    echoes: int = 0
    floor_until: float = NEVER
    initial: float
    last_refused_at: float = 0.0
    last_refused_seq: int = 0
    growth_probe: GrowthProbe = field(default_factory=GrowthProbe)
    estimator: QuotaEstimator = field(default_factory=QuotaEstimator)
    pace: float
    phase: Phase = Phase.START
    probe_until: float = NEVER
    resume_as: Phase = Phase.START
    """What the block that is going on has interrupted."""
    trip: float = 0.1
    """Seconds that a refusal takes to come back."""
    trace: Trace = field(default_factory=Trace)
    window_fit: WindowFit = field(default_factory=WindowFit)
    turn_fit: TurnFit = field(default_factory=TurnFit)
    wait: ToldWait = field(default_factory=ToldWait)
    restarts: int = 0
    """Searches in a row that long blocks have ended after a handful of calls: each begins at half the pace."""

    @classmethod
    def start(cls, initial: float = 1.0, pace: float = 1.0, opened_at: float = 0.0, least: float = 0.0) -> RateSearch:
        """Nothing is known yet; the first call was sent at ``opened_at``."""
        history, block = CallHistory(), Block(reopened_at=opened_at, busy_from=opened_at)
        history.sends.mark(opened_at, 0)
        curve = PaceCurve(quota=initial, least=max(least, SLOWEST_QUOTA))
        return cls(initial=initial, pace=pace, history=history, curve=curve, block=block)

    @property
    def measured(self) -> bool:
        """Whether the pace follows a quota that was measured; a block interrupts that, and ends in it again."""
        return (self.resume_as if self.phase is Phase.BLOCK else self.phase) in STEADY

    def hold(self, until: float, now: float, told: bool = False) -> None:
        """Nothing starts before ``until``: our own doing, but where a server has ``told`` so, and its waits vary."""
        silence = max(0.0, until - max(now, self.floor_until) - 1.0 / self.pace)  # it would wait for its slot anyway
        if told and self.measured and self.curve.penalty < LONG_FLOOR:
            silence = self.wait.silence_of_block(until - now, silence, self.curve.quota, self.curve.window)
        self.estimator.silence += silence
        self.floor_until = max(self.floor_until, until)

    def cruise_from(self, seq: int) -> None:
        """Cut: settle just below the quota and let the period begin. Calls up to ``seq`` are old news."""
        self.phase, self.cut_seq, self.pace = Phase.CRUISE, seq, self.curve.start()

    def note(self, ticket: Ticket, latency: float, floor: float) -> None:
        """Record a refusal, whichever model it is judged by."""
        self.history.refusals.add(ticket.seq)
        self.trip += 0.2 * (max(latency, 0.0) - self.trip)
        self.curve.refused += 1
        self.wait.asked = floor
        self.curve.overspent = self.history.refusals.between(0, ticket.seq) > SPENT * ticket.seq
        self.estimator.note(ticket)
        self.turn_fit.refused(ticket.seq, ticket.sent_at, floor, self.history)
        if ticket.seq > self.last_refused_seq:
            self.last_refused_seq, self.last_refused_at = ticket.seq, ticket.sent_at

    def grow(self, dt: float, now: float, seq: int, latency: float = QUICK) -> None:
        """``dt`` seconds passed in which a call waited for the pace; answers take ``latency``."""
        if self.phase is Phase.CRUISE:
            self._cruise(dt, now, seq)
        elif self.phase is Phase.PROBE:
            curve, single = self.curve, self.burst.single and not self.curve.window
            if self.growth_probe.has_proof(curve, self.estimator, self.history, self.trip, now, single):
                self._climb(now)
        elif self.phase is not Phase.BLOCK:
            if self.phase is Phase.START:
                doubling = max(self.doubling, search_doubling(self.pace, latency))
            else:
                doubling = self.curve.seek_doubling(now - self.growth_probe.since_at)
            self.pace = doubled(self.pace, dt, doubling, seq - self.history.sends.seq_at(now - 1.0), self.initial)

    def _cruise(self, dt: float, now: float, seq: int) -> None:
        curve, estimator = self.curve, self.estimator
        self.pace = curve.cruise(self.pace, dt)
        if curve.sharing.on:
            return
        if not curve.quick:
            holds_more = self.block.window_phase.holds_more(curve, self.history, now - 1.5 * self.trip - GRACE)
            if holds_more or self.growth_probe.has_slow_proof(curve, estimator, self.history, now):
                self.growth_probe.begin(seq, now)
                self._climb(now)
            return
        if estimator.started and not curve.rough and not curve.log:
            self.pace += estimator.catch_up(curve.quota, self.history, now)
        if curve.age >= curve.period:
            self.look(now, seq)

    def look(self, now: float, seq: int) -> None:
        """Is more let in than the quota accrues?"""
        curve, self.phase = self.curve, Phase.PROBE
        self.growth_probe.begin(seq, now)
        self.pace = curve.quota * (1.0 + min(curve.excess(self.trip), self.burst.look))
        self.trace.note(now, Step.PROBING, age=curve.age, quota=curve.quota, pace=self.pace)

    def _climb(self, now: float) -> None:
        curve = self.curve
        if not (curve.window or curve.log or self.burst.single) and curve.sharing.climbed(curve.quota, now):
            self.trace.note(now, Step.SHARED)
            self.phase = Phase.CRUISE
            return
        self.trace.note(now, Step.CLIMBING, quota=curve.quota)
        if self.phase is Phase.PROBE and self.burst.single and not curve.window:
            curve.quota = self.pace  # as many calls in a row at this pace are the proof
        self.phase, curve.sought_from = Phase.CLIMB, curve.quota

    def go_on_from(self, quota: float, seq: int) -> None:
        """Another model has given up: cruise at what it reached, and measure again."""
        self.curve.guess(quota)
        self.estimator.forget()
        self.cruise_from(seq)

    def told_spent(self, ticket: Ticket, now: float) -> None:
        """The server says that nothing is left: as good as a refusal to end a look by, and none."""
        if self.phase not in (Phase.PROBE, Phase.CLIMB) or ticket.seq <= self.cut_seq:
            return
        curve, estimator, seq, sent_at = self.curve, self.estimator, ticket.seq, ticket.sent_at
        if self.phase is Phase.CLIMB or curve.rough or not estimator.started:
            self._measure(ticket, now)
            return
        let_in = estimator.calls(self.history, seq, sent_at)
        curve.learn(estimator.after_spent(let_in, sent_at, curve.quota, self.pace), False)
        estimator.restart(seq, sent_at)
        self.cruise_from(ticket.gate.seq)

    def refused(self, ticket: Ticket, floor: float, now: float) -> float:
        """Judge a refusal outside a block. Returns the slots to skip."""
        news, skip = ticket.seq > self.cut_seq, 0.0
        if not self.estimator.counts_tokens and self.turn_fit.follow(self.curve, self.block.window_phase):
            self.window_fit.turns = True
            self.estimator.forget()
            self._note_window(0.0, now)
        is_shut = self.block.is_shut(self.history.refusals.streak(ticket.seq), self.curve.window)
        if floor >= LONG_FLOOR or (is_shut and not self.wait.is_under_way(ticket.seq)):
            if news:
                self._measure(ticket, now)
            if self.phase is not Phase.BLOCK or floor > 0.0:
                self.enter_block(floor, now)
            return 0.0
        if news and self._just_cut(ticket):
            skip = self._cut_deeper(ticket, now)
        elif news:
            self.burst.cuts = 0
            skip = self._measure(ticket, now)
        if floor > 0.0:
            if not self.curve.window:
                self.curve.penalty = max(0.2 * floor, floor - self.estimator.depth)
            self.hold(now + floor, now)
            self.wait.held_seq = ticket.gate.seq
        return skip

    def _just_cut(self, ticket: Ticket) -> bool:
        under_way, at_rest = self.pace * self.trip, self.phase in STEADY
        settling = (6.0 if self.curve.rough and under_way < 0.25 else 12.0) + 2.0 * under_way
        return at_rest and not (self.curve.window or self.curve.log) and ticket.gate.seq - self.cut_seq < settling

    def _cut_deeper(self, ticket: Ticket, now: float) -> float:
        """Refused again right after a cut. Many of them: the quota fell far, cut by their share. Few: nothing."""
        latest, sent = ticket.gate.seq, ticket.seq - self.cut_seq
        refused = self.history.refusals.between(self.cut_seq, latest)
        if not is_crowd(refused, sent) or self.estimator.counts_tokens:
            return 0.0
        seconds = ticket.sent_at - self.history.sends.instant_of(self.cut_seq)
        fell_to = self.burst.cut_again(self.pace, refused, sent, seconds)
        self.curve.guess(self.pace if self.curve.sharing.on else fell_to, self.pace)  # others came, and yield too
        self.estimator.restart(ticket.seq, ticket.sent_at)
        self.cruise_from(latest)
        self.trace.note(now, Step.CUT_AGAIN, refused=refused, sent=sent, pace=self.pace)
        return SKIP_WHEN_FULL

    def _measure(self, ticket: Ticket, now: float) -> float:
        """A refusal that is news: measure, learn, cut. Returns the slots to skip."""
        seq, sent_at, latest = ticket.seq, ticket.sent_at, ticket.gate.seq
        phase, pace, curve, estimator, steady = self.phase, self.pace, self.curve, self.estimator, self.phase in STEADY
        if curve.window and steady and curve.age < 0.8 * curve.window and self.echoes < ECHOES:
            self.echoes += 1  # the window that was full is still the same one
            self.cruise_from(latest)
            return SKIP_WHEN_FULL
        self.echoes, measured, calls, span = 0, None, 0.0, 1.0
        if estimator.started:
            calls, span = estimator.calls(self.history, seq, sent_at), estimator.span(sent_at)
            is_known = steady and not curve.rough and (curve.agreed or estimator.is_doubtful(sent_at))
            measured = estimator.quota(calls, sent_at, curve.quota if is_known else None, phase is Phase.PROBE)
        if self._follow_log(ticket, calls / span if estimator.silence < SILENT * span else 0.0, now):
            return SKIP_WHEN_FULL
        if measured is None and phase is Phase.START:
            self._fall_back(ticket, calls / span, now)
            return 0.0
        sought = sent_at - self.growth_probe.since_at
        sent_pace = self.history.pace_of(seq, sent_at, pace)
        refused = Refused(phase, pace, measured, calls, span, seq, sent_at, sought, self.trip, sent_pace)
        if steady:
            curve.count_cost()
            if shows_sharing(refused, curve, estimator, self.burst):
                self.trace.note(now, Step.SHARED if curve.sharing.on else Step.NOT_SHARED)
        if phase is Phase.PROBE:
            curve.looked(self.growth_probe.surplus(curve, self.history, seq, sent_at))
        quota, rough = judge(refused, curve, estimator, self.burst, self.history, self.block.window_phase)
        curve.learn(min(quota, pace), rough)
        if phase is Phase.START:
            curve.period = curve.period if curve.penalty else max(curve.shortest(), curve.window)
            if calls < FEW and not curve.window and span > estimator.silence:
                curve.guess(curve.quota, calls / (span - estimator.silence))
        curve.refused, self.restarts, silence = 0, 0, estimator.silence
        if measured is not None or not (steady and estimator.started):  # else what was let in counts for the next one
            estimator.restart(seq, sent_at)
        self.cruise_from(latest)
        found = {"calls": calls, "span": span, "silence": silence, "measured": measured is not None, "pace": pace}
        made = {"quota": curve.quota, "rough": curve.rough, "shared": curve.sharing.on, "new_pace": self.pace}
        self.trace.note(now, Step.CUT, **found, **made)
        return SKIP_AFTER_CUT

    def _follow_log(self, ticket: Ticket, accrued: float, now: float) -> bool:
        """Go by what a log held at this refusal, where the server keeps one; ``accrued`` calls a second were let in."""
        curve, turns = self.curve, self.block.window_phase.sure and not self.curve.log
        if turns or self.burst.single or curve.sharing.on or self.estimator.counts_tokens:
            curve.log = 0.0
            return False
        if not self.window_fit.refused(ticket, self.history, accrued, curve, self.phase):
            return False
        curve.refused = 0
        self.estimator.restart(ticket.seq, ticket.sent_at)
        self.cruise_from(ticket.gate.seq)
        if curve.log:
            self.trace.note(now, Step.LEARNED_LOG, window=curve.log, calls=curve.log_calls, new_pace=self.pace)
        else:
            self._note_window(0.0, now)
        return True

    def _fall_back(self, ticket: Ticket, average: float, now: float) -> None:
        """Refused in a search with nothing to measure by: let the pipe drain, then measure on the way up."""
        if self.estimator.started:
            self.pace = max(average, 1.0 / self.estimator.span(ticket.sent_at))
        else:
            self.estimator.restart(ticket.seq, ticket.sent_at)
            self.burst.volley, self.curve.refused = ticket.gate.seq, 0
            lately = self.burst.rate_lately(self.history, LATELY, self.pace, ticket.sent_at)
            well_below = max(self.pace / 8.0, min(self.pace, self.initial) / 2.0, self.curve.sought_from or 0.0)
            self.pace, self.doubling = self.wait.search_on(lately) or (well_below, self.doubling)
        self.cut_seq = ticket.gate.seq
        self.trace.note(now, Step.FELL_BACK, pace=self.pace)
        self.enter_block(0.0, now)

    # -- while nothing gets in -------------------------------------------------------------------

    def enter_block(self, floor: float, now: float) -> None:
        self._doubt()
        if self.phase is not Phase.BLOCK:
            self.resume_as, self.phase = self.phase, Phase.BLOCK
        block, seq, sent_at = self.block, self.last_refused_seq, self.last_refused_at
        odd = block.window_phase.known and not block.window_phase.fits(seq, sent_at, self.history, self.curve.quota)
        block.enter(seq, sent_at, floor >= LONG_FLOOR, now, self.curve.window, odd)
        self.hold(now + block.hold(now, self.trip, self.curve, floor), now, floor >= LONG_FLOOR)
        self.trace.note(now, Step.BLOCKED, floor=floor, seconds=self.floor_until - now)

    def _doubt(self) -> None:
        """Blocked again and again after too few calls for what is known: it was a burst, or fell. Search again."""
        block, curve = self.block, self.curve
        if curve.is_at_most or self.phase not in STEADY or not self.last_refused_seq > block.began_seq > 0:
            return
        calls = self.history.accepted_calls(block.began_seq, self.last_refused_seq)
        rate = block.rate_if_too_few(calls, self.last_refused_at, curve)
        self.doubts = self.doubts + 1 if rate else 0
        if self.doubts >= (1 if curve.rough and calls < HANDFUL else DOUBTS):
            self.doubts, curve.window, curve.log, block.last_length = 0, 0.0, 0.0, 0.0
            self.estimator.forget()
            block.window_phase.forget()
            self.phase, self.pace = Phase.START, max(rate, LEAST_RESTART * self.initial)

    def send_blocked(self, ticket: Ticket, now: float) -> None:
        """A call leaves in a block: it is the probe, or proof that the probe was let in."""
        if not self.block.probe_seq:
            self.block.probe(ticket.seq, now)
            self.probe_until = now + 3.0 * self.trip + PROBE_GRACE
        else:
            self.resume(ticket.seq - 1, now)

    def refused_blocked(self, ticket: Ticket, floor: float, now: float) -> None:
        """A refusal in a block: of the probe, or of a call from before it."""
        block = self.block
        if not 0 < block.probe_seq <= ticket.seq:
            if floor > 0.0:
                self.hold(now + floor, now)
            return
        self.window_fit.add_probe(Count.before(self.history, ticket.seq, ticket.sent_at, True), True)
        block.probe_refused(ticket.sent_at)
        self.probe_until = NEVER
        self.turn_fit.probe_refused(block, ticket.sent_at, self.curve)
        self.hold(now + block.hold(now, self.trip, self.curve, floor), now)

    def resume(self, latest: int, now: float) -> float:
        """The probe was let in. Returns the slots to skip."""
        block = self.block
        self.turn_fit.resumed(block, self.history, self.curve)
        self.estimator.silence += SKIP_AFTER_BLOCK / self.pace + max(0.0, min(now, self.probe_until) - block.probe_at)
        self.probe_until = NEVER
        self.trace.note(now, Step.RESUMED, blocked_for=block.length)
        let_in = Count.before(self.history, block.probe_seq, block.probe_at, False)
        known_log = self.window_fit.resumed(let_in, block.holds, self.curve)
        if not known_log and block.is_lesson(self.history.accepted):
            self._learn_window(latest, now)
        elif (
            self.resume_as is Phase.START and not known_log
        ):  # up again from well below, and from a refusal to measure from
            self.phase, self.cut_seq = Phase.START, latest
            if block.holds:
                self.pace = min(self.pace, AFTER_BLOCK / block.length)
        else:
            self.cruise_from(latest)
        block.probe_seq, block.ended_at = 0, now
        return SKIP_AFTER_BLOCK

    def _learn_window(self, latest: int, now: float) -> None:
        """A long block is over: the quota is a window, or refusals are punished."""
        curve, block = self.curve, self.block
        calls = self.history.accepted_calls(block.reopened_seq, block.probe_seq)
        grew = self.resume_as is Phase.CLIMB or self.growth_probe.since_at > block.reopened_at
        quota, first = block.teach(curve, calls, self.history.accepted, grew)
        if self.resume_as in STEADY and not first:
            curve.count_cost()
        self.echoes = curve.refused = 0
        self.estimator.forget()
        if calls < 5.0 or (first and block.told):  # one such block may have any cause: search again, carefully
            curve.window = 0.0
            self.phase, self.cut_seq = Phase.START, latest
            self.pace = max(LEAST_RESTART * self.initial / 2.0**self.restarts, quota, SLOWEST_QUOTA)
            self.doubling, self.restarts = block.length / 16.0, min(self.restarts + 1, MOST_RESTARTS)
            return
        exact = block.window_phase.quota(block.began_seq, block.began_at, self.history, curve.quota)
        quota = exact if exact and curve.window else quota
        doubtful = curve.agreed >= 2 and quota < 0.5 * curve.quota  # never believe a collapse at once
        curve.learn(max(quota, 0.5 * curve.quota) if doubtful else quota, first or doubtful)
        self.cruise_from(latest)
        if first and block.length < SHORT_BLOCK:
            self.phase, self.pace = Phase.START, min(self.pace, AFTER_BLOCK / block.length)
        self._note_window(block.length, now)

    def _note_window(self, blocked_for: float, now: float) -> None:
        learned = {"window": self.curve.window, "penalty": self.curve.penalty, "quota": self.curve.quota}
        self.trace.note(now, Step.LEARNED_WINDOW, **learned, blocked_for=blocked_for)
