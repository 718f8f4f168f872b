"""What a call emits to its manager's listener: every wait and retry, and exactly one end.

    credential_wait*  rate_limit_wait*  retry_attempt*  then one of  request_success | request_failure | budget_exceeded

Events carry kinds of errors, never their messages: those may hold anything. A call that was sent and failed for good
is logged too (``headgate.resilience``, at WARNING), with a listener or without.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ..core.decision import UNKNOWN, Outcome
from ..errors import Refused, TimeBudgetExceededError

if TYPE_CHECKING:
    from ..core.fallback import MoveReason
    from .call import Call

log = logging.getLogger("headgate.resilience")


def emit_wait(call: Call, event_type: Literal["rate_limit_wait", "credential_wait"], waited: float) -> None:
    _emit(call, event_type, lambda: {"wait_ms": round(waited * 1e3)})


def emit_retry(call: Call, wait: float) -> None:
    """Emitted before the wait, and about the attempt to come."""
    if call.manager.on_event is not None:
        _emit(call, "retry_attempt", lambda: {"wait_ms": round(wait * 1e3), **_classification(call)})


def emit_success(call: Call) -> None:
    if call.manager.on_event is not None:
        _emit(call, "request_success", lambda: {"breaker_state": _circuit_state(call)})


def emit_failure(call: Call, error: BaseException | None = None) -> None:
    """The end of a call that did not succeed; without an error, it ended with an answer that is one."""
    facts, event_type = _classification(call), "request_failure"
    is_sent = call.verdict is not None
    if isinstance(error, TimeBudgetExceededError):
        event_type = "budget_exceeded"
        is_sent = error.sent
    elif isinstance(error, Refused):
        facts = {"error_type": error.code, "error_classification": "refused"}
        is_sent = error.sent
    elif error is not None and not isinstance(error, Exception):
        facts = {"error_type": "cancelled", "error_classification": Outcome.ABANDONED.value}
        is_sent = False
    if is_sent:
        what = "the time budget is spent" if event_type == "budget_exceeded" else "the call failed"
        text = f"{what} ({facts.get('error_type', 'unknown')}, attempt {call.attempt} of {call.max_attempts})"
        log.warning("%s: %s", call.provider.name, text, extra={"event": event_type, **facts})
    if call.manager.on_event is not None:
        _emit(call, event_type, lambda: {"breaker_state": _circuit_state(call), **facts})


def log_move(call: Call, target: str, why: MoveReason) -> None:
    """A call goes to another target, by the reason that allows it; its failure was logged at WARNING."""
    log.info("%s: moved to %s (%s)", call.provider.name, target, why.value)


def emit_abandoned(call: Call, error: BaseException | None) -> None:
    """The end of an answer that is not read any further: its reader left it, or was cancelled."""
    if call.manager.on_event is None:
        return
    is_cancelled = error is not None and not isinstance(error, Exception | GeneratorExit)
    facts = {
        "error_type": "cancelled" if is_cancelled else "left_early",
        "error_classification": Outcome.ABANDONED.value,
    }
    _emit(call, "request_failure", lambda: {"breaker_state": _circuit_state(call), **facts})


def _classification(call: Call) -> dict[str, str]:
    verdict = call.verdict
    if verdict is None:
        return {}
    return {"error_type": verdict.error_type, "error_classification": verdict.signal.outcome.value}


def _circuit_state(call: Call) -> str:
    return call.manager.get_breaker_state(call.provider.name).value


def _emit(call: Call, event_type: str, facts: Callable[[], dict[str, Any]]) -> None:
    """The facts are read only if the listener wants the event: the circuit's state takes longer than all the rest."""

    def fields() -> dict[str, Any]:
        left = call.time_left()
        return {
            "attempt": call.attempt,
            "max_attempts": call.max_attempts,
            "budget_remaining_ms": None if left == UNKNOWN else round(left * 1e3),
            "correlation_id": call.correlation_id,
            "credential": call.credential_label,
            **facts(),
        }

    call.manager.emit(event_type, call.provider.name, make=fields)
