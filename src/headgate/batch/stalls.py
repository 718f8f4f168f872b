"""Notice that it is no use to go on: nothing can start for too long, or the target does not answer any more.

An open circuit still lets a probe through now and then, so a run against a server that has vanished is never quite
still: it would lose a row to each few probes, for as long as it is left alone. That is what ``NoResponseMonitor`` is
for; ``StandstillDetector`` is for everything else that holds all lanes back.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from ..clock import Clock
from ..core.decision import UNKNOWN
from ..engine.lane import LaneWait
from ..engine.supervisor import Stop, StopReason
from ..engine.worker_pool import WorkerPool
from ..formatting import format_seconds
from .config import BatchConfig, RunContext
from .lanes import LaneSet, RowLane, lane_reason
from .report import BatchReport

NEVER_ANSWERED = 60.0
"""Seconds after which a run is stopped that has had no answer at all."""
FEWEST_FAILURES = 5
MOST_NAMED = 5
"""Models that are named when a run stops because the server does not have them."""
_NO_FAULT_OF_ROWS = ("transient", "overloaded")


class StandstillDetector:
    """Stops a run once no lane can start anything for longer than ``BatchConfig.standstill`` seconds."""

    def __init__(self, context: RunContext, lanes: LaneSet, pool: WorkerPool[Any]) -> None:
        patience = context.config.standstill
        self._patience = UNKNOWN if patience is None else patience
        self._clock, self._report = context.clock, context.report
        self._backlog, self._supervisor = context.backlog, context.supervisor
        self._lanes, self._pool, self._limiter, self._pause = lanes, pool, context.limiter, context.pause
        self.last_start_at = self._clock.now()
        """When a call last started, or an operator's pause ended."""

    @property
    def gives_up_at(self) -> float:
        """When a run is stopped in which nothing starts until then."""
        return self.last_start_at + self._patience

    def on_wait(self) -> None:
        """A lane has to wait: if all have to, and for too long, waiting is no use."""
        if self._pool.working or self._supervisor.stopped is not None or self._pause.is_on:
            return
        waiting = [lane for lane in self._lanes.all() if len(lane.route.group.queue) and not lane.route.group.feeds]
        lanes = [lane for lane in waiting if not lane.route.group.is_stopped]
        if not lanes:
            if waiting and (self._backlog.is_read or self._backlog.awaits_room):
                self._stop_without_models(waiting)
            return
        first = min(lanes, key=lambda lane: lane.opens_at)
        opens_in = first.opens_at - self._clock.now()
        if opens_in == UNKNOWN and all(lane.waits_for is LaneWait.CREDENTIAL for lane in lanes):
            self._supervisor.stop(StopReason.NO_CREDENTIAL, "no key is accepted any more")
        elif opens_in >= self._patience or (self._patience != UNKNOWN and first.waits_for is LaneWait.SPEND):
            self._stop(first, None if opens_in == UNKNOWN else opens_in)

    def on_time(self, now: float, has_rows: bool) -> None:
        """Look whether nothing has started for too long."""
        if self._pause.is_on:  # an operator wants it so
            self.last_start_at = now
        if now >= self.gives_up_at and not self._pool.working and has_rows:
            self._stop(None, None)

    def _stop(self, lane: RowLane | None, seconds: float | None) -> None:
        report = self._report
        report.come_back_in = seconds
        if lane is not None:
            report.held_by = lane.waits_for.value
            report.held_why = lane_reason(lane, self._limiter, self._clock.now(), for_how_long=seconds is None)
        hint = "" if seconds is None else f"; try again in {format_seconds(seconds)}"
        self._supervisor.stop(StopReason.STANDSTILL, f"nothing can start{hint}")

    def _stop_without_models(self, lanes: list[RowLane]) -> None:
        said = {lane.route.group.key: lane.route.last_failure for lane in lanes}
        self._report.held_by = LaneWait.MODEL.value
        self._report.held_why = lane_reason(lanes[0], self._limiter, self._clock.now())
        detail = "; ".join(f"{key}: {failure}" if failure else key for key, failure in islice(said.items(), MOST_NAMED))
        self._supervisor.stop(StopReason.NO_MODEL, detail)


class NoResponseMonitor:
    """Notices that calls have no answers, or that no row is done any more."""

    def __init__(self, config: BatchConfig, timeout: float, clock: Clock) -> None:
        self._clock = clock
        self._patience = None if config.standstill is None else max(config.standstill, 2 * timeout)
        self._since = clock.now()
        """When a row was last done, or the run began."""
        self._progress = 0
        self._answers = 0
        self._unanswered = 0
        self.last_error = ""
        """What went wrong with the last call that had no answer."""

    @property
    def is_silent(self) -> bool:
        """Whether the last call had no answer."""
        return self._unanswered > 0

    def on_answer(self) -> None:
        """An answer came, good or bad."""
        self._answers += 1
        self._unanswered = 0

    def on_no_answer(self, error: str) -> None:
        self._unanswered += 1
        self.last_error = error

    def check(self, report: BatchReport, *, is_paused: bool = False) -> Stop | None:
        """Why it is no use to go on."""
        now = self._clock.now()
        progress = report.done + report.dead - sum(report.reasons[word] for word in _NO_FAULT_OF_ROWS)
        if progress != self._progress or not report.calls or is_paused:
            self._progress, self._since = progress, now
        if self._patience is None:
            return None
        waited = now - self._since
        if not self._answers and self._unanswered >= FEWEST_FAILURES and waited >= NEVER_ANSWERED:
            return Stop(StopReason.SILENT, self.last_error)
        if waited >= self._patience:
            hint = f" ({self.last_error})" if self._unanswered else ""
            return Stop(StopReason.SILENT, f"no row has finished for {format_seconds(waited)}{hint}")
        return None
