"""What the quota is after a refusal, by what the search was doing when the call left.

    START      between the average since the pipe was empty and the last moments: a guess
    CRUISE     what was measured between two refusals, leaning to the pace that was refused
    PROBE      the same, leaning to where the curve ends: a look is refused on purpose
    CLIMB      what got in lately, and no less than before

Where the turns of a window are known, what was let in since the last one. Where single calls are let in, the pace; and
where a server asks to wait for a second at each refusal, so that most of the time until the next one is a silence.
"""

from __future__ import annotations

from typing import NamedTuple

from .call_history import CallHistory
from .estimator import Burst, QuotaEstimator
from .pace_curve import PaceCurve
from .sharing_detector import EXACT_CALLS
from .state import Phase
from .window import WindowPhase

UNUSED = 0.93
"""Below this share of what the last window held, a measurement is mostly of windows that were not used up."""

LATELY, FEW = 0.4, 12.0
"""In a search: seconds that make "lately", and calls between two refusals below which only their average counts."""

BLURRED = 0.03
"""A measurement is blurred by how full its window was where that is more than this share of its time."""

WAITED, MOSTLY = 8.0, 0.2
"""Calls that would have been sent in the time that a server asked to wait, from which on the wait counts; and the share
of the time between two refusals which, spent waiting, leaves only the pace to tell the quota ..."""

AT_REST, AFTER_SEARCH, AFTER_CLIMB = 0.94, 0.8, 0.85
"""... and how much of the pace that was refused."""

FEW_TELL = 0.4
"""The share of the pace that a handful of calls may cut it to."""

PUNISHED = 2.0
"""Seconds of a penalty in which nothing accrues, so that few calls tell nothing."""


class Refused(NamedTuple):
    """A refusal that is news."""

    phase: Phase
    pace: float
    measured: float | None
    """Calls a second since the refusal before, if there is enough to go by."""
    calls: float
    span: float
    """Seconds since then."""
    seq: int
    sent_at: float
    sought: float
    """Seconds since the search upwards began, if one is going on."""
    trip: float
    sent_pace: float
    """Calls a second that were sent when it was."""


def is_crowd(refused: float, sent: float) -> bool:
    """Whether so many of the calls since a cut are refused again that it was not deep enough."""
    return refused >= 2 and sent >= 3 and refused > (0.15 if refused >= 4 else 0.25) * sent


def shows_sharing(refused: Refused, curve: PaceCurve, estimator: QuotaEstimator, burst: Burst) -> bool:
    """Whether a measurement at rest changes our mind on whether others use the quota; only a clean one is compared."""
    is_blurred = refused.span * BLURRED < curve.window or burst.single  # by how full its window was, or by the pace
    if refused.measured is None or refused.calls < EXACT_CALLS or curve.rough or estimator.silence or is_blurred:
        return False
    return curve.sharing.compare(refused.measured, estimator.sizes is not None)


def judge(
    refused: Refused,
    curve: PaceCurve,
    estimator: QuotaEstimator,
    burst: Burst,
    history: CallHistory,
    window_phase: WindowPhase,
) -> tuple[float, bool]:
    """What the quota is, in calls a second, and whether that is a rough guess."""
    phase, pace, measured, calls, span, seq, sent_at, sought, trip, sent_pace = refused
    before, shared = curve.sought_from or 0.0, curve.sharing.on
    is_deep = not (shared or curve.window or burst.single)
    if estimator.is_exact(calls, sent_at, pace) and is_deep and phase is Phase.CRUISE and measured:
        return calls / span, False
    if phase is Phase.START:
        burst.count(history)
    if burst.single and not curve.window and not shared:
        return burst.judge(phase, pace, curve.quota, before, curve.excess(trip))
    waits = is_deep and curve.waits_shortly and sent_pace * curve.penalty >= WAITED
    if waits and phase is not Phase.CLIMB and estimator.silence > MOSTLY * span:
        return (AFTER_SEARCH if phase is Phase.START else AT_REST) * sent_pace, True
    if phase is Phase.START:
        if calls < FEW:
            return max(calls / span, before), True
        return max(measured or 0.0, burst.rate_lately(history, LATELY, pace, sent_at), before), True
    if curve.window and not shared and window_phase.fits(seq, sent_at, history, curve.quota):
        exact = window_phase.quota(seq, sent_at, history, None if phase is Phase.CLIMB else curve.quota)
        if exact:
            return max(exact, before), False
    if curve.window and (phase is Phase.CLIMB or (measured and span >= curve.window and not shared)):
        held = history.accepted(sent_at - curve.window, sent_at) / curve.window
        if phase is Phase.CLIMB or (measured or 0.0) < UNUSED * held:  # the trailing window is full now
            return max(before, held), False
    if phase is Phase.CLIMB:
        lately = max(burst.rate_lately(history, seconds, pace, sent_at) for seconds in (LATELY, sought))
        return max(before, measured or 0.0, lately, AFTER_CLIMB * sent_pace if waits else 0.0), True
    if shared and phase is Phase.CRUISE:
        return pace, False
    if measured is None:
        return (curve.quota if phase is Phase.PROBE else _after_few(refused, curve, estimator)), False
    if curve.rough and phase is Phase.CRUISE and not curve.window:
        measured = max(measured, burst.rate_of_log(history, span, pace, sent_at))
    return curve.leaned(measured, curve.quota * (1.0 + curve.swing) if phase is Phase.PROBE else pace), False


def _after_few(refused: Refused, curve: PaceCurve, estimator: QuotaEstimator) -> float:
    """Too few calls were let in to measure: a little less, or what they say that the quota is at most."""
    pace, most = refused.pace, estimator.most(refused.calls, refused.sent_at)
    quota = max(0.9 * pace, 0.99 * min(curve.quota, pace))
    return quota if curve.penalty >= PUNISHED else max(FEW_TELL * pace, min(quota, most))
