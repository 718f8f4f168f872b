"""What calls take in tokens, and whether the server counts tokens or calls.

The same quota gives the same measurement each time in the unit in which the server counts it. In the other unit the
measurements vary with the calls that happened to be made. So every quota is measured in both units, and the unit whose
measurements agree better is taken:

    measured between two refusals    1st    2nd    3rd    change
    calls a second                    50     70     40    large
    usual calls' tokens a second      60     60     60    none    ──> the server counts tokens

The *usual call* is the unit for tokens: a call of twice its tokens is worth two calls, both in the pace and in what is
measured, so a large call waits until its tokens have accrued.

A refusal says that less was left than its call takes; half of the call is taken to have been left.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.answer_length import TokenCost
from ...core.policy import NUMBER, Cost
from .state import Storable

AVERAGED_OVER = 1000
"""Calls over which the usual call is averaged."""

MOST_TIMES_LARGEST = 4.0
"""A call larger than any that was let in counts as at most so many times the largest: it may never fit."""

SMOOTHING = 0.3
"""How much the newest measurement counts in how well those of a unit agree."""


def tokens_of(cost: Cost) -> float:
    """What one call takes in tokens; 0 where it does not say. What it asks for counts, not what is reserved of that."""
    cost = cost.asked if isinstance(cost, TokenCost) else cost
    return 0.0 if isinstance(cost, NUMBER) or cost.get("requests", 1) != 1 else cost.get("tokens", 0.0)


@dataclass(slots=True, eq=False, kw_only=True)
class CallSizes(Storable):
    calls: int = 0
    """Calls in the average, at most ``AVERAGED_OVER``."""
    usual: float = 0.0
    """Tokens of the usual call: the average."""
    surplus: float = 0.0
    """Usual calls by which those let in since the measurement began were larger than as many usual calls."""
    refused: float = 0.0
    """Usual calls by which the last refused call was larger than one."""
    measured_in_calls: float = 0.0
    measured_in_tokens: float = 0.0
    """The last measurement, in calls a second and in usual calls a second."""
    change_in_calls: float = 0.0
    change_in_tokens: float = 0.0
    """By which share a measurement differs from the one before it, on average."""
    largest: float = 0.0
    """Tokens of the largest call that was let in."""
    added = 1

    @property
    def tokens_are_counted(self) -> bool:
        """Whether the server counts tokens: measured in them, its quota changes less."""
        return self.change_in_tokens < self.change_in_calls

    def worth(self, tokens: float) -> float:
        """How many calls' worth of pace a call takes."""
        return self._bounded(tokens) / self.usual if tokens and self.tokens_are_counted else 1.0

    def _bounded(self, tokens: float) -> float:
        return min(tokens, MOST_TIMES_LARGEST * self.largest) if self.largest else tokens

    def note_sent(self, tokens: float) -> float:
        """A call leaves and becomes part of the usual one.

        Returns the factor that keeps a known quota the same in tokens: where the usual call grows, a quota is fewer of
        them. It is 1 where calls are what the server counts.
        """
        before, tokens = self.usual, self._bounded(tokens)
        self.largest = max(self.largest, tokens)
        self.calls = min(self.calls + 1, AVERAGED_OVER)
        self.usual += (tokens - before) / self.calls
        self.surplus += tokens / self.usual - 1.0
        return before / self.usual if before and self.tokens_are_counted else 1.0

    def note_refused(self, tokens: float) -> None:
        """A call that was counted as sent took nothing. One above the largest may have been too large for its limit."""
        if tokens > self.largest:
            self.largest /= MOST_TIMES_LARGEST
        self.refused = self._bounded(tokens) / self.usual - 1.0 if tokens else 0.0
        self.surplus -= self.refused

    def measure(self, calls: float, span: float) -> None:
        """So many calls were let in between two refusals: in which unit is that what it was before?"""
        self.surplus += 0.5 * self.refused  # half of the refused call was left
        in_calls, in_tokens = max(calls, 1.0) / span, max(calls + self.surplus, 1.0) / span
        if self.measured_in_calls:
            change_in_calls = abs(in_calls / self.measured_in_calls - 1.0)
            change_in_tokens = abs(in_tokens / self.measured_in_tokens - 1.0)
            self.change_in_calls += SMOOTHING * (change_in_calls - self.change_in_calls)
            self.change_in_tokens += SMOOTHING * (change_in_tokens - self.change_in_tokens)
        self.measured_in_calls, self.measured_in_tokens = in_calls, in_tokens

    def restart(self) -> None:
        """Measure from the last refusal on: the half of its call that was left belongs to the measurement before."""
        self.surplus = -0.5 * self.refused
