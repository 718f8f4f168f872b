"""What a simulated run came to: the numbers a strategy is judged by.

    sent ──> arrives at the server ──> answered
    waits    admitted, refused,        ok, refused, errors, item times
             per half second

``Run`` is filled while the run goes on and read when it is over. Counts by half second
are taken at the server, everything else at the client.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BIN = 0.5
"""Seconds; the width of what is counted over time."""
MOST_TIMES = 2_000_000
"""How many item times and how many waits are kept; later ones are left out."""
MOST_DECISIONS = 20_000
"""How many decisions of a run are kept."""
ENOUGH_ADMITTED = 0.95
FEW_REFUSED = 0.05
"""A run has converged when so large a share of the quota gets through and no more than so many calls are refused."""
FIRST_MINUTE = 60.0
"""Seconds from the first refusal that are also judged apart: what finding the quota costs."""
SETTLING = 1 / 3
"""Fairness is judged once every process has started and this share of what is left has passed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at one instant, over all processes and keys."""

    at: float
    learned: float | None
    """Calls a second the strategies believe in; None if they have no such number."""
    in_flight: int
    waiting: int
    reason: str
    """What the controllers go by, in words; empty for strategies that cannot tell."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Something a controller learned or decided, in a sentence."""

    at: float
    process: int
    key: int
    kind: str
    sentence: str


@dataclass(slots=True, kw_only=True)
class Run:
    scenario: str
    strategy: str
    seed: int
    horizon: float
    starts: tuple[float, ...]
    """When each process started."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """Instants from which convergence is measured, by name."""
    changes_at: tuple[float, ...] = ()
    """When the server changed; what began before one is not judged by what came after it."""
    window: float = 10.0
    """Seconds for which a run must do well to have converged."""

    ok: int = 0
    sent: int = 0
    refused: int = 0
    """Calls refused for the quota: 429, or 503 from a queue that is full."""
    errors: int = 0
    """Calls that failed for any other reason."""
    per_process: list[int] = field(init=False)
    """Calls done by each process."""
    per_process_late: list[int] = field(init=False)
    """... once all had started and settled."""
    item_times: array[float] = field(default_factory=lambda: array("d"))
    """Seconds from an item's first send to its success."""
    waits: array[float] = field(default_factory=lambda: array("d"))
    """Seconds from wanting to send, or from an item's arrival, until it was sent."""
    admitted_per_bin: list[int] = field(init=False)
    refused_per_bin: list[int] = field(init=False)
    allowed_per_bin: list[float] = field(default_factory=list)
    """What the quota allowed, by its nominal rate."""
    samples: list[Sample] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    late_from: float = field(init=False)

    def __post_init__(self) -> None:
        bins = math.ceil(self.horizon / BIN) + 1
        self.admitted_per_bin, self.refused_per_bin = [0] * bins, [0] * bins
        self.per_process, self.per_process_late = [0] * len(self.starts), [0] * len(self.starts)
        last_start = max(self.starts)
        self.late_from = last_start + SETTLING * (self.horizon - last_start)

    # ------------------------------------------------------------------ writing

    def note_sent(self, wait: float) -> None:
        self.sent += 1
        if len(self.waits) < MOST_TIMES:
            self.waits.append(wait)

    def note_arrived(self, at: float, status: int, refused: bool) -> None:
        """A call reached the server, which has decided on it."""
        if at > self.horizon:
            return
        if refused:
            self.refused_per_bin[int(at / BIN)] += 1
        elif status == 200:
            self.admitted_per_bin[int(at / BIN)] += 1

    def note_answered(self, at: float, process: int, status: int, refused: bool, first_sent_at: float) -> None:
        """An answer reached the client."""
        if status == 200:
            self.ok += 1
            self.per_process[process] += 1
            if at >= self.late_from:
                self.per_process_late[process] += 1
            if len(self.item_times) < MOST_TIMES:
                self.item_times.append(at - first_sent_at)
        elif refused:
            self.refused += 1
        else:
            self.errors += 1

    def note_decision(self, decision: Decision) -> None:
        if len(self.decisions) < MOST_DECISIONS:
            self.decisions.append(decision)

    # ------------------------------------------------------------------ reading

    @property
    def refused_share(self) -> float:
        """Share of all calls sent that the quota refused."""
        return self.refused / self.sent if self.sent else 0.0

    @property
    def first_minute(self) -> tuple[int, int]:
        """Calls that reached the server in the minute that begins with the first refusal, and how many it refused."""
        first = next((place for place, count in enumerate(self.refused_per_bin) if count), None)
        if first is None:
            return 0, 0
        bins = slice(first, first + int(FIRST_MINUTE / BIN))
        refused = sum(self.refused_per_bin[bins])
        return sum(self.admitted_per_bin[bins]) + refused, refused

    @property
    def jain(self) -> float:
        """How evenly the processes were served, by Jain's index: 1 if all are equal, 1/n if one got everything."""
        squares = sum(count * count for count in self.per_process_late)
        return sum(self.per_process_late) ** 2 / (len(self.per_process_late) * squares) if squares else 0.0

    def p(self, share: float) -> float:
        """The time from first send to success that this share of the items stayed within; infinite if none was done."""
        return _quantile(self.item_times, share)

    def wait_p(self, share: float) -> float:
        """The wait before sending that this share of the calls stayed within; infinite if none was sent."""
        return _quantile(self.waits, share)

    def goodput_against(self, oracle: Run) -> float:
        """Calls done as a share of what a client that knows the server got done."""
        return self.ok / oracle.ok if oracle.ok else math.nan

    def converged_after(self, start: float) -> float:
        """Seconds after ``start`` until the run did well for a whole ``window``; infinity if it never did."""
        width = int(self.window / BIN)
        end = min([self.horizon, *(at for at in self.changes_at if at > start + 1e-9)])
        first, last = math.ceil(start / BIN), math.floor((end + 1e-9) / BIN) - width
        for begin in range(first, last + 1):
            bins = slice(begin, begin + width)
            admitted, refused = sum(self.admitted_per_bin[bins]), sum(self.refused_per_bin[bins])
            enough = admitted >= ENOUGH_ADMITTED * sum(self.allowed_per_bin[bins])
            if enough and refused <= FEW_REFUSED * (admitted + refused):
                return begin * BIN - start
        return math.inf

    def convergence(self) -> dict[str, float]:
        """Seconds to converge after each mark."""
        return {name: self.converged_after(at) for name, at in self.marks.items()}


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.inf
