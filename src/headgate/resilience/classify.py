"""What an error means: the table by which calls are retried, circuits trip and credentials rest.

    error_type    HTTP, or what was raised            retried                  attempt  circuit
    rate_limit    429                                 yes                      no       no
    quota         432, 433, a day's quota in a body   with another credential  no       no
    capacity      a code: the tier is full            yes                      no       no
    spend         a code: no credit, a spending limit with another credential  no       no
    overloaded    503, 529                            yes                      yes      yes
    server_error  other 5xx                           yes                      yes      yes
    timeout       408, timeouts                       yes                      yes      yes
    connection    refused, reset, no route            yes                      yes      yes
    auth          401, 403                            with another credential  no       no
    key_dead      402, a code that says so            with another credential  no       no
    too_large     413                                 no                       yes      no
    validation    400, 404, ...                       no                       yes      no
    unknown       any other exception                 no                       yes      no

Status codes, headers and structured bodies decide (``headgate.wire``); no message is ever searched for
words. A ``classify_error`` hook may say otherwise for its provider, in these same words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from .. import wire
from ..checks import check, number
from ..clock import Clock
from ..core.decision import LONGEST_WAIT, UNKNOWN, Outcome
from ..core.signal import SILENT, Signal
from ..errors import AuthenticationError, Failed, RateLimitError
from ..events import call_hook
from ..wire import signal_of

OUTCOME_OF = {
    "rate_limit": Outcome.RATE_LIMITED,
    "quota": Outcome.QUOTA_EXHAUSTED,
    "capacity": Outcome.CAPACITY,
    "spend": Outcome.SPEND,
    "overloaded": Outcome.OVERLOADED,
    "server_error": Outcome.TRANSIENT,
    "timeout": Outcome.TRANSIENT,
    "connection": Outcome.TRANSIENT,
    "auth": Outcome.AUTH,
    "key_dead": Outcome.KEY_DEAD,
    "too_large": Outcome.TOO_LARGE,
    "validation": Outcome.INVALID,
}
_TYPE_OF = {outcome: kind for kind, outcome in reversed(OUTCOME_OF.items())}
_OK = SILENT[Outcome.OK]
_TIMEOUTS = frozenset(("TimeoutError", "TimeoutException", "Timeout", "APITimeoutError"))
_BY_CLASS = ((RateLimitError, Outcome.RATE_LIMITED), (AuthenticationError, Outcome.AUTH))
_UNUSABLE = (Outcome.SPEND, Outcome.AUTH, Outcome.KEY_DEAD)
_INNOCENT = (Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED, Outcome.CAPACITY, *_UNUSABLE)
"""What is a matter of the caller's pace or of its credential never trips a circuit, whatever a hook says."""


@dataclass(frozen=True, slots=True)
class ErrorClassification:
    """What one error means for the call, the circuit and the wait."""

    retryable: bool
    trips_breaker: bool
    backoff_seconds: float | None = None
    """Wait at least this long; ``None`` is the usual backoff. A longer Retry-After of the server wins."""
    error_type: str = "unknown"
    """One of the table above, or a word of your own."""

    def __post_init__(self) -> None:
        seconds = self.backoff_seconds
        check("backoff_seconds", seconds, seconds is None or 0 <= number(seconds) < UNKNOWN, "None, or 0 or more")
        check("error_type", self.error_type, isinstance(self.error_type, str), "a word")


AWAY_STATUSES = frozenset((502, 503, 504, *range(520, 531)))
"""Answers of a gateway or proxy in front of the host: the host is unreachable, not unable to serve this request."""
_AWAY = ("connection", "timeout", "overloaded")
"""Types of errors that say so."""

ClassifyError = Callable[[object | None, Exception | None], ErrorClassification | None]
"""``classify_error(response, exception)``; None leaves it to the table, and so does one that raises."""


class Verdict(NamedTuple):
    """A classified error as the executor needs it."""

    signal: Signal
    """For the gate and the credential."""
    retryable: bool
    error_type: str
    says_away: bool = False
    """Whether the answer's status says that the host is away, where the answer itself is not at hand."""


