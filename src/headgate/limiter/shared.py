"""The gate of a key whose quota is shared with other processes: together with them, or alone.

    together ──the store cannot be reached──> alone ──the first visit that succeeds──> together

Alone it is the gate that a process without others would have, at this member's share of the last known rate, with every
floor that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from ..config import RateLimitConfig
from ..core.asking import Look
from ..core.bucket import LONG_WINDOW, Buckets
from ..core.cooldown import Cooldown
from ..core.costs import NOTHING, costs_of, requests_of
from ..core.decision import NEVER, UNKNOWN, Refuse, Wait
from ..core.gate import Gate
from ..core.gate_policy import GatePolicy
from ..core.pace import INSTANT
from ..core.sharing.visit import Cost, Reply
from ..core.ticket import Ticket
from .key_gate import KeyGate
from .numbers import NumberedGate
from .permit import Permit
from .terms import policy_alone
from .visiting import LISTEN_EVERY, VisitingGate

if TYPE_CHECKING:
    from .serving import Serving
    from .sharing import Sharing


class SharedGate(VisitingGate):
    __slots__ = ("_config", "_spent_alone", "_switched_at_seq")

    def __init__(
        self, key: str, limiter: Serving, policy: GatePolicy, now: float, sharing: Sharing, config: RateLimitConfig
    ) -> None:
        self.ceiling = None  # the first ``follow`` looks at it
        self._config = config
        self._switched_at_seq = 0
        """Calls up to this one left before the store was last lost or found."""
        self._spent_alone: dict[str, float] = {}
        """What was taken without the store."""
        super().__init__(key, limiter, policy, now, sharing)

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
        self.lent += ceil(requests_of(cost))
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

    def look(self) -> Look:
        opens_at = Gate.look(self)[2] if self.alone else self.held_until
        return self.rate, self.breaker.state, opens_at

    @property
    def paused_until(self) -> float:
        return super().paused_until if self.alone else self.held_until

    def idle_from(self, now: float) -> float:
        return (Gate if self.alone else NumberedGate).idle_from(self, now)

    def release(self, ticket: Ticket) -> bool:
        return (Gate if self.alone else VisitingGate).release(self, ticket)

    def abandon(self, ticket: Ticket) -> bool:
        if not self.alone:
            return super().abandon(ticket)
        return (Gate.abandon if ticket.seq > self._switched_at_seq else Gate.release)(self, ticket)

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        if ticket.seq > self._switched_at_seq:  # else what it was taken from does not count any more
            (Gate if self.alone else VisitingGate).settle(self, ticket, real)

    def rest(self, seconds: float, now: float) -> None:
        (Gate if self.alone else VisitingGate).rest(self, seconds, now)

    def asks(self, now: float) -> tuple[tuple[int, Cost], ...]:
        """What to ask for; under an operator's limit no more than it lets start before the next visit."""
        asks = () if self.alone else super().asks(now)
        if self.ceiling is not None:
            most = ceil(self.ceiling * (now + LISTEN_EVERY - max(now, self.last_sent_at + 1 / self.ceiling)))
            asks = self._asks_out = tuple((min(count, most), cost) for count, cost in asks[: max(0, most)])
        return asks

    @property
    def gives_credit(self) -> bool:
        return not self.sharing.refuses

    def want(self, now: float) -> None:
        self.asked = True
        self.visit_at = now
        self.sharing.poke(self)

    def take(self, reply: Reply, sent_at: float, now: float, draw: float) -> None:
        if self.alone:
            self._come_back(now)
        super().take(reply, sent_at, now, draw)

    # ------------------------------------------------------------------ without the store

    def go_alone(self, now: float) -> None:
        """The store cannot be reached: go on at this member's share of what is known."""
        if self.alone:
            return
        known_until = self.held_until
        self.alone, self.asked, self.learning = True, False, None
        held, _ = self.drop_numbers()
        self._spent_alone = {name: -amount for name, amount in self._refund.items() if amount < 0}
        self.out_since = UNKNOWN
        self.lent -= held
        self._back, self._refund = 0, {}
        self.book.clear()
        self._settle_in(policy_alone(self._config, self.rate, self.crowd), now)
        self.tokens = min(1.0, (now - self.last_sent_at) * self.rate)  # whoever waited for the store waits no longer
        if self.buckets is not None:  # what the others spent of late is not known: nothing is left to begin with
            self.buckets.drain(self.limited, self._left / self.crowd, now)
        if known_until > now:
            self.cooldown = Cooldown(self.policy.cooldown)
            self.cooldown.until = known_until
        self.follow(now)

    def _come_back(self, now: float) -> None:
        self._rest = max(0.0, self.opens_at - now)
        charged = self._overdrawn()
        self.refund(charged, now)  # not before: a store that is too slow hears every attempt
        apart = {name: self._spent_alone.get(name, 0.0) + charged.get(name, 0.0) for name in self.limited}
        self._apart = {name: amount for name, amount in apart.items() if amount > 0}
        self._is_urgent = self._rest > 0 or self.waited_for
        self.alone, self._spent_alone = False, {}
        self._settle_in(self._policy_together, now)

    def _overdrawn(self) -> dict[str, float]:
        """What to charge for that was spent without the desk's leave: so much that it does not give a burst on top."""
        most: dict[str, float] = {}
        for dimension, _, window, burst in self.terms.limits:
            if window < LONG_WINDOW:
                most[dimension] = min(most.get(dimension, UNKNOWN), burst / self.crowd)
        return {name: -max(0.0, min(self._spent_alone.get(name, 0.0), burst)) for name, burst in most.items()}

    def leave_desk(self, now: float) -> None:
        """Hold nothing of this desk's any more, and know nothing of it: whoever waits asks again."""
        if self.alone:
            known_rate, self.alone = self.policy.most * self.crowd, False
            self._settle_in(self._policy_together, now)
            self.rate = known_rate
        self.drop_numbers()
        self.book.clear()
        self._back, self._refund, self._apart, self._rest, self.awaits = 0, {}, {}, 0.0, 0
        self.asked, self.learning, self.probe, self.debt, self.visited_at = False, None, 0, 0, NEVER
        self.out_since, self.free, self.lent, self._line_told = UNKNOWN, 0.0, 0.0, (0.0, UNKNOWN)
        self._switched_at_seq = self._void_to_seq = self.seq

    def start_over(self, now: float) -> None:
        self.leave_desk(now)
        super().start_over(now)

    def _settle_in(self, policy: GatePolicy, now: float) -> None:
        self.policy = policy
        self.controller, self.cooldown = policy.controller(), None
        self.watches_sends = self.controller.watches_sends
        self.buckets = Buckets(policy.quotas) if policy.quotas else None
        self.burst, self.rate = policy.burst, self.controller.rate
        self.tokens, self.filled_at, self.shut = 0.0, now, False
        self._switched_at_seq = self._void_to_seq = self.seq
