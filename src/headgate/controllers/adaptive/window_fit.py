"""Recognize a server that keeps a log of the calls, and what it holds, from its refusals.

A log of N calls in W seconds refuses a call if N were let in during the W seconds before it, and only then. So that
count is the same at every refusal if W is right, whatever the pace was; for other lengths it moves with the pace:

    refused at      1 s     2 s     5 s    10 s before it
        3.4 s       54      103     122     122
       10.1 s       59      102     121     242
       34.0 s       43       74     122     159               122 calls in 5 s

The probes of a block tell more: as many were sent before one that is refused, and fewer let in before one that is let
in. Lengths that APIs use are tried. Where a quota that accrues explains the refusals as well, or all lengths do
because the pace has not moved, nothing is found.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...core.policy import Ticket
from .call_history import CallHistory
from .pace_curve import PaceCurve
from .state import Phase
from .window import USUAL_LENGTHS

KEPT, FEWEST, PROBES = 5, 3, 2
"""Refusals to judge by, at most and at least, and probes of each kind."""

LEAST_COUNT = 3.5
"""Calls below which a count tells nothing."""

SAME, CALLS, MOST = 0.03, 2.0, 0.13
"""Counts are the same within this share, or so many calls, but no more than a greater share ..."""

PLENTY, SURELY = 50.0, 0.02
"""... and surely so from so many calls on within this share; else the next refusal must confirm it."""

OTHER, TIMES = 0.15, 2.0
"""Another length is ruled out if its counts differ by this share, and so many times more."""

RATE, ACCRUED = 0.05, 0.04
"""Calls a second are the same within the first share; a quota that accrues is measured to within the second."""

FELL = 0.5
"""The least share of what it held that a log can fall to at once: what refuses far below it may be another limit."""

NEAR, NEAR_CALLS = 0.05, 1.5
"""Within this share, or so many calls, a refusal fits a log that is known."""

STRICTLY = 1.0
"""Calls by which a refusal must fit better if refused calls count too, or if they do not."""

STRIKES, MISFIT, NEAR_MISS, FULL = 6.0, 2.0, 1.0, 0.25
"""A log that is known is given up at so many strikes: for a refusal that does not fit, for one that fits and comes too
soon, and for one that comes too soon but finds exactly what the log holds, as one that is full does."""


LESS, LESS_CALLS, LESS_TIMES = 0.03, 0.2, 4
"""A log that is refused with less in it than it held, by this share and so many calls, so often in a row, is none: what
a quota lets in that accrues falls with the pace."""

SPARED, REGAINED, MOST_SPARED = 0.01, 0.003, 0.1
"""What a refusal at rest adds to the share of a log that is left unused, what a look takes off it, and the most."""

SOON = 0.5
"""The share of a log's length within which another refusal comes too soon: it has let next to nothing go."""


IN_DOUBT, MOST_IN_DOUBT = 0.01, 2.0
"""The share of a log, and the calls at most, by which it may be fuller than the history of calls tells."""


class Log(NamedTuple):
    length: float
    """Seconds."""
    calls: float
    """... that it holds."""
    strict: bool
    """Whether refused calls count too."""


@dataclass(slots=True, eq=False, frozen=True)
class Count:
    """What was sent before a call, for each of the lengths."""

    at: float
    """When it left."""
    let_in: array[float]
    sent: array[float]
    age: float
    """Seconds of history."""
    accrued: float = 0.0
    """Calls a second let in since the last refusal; 0 where there was none."""

    @classmethod
    def before(cls, history: CallHistory, seq: int, sent_at: float, refused: bool, accrued: float = 0.0) -> Count:
        sends, total = history.sends, history.accepted_calls(0, seq)
        age = sent_at - sends.instants[0]
        since = [sends.seq_at(sent_at - length) for length in USUAL_LENGTHS if length < age]
        beyond = len(USUAL_LENGTHS) - len(since)
        let_in = [min(total, refused + history.accepted_calls(low, seq)) for low in since] + [total] * beyond
        sent = [min(seq - 1.0, seq - low) for low in since] + [seq - 1.0] * beyond
        return cls(sent_at, array("f", let_in), array("f", sent), age, accrued)

    def within(self, length: float, strict: bool) -> float:
        return (self.sent if strict else self.let_in)[USUAL_LENGTHS.index(length)]


