"""One call of the worker for one row: what it may know, what it reports, what that means for the row; and how the
worker function itself is called, on the loop or in a thread, within its time.

The meaning is that of single calls (``resilience.classify``). What becomes of the row then:

    ok                                    done
    rate_limited                          parked; has a count of its own
    quota_exhausted                       parked; its credential rests until the reset, or the lane does
    capacity                              parked; counts as rate_limited does
    spend                                 parked; its account rests, but for a probe every 15 minutes
    auth, key_dead                        parked for another credential; without credentials dead
    overloaded, transient                 failed, to be tried again; dead after ``max_attempts``
    too_large, invalid                    dead

An outage is no fault of a row's. A failure that trips its target's circuit, arrives while that is open or ends a probe
uses up no attempt, nor does one that makes it as many in a row as a row has attempts. That holds ``MOST_SPARED`` times
a row; each time it waits longer, so that an outage of five minutes kills none, even where there is one row alone.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from ..clock import Clock
from ..core.cooldown import above
from ..core.decision import NEVER, UNKNOWN, CircuitState, Outcome
from ..core.fallback import MoveReason
from ..core.retry import delay
from ..core.row_state import FailureReason
from ..core.signal import SILENT, Signal
from ..errors import Failed, Refused
from ..formatting import HIDDEN, printable, redact
from ..limiter import AdaptiveRateLimiter
from ..limiter.events import CallInfo, around
from ..limiter.permit import Cost, Permit
from ..resilience.classify import Verdict, classify_failure, signal_in_result
from ..resilience.context import CallContext
from ..wire.responses import error_message
from .config import RunContext
from .item import Item
from .lanes import RowLane
from .ledger import RowState

if TYPE_CHECKING:
    from ..credentials import Lease

Worker = Callable[[Any, "ItemContext"], Any]
"""``worker(item, ctx)``: a coroutine function, or a plain one, which then runs in threads."""

LONGEST_REASON = 300
MOST_SPARED = 20
"""Failures of one row, in one run, that may be its target's outage."""
SPARED_STEP, LONGEST_SPARED = 2.0, 20.0
"""Seconds that a row waits longer after each of them, and at most: 310 in all."""
_OK = Verdict(SILENT[Outcome.OK], False, "")
_CANCELLED = Verdict(SILENT[Outcome.TRANSIENT], True, "cancelled")


class ItemContext(CallContext):
    """Passed to a worker: its row, its credential, and where to report."""

    __slots__ = ()
    _call: Attempt

    @property
    def provider(self) -> str:
        return self._call.item.key

    @property
    def index(self) -> int:
        """The row's position in the input, from 0."""
        return self._call.item.index

    @property
    def name(self) -> str:
        """What its result goes by."""
        return self._call.item.name

    @property
    def key(self) -> str:
        """The gate key, which a batch has in place of a provider."""
        return self._call.item.key

    def convert(self, change: Callable[[Signal], Signal]) -> None:
        """Put what was reported in other terms before the gate learns from it."""
        if self._call.reported is not None:
            self._call.reported = change(self._call.reported)

    @property
    def target(self) -> int:
        """Which of the batch's targets the row goes to: 0 is the primary, others are fallbacks."""
        return self._call.item.target

    def note_refusal(self, why: MoveReason) -> None:
        """A good answer that refuses all the same: another target may be asked."""
        self._call.refusal = why

    def charge(self, *, tokens: float = 0, cost: float = 0.0) -> None:
        """Say what this call has used up, where ``report(cost=...)`` and the prices do not tell."""
        self._call.charged = (tokens, cost)

    def __repr__(self) -> str:
        return f"<ItemContext of row {self.index}, attempt {self.attempt} of {self.max_attempts}>"


