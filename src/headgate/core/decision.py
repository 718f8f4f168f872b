"""The words every decision is made of: outcomes, states, and the three answers.

A question to the core gets one of three answers: a ticket (go), a ``Wait`` (not
yet; ask again at ``until``) or a ``Refuse`` (do not wait for this). A refusal carries
its reason. A wait carries what decides, for every call in a line gets one and hardly anybody asks
why; the gate that gave it says it in one sentence (``Gate.reason``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from .bucket import Quota

LONGEST_WAIT = 31 * 86400.0
"""The one bound on any wait, told from outside or read from a store: 31 days."""

NEVER = float("-inf")
"""An instant before every other: what has not happened yet."""

_CIRCUIT = ("circuit_open", "probe_in_flight")

UNKNOWN = float("inf")
"""More than any number: no ceiling, no end."""


class Outcome(Enum):
    """How a call ended, and what that means. One row for each."""

    #                  value            retried  attempt  breaker
    OK = ("ok", False, True, False)
    RATE_LIMITED = ("rate_limited", True, False, False)
    QUOTA_EXHAUSTED = ("quota_exhausted", True, False, False)
    OVERLOADED = ("overloaded", True, True, True)
    TRANSIENT = ("transient", True, True, True)
    AUTH = ("auth", True, False, False)
    KEY_DEAD = ("key_dead", True, False, False)
    TOO_LARGE = ("too_large", False, True, False)
    INVALID = ("invalid", False, True, False)
    ABANDONED = ("abandoned", False, False, False)

    retried: bool
    """May be sent again (for quota, auth and dead keys: only with another credential)."""
    uses_attempt: bool
    """Counts towards ``max_attempts``."""
    counts_against_target: bool
    """Says that the other side is sick: feeds the breaker."""

    def __new__(cls, label: str, retried: bool, uses_attempt: bool, counts: bool) -> Self:
        member = object.__new__(cls)
        member._value_ = label
        member.retried = retried
        member.uses_attempt = uses_attempt
        member.counts_against_target = counts
        return member

    @property
    def needs_other_credential(self) -> bool:
        return self in (Outcome.QUOTA_EXHAUSTED, Outcome.AUTH, Outcome.KEY_DEAD)


class CircuitState(Enum):
    """What a circuit does with calls: let them through, refuse them, or try a few."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: ask again at ``until``."""

    until: float
    code: str
    """What decides: floor, hold, pace, depth, paused, circuit_open, probe_in_flight, or a limit's dimension."""
    quota: Quota | None = None
    """The known limit that decides, if it is one."""
    known_until: float = UNKNOWN
    """Before this instant the turn cannot come, by what is known alone, where that is sooner than ``until``."""

    @property
    def not_before(self) -> float:
        """The earliest instant at which the turn can come, by what is known.

        A wait for depth or a probe ends with an answer, a pause with an operator's word, and a pace that was only
        guessed may grow at any moment: by these alone no caller is turned away.
        """
        return NEVER if self.code in ("depth", "paused", "probe_in_flight") else min(self.until, self.known_until)

    @property
    def is_forecast(self) -> bool:
        """Whether ``until`` says when the turn comes."""
        return self.not_before == self.until

    @property
    def is_circuit(self) -> bool:
        """Whether it is a circuit that does not let the call through."""
        return self.code in _CIRCUIT


@dataclass(frozen=True, slots=True)
class Refuse:
    """No: waiting is pointless or not worth it. ``retry_at`` says when it may be, if that is known."""

    code: str
    reason: str
    retry_at: float | None = None
    look_at: float | None = None
    """When to ask again at the latest, for a caller that waits although ``retry_at`` is not known."""

    def waited_for(self) -> Wait | None:
        """The same for a caller that waits until the circuit lets it through; None if it is no circuit that refuses."""
        until = self.look_at if self.retry_at is None else self.retry_at
        return Wait(until, self.code) if self.code in _CIRCUIT and until is not None else None
