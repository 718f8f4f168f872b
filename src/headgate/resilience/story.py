"""What a call tells those who listen: every wait and retry, and exactly one last word.

    credential_wait*  rate_limit_wait*  retry_attempt*  then one of  request_success | request_failure | budget_exceeded

Events carry kinds of errors, never their messages: those may hold anything. A call that was sent and failed for good
is logged too (``headgate.resilience``, at WARNING), with a listener or without.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..core.decision import UNKNOWN, Outcome
from ..errors import CircuitOpenError, NoCredentialError, Refused, TimeBudgetExceededError, WaitTooLongError

if TYPE_CHECKING:
    from .call import Call
    from .passage import Passage

log = logging.getLogger("headgate.resilience")

_REFUSALS = (
    (CircuitOpenError, "circuit_open"),
    (WaitTooLongError, "wait_too_long"),
    (NoCredentialError, "no_credential"),
    (Refused, "refused"),
)


def tell_wait(call: Passage, waited: float) -> None:
    _tell(call, "rate_limit_wait", wait_ms=round(waited * 1e3))


def tell_credential_wait(call: Passage, waited: float) -> None:
    _tell(call, "credential_wait", wait_ms=round(waited * 1e3))


def tell_retry(call: Call, wait: float) -> None:
    """Told before the wait, and about the attempt to come."""
    _tell(call, "retry_attempt", wait_ms=round(wait * 1e3), **_classified(call))


def tell_success(call: Call) -> None:
    if call.manager.on_event is None:
        return  # to ask for the circuit's state takes longer than all the rest
    _tell(call, "request_success", breaker_state=_circuit(call))


def tell_failure(call: Call, error: BaseException | None = None) -> None:
    """The last word about a call that did not succeed; without an error, it ended with an answer that is one."""
    facts, event_type = _classified(call), "request_failure"
    is_sent = call.verdict is not None
    if isinstance(error, TimeBudgetExceededError):
        event_type = "budget_exceeded"
        is_sent = error.sent
    elif isinstance(error, Refused):
        word = next(word for kind, word in _REFUSALS if isinstance(error, kind))
        facts = {"error_type": word, "error_classification": "refused"}
        is_sent = error.sent
    elif error is not None and not isinstance(error, Exception):
        facts = {"error_type": "cancelled", "error_classification": Outcome.ABANDONED.value}
        is_sent = False
    if is_sent:
        said = f"{facts.get('error_type', 'unknown')}, attempt {call.attempt} of {call.max_attempts}"
        log.warning("%s %s: %s", call.target.name, event_type, said, extra={"event": event_type, **facts})
    if call.manager.on_event is not None:
        _tell(call, event_type, breaker_state=_circuit(call), **facts)


def tell_left(call: Call, error: BaseException | None) -> None:
    """The last word about a stream that its reader has left before the end, or was torn from."""
    torn = error is not None and not isinstance(error, Exception | GeneratorExit)
    facts = {
        "error_type": "cancelled" if torn else "left_early",
        "error_classification": Outcome.ABANDONED.value,
    }
    _tell(call, "request_failure", breaker_state=_circuit(call), **facts)


def _classified(call: Call) -> dict[str, str]:
    verdict = call.verdict
    if verdict is None:
        return {}
    return {"error_type": verdict.error_type, "error_classification": verdict.signal.outcome.value}


def _circuit(call: Call) -> str:
    return call.manager.get_breaker_state(call.target.name).value


def _tell(call: Passage, event_type: str, **facts: Any) -> None:
    if call.manager.on_event is None:
        return
    left = call.time_left()
    call.manager.tell(
        event_type,
        call.target.name,
        attempt=call.attempt,
        max_attempts=call.max_attempts,
        budget_remaining_ms=None if left == UNKNOWN else round(left * 1e3),
        correlation_id=call.correlation_id,
        credential=call.label,
        **facts,
    )
