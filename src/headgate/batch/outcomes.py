"""What becomes of a row: every end of a call is learned from at once, and told only once it is on disk.

attempt ──learn──> gate, credential, budget, cooldowns ──> next state
                                                               │ settle
    done, dead ──> ledger ──> result, event     failed, parked ──> ledger ──> back to the scheduler
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..core.decision import CircuitState, Outcome
from ..core.row_state import FailureReason
from ..engine.scheduler import Place, Scheduler
from ..engine.supervisor import StopReason
from ..engine.worker_pool import Recorder
from ..formatting import format_seconds
from .attempt import Attempt
from .config import RunContext
from .cooldowns import Cooldowns
from .item import Delivery, Encode, Item, Result, result_of
from .lanes import UNKNOWN_MODEL_ROWS
from .ledger import Change, RowState
from .pricing import worth

if TYPE_CHECKING:
    from .row_mover import RowMover

log = logging.getLogger("headgate.batch")

REFUSED_FOR = 1.0
"""Seconds to wait after a refusal that does not say for how long, by the limiter or by a gate inside of the worker."""
EVENTS = {state: f"item_{state.value}" for state in RowState}
"""The event of a row that goes there."""


class Outcomes:
    def __init__(
        self,
        context: RunContext,
        *,
        recorder: Recorder[Change],
        scheduler: Scheduler[Item],
        requeue: Callable[[Item, float], None],
        cooldowns: Cooldowns,
        delivery: Delivery | None = None,
        encode: Encode | None = None,
        mover: RowMover | None = None,
    ) -> None:
        """``requeue(item, now)`` lets a row wait again. ``encode`` makes a result one line for the ledger."""
        self._config, self._clock, self._rng = context.config, context.clock, context.rng
        self._report, self._events = context.report, context.events
        self._backlog, self._supervisor = context.backlog, context.supervisor
        self._recorder, self._scheduler, self._requeue = recorder, scheduler, requeue
        self._cooldowns, self._budget = cooldowns, context.budget
        self._delivery, self._encode, self._mover = delivery, encode, mover

    # ------------------------------------------------------------------ what is learned

    def learn(self, attempt: Attempt, is_cancelled: bool) -> RowState:
        """Take in how a call ended, before anything else may start. Returns where its row goes."""
        item = attempt.item
        if self._budget.is_capped:
            self._budget.free(*worth(item.cost, self._config.prices))
        if item.is_retry:
            attempt.lane.route.group.queue.budget.ended()
        if is_cancelled or attempt.ran_out_of_time:
            attempt.release()
            return RowState.DEAD if attempt.ran_out_of_time else RowState.PENDING
        attempt.report()
        outcome = attempt.verdict.signal.outcome
        self._report.attempts += outcome.uses_attempt
        self._charge(attempt, outcome)
        self._cool_down(attempt, outcome)
        return attempt.next_state()

    def _charge(self, attempt: Attempt, outcome: Outcome) -> None:
        """What the call has used up: what was reported, else for a success what was expected."""
        item, prices = attempt.item, self._config.prices
        if attempt.charged is not None:
            tokens, money = attempt.charged
        elif attempt.real_cost is not None:
            tokens, money = worth(attempt.real_cost, prices)
        elif outcome is Outcome.OK and (item.cost != 1 or prices):
            tokens, money = worth(item.cost, prices)
        else:
            return
        item.tokens += tokens
        item.money += money
        self._report.tokens += round(tokens)
        self._report.cost += money
        self._budget.charge(tokens, money)

    def _cool_down(self, attempt: Attempt, outcome: Outcome) -> None:
        """Hold lanes back, or let them come back."""
        cooldowns, route, signal = self._cooldowns, attempt.lane.route, attempt.verdict.signal
        route.group.unknown_model += signal.is_unknown_model
        route.capacity_refusals += outcome is Outcome.CAPACITY
        if outcome is Outcome.OK:
            cooldowns.spend.worked(route.account, attempt.sent_at)
            route.capacity_refusals = 0
            route.group.failures_in_a_row = route.group.unknown_model = 0
            route.cooldown.cleared(attempt.sent_at)
            if cooldowns.ramp is not None:
                cooldowns.on_ended(True)
            if route.was_refused and attempt.permit.gate.breaker.state is CircuitState.CLOSED:
                route.was_refused = route.group.queue.is_probing = False
                cooldowns.on_circuit_closed()
        elif outcome is Outcome.RATE_LIMITED:
            cooldowns.rate_limited(route.gate_key, route.cooldown, attempt.sent_at, signal)
        elif outcome is Outcome.QUOTA_EXHAUSTED and route.credentials is None:
            cooldowns.quota_exhausted(route.gate_key, route.cooldown, signal)
        elif outcome is Outcome.SPEND and route.credentials is None:
            cooldowns.spend_stopped(route.gate_key, route.account, attempt.sent_at)
        elif outcome.counts_against_target:
            route.group.failures_in_a_row += 1
            cooldowns.on_ended(False)

    # ------------------------------------------------------------------ where the row goes

    def settle(self, attempt: Attempt, state: RowState) -> None:
        """Record where the row goes, and let it go there."""
        item, outcome = attempt.item, attempt.verdict.signal.outcome
        if self._mover is not None and state is not RowState.PENDING and (moved := self._mover.after(attempt, state)):
            return self._move(item, moved)
        if state is RowState.DONE:
            attempt.lane.route.last_failure = ""
            return self._finish(item, state, None, attempt)
        if state is RowState.PENDING:
            return self.return_to_ledger(item)
        reason = attempt.reason()
        attempt.lane.route.last_failure = reason.detail
        if state is not RowState.DEAD:
            return self._put_aside(attempt, state, reason)
        if attempt.verdict.signal.is_unknown_model and attempt.lane.route.group.unknown_model > UNKNOWN_MODEL_ROWS:
            return self._requeue(item, self._clock.now())  # it was in flight when its model turned out to be unknown
        if attempt.ran_out_of_time:
            reason = FailureReason("deadline", f"not done within {format_seconds(self._config.item_deadline or 0.0)}")
        elif outcome.value in self._config.fail_fast:
            self._supervisor.stop(StopReason.FAIL_FAST, f"row {item.index + 1}: {reason}")
            if outcome.needs_other_credential:  # no fault of the row's
                return self.return_to_ledger(item)
        return self._finish(item, state, reason, attempt)

    def mark_dead(self, item: Item, reason: FailureReason, error: BaseException | None = None) -> None:
        """A row that is not in flight will never be sent."""
        item.place = Place.NOWHERE
        self._finish(item, RowState.DEAD, reason, None, error)

    def return_to_ledger(self, item: Item, then: Callable[[Item], None] | None = None) -> None:
        """The next run goes on with it, with what it has waited and spent; not before its time, if it has one."""
        wait = item.ready_at - self._clock.now()
        state, ready_at = (RowState.FAILED, self._clock.wall() + wait) if wait > 0.0 else (RowState.PENDING, 0.0)
        self._recorder.put(item.change(state, ready_at=ready_at), lambda _: (then or self._end)(item))

    def make_room(self, item: Item) -> None:
        """Give a row back whose key is shut, because its place is wanted. The next reading of the input takes it up."""
        self._report.elsewhere += 1
        self._backlog.returning += 1
        self.return_to_ledger(item, self._on_room_made)

    def _on_room_made(self, item: Item) -> None:
        self._backlog.returning -= 1
        self._end(item)
        self._backlog.free()

    def _move(self, item: Item, reason: FailureReason) -> None:
        """It goes to another target, once the ledger knows what has happened to it."""
        now = self._clock.now()
        item.waits_for, item.waits_since, item.ready_at = "turn", now, now
        self._events.dispatch("item_moved", item.key, reason.category, reason.detail, item.event_fields)
        change = item.change(RowState.PARKED, reason, self._clock.wall())
        self._recorder.put(change, partial(self._on_put_aside, item))

    # ------------------------------------------------------------------ failed and parked

    def _put_aside(self, attempt: Attempt, state: RowState, reason: FailureReason) -> None:
        """It waits in memory, and the ledger knows until when."""
        item, now = attempt.item, self._clock.now()
        item.is_retry = state is RowState.FAILED
        item.is_parked = not item.is_retry
        item.waits_for, item.waits_since = "backoff" if item.is_retry else "cooldown", now
        item.ready_at = now + self._own_wait(attempt)
        opens_at = max(item.ready_at, attempt.lane.route.group.cooled_down_at)
        if opens_at >= item.deadline_at:
            late = f"the next retry, in {format_seconds(opens_at - now)}, is past the row's deadline ({reason})"
            return self._finish(item, RowState.DEAD, FailureReason("deadline", late), attempt)
        self._report.rate_limited_items_stored += item.is_parked
        self._events.dispatch(
            EVENTS[state],
            attempt.lane.route.gate_key,
            reason.category,
            reason.detail,
            item.event_fields,
            seconds=opens_at - now,
        )
        change = item.change(state, reason, self._clock.wall() + opens_at - now)
        return self._recorder.put(change, partial(self._on_put_aside, item))

    def _on_put_aside(self, item: Item, is_kept: bool) -> None:
        if not is_kept:
            return self._lose(item)
        item.mark_stored()
        if self._supervisor.stopped is None:
            self._requeue(item, self._clock.now())
        return None

    def _own_wait(self, attempt: Attempt) -> float:
        """Seconds before this row goes again, whatever its lanes say: one whose lane pauses may go by another."""
        outcome, item = attempt.verdict.signal.outcome, attempt.item
        if outcome is Outcome.ABANDONED:
            return attempt.verdict.signal.retry_after or REFUSED_FOR
        if item.is_retry:
            draw = self._rng.random()
            return attempt.spared_wait(draw) if attempt.is_outage else attempt.backoff(draw, item.attempts)
        elsewhere = outcome.needs_other_credential or attempt.lane.route.cooldown.until > self._clock.now()
        return 0.0 if elsewhere or attempt.is_probe else attempt.backoff(self._rng.random(), item.rate_limited)

    # ------------------------------------------------------------------ done and dead

    def _finish(
        self,
        item: Item,
        state: RowState,
        reason: FailureReason | None,
        attempt: Attempt | None,
        error: BaseException | None = None,
    ) -> None:
        """Record how a row has ended, to hand it out then."""
        value, status, result, line = None, None, None, b""
        if attempt is not None:
            value, error = attempt.value, attempt.error
            status = None if state is RowState.DONE else attempt.status
        if self._delivery is not None or self._encode is not None:
            result = result_of(item, state, reason, value, error)
            try:
                line = b"" if self._encode is None else self._encode(result)
            except Exception as failure:
                state = RowState.DEAD
                reason = FailureReason(
                    "unwritable", f"{type(failure).__name__}: the result cannot be written as a line"
                )
                result = result_of(item, state, reason, value, failure)
        if self._delivery is None:
            result = None
        self._recorder.put(
            item.change(state, reason, result=line), partial(self._on_finished, item, state, reason, result, status)
        )

    def _on_finished(
        self,
        item: Item,
        state: RowState,
        reason: FailureReason | None,
        result: Result | None,
        status: int | None,
        is_kept: bool,
    ) -> None:
        if not is_kept:
            return self._lose(item)
        self._report.note_final(reason, item.totals()[2], "" if reason is None else item.display_name, status)
        if reason is None and item.moved:
            self._report.moved[item.moved] += 1
        if reason is not None:
            if self._report.all_failed_alike(self._config.hopeless_after):
                self._supervisor.stop(StopReason.HOPELESS, str(reason))
            facts = {"event": EVENTS[state], "reason": reason.category}  # the detail may quote the server
            log.warning("%s: row %d failed (%s)", item.key, item.index + 1, reason.category, extra=facts)
        category, detail = ("", "") if reason is None else reason
        self._events.dispatch_in_batch(EVENTS[state], item.key, category, detail, item.event_fields)
        self._end(item)
        if self._delivery is None or result is None:
            self._backlog.free()
        else:
            self._delivery.put(result)
        return None

    def _lose(self, item: Item) -> None:
        """Another process has taken the row over, and records its result."""
        self._report.elsewhere += 1
        self._events.dispatch("item_lost", item.key, make=item.event_fields)
        self._end(item)
        if self._delivery is not None:
            self._delivery.skip(item.index)
        self._backlog.free()

    def _end(self, item: Item) -> None:
        self._scheduler.forget(item)
        self._backlog.finish()
