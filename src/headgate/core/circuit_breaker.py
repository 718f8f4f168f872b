"""Decide whether a target is healthy enough to call.

A breaker is a state machine and nothing else: callers pass ``now`` and read a decision.
It never sleeps, reads a clock or raises for an expected outcome.

    CLOSED --trip--> OPEN --cool off--> HALF_OPEN --enough ok--> CLOSED
                       ^------- any failure ------+

It trips on failures in a row, or on the share of failures among enough calls. Half-open
lets ``half_open_probes`` calls through at a time; a probe that is refused for reasons of
pace (429), cancelled, or never ends gives its slot back.

Each change of state starts a new *era*. Calls are numbered in the order they are let
through, so the number alone tells which era a call belongs to: a slow answer to an old
question can neither close nor reopen today's circuit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .decision import LONGEST_WAIT, NEVER, UNKNOWN, CircuitState, Outcome, Refuse, RefuseReason
from .policy import Demand
from .rolling_stats import SlidingCounts

if TYPE_CHECKING:
    from .pacer import Pacer
    from .policy import Ticket
    from .signal import Signal

# Looked up once: in Python 3.11 a member of an enum takes longer to find than to compare.
CLOSED, OPEN, HALF_OPEN, OK = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN, Outcome.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When to trip, how long to stay open, what proves recovery."""

    failures_to_trip: int = 5
    error_rate_to_trip: float | None = None
    """Also trip when this share of the calls in ``window`` failed; None looks at failures in a row only."""
    calls_to_judge: int = 10
    """... once there were this many calls to judge by."""
    window: float = 30.0
    window_bucket: float = 2.0
    cool_off: float = 30.0
    half_open_probes: int = 1
    successes_to_close: int = 1

    def __post_init__(self) -> None:
        for field in ("failures_to_trip", "calls_to_judge", "half_open_probes", "successes_to_close"):
            if not getattr(self, field) >= 1:
                raise ValueError(f"{field}={getattr(self, field)!r} must be 1 or more")
        if not 0 < self.cool_off <= LONGEST_WAIT:
            raise ValueError(f"cool_off={self.cool_off!r} must be a number of seconds above 0, at most 31 days")
        if self.error_rate_to_trip is not None and not 0 < self.error_rate_to_trip <= 1:
            raise ValueError(f"error_rate_to_trip={self.error_rate_to_trip!r} must be above 0 and at most 1")
        SlidingCounts(self.window, self.window_bucket)


class Breaker:
    __slots__ = (
        "counts",
        "era_after",
        "failures",
        "opened_at",
        "probes",
        "probes_ok",
        "settings",
        "sick_since",
        "state",
        "tripped_by",
    )

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.state = CLOSED
        self.era_after = 0
        """The number of the last call of the era before this one."""
        self.opened_at = 0.0
        self.sick_since = 0.0
        """When the circuit first opened since it was last closed."""
        self.failures = 0
        self.tripped_by = 0, 0.0
        """Failures in a row, and the error rate, when the circuit last opened after having been closed."""
        self.probes: dict[int, float] = {}
        """Probes in flight: their numbers, and when they were sent. At most ``half_open_probes``."""
        self.probes_ok = 0
        self.counts = (
            None if settings.error_rate_to_trip is None else SlidingCounts(settings.window, settings.window_bucket)
        )

    def check(self, now: float) -> Refuse | None:
        """Why a call may not pass now, or None. Asking takes nothing and moves nothing."""
        if self.state is CLOSED:
            return None
        if self.state is OPEN:
            ready_at = self.opened_at + self.settings.cool_off
            if now < ready_at:
                return Refuse(RefuseReason.CIRCUIT_OPEN, ready_at)
            return None
        if len(self.probes) < self.settings.half_open_probes or self.lost(now):
            return None
        lost_at = min(self.probes.values()) + self.settings.cool_off
        return Refuse(RefuseReason.PROBE_IN_FLIGHT, check_again_at=lost_at)

    def admit(self, number: int, now: float) -> bool:
        """Let a call pass that was not refused. Takes a probe slot unless closed. True if that changed the state."""
        if self.state is CLOSED:
            return False
        was_open = self.state is OPEN
        if was_open:
            self._enter(HALF_OPEN, number - 1)
        for lost in self.lost(now):
            del self.probes[lost]
        self.probes[number] = now
        return was_open

    def state_at(self, now: float) -> CircuitState:
        """The state that an observer sees; observing takes no probe slot."""
        cooled = self.state is OPEN and now >= self.opened_at + self.settings.cool_off
        return HALF_OPEN if cooled else self.state

    def recent_failures(self, now: float) -> tuple[int, float]:
        """Failures in a row, and the error rate: those of now, or those that opened a circuit that is not closed."""
        if self.state is not CLOSED:
            return self.tripped_by
        return self.failures, 0.0 if self.counts is None else self.counts.error_rate(now)

    def record(self, number: int, outcome: Outcome, now: float, newest: int) -> bool:
        """Take, once per call, how it ended; ``newest`` has left last. True if that changed the state."""
        if self.state is CLOSED:
            if number <= self.era_after:
                return False
            failed = outcome.counts_against_target
            if outcome is not OK and not failed:
                return False
            if self.counts is not None:
                self.counts.add(failed, now)
            if not failed:
                self.failures = 0
                return False
            self.failures += 1
            if not self._sick(now):
                return False
            self.sick_since = now
            self.tripped_by = self.failures, 0.0 if self.counts is None else self.counts.error_rate(now)
        else:
            if self.probes.pop(number, None) is None:
                return False
            if outcome is OK:
                self.probes_ok += 1
                if self.probes_ok < self.settings.successes_to_close:
                    return False
                self._enter(CLOSED, newest)
                return True
            if not outcome.counts_against_target:
                return False
        self.opened_at = now
        self._enter(OPEN, newest)
        return True

    def went_well(self, calls: int, now: float) -> None:
        """So many calls of which nothing else is known have succeeded."""
        if self.state is CLOSED:
            self.failures = 0
            if self.counts is not None:
                self.counts.add(False, now, calls)

    def give_back(self, number: int) -> None:
        """The call was not made, or how it ended will never be known."""
        self.probes.pop(number, None)

    def to_state(self) -> tuple[Any, ...]:
        """Everything but the probes in flight: a breaker with one is not put away."""
        counts = () if self.counts is None else self.counts.to_state()
        return (
            (self.state.value, self.era_after, self.opened_at, self.sick_since, self.failures, self.probes_ok),
            self.tripped_by,
            counts,
        )

    def load_state(self, state: tuple[Any, ...]) -> None:
        own, self.tripped_by, counts = state
        value, self.era_after, self.opened_at, self.sick_since, self.failures, self.probes_ok = own
        self.state = CircuitState(value)
        if self.counts is not None:
            self.counts = SlidingCounts.from_state(counts, self.settings.window, self.settings.window_bucket)

    def _sick(self, now: float) -> bool:
        if self.failures >= self.settings.failures_to_trip:
            return True
        if self.counts is None or self.settings.error_rate_to_trip is None:
            return False
        return (
            self.counts.total(now) >= self.settings.calls_to_judge
            and self.counts.error_rate(now) >= self.settings.error_rate_to_trip
        )

    def lost(self, now: float) -> list[int]:
        """Probes that have been out for as long as the circuit stays open: no longer waited for."""
        return [number for number, sent_at in self.probes.items() if now >= sent_at + self.settings.cool_off]

    def _enter(self, state: CircuitState, newest: int) -> None:
        self.state = state
        self.era_after = newest
        self.failures = self.probes_ok = 0
        self.probes.clear()
        if self.counts is not None:
            self.counts.clear()


