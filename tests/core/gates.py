"""Gates for tests: one of each strategy, and what servers tell them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headgate.controllers.adaptive import Adaptive, AdaptiveSettings
from headgate.controllers.aimd import Aimd, AimdSettings
from headgate.controllers.fixed import Fixed
from headgate.controllers.gradient import Gradient, GradientSettings
from headgate.core.controller import Controller
from headgate.core.decision import Outcome
from headgate.core.gate import Gate
from headgate.core.gate_config import GateConfig
from headgate.core.policy import Ticket
from headgate.core.signal import Signal

HEEDED = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.OVERLOADED)
"""Outcomes whose Retry-After is a floor for all calls."""

CONTROLLERS: dict[str, Callable[[float], Controller]] = {
    "fixed": Fixed,
    "aimd": lambda rate: Aimd(AimdSettings(initial=rate)),
    "gradient": lambda rate: Gradient(GradientSettings(initial=rate)),
    "adaptive": lambda rate: Adaptive(AdaptiveSettings(initial=rate)),
}


def gate_of(name: str = "fixed", rate: float = 10.0, **policy: object) -> Gate:
    return Gate.local(GateConfig(controller=lambda: CONTROLLERS[name](rate), **policy))


def told(seconds: float, outcome: Outcome = Outcome.RATE_LIMITED) -> Signal:
    return Signal(outcome=outcome, retry_after=seconds)


class CostlyTicket(Ticket):
    """A ticket that knows what it cost, as a caller with costs keeps it."""

    __slots__ = ("cost",)

    def __init__(self, ticket: Ticket, cost: float | Mapping[str, float]) -> None:
        super().__init__(ticket.gate, ticket.seq, ticket.sent_at, ticket.depth)
        self.cost = cost
