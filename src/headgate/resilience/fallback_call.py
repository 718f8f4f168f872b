"""``execute_with_resilience(..., fallback=[...])``: one function, several targets, one time budget.

    provider ──call──> ended? ──why──> core.fallback: another target ──> its own gate, circuit and credentials
                          └ no reason, or nothing left: the last result or error

The function finds its target in ``ctx.provider`` and ``ctx.model``. What each target was told is remembered by the
manager, so that the next call does not ask an account without credit again before its time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.decision import UNKNOWN, CircuitState
from ..core.fallback import LONG_QUOTA, PRIMARY, CallRoute, MoveReason, Target, reason_of
from ..errors import (
    CircuitOpenError,
    ConfigError,
    CostTooLargeError,
    NoCredentialError,
    Refused,
    TimeBudgetExceededError,
)
from .call import Call
from .config import CallOptions
from .context import Credentials, cannot_spend
from .events import log_move
from .fallback import Fallback, accepted_reasons, account_of
from .manager import get_resilience_manager


class FallbackCalls:
    """The calls of one ``execute_with_resilience``, one for each target that is asked.

    while calls.has_next:
        with calls:                       # swallows the error of a call that another target may take
            result = drive(calls.call)
    """

    def __init__(self, provider: str, options: CallOptions, fallbacks: Sequence[Fallback]) -> None:
        self._options, self._fallbacks = options, fallbacks
        self._names = [provider, *(name_of(provider, one) for one in fallbacks)]
        self._credentials = [options.credentials, *(credentials_of(options.credentials, one) for one in fallbacks)]
        self._manager = get_resilience_manager() if options.manager is None else options.manager
        providers = [provider, *(one.to or provider for one in fallbacks)]
        accounts = map(account_of, providers, self._credentials)
        targets = [Target(account, name) for account, name in zip(accounts, self._names, strict=True)]
        states, now = self._manager.fallback_states, self._manager.clock.now()
        self._route = CallRoute(accepted_reasons(fallbacks), states, targets, now)
        self._ends_at = UNKNOWN
        self.has_next = True
        """Whether ``call`` is still to be made."""
        self.call = self._next_call()

    def __enter__(self) -> None:
        self.has_next = False

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """``call`` has ended, with this error if there was one; ``call`` is now one to another target, if any may."""
        if error is None and not self.call.has_failed:
            self._route.worked()
            return False
        if error is not None and not isinstance(error, Exception):
            return False
        why, seconds = why_moved(self.call, error)
        now = self._manager.clock.now()
        if why is None or now >= self._ends_at or not self._route.move(why, now, seconds):
            if isinstance(error, Exception) and self._route.refused:
                told = ", ".join(f"{self._names[n]} ({reason.value})" for n, reason in self._route.refused.items())
                error.add_note(f"headgate: not taken by {told}")
            return False
        log_move(self.call, self._names[self._route.choice.target], self._route.choice.why or why)
        self.call = self._next_call()
        self.has_next = True
        return True

    def _next_call(self) -> Call:
        target = self._route.choice.target
        options = self._options.replace(credentials=self._credentials[target])
        if self._route.may_move(MoveReason.CIRCUIT_OPEN):
            options = options.replace(when_open="refuse")
        if self._ends_at != UNKNOWN:
            options = options.replace(time_budget=max(0.001, self._ends_at - self._manager.clock.now()))
        call = Call(self._names[target], options)
        if target:
            fallback = self._fallbacks[target - 1]
            call.target, call.model = fallback.to or self._names[PRIMARY], fallback.model
        if self._ends_at == UNKNOWN and call.time_budget != UNKNOWN:
            self._ends_at = call.started_at + call.time_budget
        return call


def why_moved(call: Call, error: BaseException | None) -> tuple[MoveReason | None, float | None]:
    """Why a call that has ended may go to another target, and for how long its own cannot, where that is known."""
    if isinstance(error, CostTooLargeError):
        return MoveReason.TOO_LONG, None
    if isinstance(error, CircuitOpenError) and call.verdict is None:
        return MoveReason.CIRCUIT_OPEN, error.retry_after
    if isinstance(error, Refused):
        if isinstance(error, NoCredentialError) and cannot_spend(call.credentials):
            return MoveReason.SPEND, error.retry_after
        is_long = (error.retry_after or 0.0) > LONG_QUOTA
        if is_long or isinstance(error, TimeBudgetExceededError):
            return (MoveReason.QUOTA_UNTIL if is_long else None), error.retry_after
    if call.verdict is None:
        return None, None
    signal, limiter = call.verdict.signal, call.limiter
    is_open = limiter is not None and limiter.circuit_state(call.provider.key) is not CircuitState.CLOSED
    return reason_of(signal, is_last=True, is_open=is_open), signal.retry_after


def name_of(provider: str, fallback: Fallback) -> str:
    """What the gate of a fallback goes by."""
    return "/".join(part for part in (fallback.to or provider, fallback.model) if part)


def credentials_of(primary: Credentials | None, fallback: Fallback) -> Credentials | None:
    """The credentials of a fallback: its own; else, for the same provider, the primary's."""
    if fallback.sources:
        raise ConfigError("fallback keys must be a CredentialCoordinator here, made once for all calls")
    if not isinstance(fallback.keys, tuple):
        return fallback.keys
    return None if fallback.to else primary
