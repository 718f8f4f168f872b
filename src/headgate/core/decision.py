"""What a gate answers: ``Wait``, ``Refuse`` and their reasons; also the outcomes of calls and the states of circuits.

A question to the core gets one of three answers: nothing (the call may start), a ``Wait`` (not yet; ask again at
``until``) or a ``Refuse`` (do not wait for this). Both carry their reason as data. ``explain`` adds the numbers that a
person needs to understand it, and ``headgate.reason_text`` makes the sentence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from .gate import Gate
    from .quota import Quota


LONGEST_WAIT = 31 * 86400.0
"""The one bound on any wait, told from outside or read from a store: 31 days."""

NEVER = float("-inf")
"""An instant before every other: what has not happened yet."""

UNKNOWN = float("inf")
"""More than any number: no ceiling, no end."""

INSTANT = 1e-6
"""Waits below a microsecond are not worth a timer, and may be rounding."""


class Outcome(Enum):
    """How a call ended, and what that means. One row for each."""

    #                  value            retried  attempt  breaker
    OK = ("ok", False, True, False)
    RATE_LIMITED = ("rate_limited", True, False, False)
    QUOTA_EXHAUSTED = ("quota_exhausted", True, False, False)
    CAPACITY = ("capacity", True, False, False)
    SPEND = ("spend", True, False, False)
    OVERLOADED = ("overloaded", True, True, True)
    TRANSIENT = ("transient", True, True, True)
    AUTH = ("auth", True, False, False)
    KEY_DEAD = ("key_dead", True, False, False)
    TOO_LARGE = ("too_large", False, True, False)
    INVALID = ("invalid", False, True, False)
    ABANDONED = ("abandoned", False, False, False)

    retried: bool
    """May be sent again (for quota, spend, auth and dead keys: only with another credential)."""
    uses_attempt: bool
    """Counts towards ``max_attempts``."""
    counts_against_target: bool
    """Says that the target fails: feeds the breaker."""

    def __new__(cls, label: str, retried: bool, uses_attempt: bool, counts: bool) -> Self:
        member = object.__new__(cls)
        member._value_ = label
        member.retried = retried
        member.uses_attempt = uses_attempt
        member.counts_against_target = counts
        return member

    @property
    def needs_other_credential(self) -> bool:
        return self in (Outcome.QUOTA_EXHAUSTED, Outcome.SPEND, Outcome.AUTH, Outcome.KEY_DEAD)


class CircuitState(Enum):
    """What a circuit does with calls: let them through, refuse them, or try a few."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class WaitReason(StrEnum):
    """What a call waits for."""

    NONE = ""
    FLOOR = "floor"
    """The server, or the cooldown after its refusal, asked for a pause."""
    CAPACITY = "capacity"
    """The service tier is full."""
    HOLD = "hold"
    """The controller lets nothing start after a refusal."""
    DEPTH = "depth"
    """Too many calls in flight."""
    QUOTA = "quota"
    """A known limit; ``Wait.subject`` says which."""
    PACE = "pace"
    SHARE = "share"
    """A share of a quota that several processes have in common."""
    CEILING = "ceiling"
    """An operator's limit."""
    PAUSED = "paused"
    """An operator has paused the limiter."""
    CIRCUIT_OPEN = "circuit_open"
    PROBE_IN_FLIGHT = "probe_in_flight"


class RefuseReason(StrEnum):
    """Why a call is refused instead of made to wait."""

    CIRCUIT_OPEN = "circuit_open"
    PROBE_IN_FLIGHT = "probe_in_flight"
    QUEUE_FULL = "line_full"
    STORE_LOST = "store_down"


_CIRCUIT = (WaitReason.CIRCUIT_OPEN, WaitReason.PROBE_IN_FLIGHT)
_UNFORESEEABLE = (WaitReason.DEPTH, WaitReason.PAUSED, WaitReason.PROBE_IN_FLIGHT)
"""What ends with an answer or an operator's action."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: ask again at ``until``."""

    reason: WaitReason
    until: float
    subject: Quota | str | None = None
    """Of ``QUOTA``: the known limit that decides, or its dimension."""
    known_until: float = UNKNOWN
    """Before this instant the turn cannot come, by what is known alone, where that is sooner than ``until``."""

    @property
    def not_before(self) -> float:
        """The earliest instant at which the turn can come, by what is known.

        A wait for depth or a probe ends with an answer, a pause with an operator's action, and a pace that was only
        guessed may grow at any moment: by these alone no caller is turned away.
        """
        return NEVER if self.reason in _UNFORESEEABLE else min(self.until, self.known_until)

    @property
    def is_forecast(self) -> bool:
        """Whether ``until`` says when the turn comes."""
        return self.not_before == self.until

    @property
    def is_circuit(self) -> bool:
        """Whether it is a circuit that does not let the call through."""
        return self.reason in _CIRCUIT

    def known_from(self, instant: float) -> Wait:
        """The same, where another objection is known to last until ``instant``."""
        return self if self.known_until >= instant else replace(self, known_until=instant)


