"""The visits of a shared key's gate to its desk: what is told there, what comes back, and what follows from it.

    line ──visit──> numbers ──the line reaches one──> permit ──answer──> note ──visit──> whoever leads

Each visit takes along what was seen and what will not be used, and brings the rate, holds and the circuit as all
members have them. Where this member leads, its visits carry what follows from what everybody saw.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from ..core.asking import Look
from ..core.costs import costs_of, requests_of
from ..core.decision import NEVER, UNKNOWN, CircuitState, Outcome
from ..core.gate import Gate
from ..core.gate_policy import GatePolicy
from ..core.sharing.learning import Learning
from ..core.sharing.notebook import ABANDONED, MOST_EVENTS, RELEASED
from ..core.sharing.seat import LIVE
from ..core.sharing.visit import Publication, Reply, Visit
from ..core.signal import Signal
from ..core.ticket import Ticket
from .numbers import NumberedGate
from .terms import LEAST

if TYPE_CHECKING:
    from .serving import Serving
    from .sharing import Sharing

log = logging.getLogger("headgate")

LISTEN_EVERY = 0.04
"""Seconds between two visits while there is anything to do: this soon a member hears of another's refusal."""
SHORTEST = 0.002
"""... and between two, whatever there is to do."""
OPEN_EVERY = 0.2
"""... while the circuit is open."""
FREE_OVER = 0.25
"""Seconds over which it is averaged how much of the rate nobody asks for."""
MOST_OWED = 0.5
"""Seconds of this member's share that it owes at most: what left on credit long ago must not silence it now."""
ENOUGH_ANSWERS = 20
"""From so many on, what a member has learned by itself counts for more than what a desk knows that it just found."""
IDLE_EVERY = 1.0
LEAVE_AFTER = 10.0
"""Seconds without a call after which a member leaves the desk; its next call brings it back."""
_OK = Outcome.OK
_RESTING = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.OVERLOADED)


