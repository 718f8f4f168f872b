"""One run of a batch: rows come in, lanes send them off, and what becomes of each is written down before it is told.

    intake ─> window ─> lane ─> worker ─> ledger ─> delivery
                ^                           │ parked, failed
                └───────────────────────────┘

A worker is busy only while it works. Writing down takes no worker, and a row counts against the
window until its result has been handed out, so memory is bounded by the window alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..core.decision import UNKNOWN, Outcome
from ..errors import CostTooLargeError, Failed
from ..limiter.checks import check_cost
from ..wire.redaction import for_display
from .bell import Bell
from .crew import Crew
from .delivery import Delivery
from .fates import Fates
from .intake import Intake, Items
from .item import Item
from .lanes import Lane
from .ledger import Claim, Row, RowState
from .pauses import Pauses
from .recorder import Recorder
from .report import BatchReport
from .spending import Spending
from .telling import Telling
from .timekeeper import Timekeeper
from .window import Window

if TYPE_CHECKING:
    from .runner import BatchRunner

GIVEN_BACK_AT_ONCE = 1000
MANY_LANES = 1000
"""Lanes that may stand idle before they are looked through for some to close."""


class Run:
    def __init__(self, runner: BatchRunner, items: Items, *, streaming: bool, in_order: bool) -> None:
        self.runner = runner
        self.config, self.clock, self.limiter = runner.config, runner.clock, runner.limiter
        self.credentials, self.ledger, self.row_of = runner.credentials, runner.ledger, runner.row_of
        self.classify_error = runner.classify_error
        self.report = BatchReport()
        self.telling = Telling(self.clock, lambda: runner.on_event)
        self.tell = self.telling.tell
        self.spending = Spending(self.config)
        self.window = Window(self.config.retry_budget)
        self.pauses = Pauses(self.config, self.limiter, self.clock, runner.rng, self.report, self.all_lanes, self.tell)
        self.delivery = Delivery(self.clock, in_order, self.handed_out) if streaming else None
        self.intake = Intake(self, items)
        self.lanes: dict[str, list[Lane]] = {}
        self._lane_tasks: dict[Lane, asyncio.Task[None]] = {}
        self._look_through_at = MANY_LANES
        self.recorder = Recorder(self)
        self.crew = Crew(self, runner.workers)
        self._helpers: list[asyncio.Task[None]] = []
        """Who reads the input, and who keeps the time."""
        self.least_cost = UNKNOWN
        """The smallest cost seen; above it there may be something smaller."""
        self.held = 0
        """Rows in memory."""
        self.leaving = 0
        """... that are being given back to be read again later."""
        self.unfinished = 0
        self.fed = False
        self.stopping = ""
        """Why nothing starts any more."""
        self.failure: BaseException | None = None
        self.fates = Fates(self)
        self.news = Bell(self.clock)
        """Rings when the run may be over."""
        self.timekeeper = Timekeeper(self)

    # ------------------------------------------------------------------ rows come in

    def take_up(self, row: Row, claim: Claim, value: Any, now: float) -> None:
        """A row is ours to do."""
        runner = self.runner
        item = Item(row, claim, value, now)
        self.held += 1
        self.unfinished += 1
        if self.delivery is not None:
            self.delivery.expect(item.index)
        if self.config.item_deadline is not None:
            item.deadline_at = now + self.config.item_deadline
            self.window.watch(item)
        try:
            item.describe(runner.key_of(value), runner.cost_of(value), runner.priority_of(value))
            if item.cost != 1:
                self._weigh(item)
        except CostTooLargeError as error:
            return self.fates.bury(item, f"too_large: {error.reason}", error)
        except Failed as error:  # it knows what it counts as, and says why
            return self.fates.bury(item, for_display(f"{(error.outcome or Outcome.INVALID).value}: {error}"), error)
        except Exception as error:
            return self.fates.bury(item, f"invalid: {type(error).__name__}: its key, cost or priority", error)
        if item.size < self.least_cost:
            self.least_cost = item.size
        if claim.ready_at:
            item.ready_at = now + max(0.0, claim.ready_at - self.clock.wall())
        return self.put(item, now)

    def _weigh(self, item: Item) -> None:
        """See what it asks of the limiter; raises if it fits no lane of its key."""
        check_cost(item.cost)
        *others, last = self.lanes_of(item.key)
        item.ask(last.shelf.has_limits)
        if not last.shelf.has_limits:
            return None
        for lane in others:
            with contextlib.suppress(CostTooLargeError):
                return self.limiter.check(lane.gate_key, item.cost)
        return self.limiter.check(last.gate_key, item.cost)

    def pass_over(self, state: RowState) -> None:
        """A row is somebody else's, or was done before."""
        if state.final:
            self.report.skipped += 1
        else:
            self.report.elsewhere += 1

    def put(self, item: Item, now: float) -> None:
        """Let it wait for its time, or for a lane."""
        if self.window.put(item, now):
            for lane in self.lanes_of(item.key):
                if lane.waits_for in ("rows", "retry_budget"):
                    lane.bell.ring()
        else:
            self.timekeeper.wake_by(item.ready_at)

    def lanes_of(self, key: str) -> list[Lane]:
        lanes = self.lanes.get(key)
        if lanes is None:
            if len(self._lane_tasks) >= self._look_through_at:
                self._close_idle_lanes()
            shelf = self.window.shelf(key)
            gate_keys = self.runner.gate_keys(key)
            lanes = self.lanes[key] = [Lane(self, shelf, label, gate_key) for label, gate_key in gate_keys.items()]
            shelf.has_limits = self.runner.has_limits(key)
            for lane in lanes:
                self._lane_tasks[lane] = asyncio.create_task(self.guarded(lane.go))
        return lanes

    def all_lanes(self) -> list[Lane]:
        return list(self._lane_tasks)

    def _close_idle_lanes(self) -> None:
        for key, lanes in list(self.lanes.items()):
            if not len(lanes[0].shelf) and all(lane.waits_for == "rows" and not lane.in_flight for lane in lanes):
                for lane in lanes:
                    self._lane_tasks.pop(lane).cancel()
                del self.lanes[key], self.window.shelves[key]
        self._look_through_at = MANY_LANES + 2 * len(self._lane_tasks)

    def row_left(self) -> None:
        """A row is written down for good, given back, or another's."""
        self.unfinished -= 1
        if not self.unfinished and self.fed:
            self.news.ring()

    def handed_out(self) -> None:
        """A row is out of memory: there is room for another."""
        self.held -= 1
        self.intake.room.ring()

    # ------------------------------------------------------------------ from the first row to the last

    async def go(self) -> None:
        """From the first row to the last, or until it is stopped. However it ends, nothing is left held."""
        try:
            counts = await self.ledger.begin(self.runner.identity)
            self.spending.charge(counts.tokens, counts.cost)
            self.intake.known = counts.seen
            await self.timekeeper.read_notes()
            works = (self._feed, self.timekeeper.keep_time)
            self._helpers = [asyncio.create_task(self.guarded(work)) for work in works]
            while not (self.stopping and not self.crew.working) and not (self.fed and not self.unfinished):
                await self.news.wait()
        except asyncio.CancelledError:
            self.stop("cancelled", now=True)
            raise
        finally:
            await self._close()
        if self.failure is not None:
            raise self.failure

    def stop(self, reason: str, *, now: bool = False) -> None:
        """Start nothing any more; ``now``: and wait for nothing that is under way."""
        if not self.stopping:
            self.stopping = self.report.stopped = reason
            self.tell("stopped", reason=reason)
        for task in (*self._helpers[:1], *self._lane_tasks.values()):
            task.cancel()
        if now:
            self.crew.cut_short()
        self.news.ring()

    @property
    def is_paused(self) -> bool:
        return self.runner.is_paused

    def resume(self) -> None:
        """An operator lets rows start again."""
        self.timekeeper.last_start_at = self.clock.now()
        for lane in self.all_lanes():
            lane.bell.ring()

    def fail(self, error: BaseException) -> None:
        """Something is wrong that no row is to blame for."""
        if self.failure is None:
            self.failure = error
        self.stop(f"failed: {type(error).__name__}", now=True)

    async def _close(self) -> None:
        tasks = (*self._helpers, *self._lane_tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.crew.go_home()
        if self._helpers and self.failure is None:
            waiting = [item for item in self.window.clear() if not item.put_aside]
            for first in range(0, len(waiting), GIVEN_BACK_AT_ONCE):
                some = waiting[first : first + GIVEN_BACK_AT_ONCE]
                for item in some:
                    self.fates.give_back(item)
                await self.crew.go_home()
            await self.guarded(self.timekeeper.take_note)
        self.report.elapsed = self.clock.now() - self.timekeeper.began_at
        if self.delivery is not None:
            self.delivery.close()

    # ------------------------------------------------------------------ on the way

    async def _feed(self) -> None:
        await self.intake.read()
        self.fed = True
        self.news.ring()

    def caps_reached(self) -> None:
        """The next row could spend more than is allowed; what is in flight may turn out cheaper than expected."""
        if not self.crew.working:
            self.stop("caps: the next row could spend more than max_tokens or max_cost allow")

    async def guarded(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """What goes wrong in a task of ours ends the run instead of being lost with the task."""
        try:
            await work(*arguments)
        except Exception as error:
            self.fail(error)
