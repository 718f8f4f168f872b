"""One run of a batch: its parts, put together, from the first row to the last.

    intake ─> scheduler ─> lane ─> worker ─> recorder ─> ledger ─> delivery
                  ^                              │ parked, failed
                  └──────────────────────────────┘

A worker is busy only while it works. Recording takes no worker, and a row counts against the window until its result
has been handed out, so memory is bounded by the window alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..clock import Clock
from ..core.decision import UNKNOWN
from ..core.row_state import FailureReason
from ..engine.lane import Alarm, LaneWait
from ..engine.scheduler import Scheduler
from ..engine.supervisor import PauseSwitch, Stop, StopReason, Supervisor
from ..engine.worker_pool import Recorder, WorkerPool
from ..events import BatchEvent, EventDispatcher, Listener
from ..formatting import format_seconds
from ..limiter import AdaptiveRateLimiter
from ..resilience.classify import ClassifyError
from .attempt import Attempt, WorkerFunction
from .config import BatchConfig, RunContext
from .cooldowns import NOTE_EVERY, CooldownNotes, Cooldowns
from .dispatcher import RowDispatcher
from .intake import Intake, Items, RowFunctions
from .item import Backlog, Delivery, Encode, Item
from .lanes import FOR_ROWS, LaneSet, LaneStanding, RunStatus, lane_standings
from .ledger import Change, Ledger
from .outcomes import Outcomes
from .pricing import Budget, FixedBudget
from .report import BatchReport
from .stalls import StandstillDetector

if TYPE_CHECKING:
    from ..credentials import CredentialCoordinator
    from .row_targets import RowTargets

GIVEN_BACK_AT_ONCE = 1000
UNRECORDED_PER_WORKER = 4
"""Calls for each worker whose outcomes may be unrecorded while it works on; more would be repeated after a crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a runner was given, for all of its runs."""

    config: BatchConfig
    clock: Clock
    rng: random.Random
    workers: int
    limiter: AdaptiveRateLimiter
    credentials_of: Callable[[str], CredentialCoordinator | None]
    """By key."""
    account_of: Callable[[str], str]
    gate_keys: Callable[[str], Mapping[str | None, str]]
    functions: RowFunctions
    encode: Encode | None
    identity: Mapping[str, str]
    classify_error: ClassifyError | None
    listener: Callable[[], Listener | None]
    pause: PauseSwitch
    budget: Budget | None = None
    """Shared with other runs; None is what ``config`` has."""
    fallbacks: RowTargets | None = None
    """Where rows go that the primary target cannot take."""


class Run:
    """Builds the parts of one run, and runs them."""

    def __init__(
        self,
        settings: RunSettings,
        items: Items,
        worker: WorkerFunction,
        ledger: Ledger,
        *,
        streaming: bool,
        in_order: bool,
    ) -> None:
        config, clock = settings.config, settings.clock
        self._config, self._clock, self._limiter = config, clock, settings.limiter
        self._ledger, self._identity = ledger, settings.identity
        self._began_at = clock.now()
        self._ends_at = UNKNOWN if config.deadline is None else self._began_at + config.deadline
        self.report = BatchReport()
        self._events = EventDispatcher(BatchEvent, clock, settings.listener)
        self.supervisor = Supervisor(self._on_stop)
        self._backlog = Backlog(clock)
        self._alarm = Alarm(clock)
        self._fixed_budget = FixedBudget(config.max_tokens, config.max_cost)
        context = RunContext(
            config=config,
            clock=clock,
            rng=settings.rng,
            limiter=settings.limiter,
            budget=self._fixed_budget if settings.budget is None else settings.budget,
            pause=settings.pause,
            backlog=self._backlog,
            report=self.report,
            events=self._events,
            supervisor=self.supervisor,
            classify_error=settings.classify_error,
            ends_at=self._ends_at,
        )
        self.delivery = Delivery(clock, in_order, self._backlog.free) if streaming else None
        self._scheduler: Scheduler[Item] = Scheduler(config.retry_budget)
        self._pool: WorkerPool[Attempt] = WorkerPool(
            settings.workers, max_open=(1 + UNRECORDED_PER_WORKER) * settings.workers
        )
        self._recorder: Recorder[Change] = Recorder(
            ledger.record_all, self._pool, self.supervisor, patience=ledger.patience, on_written=self._on_written
        )
        cooldowns = Cooldowns(context, on_change=lambda: self._alarm.wake_by(self._notes.due_at))
        self._notes = CooldownNotes(ledger, cooldowns)
        self._lanes = LaneSet(
            context,
            scheduler=self._scheduler,
            cooldowns=cooldowns,
            gate_keys=settings.gate_keys,
            credentials_of=settings.credentials_of,
            account_of=settings.account_of,
        )
        self._mover = None
        if settings.fallbacks is not None:
            from .row_mover import RowMover  # here, because few runs have fallbacks

            self._mover = RowMover(
                settings.fallbacks, context, lanes=self._lanes, cooldowns=cooldowns, requeue=self._requeue
            )
        self._outcomes = Outcomes(
            context,
            recorder=self._recorder,
            scheduler=self._scheduler,
            requeue=self._requeue,
            cooldowns=cooldowns,
            delivery=self.delivery,
            encode=settings.encode,
            mover=self._mover,
        )
        self._standstill = StandstillDetector(context, self._lanes, self._pool)
        self._dispatcher = RowDispatcher(
            context,
            function=worker,
            pool=self._pool,
            lanes=self._lanes,
            outcomes=self._outcomes,
            cooldowns=cooldowns,
            standstill=self._standstill,
            mover=self._mover,
        )
        self._lanes.start(self._dispatcher)
        self._intake = Intake(
            items,
            settings.functions,
            context,
            ledger=ledger,
            pool=self._pool,
            scheduler=self._scheduler,
            lanes=self._lanes,
            requeue=self._requeue,
            outcomes=self._outcomes,
            delivery=self.delivery,
            mover=self._mover,
        )
        self._reading: asyncio.Task[None] | None = None
        self._timing: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ from the first row to the last

    async def go(self) -> None:
        """From the first row to the last, or until it is stopped. However it ends, no row stays claimed."""
        supervisor, backlog = self.supervisor, self._backlog
        try:
            counts = await self._ledger.begin(self._identity)
            self._fixed_budget.charge(counts.tokens, counts.cost)
            await self._notes.read()
            self._reading = supervisor.start(self._read(counts.seen))
            self._timing = supervisor.start(self._keep_time())
            while not backlog.is_done and (supervisor.stopped is None or self._pool.working):
                await backlog.progress.wait()
        except asyncio.CancelledError:
            supervisor.stop(StopReason.CANCELLED, now=True)
            raise
        finally:
            await self._close()
        if supervisor.failure is not None:
            raise supervisor.failure

    async def _read(self, rows_known: int) -> None:
        await self._intake.read(rows_known)
        self._backlog.end_of_input()
        self._lanes.notify(self._lanes.all(), (LaneWait.MODEL,))

    async def _keep_time(self) -> None:
        """See to what is due: rows to be tried again, rows that are late, the end of the run, notes for the next."""
        scheduler, standstill, notes = self._scheduler, self._standstill, self._notes
        while True:
            now = self._clock.now()
            for item in scheduler.due(now):
                self._requeue(item, now)
            for item in scheduler.late(now):
                late = f"not done within {format_seconds(self._config.item_deadline or 0.0)}"
                self._outcomes.mark_dead(item, FailureReason("deadline", late))
            if now >= self._ends_at:
                over = f"after {format_seconds(now - self._began_at)}"
                self.supervisor.stop(StopReason.DEADLINE, over, now=True)
            standstill.on_time(now, self._backlog.unfinished > 0)
            await notes.write_if_due(now)
            until = min(scheduler.next_at(), self._ends_at, standstill.gives_up_at, notes.due_at)
            await self._alarm.sleep_until(until if until > now else now + NOTE_EVERY)

    async def _close(self) -> None:
        tasks = [task for task in (self._reading, self._timing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._lanes.cancel(), return_exceptions=True)
        await self._pool.drain()
        await self._recorder.drain()
        if self._reading is not None and self.supervisor.failure is None:
            waiting = [item for item in self._scheduler.clear() if not item.is_stored]
            for first in range(0, len(waiting), GIVEN_BACK_AT_ONCE):
                for item in waiting[first : first + GIVEN_BACK_AT_ONCE]:
                    self._outcomes.return_to_ledger(item)
                await self._recorder.drain()
            await self.supervisor.guarded(self._notes.write)
        self.note_elapsed()
        if self.delivery is not None:
            self.delivery.close()

    def _requeue(self, item: Item, now: float) -> None:
        """Let a row wait for its time, or for a lane."""
        if item.size < self._dispatcher.least_size:
            self._dispatcher.least_size = item.size
        if self._scheduler.put(item, now):
            self._lanes.notify(self._lanes.group(item.key).lanes, FOR_ROWS)
            if self._mover is not None:
                self._mover.on_queued(item)
        else:
            self._alarm.wake_by(item.ready_at)

    # ------------------------------------------------------------------ stopping, pausing

    def _on_stop(self, stop: Stop, now: bool) -> None:
        if self.report.stop is None:
            self.report.stop = stop
            self._events.dispatch("stopped", reason=stop.reason.value, detail=stop.detail)
        if self._reading is not None:
            self._reading.cancel()
        self._lanes.cancel()
        if now:
            self._pool.cancel(lambda attempt: attempt.has_begun)
        self._backlog.progress.notify()

    def resume(self) -> None:
        """An operator lets rows start again."""
        self._standstill.last_start_at = self._clock.now()
        self._lanes.notify_all()

    def _on_written(self) -> None:
        self._events.end_batch()
        if self.supervisor.stopped is not None:
            self._backlog.progress.notify()

    # ------------------------------------------------------------------ status

    def note_elapsed(self) -> None:
        self.report.elapsed = self._clock.now() - self._began_at

    def lanes(self, most: int) -> list[LaneStanding]:
        return lane_standings(self._lanes, self._limiter, self._clock.now(), most)

    def status(self) -> RunStatus:
        delayed, next_at = self._scheduler.delayed()
        return RunStatus(
            in_flight=len(self._pool.working),
            held=self._backlog.held,
            later=delayed,
            next_in=None if next_at == UNKNOWN else max(0.0, next_at - self._clock.now()),
            is_stopping=self.supervisor.stopped is not None,
        )