class VisitingGate(NumberedGate):
    __slots__ = (
        "_apart",
        "_back",
        "_crowd_at",
        "_is_urgent",
        "_left",
        "_line_told",
        "_policy_together",
        "_probe_over",
        "_refund",
        "_rest",
        "_shift",
        "_taken",
        "_took_at",
        "_void_to_seq",
        "alone",
        "awaits",
        "crowd",
        "era",
        "learning",
        "sharing",
        "solo",
        "visit_at",
    )

    def __init__(self, key: str, limiter: Serving, policy: GatePolicy, now: float, sharing: Sharing) -> None:
        self.sharing = sharing
        self.alone = False
        """Whether the store cannot be reached."""
        self.learning: Learning | None = None
        """What was learned from everybody, where this member leads."""
        self.crowd, self._crowd_at = 1, NEVER
        """The most members there were of late, and when: a desk that was wiped has seen none of the others yet."""
        self.era = 0
        self.visit_at = now
        """When the next visit is due."""
        self.awaits = 0
        """The number of the visit whose reply is for this gate; others were sent before it left a desk."""
        self._policy_together = policy
        self._back = 0
        self._refund: dict[str, float] = {}
        self._apart: dict[str, float] = {}
        self._left = 1.0
        """What was started without the desk; which share of a long window it said was left."""
        self._rest = 0.0
        """For the next visit: permits and amounts that come back, and how long somebody was told to wait."""
        self._took_at = UNKNOWN
        """When the oldest of what comes back was taken."""
        self._probe_over = self._is_urgent = False
        """... whether the probe came to nothing, and whether others wait for any of this."""
        self._void_to_seq = 0
        """Calls up to this one left by numbers of an era that is over."""
        self._line_told = 0.0, UNKNOWN
        """How far the line was, by the last reply, and when, in the desk's time."""
        self._shift = 0.0
        """The desk's time minus ours."""
        self.solo = False
        """Whether this member starts calls by itself, since no other member is there."""
        self._taken = 0
        """Calls that started so since the last visit, beyond the numbers that were held."""
        super().__init__(key, limiter, policy, now)

    # ------------------------------------------------------------------ ending

    def release(self, ticket: Ticket) -> bool:
        if not Gate.release(self, ticket):
            return False
        self._ended_silently(ticket, RELEASED)
        return True

    def abandon(self, ticket: Ticket) -> bool:
        if not Gate.release(self, ticket):
            return False
        self._ended_silently(ticket, ABANDONED)
        if ticket.seq > self._void_to_seq:
            self._back += ceil(requests_of(ticket.cost))
        self.settle(ticket, dict.fromkeys(self.limited, 0.0))
        return True

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        reserved = costs_of(ticket.cost)
        less = {name: reserved.get(name, 0.0) - real[name] for name in self.limited if name in real}
        self.refund(less, ticket.sent_at)

    def refund(self, amounts: Mapping[str, float], taken_at: float) -> None:
        self._took_at = min(self._took_at, taken_at)
        for dimension, amount in amounts.items():
            self._refund[dimension] = self._refund.get(dimension, 0.0) + amount

    def _ended_silently(self, ticket: Ticket, how: str) -> None:
        now = self.limiter.clock.now()
        answered = self.unclaimed if ticket.seq == self.probe and how == RELEASED else None
        if answered is not None:
            signal, latency, at = answered
            self.book.end(ticket.seq, at, latency, signal, "")
        elif self.controller.learns:
            self.book.end(ticket.seq, now, 0.0, None, how)
        if ticket.seq == self.probe:
            self._probe_ended(answered is None, now)
        self._make_room(now)

    def _make_room(self, now: float) -> None:
        """A call has ended: if others were told that too many are in the air, they wait for just that."""
        if self._short_of in ("depth", "turn") and not self.asked:
            self.want(now)

    def _probe_ended(self, without_answer: bool, now: float) -> None:
        self.probe, self._probe_over, self._is_urgent = 0, without_answer, True
        self.want(now)

    def _learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        outcome, book = signal.outcome, self.book
        self.answers += 1
        self._make_room(now)
        if outcome is _OK:
            self.latency.add(latency)
            if not self.controller.learns and ticket.seq != self.probe:
                book.oks += 1
                return
        elif outcome not in _RESTING:
            if signal.retry_after is not None:
                signal = replace(signal, retry_after=None)
        elif signal.retry_after:
            self.rest(signal.retry_after, now)
        book.end(ticket.seq, now, latency, signal, "")
        if ticket.seq == self.probe:
            self._probe_ended(outcome is not _OK and not outcome.counts_against_target, now)
        elif outcome is not _OK or len(book) > MOST_EVENTS // 2:
            self._is_urgent = True
            self.want(now)

    def rest(self, seconds: float, now: float) -> None:
        self.held_until = max(self.held_until, now + seconds)
        self._rest, self._is_urgent = max(self._rest, seconds), True
        self.follow(now)
        self.want(now)

    # ------------------------------------------------------------------ visiting

    def visit(self, member: str, now: float, draw: float, *, leaves: bool = False) -> Visit:
        """All that is to be said at the desk now."""
        is_idle = not self.waited_for and now >= self.last_sent_at + LISTEN_EVERY + 2 * self.trip
        if leaves or is_idle or now > self._expires_at or self.limiter.is_paused:
            unused, amounts = self.drop_numbers()
            self._back += unused
            self.refund(amounts, self.visited_at)
            if unused and not self.probe and self.breaker.state is not CircuitState.CLOSED:
                self._probe_over = True
        number = self.sharing.next_number()
        publication = self._publish(member, number, now, draw)
        note = "" if self.learning is not None and self.members == 1 else self.book.text(now, number)
        self.book.clear()
        visit = Visit(
            member=member,
            number=number,
            elapsed=0.0 if self.visited_at == NEVER else now - self.visited_at,
            terms=self.terms,
            asks=() if leaves or self.limiter.is_paused else self.asks(now),
            span=2.0 * self.trip,
            solo=not leaves and self.could_be_solo(now),
            taken=max(0, self._taken),
            era=self.era,
            back=self._back,
            refund={dimension: amount for dimension, amount in self._refund.items() if amount},
            refund_ago=max(0.0, now - self._took_at) if self._refund else 0.0,
            apart=self._apart,
            flying=len(self.flight) + self.holds,
            probe_over=self._probe_over,
            rest=self._rest,
            note=note,
            publication=publication,
            leaves=leaves,
        )
        self._back, self._rest, self._probe_over, self._is_urgent = 0, 0.0, False, False
        self._refund, self._apart, self._took_at = {}, {}, UNKNOWN
        self._taken = min(0, self._taken)
        self.visit_at, self.awaits, self.out_since = UNKNOWN, visit.number, now
        return visit

    def could_be_solo(self, now: float) -> bool:
        """Whether calls would start without numbers if no other member were there."""
        raise NotImplementedError

    def take(self, reply: Reply, sent_at: float, now: float, draw: float) -> None:
        """Go by what the desk says from now on."""
        self._settle_debt(reply)
        self.hear(reply, sent_at, now, draw)
        self.go_by(reply, now)

    def hear(self, reply: Reply, sent_at: float, now: float, draw: float) -> None:
        """Who is there, how far the desk is, and what there is to learn if this member leads."""
        self.asked, self.out_since = False, UNKNOWN
        self.visited_at = sent_at
        self.trip += 0.2 * (now - sent_at - self.trip) if self.trip else now - sent_at
        self._left = reply.left
        self.members = max(1, reply.members)
        if self.members >= self.crowd or now > self._crowd_at + LIVE:
            self.crowd, self._crowd_at = self.members, now
        self.book.hear(reply.word)
        before, self._shift = self._shift, reply.now - now
        if self.solo and self.learning is not None:  # which learns in our own time
            self.learning.base += self._shift - before
        self._lead(reply, draw)

    def go_by(self, reply: Reply, now: float) -> None:
        """Start calls by the numbers that were granted, under the rate, the hold and the circuit of all."""
        if reply.era != self.era:
            self.era, self._back, self._void_to_seq = reply.era, 0, self.seq
            self.drop_numbers()
        self.held_until = now + max(reply.hold, self._rest) if reply.hold or self._rest else NEVER
        self.take_numbers(reply, now)
        self.breaker.state = CircuitState.OPEN if reply.circuit_open else CircuitState.CLOSED
        self.breaker.opened_at = now + reply.open_for - self.breaker.policy.cool_off
        self.follow(now)
        self.visit_at = self._next_visit(reply, now)

    def _publish(self, member: str, visit: int, now: float, draw: float) -> Publication | None:
        """What follows from what everybody saw, where this member leads."""
        learning, there = self.learning, now + self._shift
        if learning is None:
            return None
        try:
            learning.take_own(self.book, member, self._shift, there, draw)
            return learning.publication(there, member, visit)
        except Exception:
            self._learn_anew(learning)
            return None

    def _lead(self, reply: Reply, draw: float) -> None:
        learning = self.learning
        if not reply.fence:
            self.learning = None
            return
        if learning is not None and learning.fence != reply.fence and self._goes_on(learning, reply):
            learning.fence, learning.word = reply.fence, max(learning.word, reply.word)
            learning.read = reply.covers
        elif learning is None or learning.fence != reply.fence:
            since = min([reply.now, *(note.at for note in reply.notes)])
            learning = self.learning = Learning(self._policy_together, reply.fence, since, reply.word)
            if reply.learned:
                learning.go_on(reply.learned, reply.covers)
        try:
            learning.take(reply.notes, reply.now, draw)
        except Exception:
            self._learn_anew(learning)

    def look(self) -> Look:
        """The pace that is handed out follows a window step by step; what it says is known where this member leads."""
        rate, state, opens_at = super().look()
        leads = None if self.learning is None else self.learning.gate
        return (leads.learned_rate if leads is not None and leads.controller.is_told else rate), state, opens_at

    def ailment(self, now: float) -> tuple[int, float]:
        """What all members saw, where this member leads; the others know only whether the circuit is open."""
        if self.learning is None:
            return super().ailment(now)
        return self.learning.gate.breaker.ailment(now + self._shift - self.learning.base)

    def _goes_on(self, learning: Learning, reply: Reply) -> bool:
        """Whether what was learned here counts for more than what the desk knows."""
        return self.solo and (not reply.learned or learning.gate.answers >= ENOUGH_ANSWERS)

    def _learn_anew(self, before: Learning) -> None:
        """What was learned, or a strategy of the user's, is of no use: begin again, after what could not be read."""
        log.exception("%s: what was learned cannot be used any more; learning anew", self.key)
        self.learning = Learning(self._policy_together, before.fence, before.at, before.word)
        self.learning.read = before.read

    def _next_visit(self, reply: Reply, now: float) -> float:
        if self._is_urgent or (self.learning is not None and self.learning.has_news):
            return now
        if self.waited_for:
            return now + min(max(reply.wait, SHORTEST) if reply.short_of else LISTEN_EVERY, LISTEN_EVERY)
        if self.is_polled(now):
            return max(now + max(reply.wait, SHORTEST) if reply.short_of else self._expires_at, now + SHORTEST)
        if len(self.flight) or self.holds or len(self.book) or reply.notes:
            return now + LISTEN_EVERY
        half_open = reply.circuit_open and not reply.open_for
        if self.learning is not None and (half_open or now < self.last_sent_at + IDLE_EVERY):  # others may need it
            return now + LISTEN_EVERY
        return now + (OPEN_EVERY if reply.circuit_open else IDLE_EVERY)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is wanted, held, in the air or to be told."""
        return not (self.waited_for or len(self.flight) or self.holds or len(self.book) or self.asked)

    def _settle_debt(self, reply: Reply) -> None:
        """What left without a number is owed as far as others had the rate meanwhile: what nobody asked for is lost."""
        (line, told_at), used = self._line_told, 1.0
        elapsed = reply.now - told_at
        if elapsed > 0:
            grown = reply.line - (line if reply.line >= line else self.terms.burst)  # else the desk is a new one
            used = min(max(0.0, grown / max(reply.rate * elapsed, LEAST)), 1.0)
            self.free += (1.0 - used - self.free) * min(1.0, elapsed / FREE_OVER)
        owed = self.debt + max(0, round(used * self.lent))
        self.debt = min(owed, ceil(MOST_OWED * reply.rate / max(1, reply.members)))
        self.lent = 0.0
        self._line_told = reply.line, reply.now + reply.hold
