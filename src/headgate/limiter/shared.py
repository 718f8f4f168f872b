"""The gate of a key whose quota is shared with other processes: visits to its desk, and what to do without one.

    line ──visit──> numbers ──the line reaches one──> permit ──answer──> note ──visit──> whoever leads

Each visit takes along what was seen and what will not be used, and brings the rate, holds and the circuit as all
members have them. Where this member leads, its visits carry what follows from what everybody saw.

When the store cannot be reached the gate goes on *alone*: by the gate a process alone would have, at this member's
share of the last known rate, with every floor that is known. It is back in step with its first visit that succeeds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from ..config import RateLimitConfig
from ..core.bucket import Buckets
from ..core.cooldown import Cooldown
from ..core.decision import NEVER, UNKNOWN, CircuitState, Outcome, Refuse, Wait
from ..core.flight import Flight
from ..core.gate import NOTHING, Gate, GatePolicy, costs_of, requests_of
from ..core.pace import INSTANT
from ..core.sharing.learning import Learning
from ..core.sharing.notebook import ABANDONED, MOST_EVENTS, RELEASED
from ..core.sharing.visit import Cost, Publication, Reply, Visit
from ..core.signal import Signal
from ..core.ticket import Ticket
from .key_gate import KeyGate
from .numbers import NumberedGate
from .permit import Permit
from .terms import policy_alone

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
IDLE_EVERY = 1.0
LEAVE_AFTER = 10.0
"""Seconds without a call after which a member leaves the desk; its next call brings it back."""
_OK = Outcome.OK
_RESTING = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.OVERLOADED)


class SharedGate(NumberedGate):
    __slots__ = (
        "_back",
        "_config",
        "_is_urgent",
        "_line_told",
        "_policy_together",
        "_probe_over",
        "_refund",
        "_rest",
        "_shift",
        "_spent_alone",
        "_switched_at_seq",
        "_visited_at",
        "_void_to_seq",
        "alone",
        "awaits",
        "era",
        "learning",
        "sharing",
        "visit_at",
    )

    def __init__(
        self, key: str, limiter: Serving, policy: GatePolicy, now: float, sharing: Sharing, config: RateLimitConfig
    ) -> None:
        self.sharing = sharing
        self.alone = False
        """Whether the store cannot be reached."""
        self.ceiling = None  # the first ``follow`` looks at it
        self.learning: Learning | None = None
        """What was learned from everybody, where this member leads."""
        self.era = 0
        self.visit_at = now
        """When the next visit is due."""
        self.awaits = 0
        """The number of the visit whose reply is for this gate; others were sent before it left a desk."""
        self._policy_together, self._config = policy, config
        self._back = 0
        self._refund: dict[str, float] = {}
        self._rest = 0.0
        """For the next visit: permits and amounts that come back, and how long somebody was told to wait."""
        self._probe_over = self._is_urgent = False
        """... whether the probe came to nothing, and whether others wait for any of this."""
        self._visited_at = NEVER
        """When the last visit that was answered set out."""
        self._void_to_seq = self._switched_at_seq = 0
        """Calls up to these left by numbers of an era that is over, and before the store was last lost or found."""
        self._spent_alone: dict[str, float] = {}
        """What was taken without the store."""
        self._line_told = (0.0, 0.0)
        """How far the line was, by the last reply, and when."""
        self._shift = 0.0
        """The desk's time minus ours."""
        super().__init__(key, limiter, policy, now)

    # ------------------------------------------------------------------ alone, or by numbers

    def ask_plainly(self, now: float) -> Permit | None:
        if not self.alone:
            return super().ask_plainly(now)
        permit = None if self.sharing.refuses else KeyGate.ask_plainly(self, now)
        if permit is not None:
            self._count_alone(1)
        return permit

    def objection(
        self,
        now: float,
        cost: float | Mapping[str, float] = 1,
        ahead: float = 0.0,
        costs_ahead: Mapping[str, float] = NOTHING,
    ) -> Wait | Refuse | None:
        if not self.alone:
            found = super().objection(now, cost, ahead, costs_ahead)
        elif self.sharing.refuses:
            return Refuse("store_down", f"{self.sharing.store.where} cannot be reached; nothing may start without it")
        else:
            found = Gate.objection(self, now, cost, ahead, costs_ahead)
        return found if self.ceiling is None else self._under_ceiling(found, ahead + requests_of(cost), now)

    def _under_ceiling(self, found: Wait | Refuse | None, wanted: float, now: float) -> Wait | Refuse | None:
        """An operator's limit is for this process: no call sooner after the last one than it allows."""
        may_at = self.last_sent_at + wanted / (self.ceiling or UNKNOWN)
        until = now + INSTANT if found is None else found.until if isinstance(found, Wait) else UNKNOWN
        return found if may_at <= until else Wait(may_at, "ceiling")

    def limit(self, ceiling: float | None, now: float) -> None:
        self.ceiling = ceiling
        self.follow(now)

    def note_wait(self, objection: Wait | Refuse, now: float) -> None:
        if objection.code in ("paused", "ceiling"):
            return
        (Gate if self.alone else NumberedGate).note_wait(self, objection, now)

    def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Permit:
        if not self.alone:
            return super().admit(now, cost, asked_at)
        self._count_alone(cost)
        return KeyGate.admit(self, now, cost, asked_at)

    def _count_alone(self, cost: float | Mapping[str, float]) -> None:
        for dimension, amount in costs_of(cost).items():
            self._spent_alone[dimension] = self._spent_alone.get(dimension, 0.0) + amount

    def follow(self, now: float) -> None:
        (Gate if self.alone else NumberedGate).follow(self, now)
        if self.ceiling is not None:
            self.easy_from = UNKNOWN

    def why(self, now: float) -> str:
        return (Gate if self.alone else NumberedGate).why(self, now)

    def reason(self, objection: Wait | Refuse, now: float) -> str:
        if not self.alone:
            return super().reason(objection, now)
        return f"{Gate.reason(self, objection, now)}; alone, because {self.sharing.store.where} cannot be reached"

    def level(self, now: float) -> float:
        return (Gate if self.alone else NumberedGate).level(self, now)

    @property
    def learned_rate(self) -> float:
        return self.rate

    @property
    def opens_at(self) -> float:
        if not self.alone:
            return self.held_until
        return max(NEVER if self.cooldown is None else self.cooldown.until, self.controller.hold_until)

    def idle_from(self, now: float) -> float:
        return (Gate if self.alone else NumberedGate).idle_from(self, now)

    # ------------------------------------------------------------------ ending

    def release(self, ticket: Ticket) -> bool:
        if not super().release(ticket):
            return False
        self._ended_silently(ticket, RELEASED)
        return True

    def abandon(self, ticket: Ticket) -> bool:
        if self.alone and ticket.seq > self._switched_at_seq:
            return super().abandon(ticket)
        if not super(NumberedGate, self).release(ticket):
            return False
        self._ended_silently(ticket, ABANDONED)
        if ticket.seq > self._void_to_seq:
            self._back += ceil(requests_of(ticket.cost))
        self.settle(ticket, dict.fromkeys(self.terms.limits, 0.0))
        return True

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        if ticket.seq <= self._switched_at_seq:
            return  # what it was taken from does not count any more
        if self.alone:
            super().settle(ticket, real)
            return
        reserved = costs_of(ticket.cost)
        less = {name: reserved.get(name, 0.0) - real[name] for name in self.terms.limits if name in real}
        self._refund_all(less, ticket.sent_at)

    def _refund_all(self, amounts: Mapping[str, float], taken_at: float) -> None:
        self._took_at = min(self._took_at, taken_at)
        for dimension, amount in amounts.items():
            self._refund[dimension] = self._refund.get(dimension, 0.0) + amount

    def _ended_silently(self, ticket: Ticket, how: str) -> None:
        if self.alone:
            return
        now = self.limiter.clock.now()
        if self.controller.learns:
            self.book.end(ticket.seq, now, 0.0, None, how)
        if ticket.seq == self.probe:
            self._probe_ended(True, now)
        self._make_room(now)

    def _make_room(self, now: float) -> None:
        """A call has ended: if others were told that too many are in the air, they wait for just that."""
        if self._short_of in ("depth", "turn") and not self.asked:
            self.want(now)

    def _probe_ended(self, without_answer: bool, now: float) -> None:
        self.probe, self._probe_over, self._is_urgent = 0, without_answer, True
        self.want(now)

    def _learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        if self.alone:
            super()._learn(ticket, signal, latency, now, draw)
            return
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
        if self.alone:
            super().rest(seconds, now)
            return
        self.held_until = max(self.held_until, now + seconds)
        self._rest, self._is_urgent = max(self._rest, seconds), True
        self.follow(now)
        self.want(now)

    # ------------------------------------------------------------------ visiting

    def asks(self, now: float) -> tuple[tuple[int, Cost], ...]:
        """What to ask for; under an operator's limit no more than it lets start before the next visit."""
        asks = super().asks(now)
        if self.ceiling is not None:
            most = ceil(self.ceiling * (now + LISTEN_EVERY - max(now, self.last_sent_at + 1 / self.ceiling)))
            asks = self._asks_out = tuple((min(count, most), cost) for count, cost in asks[: max(0, most)])
        return asks

    def want(self, now: float) -> None:
        self.asked = True
        self.visit_at = now
        self.sharing.poke(self)

    def visit(self, member: str, now: float, draw: float, *, leaves: bool = False) -> Visit:
        """All that is to be said at the desk now."""
        is_idle = not self.waited_for and now >= self.last_sent_at + LISTEN_EVERY
        if leaves or is_idle or now > self._expires_at or self.limiter.is_paused:
            unused, amounts = self.drop_numbers()
            self._back += unused
            self._refund_all(amounts, self._visited_at)
            if unused and not self.probe and self.breaker.state is not CircuitState.CLOSED:
                self._probe_over = True
        publication = self._publish(member, now, draw)
        note = "" if self.learning is not None and self.members == 1 else self.book.text(now)
        self.book.clear()
        visit = Visit(
            member=member,
            number=self.sharing.next_number(),
            elapsed=0.0 if self._visited_at == NEVER else now - self._visited_at,
            terms=self.terms,
            asks=() if leaves or self.alone or self.limiter.is_paused else self.asks(now),
            span=2.0 * self.trip,
            era=self.era,
            back=self._back,
            refund={dimension: amount for dimension, amount in self._refund.items() if amount},
            refund_ago=max(0.0, now - self._took_at) if self._refund else 0.0,
            flying=len(self.flight) + self.holds,
            probe_over=self._probe_over,
            rest=self._rest,
            note=note,
            publication=publication,
            leaves=leaves,
        )
        self._back, self._rest, self._probe_over, self._is_urgent = 0, 0.0, False, False
        self._refund, self._took_at = {}, UNKNOWN
        self.visit_at, self.awaits = UNKNOWN, visit.number
        return visit

    def take(self, reply: Reply, sent_at: float, now: float, draw: float) -> None:
        """Go by what the desk says from now on."""
        if self.alone:
            self._come_back(reply, now)
        self._line_told = reply.line, now + reply.hold
        self.asked = False
        self._visited_at = sent_at
        self.trip += 0.2 * (now - sent_at - self.trip) if self.trip else now - sent_at
        self.members = max(1, reply.members)
        if reply.era != self.era:
            self.era, self._back, self._void_to_seq = reply.era, 0, self.seq
            self.drop_numbers()
        self.held_until = now + max(reply.hold, self._rest) if reply.hold or self._rest else NEVER
        self.take_numbers(reply, now)
        self.breaker.state = CircuitState.OPEN if reply.circuit_open else CircuitState.CLOSED
        self.breaker.opened_at = now + reply.open_for - self.breaker.policy.cool_off
        self.book.hear(reply.word)
        self._shift = reply.now - now
        self._lead(reply, draw)
        self.follow(now)
        self.visit_at = self._next_visit(reply, now)

    def _publish(self, member: str, now: float, draw: float) -> Publication | None:
        """What follows from what everybody saw, where this member leads."""
        learning, there = self.learning, now + self._shift
        if learning is None:
            return None
        try:
            learning.take_own(self.book, member, self._shift, there, draw)
            return learning.publication(there)
        except Exception:
            self._learn_anew(learning)
            return None

    def _lead(self, reply: Reply, draw: float) -> None:
        learning = self.learning
        if not reply.fence:
            self.learning = None
            return
        if learning is None or learning.fence != reply.fence:
            learning = self.learning = Learning(self._policy_together, reply.fence, reply.now, reply.word)
            if reply.learned:
                learning.go_on(reply.learned, reply.covers)
        try:
            learning.take(reply.notes, reply.now, draw)
        except Exception:
            self._learn_anew(learning)

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

    # ------------------------------------------------------------------ without the store

    def go_alone(self, now: float) -> None:
        """The store cannot be reached: go on at this member's share of what is known."""
        if self.alone:
            return
        known_until = self.held_until
        self.alone, self.asked, self.learning = True, False, None
        held, _ = self.drop_numbers()
        self._spent_alone = {"requests": -held}
        self._back, self._refund = 0, {}
        self.book.clear()
        self._settle_in(policy_alone(self._config, self.rate, self.members), now)
        self.tokens = min(1.0, (now - self.last_sent_at) * self.rate)  # whoever waited for the store waits no longer
        if self.buckets is not None:  # what the others spent of late is not known: nothing is left to begin with
            whole = {name: self.policy.quotas[name].burst for name in self.terms.limits}
            self.buckets.ready_at(whole, now, False, NOTHING)
            self.buckets.take(whole, now)
        if known_until > now:
            self.cooldown = Cooldown(self.policy.cooldown)
            self.cooldown.until = known_until
        self.follow(now)

    def _come_back(self, reply: Reply, now: float) -> None:
        line, told_at = self._line_told
        if reply.era == self.era and now > told_at:  # if the others had the desk meanwhile, they had all of the rate
            share_of_others = (reply.line - line) / max(1.0, reply.rate * (now - told_at))
            self.debt = max(0, round(min(1.0, share_of_others) * self._spent_alone["requests"]))
        self._rest = max(0.0, self.opens_at - now)
        self._refund_all(self._overdrawn(), now)  # not before: a store that is too slow hears every attempt
        self._is_urgent = self._rest > 0 or self.waited_for
        self.alone, self._spent_alone = False, {}
        self._settle_in(self._policy_together, now)

    def _overdrawn(self) -> dict[str, float]:
        """What to charge for that was spent without the desk's leave: so much that it does not give a burst on top."""
        return {
            name: -max(0.0, min(self._spent_alone.get(name, 0.0), burst / self.members))
            for name, (_, _, burst) in self.terms.limits.items()
        }

    def leave_desk(self, now: float) -> None:
        """Hold nothing of this desk's any more, and know nothing of it: whoever waits asks again."""
        if self.alone:
            known_rate, self.alone = self.policy.most * self.members, False
            self._settle_in(self._policy_together, now)
            self.rate = known_rate
        self.drop_numbers()
        self.book.clear()
        self._back, self._refund, self._rest, self.awaits = 0, {}, 0.0, 0
        self.asked, self.learning, self.probe, self.debt, self._visited_at = False, None, 0, 0, NEVER
        self._switched_at_seq = self._void_to_seq = self.seq

    def start_over(self, now: float) -> None:
        """In the child of a process that was forked: nobody is in line or in the air."""
        self.leave_desk(now)
        self.flight, self.line, self.waited_for = Flight(), None, False

    def _settle_in(self, policy: GatePolicy, now: float) -> None:
        self.policy = policy
        self.controller, self.cooldown = policy.controller(), None
        self.watches_sends = self.controller.watches_sends
        self.buckets = Buckets(policy.quotas) if policy.quotas else None
        self.burst, self.rate = policy.burst, self.controller.rate
        self.tokens, self.filled_at, self.shut = 0.0, now, False
        self._switched_at_seq = self._void_to_seq = self.seq