def classify_error(response: object | None, exception: Exception | None) -> ErrorClassification:
    """The table above, for a response, an exception, or both."""
    verdict = classify_failure(None, response, exception, None, time.time())
    signal, outcome = verdict.signal, verdict.signal.outcome
    return ErrorClassification(
        retryable=outcome.retried and outcome not in _UNUSABLE,
        trips_breaker=outcome.counts_against_target,
        backoff_seconds=signal.retry_after,
        error_type=verdict.error_type,
    )


def classify_failure(
    signal: Signal | None, response: object | None, error: Exception | None, hook: ClassifyError | None, wall: float
) -> Verdict:
    """What a failure means, by the provider's own word where it has one. ``signal`` is what is known already."""
    if response is None and error is not None:
        response = wire.response_behind(error)
    if signal is None:
        signal = _read(response, error, wall)
    hooked = None if hook is None else call_hook(hook, ErrorClassification, response, error)
    if hooked is None:
        return Verdict(signal, signal.outcome.retried, _type_of(signal.outcome, response, error))
    outcome = OUTCOME_OF.get(hooked.error_type, Outcome.INVALID)
    if outcome not in _INNOCENT and outcome.counts_against_target != bool(hooked.trips_breaker):
        outcome = Outcome.TRANSIENT if hooked.trips_breaker else Outcome.INVALID
    floor = max(hooked.backoff_seconds or 0.0, signal.retry_after or 0.0)
    floored = min(floor, LONGEST_WAIT) if floor > 0.0 else None
    retryable = bool(hooked.retryable) or outcome.needs_other_credential
    return Verdict(replace(signal, outcome=outcome, retry_after=floored), retryable, hooked.error_type)


def is_away(verdict: Verdict, response: object | None, error: Exception | None) -> bool:
    """Whether a failure says that the whole target may be away, rather than that it failed at this call."""
    if not verdict.signal.outcome.counts_against_target:
        return False
    if verdict.says_away or verdict.error_type in _AWAY:
        return True
    if response is None and error is not None:
        response = wire.response_behind(error)
    return response is not None and wire.facts_of(response)[0] in AWAY_STATUSES


def signal_in_result(result: object, clock: Clock) -> tuple[Signal, object]:
    """What a function's result says: a response counts as what it is, and so does a body in which an error hides."""
    if isinstance(result, dict):
        return wire.read(200, None, result, wall=clock.wall()), None
    if getattr(result, "headers", None) is None:
        return _OK, None
    try:
        return signal_of(result, None, None, None, None, clock.wall()), result
    except TypeError:  # it has headers, but no status: no response after all
        return _OK, None


def _read(response: object | None, error: Exception | None, wall: float) -> Signal:
    """The signal of an answer or an error. An error of ours says by its class what its cause may not.

    A good answer does not make an error good: the connection may have broken after it, or its body is unfit.
    """
    if error is None or (response is not None and not isinstance(error, Failed)):
        signal = signal_of(response, None, None, None, None, wall)
        if error is None or signal.outcome is not Outcome.OK:
            return signal
    signal = signal_of(error, None, None, None, error.retry_after if isinstance(error, Failed) else None, wall)
    if signal.outcome is Outcome.OK:
        return replace(signal, outcome=Outcome.INVALID)
    if not isinstance(error, Failed):
        return signal
    if signal.outcome is Outcome.INVALID and error.status_code is None:
        outcome = next((means for kind, means in _BY_CLASS if isinstance(error, kind)), signal.outcome)
        return replace(signal, outcome=outcome)
    return signal


def _type_of(outcome: Outcome, response: object | None, error: Exception | None) -> str:
    unanswered = response is None and error is not None and wire.body_behind(error) is None
    if outcome is Outcome.TRANSIENT:
        status = None if response is None else wire.facts_of(response)[0]
        late = status == 408 or any(kind.__name__ in _TIMEOUTS for kind in type(error).__mro__)
        return "timeout" if late else "connection" if unanswered else "server_error"
    if outcome is Outcome.INVALID and unanswered:
        return "unknown"
    return _TYPE_OF.get(outcome, "unknown")