class Attempt:
    """A call on its way."""

    __slots__ = (
        "_run",
        "_secret",
        "charged",
        "error",
        "has_begun",
        "is_probe",
        "item",
        "lane",
        "lease",
        "permit",
        "real_cost",
        "refusal",
        "reported",
        "response",
        "sent_at",
        "task",
        "value",
        "verdict",
    )

    def __init__(self, item: Item, lane: RowLane, permit: Permit, lease: Lease | None, run: RunContext) -> None:
        self.item, self.lane, self.permit, self.lease, self._run = item, lane, permit, lease, run
        self._secret = "" if lease is None else lease.secret
        gate = permit.gate
        self.sent_at = permit.sent_at
        held, last_sent_at = gate.controller.hold_until, lane.route.last_sent_at
        self.is_probe = (held != NEVER and last_sent_at < held) or gate.breaker.state is not CircuitState.CLOSED
        """The first call after a hold, sent to find out whether it is over."""
        self.task: asyncio.Task[None]
        self.has_begun = False
        """Whether the worker was called."""
        self.reported: Signal | None = None
        self.response: object = None
        self.real_cost: Cost | None = None
        self.charged: tuple[float, float] | None = None
        self.refusal: MoveReason | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.verdict = _CANCELLED

    # ------------------------------------------------------------------ what the context asks

    @property
    def clock(self) -> Clock:
        return self._run.clock

    @property
    def attempt(self) -> int:
        return self.item.attempts - self.item.attempts_elsewhere + 1

    @property
    def max_attempts(self) -> int:
        return self._run.config.max_attempts

    @property
    def attempt_timeout(self) -> float:
        timeout = self._run.config.attempt_timeout
        return UNKNOWN if timeout is None else timeout

    @property
    def correlation_id(self) -> str:
        return self.item.name

    def time_left(self) -> float:
        until = min(self.item.deadline_at, self._run.ends_at)
        return UNKNOWN if until == UNKNOWN else max(0.0, until - self._run.clock.now())

    # ------------------------------------------------------------------ how it ended

    def complete(self, value: Any) -> None:
        """The worker has returned; what it returned may be an error all the same."""
        self.value = value
        signal = self.reported
        if signal is None:
            signal, self.response = signal_in_result(value, self._run.clock)
        if signal.outcome is Outcome.OK:
            self.verdict = _OK if signal is _OK.signal else Verdict(signal, False, "")
        else:
            self.verdict = self._classify(signal, None, 0.0)

    def fail(self, error: Exception) -> None:
        """The worker has raised."""
        self.error = error
        known = self.reported if self.reported is not None and self.reported.outcome is not Outcome.OK else None
        if isinstance(error, Refused):  # by another gate, inside of the worker: it may pass
            self.verdict = Verdict(Signal(outcome=Outcome.ABANDONED, retry_after=error.retry_after), True, "refused")
        else:
            self.verdict = self._classify(known, error, self._run.clock.wall())

    def cancel(self) -> None:
        """The worker was cancelled: what it had reported until then still counts."""
        if self.reported is not None and self.reported.outcome is not Outcome.OK:
            self.verdict = self._classify(self.reported, None, 0.0)

    def _classify(self, signal: Signal | None, error: Exception | None, wall: float) -> Verdict:
        return classify_failure(signal, self.response, error, self._run.classify_error, wall)

    def report(self) -> None:
        """Tell the gate and the credential how it ended, which frees both."""
        signal, permit, lease = self.verdict.signal, self.permit, self.lease
        if signal.outcome is Outcome.ABANDONED:
            if isinstance(self.error, Refused) and self.error.sent:
                permit.release()
            else:
                permit.abandon()
            if lease is not None:
                lease.release()
        elif self.verdict is _CANCELLED:
            self.release()
        else:
            cost = self.real_cost if permit.entry.has_quotas else None
            answer = self.error if self.response is None else self.response
            permit.report_signal(signal, cost=cost, answer=answer)
            if lease is not None:
                lease.report(signal=signal)

    def release(self) -> None:
        """Free both without an outcome; if the call had begun, it may have been sent."""
        if self.has_begun:
            self.permit.release()
        else:
            self.permit.abandon()
        if self.lease is not None:
            self.lease.release()

    # ------------------------------------------------------------------ what becomes of the row

    def next_state(self) -> RowState:
        """Count what happened, and say where the row goes."""
        item, config, outcome = self.item, self._run.config, self.verdict.signal.outcome
        if outcome is Outcome.OK:
            item.attempts += 1
            return RowState.DONE
        if outcome.uses_attempt:
            if self.is_outage and item.spared < MOST_SPARED:
                item.spared += 1
                return RowState.FAILED
            item.attempts += 1
            attempts = item.attempts - item.attempts_elsewhere
            again = self.verdict.retryable and attempts < config.max_attempts
            return RowState.FAILED if again else RowState.DEAD
        if not self.is_probe and not outcome.needs_other_credential:
            item.rate_limited += 1
            item.capacity_refusals += outcome is Outcome.CAPACITY
        elsewhere = outcome in (Outcome.AUTH, Outcome.KEY_DEAD)
        again = self.verdict.retryable and item.rate_limited <= config.max_rate_limit_retries
        if elsewhere and (self.lease is None or (self.verdict.signal.is_forbidden and not self.lease.is_void)):
            return RowState.DEAD  # there is no other credential to go on with
        return RowState.PARKED if again else RowState.DEAD

    @property
    def status(self) -> int | None:
        """What the server answered, where that is known."""
        for found in (self.response, self.error):
            if isinstance(status := getattr(found, "status_code", None), int):
                return status
        return None

    @property
    def is_outage(self) -> bool:
        """Whether it has failed because its target does, once that has been reported to its gate."""
        if not self.verdict.retryable or not self.verdict.signal.outcome.counts_against_target:
            return False
        if self.verdict is _CANCELLED:
            return False
        breaker, all_attempts = self.permit.gate.breaker, self._run.config.max_attempts
        tripping = breaker.settings.failures_to_trip
        if all_attempts > 1:  # one row alone may have too few of them to trip the circuit
            tripping = min(tripping, all_attempts)
        return breaker.state is not CircuitState.CLOSED or self.lane.route.group.failures_in_a_row >= tripping

    @property
    def ran_out_of_time(self) -> bool:
        """Whether it ended because the row's time did: that counts against neither the target nor the credential."""
        return isinstance(self.error, TimeoutError) and self._run.clock.now() >= self.item.deadline_at

    def spared_wait(self, draw: float) -> float:
        """Seconds before a row goes again that was spared an attempt: probing is for rows that were not yet."""
        spared = self.item.spared
        return max(self.backoff(draw, spared), above(min(LONGEST_SPARED, SPARED_STEP * spared), draw))

    def backoff(self, draw: float, times: int) -> float:
        """Seconds before a row is tried again that was sent back so many times."""
        config, floor = self._run.config, self.verdict.signal.retry_after or 0.0
        return delay(max(1, times), draw, base=config.base_delay, max_delay=config.max_delay, floor=floor)

    def reason(self) -> FailureReason:
        """Why it failed, without secrets."""
        outcome, error = self.verdict.signal.outcome, self.error
        category = "cancelled" if self.verdict is _CANCELLED else outcome.value
        if isinstance(error, Failed):  # ours, and a sentence
            text = str(error)
        elif error is not None:
            text = f"{type(error).__name__}: {error}"
        else:
            text = error_message(self.response, self.verdict.signal.reason or self.verdict.error_type)
        if self.item.rate_limited > 1 and not outcome.uses_attempt:
            text += f" ({self.item.rate_limited} times)"
        if self._secret:
            text = text.replace(self._secret, HIDDEN)
        longest = LONGEST_REASON - len(category) - 2
        return FailureReason(category, printable(" ".join(redact(text)[:longest].split())))


