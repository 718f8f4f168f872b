"""Additive increase, multiplicative decrease: a little faster on every good answer, half on a bad one.

    fast 2xx            rate += increase
    429, 503, too slow  rate *= decrease, once per era

An era begins with a cut. Answers to calls that left before the cut say what was true
before it, so a burst that is refused as one is punished once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..decision import Outcome
from ..signal import Signal
from ..ticket import Ticket
from .protocol import Controller


@dataclass(frozen=True, slots=True, kw_only=True)
class AimdPolicy:
    initial: float = 2.0
    least: float = 0.01
    most: float = float("inf")
    increase: float = 0.25
    decrease: float = 0.5
    latency_target: float = 1.0
    degrade_factor: float = 2.0


class Aimd(Controller):
    __slots__ = ("cut_seq", "policy", "rate")

    def __init__(self, policy: AimdPolicy) -> None:
        self.policy = policy
        self.rate = min(max(policy.initial, policy.least), policy.most)
        self.cut_seq = 0

    def on_answer(self, ticket: Ticket, signal: Signal, latency: float, now: float) -> float:
        policy, outcome, seq = self.policy, signal.outcome, ticket.seq
        if seq <= self.cut_seq:
            return 0.0
        if outcome is Outcome.OK:
            if latency < policy.latency_target:
                rate = self.rate + policy.increase
                self.rate = rate if rate < policy.most else policy.most
                return 0.0
            bad = latency >= policy.degrade_factor * policy.latency_target
        else:
            bad = outcome is Outcome.RATE_LIMITED or outcome is Outcome.OVERLOADED
        if bad:
            self.cut_seq = ticket.gate.seq
            self.rate = max(policy.least, self.rate * policy.decrease)
            return 1.0
        return 0.0

    def why(self) -> str:
        return "a rate that rises with every fast answer and halves when refused"

    def to_state(self) -> tuple[Any, ...]:
        return (self.rate, self.cut_seq)

    def load_state(self, state: tuple[Any, ...]) -> None:
        self.rate, self.cut_seq = state
