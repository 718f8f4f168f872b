"""What becomes of a row: every end of a call is learned from at once, and written down before anybody hears of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..core.decision import CircuitState, Outcome
from ..core.words import span
from .attempt import Attempt
from .item import Item, Result
from .ledger import RowState

if TYPE_CHECKING:
    from .run import Run

log = logging.getLogger("headgate.batch")

REFUSED_FOR = 1.0
"""Seconds after which a row is tried again that a gate inside of its worker has refused without saying for how long."""
EVENTS = {state: f"item_{state.value}" for state in RowState}
"""What is told of a row that goes there."""


class Fates:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._rng = run.runner.rng

    def learn(self, attempt: Attempt, cut_short: bool) -> RowState:
        """Take in how a call ended, before anything else may start. Returns where its row goes."""
        run, item = self._run, attempt.item
        if run.spending.is_capped:
            run.spending.free(item.cost)
        if item.failed:
            attempt.lane.shelf.budget.ended()
        if cut_short or attempt.ran_out:
            attempt.let_go()
            return RowState.DEAD if attempt.ran_out else RowState.PENDING
        attempt.give_back()
        outcome = attempt.verdict.signal.outcome
        run.report.attempts += outcome.uses_attempt
        self._charge(attempt, outcome)
        self._pause(attempt, outcome)
        return attempt.next_state()

    def _charge(self, attempt: Attempt, outcome: Outcome) -> None:
        """What the call has used up: what was said, else for a success what was expected."""
        run, item = self._run, attempt.item
        if attempt.charged is not None:
            tokens, money = attempt.charged
        elif attempt.real_cost is not None:
            tokens, money = run.spending.worth(attempt.real_cost)
        elif outcome is Outcome.OK and (item.cost != 1 or run.config.prices):
            tokens, money = run.spending.worth(item.cost)
        else:
            return
        item.tokens += tokens
        item.money += money
        run.report.tokens += round(tokens)
        run.report.cost += money
        run.spending.charge(tokens, money)

    def _pause(self, attempt: Attempt, outcome: Outcome) -> None:
        """Let those pause, or come back, whom it concerns."""
        pauses, lane, signal = self._run.pauses, attempt.lane, attempt.verdict.signal
        if outcome is Outcome.OK:
            lane.shelf.failures_in_a_row = 0
            lane.pause.cleared(attempt.sent_at)
            if pauses.ramp is not None:
                pauses.ended(True)
            if lane.was_refused and attempt.permit.gate.breaker.state is CircuitState.CLOSED:
                lane.was_refused = lane.shelf.probing = False
                pauses.circuit_closed()
        elif outcome is Outcome.RATE_LIMITED:
            pauses.limited(lane, attempt.sent_at, signal)
        elif outcome is Outcome.QUOTA_EXHAUSTED and self._run.credentials is None:
            pauses.exhausted(lane, signal)
        elif outcome.counts_against_target:
            lane.shelf.failures_in_a_row += 1
            pauses.ended(False)
        if pauses.changed:
            self._run.timekeeper.hear_of_pauses()

    # ------------------------------------------------------------------ where it goes

    def write(self, attempt: Attempt, state: RowState) -> None:
        """Write down where the row goes, and let it go there."""
        run, item, outcome = self._run, attempt.item, attempt.verdict.signal.outcome
        if state is RowState.DONE:
            attempt.lane.last_failure = ""
            return self._finish(item, state, "", attempt)
        if state is RowState.PENDING:
            return self.give_back(item)
        reason = attempt.reason()
        attempt.lane.last_failure = reason.partition(":")[2].strip()
        if state is not RowState.DEAD:
            return self._put_aside(attempt, state, reason)
        if attempt.ran_out:
            reason = f"deadline: not done within {span(run.config.item_deadline or 0.0)}"
        elif outcome.value in run.config.fail_fast:
            run.stop(f"fail_fast: row {item.index + 1}: {reason}")
            if outcome.needs_other_credential:  # no fault of the row's
                return self.give_back(item)
        return self._finish(item, state, reason, attempt)

    def _put_aside(self, attempt: Attempt, state: RowState, reason: str) -> None:
        """Parked or failed: it waits in the window, and the ledger knows until when."""
        run, item, now = self._run, attempt.item, self._run.clock.now()
        item.failed = state is RowState.FAILED
        item.parked = not item.failed
        item.why, item.since = "backoff" if item.failed else "cooldown", now
        item.ready_at = now + self._own_wait(attempt)
        opens_at = max(item.ready_at, min(lane.pause.until for lane in run.lanes_of(item.key)))
        if opens_at >= item.deadline_at:
            reason = f"deadline: to be tried again in {span(opens_at - now)}, later than it must be done ({reason})"
            return self._finish(item, RowState.DEAD, reason, attempt)
        run.report.rate_limited_items_stored += item.parked
        run.tell(EVENTS[state], attempt.lane.gate_key, item, reason=reason, seconds=opens_at - now)
        change = item.change(state, reason, run.clock.wall() + opens_at - now)
        return run.recorder.put(change, partial(self._is_put_aside, item))

    def _is_put_aside(self, item: Item, kept: bool) -> None:
        run = self._run
        if not kept:
            return self._lost(item)
        item.told()
        item.put_aside = True
        if not run.stopping:
            run.put(item, run.clock.now())
        return None

    def _own_wait(self, attempt: Attempt) -> float:
        """Seconds before this row goes again, whatever its lanes say: one whose lane pauses may go by another."""
        outcome, item = attempt.verdict.signal.outcome, attempt.item
        if outcome is Outcome.ABANDONED:
            return attempt.verdict.signal.retry_after or REFUSED_FOR
        if item.failed:
            draw = self._rng.random()
            return attempt.spared_wait(draw) if attempt.is_outage else attempt.backoff(draw, item.attempts)
        elsewhere = outcome.needs_other_credential or attempt.lane.pause.until > self._run.clock.now()
        return 0.0 if elsewhere or attempt.is_probe else attempt.backoff(self._rng.random(), item.rate_limited)

    def bury(self, item: Item, reason: str, error: BaseException | None = None) -> None:
        """A row that waits is dead."""
        item.place = ""
        self._finish(item, RowState.DEAD, reason, None, error)

    def _finish(
        self, item: Item, state: RowState, reason: str, attempt: Attempt | None, error: BaseException | None = None
    ) -> None:
        """Write down how a row has ended, to hand it out then."""
        run = self._run
        encode = run.runner.encode
        result, line = None, b""
        if run.delivery is not None or encode is not None:
            result = _result(item, state, reason, attempt, error)
            try:
                line = b"" if encode is None else encode(result)
            except Exception as failure:
                state, reason = RowState.DEAD, f"unwritable: {type(failure).__name__}: the result makes no line"
                result = _result(item, state, reason, attempt, failure)
        if run.delivery is None:
            result = None
        status = None if attempt is None or state is RowState.DONE else attempt.status
        run.recorder.put(
            item.change(state, reason, result=line), partial(self._is_finished, item, state, reason, result, status)
        )

    def _is_finished(
        self, item: Item, state: RowState, reason: str, result: Result | None, status: int | None, kept: bool
    ) -> None:
        run = self._run
        if not kept:
            return self._lost(item)
        run.report.note_final(state, reason, item.totals()[2], item.called if state is RowState.DEAD else "", status)
        if state is RowState.DEAD and run.report.is_hopeless(run.config.hopeless_after):
            run.stop(f"hopeless: {reason}")
        if state is RowState.DEAD:
            code = reason.partition(":")[0]  # what follows may quote the server
            facts = {"event": EVENTS[state], "reason": code}
            log.warning("%s row %d is dead: %s", item.key, item.index + 1, code, extra=facts)
        if run.runner.on_event is not None:
            run.telling.tell_end(EVENTS[state], item, reason)
        self._leaves(item)
        if run.delivery is None or result is None:
            run.handed_out()
        else:
            run.delivery.put(result)
        return None

    def leave(self, item: Item) -> None:
        """Give it back for now: its key pauses, and its place is wanted. Whoever reads it again goes on with it."""
        self._run.report.elsewhere += 1
        self._run.leaving += 1
        self.give_back(item, self._is_left)

    def _is_left(self, item: Item) -> None:
        self._run.leaving -= 1
        self._leaves(item)
        self._run.handed_out()

    def give_back(self, item: Item, then: Callable[[Item], None] | None = None) -> None:
        """The next run will do it, with what it has waited and spent so far; not before its time, if it has one."""
        run = self._run
        left = item.ready_at - run.clock.now()
        state, ready_at = (RowState.FAILED, run.clock.wall() + left) if left > 0.0 else (RowState.PENDING, 0.0)
        run.recorder.put(item.change(state, ready_at=ready_at), lambda _: (then or self._leaves)(item))

    def _lost(self, item: Item) -> None:
        """Another process has taken the row over; the result is its affair."""
        self._run.report.elsewhere += 1
        self._run.tell("item_lost", item.key, item)
        self._leaves(item)
        if self._run.delivery is not None:
            self._run.delivery.skip(item.index)
        self._run.handed_out()

    def _leaves(self, item: Item) -> None:
        """It is nobody's concern any more."""
        self._run.window.forget(item)
        self._run.row_left()


def _result(item: Item, state: RowState, reason: str, attempt: Attempt | None, error: BaseException | None) -> Result:
    tokens, money, waited = item.totals()
    result = Result(
        index=item.index,
        name=item.name,
        item=item.value,
        state=state,
        value=None if attempt is None else attempt.value,
        reason=reason,
        attempts=item.attempts,
        rate_limited=item.rate_limited,
        tokens=round(tokens),
        cost=money,
        waited=waited,
    )
    if state is RowState.DEAD:
        result.error = error if attempt is None else attempt.error
    return result
