"""What a member holds of a coordinator's permits, and what it owes for calls that left without one.

    held   17 18 19      41 42 43          numbers of this member; those between belong to others

    call without a number ──> on_credit ──next reply──> owed ──next numbers──> let go unused

Numbers pace calls. Where limits are known that the pace does not keep, a grant brings an amount of each with its
numbers: tokens, for instance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from math import ceil

from ..core.answer_length import TokenCost
from ..core.decision import UNKNOWN
from ..core.policy import NOTHING, Cost, costs_of
from .protocol import Cost as Amounts
from .protocol import SyncReply

LEAST_RATE = 1e-9
"""Calls a second; nothing is divided by less."""
ROUNDING = 1e-9
ESTIMATE_MOVES = 0.1
"""By how much an estimate may have grown since the coordinator was asked: the next call is asked so much more for."""
MOST_OWED = 0.5
"""Seconds of this member's share that it owes at most: what left on credit long ago must not silence it now."""


class HeldNumbers:
    """Ranges of numbers in order; the first of them is in use."""

    __slots__ = ("_later", "left", "next")

    def __init__(self) -> None:
        self.left = 0
        """Numbers left of the range in use."""
        self.next = 0.0
        """The first of them."""
        self._later: deque[tuple[float, int]] = deque()
        """Further ranges: the first number of each, and how many."""

    @property
    def count(self) -> int:
        return self.left + sum([count for _, count in self._later]) if self._later else self.left

    @property
    def end(self) -> float:
        """One more than the last number."""
        first, count = self._later[-1] if self._later else (self.next, self.left)
        return first + count

    def nth(self, ordinal: float) -> float:
        """How far the line must be for so many of them to be due."""
        number, rest = self.next + ordinal, ordinal - self.left
        for first, count in self._later if rest > 0 else ():
            number = first + rest
            if rest <= count:
                break
            rest -= count
        return number

    def add(self, first: float, count: int) -> None:
        if self.count:
            self._later.append((first, count))
        else:
            self.next, self.left = first, count

    def next_range(self) -> float:
        """Use the range after one that is used up; returns how many numbers of others lie between the two."""
        if not self._later:
            return 0.0
        before, (self.next, self.left) = self.next, self._later.popleft()
        return self.next - before

    def skip(self, most: int) -> int:
        """Let numbers go unused, as many as there are of ``most``; returns how many."""
        skipped = 0
        while skipped < most and self.count:
            if not self.left:
                self.next_range()
            step = min(most - skipped, self.left)
            self.left, self.next, skipped = self.left - step, self.next + step, skipped + step
        return skipped

    def drop(self) -> int:
        """Hold none; returns how many were held."""
        held, self.left = self.count, 0
        self._later.clear()
        return held


class HeldAmounts:
    """What is held of known limits, by dimension."""

    __slots__ = ("amounts", "dimensions")

    def __init__(self, dimensions: Iterable[str]) -> None:
        self.dimensions = tuple(dict.fromkeys(dimensions))
        """Those of the limits that the coordinator keeps."""
        self.amounts: dict[str, float] = {}

    def needed(self, cost: Amounts) -> dict[str, float]:
        """What of a cost the coordinator has to know."""
        limited = {dimension: cost[dimension] for dimension in self.dimensions if cost.get(dimension)}
        return limited | {"requests": cost.get("requests", 1)}

    def covers(self, cost: Cost, ahead: Mapping[str, float]) -> bool:
        """Whether this is enough for a call and those ahead of it."""
        costs = costs_of(cost) if self.dimensions else NOTHING
        slack = ESTIMATE_MOVES if isinstance(cost, TokenCost) else ROUNDING
        return all(
            self.amounts.get(dimension, 0.0) - ahead.get(dimension, 0.0) >= costs.get(dimension, 0.0) * (1 - slack)
            for dimension in self.dimensions
        )

    def add(self, cost: Amounts) -> None:
        for dimension in self.dimensions:
            self.amounts[dimension] = self.amounts.get(dimension, 0.0) + cost.get(dimension, 0.0)

    def take(self, costs: Mapping[str, float]) -> None:
        if self.amounts:
            for dimension, amount in costs.items():
                if dimension in self.amounts:
                    self.amounts[dimension] -= amount

    def drop(self) -> dict[str, float]:
        """Hold nothing; returns what was held."""
        held, self.amounts = self.amounts, {}
        return held


class CreditAccount:
    """Calls that left without a number, and what of that the next numbers have to pay for.

    Only what other members could have used is owed. The line shows it: it grows by the rate while numbers are asked
    for, and stops when none are. If it grew by half of what the rate allowed, every other call on credit took a slot
    that nothing else wanted.
    """

    __slots__ = ("_line", "_line_at", "on_credit", "owed", "spare")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Owe nothing, and know nothing of the line."""
        self.on_credit = 0.0
        """Calls that left on credit since the last reply. Below 0: numbers that were granted and not used."""
        self.owed = 0
        """Numbers to let go unused."""
        self.spare = 0.0
        """Which share of the rate no process asked for between the last two replies."""
        self._line, self._line_at = 0.0, UNKNOWN
        """How far the line was by the last reply, and when, in the coordinator's time."""

    def clear(self) -> None:
        """Owe nothing."""
        self.on_credit, self.owed = 0.0, 0

    def settle(self, reply: SyncReply, burst: float) -> None:
        """Owe what left on credit as far as the rate was used; ``burst`` is where a new coordinator's line begins."""
        elapsed, used = reply.now - self._line_at, 1.0
        if elapsed > 0:
            before = self._line if reply.line >= self._line else burst  # it went back: the coordinator is a new one
            used = min(max(0.0, (reply.line - before) / max(reply.rate * elapsed, LEAST_RATE)), 1.0)
            self.spare = 1.0 - used
        owed = self.owed + max(0, round(used * self.on_credit))
        self.owed = min(owed, ceil(MOST_OWED * reply.rate / max(1, reply.members)))
        self.on_credit = 0.0
        self._line, self._line_at = reply.line, reply.now + reply.hold

    def pay(self, numbers: HeldNumbers) -> None:
        """Let numbers go unused for what is owed."""
        self.owed -= numbers.skip(self.owed)