# ---------------------------------------------------------------------- the caller's function


def is_async(worker: Worker) -> bool:
    """Whether it is a coroutine function, or an object whose call is one."""
    return inspect.iscoroutinefunction(worker) or inspect.iscoroutinefunction(
        getattr(worker, "__call__", None)  # noqa: B004 - not whether it can be called
    )


class WorkerFunction:
    """Calls the caller's function for one attempt: on the loop or in a thread, within its time, observed."""

    def __init__(self, worker: Worker, limiter: AdaptiveRateLimiter, *, threads: int, attempt_timeout: float | None):
        self._worker, self._limiter, self._most_threads = worker, limiter, threads
        self._is_async = is_async(worker)
        self._has_timeout = attempt_timeout is not None
        self._threads: ThreadPoolExecutor | None = None

    def __call__(self, attempt: Attempt) -> Awaitable[Any]:
        context = ItemContext(attempt)
        if self._limiter.events.around:
            return self._observed(attempt, context)
        if self._has_timeout or attempt.item.deadline_at != UNKNOWN:
            return self._bounded(attempt, context)
        return self._call(attempt, context)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def _observed(self, attempt: Attempt, context: ItemContext) -> Any:
        info = CallInfo(attempt.attempt, credential=context.credential_label or "")
        with around(self._limiter.events.around, attempt.permit, info):
            return await self._bounded(attempt, context)

    async def _bounded(self, attempt: Attempt, context: ItemContext) -> Any:
        seconds = min(attempt.attempt_timeout, attempt.time_left())
        async with asyncio.timeout(None if seconds == UNKNOWN else seconds):
            return await self._call(attempt, context)

    def _call(self, attempt: Attempt, context: ItemContext) -> Awaitable[Any]:
        value = attempt.item.value
        if self._is_async:
            work: Awaitable[Any] = self._worker(value, context)
            return work
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._most_threads, "headgate-batch")
        loop = asyncio.get_running_loop()
        if self._limiter.events.around:  # what observers put around the call is to be seen in the thread too
            return loop.run_in_executor(self._threads, copy_context().run, self._worker, value, context)
        return loop.run_in_executor(self._threads, self._worker, value, context)