@dataclass(slots=True, eq=False)
class WindowFit:
    """What speaks for a log: the last refusals, and the last probes refused and let in."""

    refusals: tuple[Count, ...] = ()
    probes_refused: tuple[Count, ...] = ()
    probes_let_in: tuple[Count, ...] = ()
    strikes: float = 0.0
    less: int = 0
    """Refusals in a row that found less than the log held."""
    climbed_from: float = 0.0
    """Calls that the log held before a search that found more, until a refusal agrees with what it found; else 0."""
    turns: bool = False
    """Whether it is no log, but a window that turns: around a turn it lets in up to twice what it holds."""

    def forget(self) -> None:
        self.refusals = self.probes_refused = self.probes_let_in = ()
        self.strikes, self.less, self.climbed_from, self.turns = 0.0, 0, 0.0, False

    def refused(self, ticket: Ticket, history: CallHistory, accrued: float, curve: PaceCurve, phase: Phase) -> bool:
        """Learn from a refusal; ``accrued`` calls a second were let in since the last one. False: no log refuses."""
        if self.turns:
            return False
        self.add_refusal(Count.before(history, ticket.seq, ticket.sent_at, True, accrued))
        known = known_log(curve)
        if known and phase is Phase.CLIMB:
            self.climbed_from = self.climbed_from or known.calls
        elif known and self._fell_back(known, self.refusals[-1].within(known.length, known.strict), curve):
            return True
        log = self.confirm(known, phase is Phase.CLIMB, curve.age < SOON * curve.log) if known else self.find()
        if log is None:
            curve.log = 0.0
            return False
        if known and phase is Phase.PROBE:
            curve.count_cost()
            curve.log_spare = max(0.0, curve.log_spare - REGAINED)
            self.climbed_from = 0.0
        elif known and phase is Phase.CRUISE and curve.age > curve.log:  # else it may still be full of a search
            curve.log_spare = min(MOST_SPARED, curve.log_spare + SPARED)
        curve.learn_log(*log)
        return True

    def resumed(self, let_in: Count, probes_refused: int, curve: PaceCurve) -> bool:
        """Learn from the end of a block, in which so many probes were refused. False: no log is known."""
        self.add_probe(let_in, False)
        known = known_log(curve)
        fallen = self.fallen(known) if known and probes_refused else None
        if fallen is not None and known and not self._fell_back(known, fallen.calls, curve):
            curve.learn_log(*fallen)
        return known is not None

    def _fell_back(self, log: Log, calls: float, curve: PaceCurve) -> bool:
        """Whether no more is held than before a search that found more in it: then it is a window, and it turned."""
        grown = log.calls - self.climbed_from
        if not self.climbed_from or grown < max(NEAR * log.calls, NEAR_CALLS) or calls > log.calls - 0.5 * grown:
            return False
        self.turns, curve.log, curve.window = True, 0.0, log.length
        curve.learn(self.climbed_from / log.length, False)
        return True

    def add_refusal(self, count: Count) -> None:
        self.refusals = (*self.refusals, count)[-KEPT:]

    def add_probe(self, count: Count, refused: bool) -> None:
        if refused:
            self.probes_refused = (*self.probes_refused, count)[-PROBES:]
        else:
            self.probes_let_in = (*self.probes_let_in, count)[-PROBES:]

    def find(self) -> Log | None:
        """The log that explains the refusals, if one does and nothing else."""
        log = self._explain(self.refusals)
        if log is None:
            return None
        counts = [refusal.within(log.length, log.strict) for refusal in self.refusals]
        if log.calls < PLENTY or _spread(counts) > SURELY:
            before = self._explain(self.refusals[:-1])
            if before is None or before.length != log.length:
                return None
        self.strikes, self.less = 0.0, 0
        return log

    def confirm(self, log: Log, climbed: bool, soon: bool) -> Log | None:
        """The log that is known, after another refusal; None: it was none.

        A search that ``climbed`` shows what it holds now. A refusal ``soon`` after the last one may be a log's that is
        full, and then it holds what it held.
        """
        count, other = (self.refusals[-1].within(log.length, strict) for strict in (log.strict, not log.strict))
        off = abs(count - log.calls)
        if abs(other - log.calls) < off - STRICTLY:
            log, count, off = log._replace(strict=not log.strict), other, abs(other - log.calls)
        near = off <= max(NEAR * log.calls, NEAR_CALLS)
        if climbed or (near and not soon):
            self.strikes = 0.0
        elif near:
            self.strikes += FULL if off <= max(SURELY * log.calls, 1.0) else NEAR_MISS
        else:
            self.strikes += MISFIT
        is_less = not climbed and count < log.calls - max(LESS * log.calls, LESS_CALLS)
        self.less = self.less + 1 if is_less else 0
        if self.strikes >= STRIKES or self.less >= LESS_TIMES:
            self.refusals, self.probes_refused, self.probes_let_in = self.refusals[-1:], (), ()
            return None
        if climbed:
            return log._replace(calls=max(count, LEAST_COUNT))
        if near:
            return log._replace(calls=log.calls if soon else (log.calls + count) / 2.0)
        return log._replace(calls=count) if count >= _lowest(log) else log

    def fallen(self, log: Log) -> Log | None:
        """What the log has fallen to, if the last probe was refused with less before it than it used to hold."""
        if not self.probes_refused:
            return None
        refused, let_in = self.probes_refused[-1], self.probes_let_in[-1]
        if refused.within(log.length, True) > log.calls - max(NEAR * log.calls, NEAR_CALLS):
            return None
        self.strikes = 0.0
        between = sum(probe.within(log.length, log.strict) for probe in (refused, let_in)) / 2.0
        return log._replace(calls=max(between, _lowest(log)))

    def _explain(self, refusals: tuple[Count, ...]) -> Log | None:
        if len(refusals) < FEWEST:
            return None
        tried = [length for length in USUAL_LENGTHS if length <= refusals[-1].age]
        logs = [log for length in tried for log in self._logs(refusals, length)]
        if not logs:
            return None
        spread, log = min(logs)
        if log.calls < LEAST_COUNT or spread > max(SAME, min(CALLS / log.calls, MOST)):
            return None
        if refusals[-1].at - refusals[0].at < log.length:  # they are all of one moment, at which its count is the same
            return None
        if _accrues(refusals, log, spread):
            return None
        ruled_out = False
        for length in tried:
            if length == log.length:
                continue
            counts = [refusal.within(length, False) for refusal in refusals if refusal.age >= length]
            middle = _middle(counts)
            if self._is_contradicted(length, middle) or _spread(counts) >= max(OTHER, TIMES * spread):
                ruled_out = True
            elif len(counts) == len(refusals) and not _has_rate(log, middle / length):
                return None
        return log if ruled_out else None

    def _logs(self, refusals: tuple[Count, ...], length: float) -> list[tuple[float, Log]]:
        """The logs of that length that the refusals may come from, each after the spread of its counts."""
        logs = []
        for strict in (False, True):
            counts = [refusal.within(length, strict) for refusal in refusals]
            middle = _middle(counts)
            if not self._is_contradicted(length, middle):
                logs.append((_spread(counts), Log(length, middle, strict)))
        return logs

    def _is_contradicted(self, length: float, count: float) -> bool:
        """Whether a probe was refused though less was sent before it, or let in after more."""
        about = max(SAME * count, CALLS)
        return any(probe.within(length, True) < count - about for probe in self.probes_refused) or any(
            probe.within(length, False) > count + about for probe in self.probes_let_in
        )