@dataclass(frozen=True, slots=True)
class Refuse:
    """No: waiting is pointless or not worth it."""

    reason: RefuseReason
    retry_at: float | None = None
    """When it may be worth asking again, if that is known."""
    check_again_at: float | None = None
    """When to ask again at the latest, for a caller that waits although ``retry_at`` is not known."""
    subject: str = ""
    """The store that is lost, or how many callers fill the queue."""

    def as_wait(self) -> Wait | None:
        """The same for a caller that waits until the circuit lets it through; None if it is no circuit that refuses."""
        until = self.check_again_at if self.retry_at is None else self.retry_at
        if until is None or self.reason not in (RefuseReason.CIRCUIT_OPEN, RefuseReason.PROBE_IN_FLIGHT):
            return None
        return Wait(WaitReason(self.reason.value), until)


class PaceReason(StrEnum):
    """What a controller goes by."""

    OWN_STRATEGY = "own_strategy"
    OWN_CAP = "own_cap"
    FIXED = "fixed"
    AIMD = "aimd"
    GRADIENT = "gradient"
    OBSERVED_RATE = "observed_rate"
    """Failures came with a crowd: about as many calls as were made before them."""
    SEARCHING = "searching"
    BLOCKED = "blocked"
    WINDOW = "window"
    """Blocked until a window turns."""
    HEADERS = "headers"
    EMPTY = "empty"
    """The headers say that nothing is left of a budget that is not paced by: of tokens, or of hours."""
    CONCURRENCY = "concurrency"
    """More calls at once were refused; the number is how many may be in flight."""
    SLOW_ANSWERS = "slow_answers"
    """More calls at once only took longer; the number as above."""
    SHARED = "shared"
    """Others take from the quota too; the number is what was measured, in calls a second."""
    PROBING = "probing"
    """Above the quota that was measured, which is the number."""
    HOLDING = "holding"
    """At the quota that was measured, which is the number."""


class ControllerNote(NamedTuple):
    """What a controller says of itself."""

    reason: PaceReason
    number: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a call does not start, with the numbers needed to say so; ``reason_text`` words it."""

    reason: WaitReason | RefuseReason
    seconds_left: float | None = None
    """How long it takes, where that is known and worth telling."""
    subject: str = ""
    """Of a known limit: which; of a lost store: where; of a full queue: how many wait."""
    rate: float = 0.0
    """Of a pace or a share: calls a second."""
    is_ramping: bool = False
    """Whether the pace is on the way back from a pause."""
    in_flight: int = 0
    """Of depth: calls in flight."""
    members: int = 0
    """Processes that share the quota; 0 where it is not shared."""
    ceiling: float | None = None
    """The operator's limit, where that is what paces."""
    controller_note: ControllerNote | str = ""
    """What the controller says of itself; words where it is a strategy of the user's own."""
    lost_store: str = ""
    """The store that cannot be reached, while the gate decides without it."""

    dimension: str = ""
    """Of a known limit: what it counts."""

    @property
    def code(self) -> str:
        """The reason in one word; of a known limit, its dimension."""
        return self.dimension or self.reason.value


MOSTLY = 0.5
"""The share of a wait from which on a pause is what it is for."""


def blocked_by(gate: Gate, now: float) -> Explanation | None:
    """Why a call would not start now; None if it would."""
    found = gate.check(now)
    if found is None or (found.reason is WaitReason.SHARE and not gate.has_waiters):  # one exchange away
        return None
    return explain(gate, found, now)


def explain(gate: Gate, found: Wait | Refuse, now: float) -> Explanation:
    """What the gate objects. To be asked right after the objection, while it still holds."""
    if isinstance(found, Refuse):
        left = None if found.retry_at is None else found.retry_at - now
        return Explanation(reason=found.reason, seconds_left=left, subject=found.subject)
    why = _explain_wait(gate, found, _decider(gate, found, now), now)
    return replace(why, lost_store=gate.pacer.lost_store) if gate.pacer.lost_store else why


def _decider(gate: Gate, wait: Wait, now: float) -> WaitReason:
    """What a call waits for: behind a pause the pace comes too, but it is the pause that takes long."""
    if wait.reason not in (WaitReason.PACE, WaitReason.SHARE):
        return wait.reason
    if gate.hold.opens_at - now <= MOSTLY * (wait.until - now):
        return wait.reason
    return gate.hold.reason


def _explain_wait(gate: Gate, wait: Wait, reason: WaitReason, now: float) -> Explanation:
    controller, left = gate.controller, wait.until - now
    if reason in (WaitReason.PACE, WaitReason.SHARE):
        return gate.pacer.explain(wait, now)
    if reason is WaitReason.PAUSED:
        return Explanation(reason=reason)
    if reason is WaitReason.CEILING:
        return Explanation(reason=reason, seconds_left=left, ceiling=gate.ceiling)
    if reason is WaitReason.DEPTH:
        return Explanation(reason=reason, in_flight=len(gate.in_flight), controller_note=controller.why_cap())
    if reason is WaitReason.HOLD:
        return Explanation(reason=reason, seconds_left=left, controller_note=controller.why())
    if reason is WaitReason.QUOTA:
        subject = wait.subject or ""
        dimension = subject if isinstance(subject, str) else subject.dimension
        return Explanation(reason=reason, seconds_left=left, subject=str(subject), dimension=dimension)
    return Explanation(reason=reason, seconds_left=left)
