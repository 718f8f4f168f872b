"""What calls take in tokens, and whether it is tokens that the server counts.

A quota measures the same every time in the unit in which it is counted; in the other one it wanders with the calls
that happened to be made. So both are measured, and the one that agrees with itself is taken. In tokens a call is worth
as many calls as it takes of the usual one's tokens, in the pace as in what is counted: a dear call waits until
its tokens have accrued.

A refusal says that less was left than its call takes. Half of that is taken to have been there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.answer_length import TokenCost
from ...core.policy import NUMBER, Cost
from .state import Storable

KEPT = 1000
"""Calls that make the usual one."""

BEYOND = 4.0
"""Of a call larger than any that was let in, no more than so many times the largest counts: it may never fit."""

NEWEST = 0.3
"""How much the newest measurement counts in how well those of a unit agree."""


def tokens_of(cost: Cost) -> float:
    """What one call takes in tokens; 0 where it does not say. What it asks for counts, not what is reserved of that."""
    cost = cost.asked if isinstance(cost, TokenCost) else cost
    return 0.0 if isinstance(cost, NUMBER) or cost.get("requests", 1) != 1 else cost.get("tokens", 0.0)


@dataclass(slots=True, eq=False, kw_only=True)
class CallSizes(Storable):
    calls: int = 0
    usual: float = 0.0
    """Tokens that a call takes on average."""
    surplus: float = 0.0
    """Usual calls' worth by which those let in since a measurement began were larger than usual."""
    refused: float = 0.0
    """The same of the last one refused."""
    in_calls: float = 0.0
    in_tokens: float = 0.0
    """The last measurement, in calls and in usual calls a second."""
    calls_differ: float = 0.0
    tokens_differ: float = 0.0
    """By which share it differs from the one before, on average."""
    largest: float = 0.0
    """Tokens of the largest call, but for those refused."""
    added = 1

    @property
    def count(self) -> bool:
        """Whether tokens are what the server counts."""
        return self.tokens_differ < self.calls_differ

    def worth(self, tokens: float) -> float:
        """How many calls' worth of pace a call takes."""
        return self._bounded(tokens) / self.usual if tokens and self.count else 1.0

    def _bounded(self, tokens: float) -> float:
        return min(tokens, BEYOND * self.largest) if self.largest else tokens

    def sent(self, tokens: float) -> float:
        """A call leaves. Returns what a quota that is known has to be multiplied by: the usual call has changed."""
        before, tokens = self.usual, self._bounded(tokens)
        self.largest = max(self.largest, tokens)
        self.calls = min(self.calls + 1, KEPT)
        self.usual += (tokens - before) / self.calls
        self.surplus += tokens / self.usual - 1.0
        return before / self.usual if before and self.count else 1.0

    def was_refused(self, tokens: float) -> None:
        if tokens > self.largest:
            self.largest /= BEYOND
        self.refused = self._bounded(tokens) / self.usual - 1.0 if tokens else 0.0
        self.surplus -= self.refused

    def measure(self, calls: float, span: float) -> None:
        """So many were let in between two refusals: in which unit is that what it was before?"""
        self.surplus += 0.5 * self.refused
        in_calls, in_tokens = max(calls, 1.0) / span, max(calls + self.surplus, 1.0) / span
        if self.in_calls:
            self.calls_differ += NEWEST * (abs(in_calls / self.in_calls - 1.0) - self.calls_differ)
            self.tokens_differ += NEWEST * (abs(in_tokens / self.in_tokens - 1.0) - self.tokens_differ)
        self.in_calls, self.in_tokens = in_calls, in_tokens

    def restart(self) -> None:
        """Measure from the last refusal on."""
        self.surplus = -0.5 * self.refused