class CircuitPolicy:
    """Refuse calls while the circuit is open, and all but a few probes while it is half open.

    An answer that belongs to no known call may be a probe's (``record_unmatched``). It is kept, and counts as the
    probe's if the probe ends, or is lost, without one.
    """

    __slots__ = ("breaker", "pacer", "probe_asked_at", "unmatched")

    learns_from_success = True

    def __init__(self, breaker: Breaker, pacer: Pacer) -> None:
        self.breaker = breaker
        self.pacer = pacer
        """Resumes gently when the circuit closes."""
        self.probe_asked_at = NEVER
        """When the last probe was asked for."""
        self.unmatched: tuple[Signal, float, float] | None = None
        """An answer, its latency and when it came, while a probe was out that it may belong to."""

    def check(self, now: float, demand: Demand) -> Refuse | None:
        breaker = self.breaker
        return None if breaker.state is CLOSED else breaker.check(now)

    def admit(self, ticket: Ticket, now: float) -> None:
        breaker = self.breaker
        if breaker.state is CLOSED:
            return
        if self.unmatched is not None and (lost := breaker.lost(now)):
            self._claim(lost[0], ticket)
        self.probe_asked_at, self.unmatched = now - ticket.waited, None
        breaker.admit(ticket.seq, now)

    def record(self, ticket: Ticket, signal: Signal, latency: float, now: float, draw: float) -> None:
        if self.breaker.record(ticket.seq, signal.outcome, now, ticket.gate.seq):
            self._resume(now)

    def release(self, ticket: Ticket, now: float) -> None:
        if self.unmatched is None or ticket.seq not in self.breaker.probes:
            self.breaker.give_back(ticket.seq)
        else:
            self._claim(ticket.seq, ticket)

    def cancel(self, ticket: Ticket, now: float) -> None:
        if ticket.seq in self.breaker.probes:
            self.unmatched = None
        self.breaker.give_back(ticket.seq)

    def probe(self) -> int | None:
        """A probe that is out, if there is one."""
        return next(iter(self.breaker.probes), None)

    def idle_from(self, now: float) -> float:
        return NEVER if self.breaker.state is CLOSED else UNKNOWN

    def _claim(self, probe: int, ticket: Ticket) -> None:
        """The probe ended without an answer, or is lost, and one came of no known call: take it for the probe's."""
        assert self.unmatched is not None
        (signal, _, at), self.unmatched = self.unmatched, None
        if self.breaker.record(probe, signal.outcome, at, ticket.gate.seq):
            self._resume(at)

    def _resume(self, now: float) -> None:
        """After an outage calls come back by a ramp."""
        if self.breaker.state is CLOSED:
            self.pacer.resume_after_outage(now - self.breaker.sick_since, now)

    def to_state(self) -> tuple[Any, ...]:
        return self.breaker.to_state()

    def load_state(self, state: tuple[Any, ...]) -> None:
        self.breaker.load_state(state)
