"""The gate of a key whose quota is shared with other processes: visits to its desk, and what to do without one.

    line ──visit──> numbers ──the line reaches one──> permit ──answer──> note ──visit──> whoever leads

Each visit takes along what was seen and what will not be used, and brings the rate, holds and the circuit as all
members have them. Where this member leads, its visits carry what follows from what everybody saw.

When the store cannot be reached the gate goes on *alone*: by the gate a process alone would have, at this member's
share of the last known rate, with every floor that is known. It is back in step with its first visit that succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from ..config import RateLimitConfig
from ..core.bucket import Buckets
from ..core.cooldown import Cooldown
from ..core.decision import NEVER, UNKNOWN, CircuitState, Outcome, Refuse, Wait
from ..core.gate import NOTHING, Gate, GatePolicy, costs_of, requests_of
from ..core.sharing.learning import Learning
from ..core.sharing.notebook import ABANDONED, MOST_EVENTS, RELEASED
from ..core.sharing.visit import Reply, Visit
from ..core.signal import Signal
from ..core.ticket import Ticket
from .keys import KeyGate
from .numbers import NumberedGate
from .permit import Permit
from .terms import policy_alone

if TYPE_CHECKING:
    from .serving import Serving
    from .sharing import Sharing

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
        "_number",
        "_policy_together",
        "_probe_over",
        "_refund",
        "_rest",
        "_shift",
        "_visited_at",
        "alone",
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
        self.learning: Learning | None = None
        """What was learned from everybody, where this member leads."""
        self.era = 0
        self.visit_at = now
        """When the next visit is due."""
        self._policy_together, self._config = policy, config
        self._back = self._number = 0
        self._refund: dict[str, float] = {}
        self._rest = 0.0
        """For the next visit: permits and amounts that come back, and how long somebody was told to wait."""
        self._probe_over = False
        self._visited_at = NEVER
        """When the last visit that was answered set out."""
        self._shift = 0.0
        """The desk's time minus ours."""
        super().__init__(key, limiter, policy, now)

    # ------------------------------------------------------------------ alone, or by numbers

    def ask_plainly(self, now: float) -> Permit | None:
        return KeyGate.ask_plainly(self, now) if self.alone else super().ask_plainly(now)

    def objection(
        self,
        now: float,
        cost: float | Mapping[str, float] = 1,
        ahead: float = 0.0,
        costs_ahead: Mapping[str, float] = NOTHING,
    ) -> Wait | Refuse | None:
        if not self.alone:
            return super().objection(now, cost, ahead, costs_ahead)
        if self.sharing.refuses:
            return Refuse("store_down", f"{self.sharing.store.where} cannot be reached; nothing may start without it")
        return Gate.objection(self, now, cost, ahead, costs_ahead)

    def note_wait(self, objection: Wait | Refuse, now: float) -> None:
        (Gate if self.alone else NumberedGate).note_wait(self, objection, now)

    def admit(self, now: float, cost: float | Mapping[str, float] = 1, asked_at: float | None = None) -> Permit:
        return KeyGate.admit(self, now, cost, asked_at) if self.alone else super().admit(now, cost, asked_at)

    def follow(self, now: float) -> None:
        (Gate if self.alone else NumberedGate).follow(self, now)

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
        if self.alone:
            return super().abandon(ticket)
        if not super(NumberedGate, self).release(ticket):
            return False
        self._ended_silently(ticket, ABANDONED)
        self._back += ceil(requests_of(ticket.cost))
        self.settle(ticket, dict.fromkeys(self.terms.limits, 0.0))
        return True

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
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
            self.book.ends.append((ticket.seq, now, 0.0, None, how))
        if ticket.seq == self.probe:
            self._probe_ended(True, now)

    def _probe_ended(self, without_answer: bool, now: float) -> None:
        self.probe, self._probe_over = 0, without_answer
        self.want(now)

    def _learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        if self.alone:
            super()._learn(ticket, signal, latency, now, draw)
            return
        outcome, book = signal.outcome, self.book
        self.answers += 1
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
        if len(book) < 2 * MOST_EVENTS:
            book.ends.append((ticket.seq, now, latency, signal, ""))
        if ticket.seq == self.probe:
            self._probe_ended(outcome is not _OK and not outcome.counts_against_target, now)
        elif outcome is not _OK or len(book) > MOST_EVENTS // 2:
            self.want(now)

    def rest(self, seconds: float, now: float) -> None:
        if self.alone:
            super().rest(seconds, now)
            return
        self.held_until = max(self.held_until, now + seconds)
        self._rest = max(self._rest, seconds)
        self.follow(now)
        self.want(now)

    # ------------------------------------------------------------------ visiting

    def want(self, now: float) -> None:
        self.asked = True
        self.visit_at = now
        self.sharing.poke(self)

    def visit(self, member: str, now: float, draw: float, *, leaves: bool = False) -> Visit:
        """All that is to be said at the desk now."""
        is_idle = not self.waited_for and now >= self.last_sent_at + LISTEN_EVERY
        if leaves or is_idle or now > self._expires_at:
            unused, amounts = self.drop_numbers()
            self._back += unused
            self._refund_all(amounts, self._visited_at)
        publication = None
        if self.learning is not None:
            there = now + self._shift
            self.learning.take_own(self.book, member, self._shift, there, draw)
            publication = self.learning.publication(there)
        note = "" if self.learning is not None and self.members == 1 else self.book.text(now)
        self.book.clear()
        self._number += 1
        visit = Visit(
            member=member,
            number=self._number,
            elapsed=0.0 if self._visited_at == NEVER else now - self._visited_at,
            terms=self.terms,
            asks=() if leaves else self.asks(now),
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
        self._back, self._rest, self._probe_over = 0, 0.0, False
        self._refund, self._took_at = {}, UNKNOWN
        self.visit_at = UNKNOWN
        return visit

    def take(self, reply: Reply, sent_at: float, now: float, draw: float) -> None:
        """Go by what the desk says from now on."""
        if self.alone:
            self._come_back(now)
        self.asked = False
        self._visited_at = sent_at
        self.trip += 0.2 * (now - sent_at - self.trip) if self.trip else now - sent_at
        self.members = max(1, reply.members)
        if reply.era != self.era:
            self.era = reply.era
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

    def _lead(self, reply: Reply, draw: float) -> None:
        if not reply.fence:
            self.learning = None
            return
        if self.learning is None or self.learning.fence != reply.fence:
            self.learning = Learning(self._policy_together, reply.fence, reply.now, reply.word)
            if reply.learned:
                self.learning.go_on(reply.learned, reply.covers)
        self.learning.take(reply.notes, reply.now, draw)

    def _next_visit(self, reply: Reply, now: float) -> float:
        if self.learning is not None and self.learning.has_news:
            return now
        if self.waited_for:
            return now + min(max(reply.wait, SHORTEST) if reply.short_of else LISTEN_EVERY, LISTEN_EVERY)
        if len(self.flight) or self.holds or len(self.book):
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
        self.drop_numbers()
        self._refund = {}
        self.book.clear()
        self._settle_in(policy_alone(self._config, self.rate, self.members), now)
        if known_until > now:
            self.cooldown = Cooldown(self.policy.cooldown)
            self.cooldown.until = known_until
        self.follow(now)

    def _come_back(self, now: float) -> None:
        self._rest = max(0.0, self.opens_at - now)
        self.alone = False
        self._settle_in(self._policy_together, now)

    def _settle_in(self, policy: GatePolicy, now: float) -> None:
        self.policy = policy
        self.controller, self.cooldown = policy.controller(), None
        self.watches_sends = self.controller.watches_sends
        self.buckets = Buckets(policy.quotas) if policy.quotas else None
        self.burst, self.rate = policy.burst, self.controller.rate
        self.tokens, self.filled_at, self.shut = 0.0, now, False