def known_log(curve: PaceCurve) -> Log | None:
    return Log(curve.log, curve.log_calls, curve.log_strict) if curve.log else None


def full_until(curve: PaceCurve, history: CallHistory, seq: int) -> float:
    """When the log has room for the call after ``seq``: not evenly, as long as a search is in it."""
    in_doubt = min(IN_DOUBT * curve.log_calls, MOST_IN_DOUBT)
    oldest = seq + 1.0 - (1.0 - curve.log_spare) * curve.log_calls + in_doubt
    if not curve.log_strict:
        oldest -= history.refusals.between(oldest, seq)
    return history.sends.instant_of(oldest) + curve.log


def _lowest(log: Log) -> float:
    return max(FELL * log.calls, LEAST_COUNT)


def _accrues(refusals: tuple[Count, ...], log: Log, spread: float) -> bool:
    """Whether a quota that accrues explains the refusals as well."""
    rates = [refusal.accrued for refusal in refusals if refusal.accrued]
    if len(rates) < 2:
        return False
    return _spread(rates) < (max(ACCRUED, spread) if _has_rate(log, sum(rates) / len(rates)) else OTHER)


def _has_rate(log: Log, rate: float) -> bool:
    return abs(rate * log.length / log.calls - 1.0) < RATE


def _middle(numbers: Sequence[float]) -> float:
    return sorted(numbers)[len(numbers) // 2]


def _spread(numbers: Sequence[float]) -> float:
    return (max(numbers) - min(numbers)) / max(min(numbers), 1e-6)
