"""Which row leaves by a lane, and when; and the calls of its workers, one after the other.

    a row is there? ─> a worker is free? ─> no cooldown, credential free, within the caps ─> ramp ─> permit ─> the row
          └──────────── no: an obstacle; the lane sleeps until a notification or its time ────────────┘

    send ──> function ──> attempt: what it means ──> outcomes: learn, settle ──┐
                ^                                                              │ the next row of the same lane, if
                └───────────────────────── _following ─────────────────────────┘ it may start at once

Nearly all rows of a busy run take the second way: a worker that is free again takes the next row of its lane.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..core.answer_length import TokenCost
from ..core.decision import NEVER, UNKNOWN, Outcome
from ..core.fallback import LONG_QUOTA
from ..engine.lane import LaneWait, Obstacle
from ..engine.supervisor import StopReason
from ..engine.worker_pool import WorkerPool
from ..errors import CircuitOpenError, Refused
from ..limiter.permit import Permit
from .attempt import Attempt
from .config import RunContext
from .cooldowns import Cooldowns
from .item import Item
from .lanes import AFTER_AN_ANSWER, LaneSet, Route, RowLane
from .outcomes import REFUSED_FOR, Outcomes
from .pricing import worth
from .stalls import StandstillDetector

if TYPE_CHECKING:
    from ..credentials import Lease
    from .row_mover import RowMover

LOOK_AGAIN = 5.0
"""Seconds after which a lane looks whether another process or caller has freed its credential."""
OF_A_CREDENTIAL = (LaneWait.CREDENTIAL, LaneWait.CREDENTIAL_HELD, LaneWait.SPEND)
"""What a lane waits for that its credential alone can end."""
_PAUSED, _NO_ROWS = Obstacle(LaneWait.PAUSED), Obstacle(LaneWait.ROWS)
_NO_WORKER, _NO_BUDGET = Obstacle(LaneWait.WORKERS), Obstacle(LaneWait.RETRY_BUDGET)
_NO_MODEL = Obstacle(LaneWait.MODEL)


class RowDispatcher:
    """The driver of all lanes of a run.

    A worker goes on with the next row of its lane as long as no other lane wants a worker. ``function`` calls the
    caller's worker function for one attempt.
    """

    def __init__(
        self,
        context: RunContext,
        *,
        function: Callable[[Attempt], Awaitable[Any]],
        pool: WorkerPool[Attempt],
        lanes: LaneSet,
        outcomes: Outcomes,
        cooldowns: Cooldowns,
        standstill: StandstillDetector,
        mover: RowMover | None = None,
    ) -> None:
        self._context, self._config = context, context.config
        self._clock, self._report, self._events = context.clock, context.report, context.events
        self._backlog, self._supervisor = context.backlog, context.supervisor
        self._limiter, self._budget, self._pause = context.limiter, context.budget, context.pause
        self._function, self._pool, self._lanes, self._mover = function, pool, lanes, mover
        self._outcomes, self._cooldowns, self._standstill = outcomes, cooldowns, standstill
        self._regrouped: dict[str, int] = {}
        self.least_size = UNKNOWN
        """The smallest row seen; only above it there may be something smaller."""

    # ------------------------------------------------------------------ may a row leave?

    def _next_row(self, lane: RowLane, now: float) -> Item | Obstacle:
        """The row whose turn it is, or what keeps it from leaving, as far as can be told without the limiter."""
        route = lane.route
        if self._pause.is_on:
            return _PAUSED
        queue = route.group.queue
        first = self._first(route, now)
        if first is None:
            if len(queue):
                self._report.retries_held += 1
                return _NO_BUDGET  # until one of the retries in flight has ended
            return _NO_ROWS
        if route.group.is_stopped:
            return _NO_MODEL
        if not self._pool.is_turn_of(lane):
            return _NO_WORKER
        if route.cooldown.until > now:
            return Obstacle(LaneWait.COOLDOWN, route.cooldown.until - now)
        if (spend_until := self._cooldowns.spend.until(route.account)) > now:
            return Obstacle(LaneWait.SPEND, spend_until - now)
        if route.label is not None and route.credentials is not None:
            if route.credentials.regrouped != self._regrouped.get(route.account, 0):
                self._regrouped[route.account] = route.credentials.regrouped
                self._lanes.regroup()
            if (rest := self._credential_rest(route)) is not None:
                return rest
        if not self._is_affordable(first):
            in_flight = self._pool.working  # which may turn out cheaper than expected
            if not in_flight and self._budget.is_spent(*worth(first.cost, self._config.prices)):
                self._supervisor.stop(StopReason.CAPS, "the next row could exceed max_tokens or max_cost")
            return Obstacle(LaneWait.CAPS, self._budget.look_again)
        if self._cooldowns.ramp is not None:
            wait = self._cooldowns.ramp_wait()
            if wait > 0.0:
                return Obstacle(LaneWait.RAMP, wait)
        lane.opens_at = NEVER
        return first

    def on_wait(self, lane: RowLane, obstacle: Obstacle) -> float:
        wait, seconds = obstacle
        lane.opens_at = NEVER
        if self._mover is not None and wait is not LaneWait.ROWS:
            self._mover.on_wait(lane)
        if wait is LaneWait.WORKERS:
            return seconds
        lane.has_turn = False
        self._pool.dispatch()
        if wait is not LaneWait.ROWS:
            lane.opens_at = self._clock.now() + seconds
            self._standstill.on_wait()
        return min(seconds, LOOK_AGAIN) if wait in OF_A_CREDENTIAL else seconds

    # ------------------------------------------------------------------ let it leave

    async def send(self, lane: RowLane, now: float) -> Obstacle | None:
        """Get a permit, then let a row leave."""
        route, first = lane.route, self._next_row(lane, now)
        if isinstance(first, Obstacle):
            return first
        try:
            permit = await self._permit_for(lane, first, now)
        except CircuitOpenError as refusal:
            if not route.was_refused:
                self._events.dispatch("circuit_open", route.gate_key, detail=refusal.reason)
            route.was_refused = route.group.queue.is_probing = True
            return Obstacle(LaneWait.CIRCUIT, REFUSED_FOR if refusal.retry_after is None else refusal.retry_after)
        except Refused as refusal:  # too large for this lane, perhaps; it fits another, or would not be here
            route.refused_until, route.refused_why = now + (refusal.retry_after or 0.0), refusal.explanation
            return Obstacle(LaneWait.LIMITER, REFUSED_FOR if refusal.retry_after is None else refusal.retry_after)
        now = self._clock.now()
        if not self._pool.is_free or self._is_held(route, now):
            permit.abandon()
            return None
        lease = self._lease(route)
        if lease is None and route.label is not None:
            permit.abandon()
            held = Obstacle(LaneWait.CREDENTIAL_HELD, LOOK_AGAIN)  # or until a call of this run gives it back
            return self._credential_rest(route) or held
        attempt = self._attempt(lane, permit, lease, now)
        if attempt is not None:
            lane.waits_for, lane.has_turn = LaneWait.NOTHING, False
            attempt.task = self._pool.start(attempt, self._work(attempt))
        return None

    def _following(self, lane: RowLane) -> Attempt | None:
        """The next row of a lane for a worker that is free again, if nothing prevents it. Never waits."""
        route = lane.route
        now = self._clock.now()
        first = self._first(route, now)
        if first is None or first.size > self.least_size or self._is_held(route, now):
            return None
        if self._cooldowns.ramp is not None or not self._is_affordable(first):
            return None
        try:
            permit = self._limiter.try_acquire(route.gate_key, first.asks)
        except Refused:
            return None
        if permit is None:
            return None
        lease = self._lease(route)
        if lease is None and route.label is not None:
            permit.abandon()
            return None
        return self._attempt(lane, permit, lease, now)

    def _first(self, route: Route, now: float) -> Item | None:
        """The row whose turn it is; where a key has none, one of a key whose target cannot take it."""
        queue = route.group.queue
        first = queue.first(now)
        if first is None and self._mover is not None and not len(queue) and self._mover.refill(route.group, now):
            return queue.first(now)
        return first

    def _is_affordable(self, row: Item) -> bool:
        budget = self._budget
        return not budget.is_capped or budget.allows(*worth(row.cost, self._config.prices))

    def _is_held(self, route: Route, now: float) -> bool:
        """Whether something has come in between since the lane was let through."""
        pauses = route.cooldown.until > now or self._cooldowns.spend.until(route.account) > now
        return pauses or route.group.is_stopped or self._pause.is_on

    @staticmethod
    def _credential_rest(route: Route) -> Obstacle | None:
        """The wait for a lane's credential that rests or is retired; None if it does not."""
        if route.label is None or route.credentials is None:
            return None
        back_in = route.credentials.back_in(route.label)
        if back_in == 0.0:
            return None
        is_spend = route.credentials.rests_because(route.label) == Outcome.SPEND.value
        what = LaneWait.SPEND if is_spend else LaneWait.CREDENTIAL
        return Obstacle(what, UNKNOWN if back_in is None else back_in)

    def _lease(self, route: Route) -> Lease | None:
        """A lane's credential, if it has one and it is neither in use nor resting."""
        if route.label is None or route.credentials is None:
            return None
        return route.credentials.try_acquire(route.label, only=True)

    async def _permit_for(self, lane: RowLane, first: Item, now: float) -> Permit:
        """A permit for the first row, or for a smaller one where the first would have to wait.

        It waits in the limiter's queue for as long as a run may stand still. What comes meanwhile and takes longer,
        such as the end of a day's quota, is told at once, and the run can say when to come back.
        """
        gate_key = lane.route.gate_key
        smaller = lane.route.group.queue.smaller(now) if first.size > self.least_size else None
        if smaller is not None:
            permit = self._limiter.try_acquire(gate_key, first.asks)
            if permit is not None:
                return permit
            first = smaller
        self._pool.dispatch()
        lane.waits_for, lane.waits_since = LaneWait.PACE, now
        max_wait = self._config.standstill
        if self._mover is not None and self._mover.moves_for_quota:
            max_wait = LONG_QUOTA if max_wait is None else min(max_wait, LONG_QUOTA)
        return await self._limiter.acquire_async(gate_key, first.asks, max_wait=max_wait)

    def _attempt(self, lane: RowLane, permit: Permit, lease: Lease | None, now: float) -> Attempt | None:
        """Take a row for this permit, and make a call of it; None if there is none any more."""
        route = lane.route
        cost = permit.cost
        item = route.group.queue.take(cost.asked if isinstance(cost, TokenCost) else cost, now)
        if item is None:
            permit.abandon()
            if lease is not None:
                lease.release()
            return None
        self._cooldowns.on_send(route.gate_key, route.cooldown, now, route.account)
        item.leave_queue(permit.waited, now)
        if item.is_parked:
            item.is_parked = False
            self._report.rate_limited_items_redistributed += 1
        attempt = Attempt(item, lane, permit, lease, self._context)
        route.last_sent_at = now
        lane.opens_at = route.refused_until = NEVER
        route.group.feeds = ""
        lane.in_flight += 1
        self._report.calls += 1
        self._standstill.last_start_at = now
        if self._budget.is_capped:
            self._budget.reserve(*worth(item.cost, self._config.prices))
        return attempt

    # ------------------------------------------------------------------ call after call

    async def _work(self, attempt: Attempt) -> None:
        """One worker: the call of this attempt, and then those of the rows that follow by the same lane."""
        pool, outcomes = self._pool, self._outcomes
        ongoing: Attempt | None = attempt
        is_wanted = True
        """Until this task is cancelled from outside."""
        try:
            while ongoing is not None:
                attempt = ongoing
                is_cancelled = pool.is_cancelled
                if not is_cancelled:
                    attempt.has_begun = True
                    try:
                        attempt.complete(await self._function(attempt))
                    except Exception as error:
                        attempt.fail(error)
                    except asyncio.CancelledError:
                        is_cancelled, is_wanted = pool.is_cancelled, False
                        attempt.cancel()
                del pool.working[attempt.task]
                attempt.lane.in_flight -= 1
                outcomes.settle(attempt, outcomes.learn(attempt, is_cancelled))
                self._notify_lanes(attempt)
                ongoing = self._next_after(attempt) if is_wanted else None
            pool.dispatch()
            if not pool.working:  # it may be that nothing can start for hours, which lanes find out
                self._lanes.notify(self._lanes.all(), (LaneWait.COOLDOWN, LaneWait.SPEND, LaneWait.MODEL))
        except Exception as error:
            pool.working.pop(attempt.task, None)
            self._supervisor.fail(error)

    def _next_after(self, attempt: Attempt) -> Attempt | None:
        """The next call of the same worker: of the same lane, unless another wants a worker too."""
        pool, lane = self._pool, attempt.lane
        if self._supervisor.stopped is not None or not pool.is_free or pool.is_wanted_by_others(lane):
            return None
        if lane.waits_for is LaneWait.PACE:  # it is in the limiter's queue already, and nothing passes it there
            return None
        upcoming = self._following(lane)
        if upcoming is not None:
            upcoming.task = attempt.task
            pool.working[upcoming.task] = upcoming
        return upcoming

    def _notify_lanes(self, attempt: Attempt) -> None:
        """An end of a call may be what other lanes wait for."""
        lanes = self._lanes.all() if self._budget.is_capped else attempt.lane.route.group.lanes
        self._lanes.notify(lanes, AFTER_AN_ANSWER)
        if self._supervisor.stopped is not None:
            self._backlog.progress.notify()
