"""The gate of ONE key: what is asked of it (``asking.py``), and what it learns when a call has ended.

    ask ──> a ticket, a wait or a refusal
    report(ticket, signal) ──> statistics, circuit, controller, floor ──> the next ask

A gate is pure: it takes ``now`` and a random draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .asking import FIRST_CHECK, Asking
from .comeback import Comeback, after_pause, gentler
from .cooldown import Cooldown
from .costs import costs_of, requests_of
from .decision import CircuitState, Outcome
from .latency import Latency
from .pace import INSTANT
from .signal import Signal
from .ticket import Ticket

USUAL_LATENCY = 0.2
"""What answers take, as long as nothing is known."""
MEASURED_WITHIN = 0.05
"""By how many seconds, and by which share of it, a latency may differ from what we would have measured."""
OK = Outcome.OK
_RESTING = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.OVERLOADED)
"""Whose Retry-After is for everybody under this key; that of a failure in passing is for its own call alone."""


class Gate(Asking):
    __slots__ = ()

    # ------------------------------------------------------------------ ending

    def report(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> bool:
        """Take how the call ended and learn from it; False if the ticket had ended already."""
        if not self.flight.land(ticket.seq):
            return False
        self._learn(ticket, signal, latency, now, draw)
        return True

    def teach(self, signal: Signal, latency: float, now: float, draw: float) -> None:
        """Learn from an answer that belongs to the oldest call it can belong to, or to none of ours.

        Nothing but probes leaves a half-open circuit, so what was sent since is a probe's answer; and so is what was
        sent when the probe was asked for: a latency may include the wait in line. Any other answer may be an old
        call's; it counts as the probe's if the probe ends, or is lost, without one.
        """
        sent_at = now - latency
        probe = self.probe_out()
        if probe is not None:
            left_at = self.flight.out.get(probe, now)
            if sent_at + INSTANT >= left_at or abs(sent_at - self.probe_asked_at) <= MEASURED_WITHIN * (1.0 + latency):
                self.report(self.ticket(self, probe, left_at, 0), signal, latency, now, draw)
                return
            self.unclaimed = signal, latency, now
        oldest = self.flight.oldest()
        if oldest is not None and oldest[1] <= sent_at + INSTANT:
            self.report(self.ticket(self, *oldest, 0), signal, latency, now, draw)
            return
        if not latency > 0.0:  # not told when it was sent: about as long ago as answers usually take
            sent_at = now - (self.latency.ewma or USUAL_LATENCY)
        if sent_at > self.last_sent_at + INSTANT:
            self.seq += 1  # a call of somebody else's: the newest we know of
            self.last_sent_at = now
        closed = self.breaker.state is CircuitState.CLOSED
        seq = self.seq if closed else self.breaker.era_after  # the newest may be a probe, and this is not its answer
        self._learn(self.ticket(self, seq, sent_at, 0), signal, latency, now, draw)

    def probe_out(self) -> int | None:
        """A probe of a half-open circuit that is out, if there is one."""
        return next(iter(self.breaker.probes), None)

    def release(self, ticket: Ticket) -> bool:
        """The call was sent and nobody will say how it ended: what it took stays taken, nothing is learned."""
        if not self.flight.land(ticket.seq):
            return False
        if self.unclaimed is None or ticket.seq not in self.breaker.probes:
            self.breaker.give_back(ticket.seq)
        else:
            self.claim(ticket.seq)
        return True

    def abandon(self, ticket: Ticket) -> bool:
        """Nothing was sent: everything goes back."""
        if ticket.seq in self.breaker.probes:
            self.unclaimed = None
        if not self.release(ticket):
            return False
        self.give_back(requests_of(ticket.cost))
        if self.buckets is not None:
            self.buckets.refund(costs_of(ticket.cost), ticket.sent_at)
        return True

    def settle(self, ticket: Ticket, real: Mapping[str, float]) -> None:
        """Charge what the call really cost instead of what was reserved for it."""
        if self.buckets is not None:
            self.buckets.settle(costs_of(ticket.cost), real, ticket.sent_at)

    def _learn(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        outcome = signal.outcome
        self.answers += 1
        if outcome is OK:
            self.latency.add(latency)
            if self.cooldown is not None:
                self.cooldown.cleared(ticket.sent_at)
        if self.breaker.record(ticket.seq, outcome, now, self.seq):
            self.circuit_changed(now)
        if outcome is not OK:
            if outcome in _RESTING:
                self._pause(ticket, signal, now, draw)
            elif signal.retry_after is not None:
                signal = replace(signal, retry_after=None)
        skip = self.controller.on_answer(ticket, signal, latency, now)
        if skip:
            self.let_pass(skip, now)
        self.follow(now)

    def let_pass(self, slots: float, now: float) -> None:
        """Start nothing for so many slots."""
        self.tokens = min(self.level(now), 1.0 - slots)

    def _pause(self, ticket: Ticket, signal: Signal, now: float, draw: float) -> None:
        """Start nothing for as long as the server, or our own cooldown after a 429, asks."""
        ours = self.policy.cooldown if signal.outcome is Outcome.RATE_LIMITED else None
        if ours is None and signal.retry_after is None:
            return
        if self.cooldown is None:
            self.cooldown = Cooldown(self.policy.cooldown)
        before = self.cooldown.until
        self.cooldown.report(ticket.sent_at, now, signal.retry_after or 0.0, draw)
        until = self.cooldown.until
        if until > max(before, now):
            self.comeback = gentler(self.comeback, after_pause(until - now, until))

    def rest(self, seconds: float, now: float) -> None:
        """Start nothing for so long, by somebody else's word than an answer's, and come back by the same ramp."""
        if self.cooldown is None:
            self.cooldown = Cooldown(self.policy.cooldown)
        until = now + seconds
        if until > max(self.cooldown.until, now):
            self.cooldown.until = until
            self.comeback = gentler(self.comeback, after_pause(seconds, until))
            self.follow(now)

    # ------------------------------------------------------------------ putting away

    def to_state(self) -> tuple[Any, ...] | None:
        """All that is known of a key but its permits that are out, as plain values; None if it cannot be put away."""
        learned = self.controller.to_state()
        if learned is None:
            return None
        pause = self.cooldown
        return (
            (self.tokens, self.filled_at, self.rate, self.shut, self.seq, self.last_sent_at, self.answers),
            None
            if pause is None
            else (pause.until, pause.era, pause.era_started_at, pause.eras_in_a_row, pause.participants),
            (self.comeback.starts_at, self.comeback.lasts, self.comeback.least),
            self.latency.to_state(),
            self.breaker.to_state(),
            None if self.buckets is None else self.buckets.to_state(),
            learned,
        )

    def load_state(self, state: tuple[Any, ...], now: float) -> None:
        """Go on from ``to_state()`` under the same policy."""
        own, pause, comeback, latency, breaker, buckets, learned = state
        self.tokens, self.filled_at, self.rate, self.shut, self.seq, self.last_sent_at, self.answers = own
        self.check_at = max(FIRST_CHECK, self.seq + 1)
        if pause is not None:
            self.cooldown = Cooldown(self.policy.cooldown, *pause)
        if comeback[1]:
            self.comeback = Comeback(*comeback)
        self.latency = Latency.from_state(latency)
        self.breaker.load_state(breaker)
        if self.buckets is not None:
            self.buckets.load_state(buckets)
        self.controller.load_state(learned)
        self.follow(now)
