"""A batch for a monitor: rows done and to go, what each blocked lane waits for, how many rows wait behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from ...batch.dispatcher import OF_A_CREDENTIAL
from ...batch.job import Job
from ...batch.lanes import LaneStanding
from ...batch.ledger import Counts, RowState
from ...batch.report import COUNTERS, BatchReport, FailureGroup
from ...batch.runner import BatchRunner
from ...core.decision import LONGEST_WAIT
from ...core.row_state import FailureReason
from ...events import EventRecord
from ...formatting import for_display
from ...limiter import AdaptiveRateLimiter
from ...limiter.key_lines import Cause
from ...reason_text import elsewhere_text, retries_text, workers_text
from ..hub import EventEmitter
from ..snapshot import DeadLine, ProgressLine, WaitLine
from . import ORDINARY, LastCauses, RecentRate, States, Waits
from .program import status_text

if TYPE_CHECKING:
    from ...credentials import CredentialCoordinator

MOST_LANES = 200
MOST_NAMED = 3
"""Other processes that are named."""
_NOT_ITS_OWN = ("", "rows", "workers", "paused")
"""What a lane waits for that does not concern its key."""


class JobSource:
    """A ``Job``, or a ``BatchRunner`` of a program's own."""

    kind = "run"

    def __init__(self, job: Job | BatchRunner, rows: Callable[[], int | None] | None = None) -> None:
        """``rows``: how many there are, where that is known from elsewhere."""
        self._job = job if isinstance(job, Job) else None
        self._runner = job.runner if isinstance(job, Job) else job
        self._rows = rows
        self._recent = RecentRate()
        self._causes: LastCauses[LaneStanding] = LastCauses(lambda lane: lane.gate_key)
        self.title = "" if self._job is None else _title(self._job)
        self.clock = self._runner.clock
        self.limiter: AdaptiveRateLimiter | None = self._runner.limiter
        self.coordinators: Mapping[str, CredentialCoordinator] = self._runner.coordinators
        self.emitters: Sequence[EventEmitter] = (self._runner,)
        self.on_event: Callable[[EventRecord], None] | None = None

    # ------------------------------------------------------------------ how far

    def progress(self) -> ProgressLine:
        counts, total = self._counts()
        done, dead = counts.states.get(RowState.DONE, 0), counts.states.get(RowState.DEAD, 0)
        rate = self._recent.rate(self.clock.now(), done + dead, is_paused=self._runner.is_paused)
        return ProgressLine(
            total=total,
            done=done,
            dead=dead,
            open=counts.open,
            in_flight=self._runner.status().in_flight,
            parked=counts.states.get(RowState.PARKED, 0) + counts.states.get(RowState.FAILED, 0),
            rate=rate,
            eta=None if total is None or not rate else max(0, total - done - dead) / rate,
            tokens=counts.tokens,
            cost=counts.cost,
        )

    def _counts(self) -> tuple[Counts, int | None]:
        """Counts, and how many rows there are: of a job's whole ledger, or of what a runner alone has done."""
        known = None if self._rows is None else self._rows()
        job = self._job
        if job is None:
            report = self._runner.report
            states = {RowState.DONE: report.done + report.skipped, RowState.DEAD: report.dead}
            seen = report.seen - report.elsewhere
            counts = Counts(seen=seen, states=states, tokens=report.tokens, cost=report.cost)
        else:
            counts = job.report.counts
            known = known if job.report.rows is None else job.report.rows
        final = counts.states.get(RowState.DONE, 0) + counts.states.get(RowState.DEAD, 0)
        return counts, None if known is None else max(known, final)

    def dead(self) -> list[DeadLine]:
        """Failed rows by reason; of those that failed in other processes only the category is known."""
        if self._job is None:
            deaths, rest = self._runner.report.deaths.all(), Counter[str]()
        else:
            deaths, rest = self._job.deaths(), Counter(self._job.report.counts.reasons)
        for one in deaths:
            rest[one.category] -= one.count
        others = [FailureGroup(FailureReason(category), "", count) for category, count in rest.items() if count > 0]
        return [_dead(one) for one in (*deaths, *others)]

    def counters(self) -> Mapping[str, float]:
        report: BatchReport = self._runner.report
        return {name: getattr(report, name) for name in COUNTERS}

    # ------------------------------------------------------------------ why it waits

    def waited(self) -> Mapping[str, float]:
        return dict(self._runner.report.waits if self._job is None else self._job.report.counts.waited)

    def waits(self, credentials: States) -> Waits:
        lanes = self._causes.of(self._runner.lanes(MOST_LANES))
        run = self._runner.status()
        is_one_key = len({lane.key for lane, _ in lanes}) == 1
        unread = self._unread(lanes[0][0].waiting + run.later) if is_one_key else 0
        best: dict[str, int] = {}
        for lane, cause in lanes:
            best[lane.key] = max(best.get(lane.key, 0), outlook(lane, cause, credentials))
        found = []
        for lane, cause in lanes:
            if lane.waiting and cause.text and cause.waits_for not in _NOT_ITS_OWN:
                behind = lane.waiting + unread if outlook(lane, cause, credentials) == best[lane.key] else 0
                found.append(self._wait(lane, cause, credentials, behind))
        found += _worker_waits(lanes, self._runner.workers, unread)
        others = [] if self._job is None else self._job.holders
        if others:
            text = elsewhere_text([(one.pid, one.host) for one in others[:MOST_NAMED]])
            behind = sum(one.rows for one in others)
            found.append(WaitLine(scope="processes", sentence=text, behind=behind, code="processes"))
        if run.later:
            text = retries_text(run.next_in)
            found.append(
                WaitLine(scope="retries", sentence=text, behind=run.later, seconds=run.next_in, code="retries")
            )
        queued = {lane.key: lane.waiting for lane, cause in lanes if cause.waits_for not in ("", "rows")}
        return Waits(found, sum(queued.values()) + run.later + (unread if queued else 0))

    def _wait(self, lane: LaneStanding, cause: Cause, credentials: States, behind: int) -> WaitLine:
        state = None if lane.credential is None else credentials.get(lane.credential)
        is_credential = cause.waits_for in OF_A_CREDENTIAL
        name = _name_of(lane)
        line = WaitLine.about(name, cause.text)
        if is_credential and state is not None:
            line = WaitLine(scope=name, sentence=f"{name} {status_text(state)}")
        return replace(
            line,
            said=lane.said,
            behind=behind,
            seconds=lane.opens_in or self._held(lane, cause) or None,
            key="" if is_credential else for_display(lane.gate_key),
            code=cause.code,
        )

    def _unread(self, known: int) -> int:
        """Open rows beside the ``known`` ones of this process: where there is one key, they wait for it too."""
        counts, total = self._counts()
        final = counts.states.get(RowState.DONE, 0) + counts.states.get(RowState.DEAD, 0)
        return 0 if total is None else max(0, total - final - self._runner.status().in_flight - known)

    def _held(self, lane: LaneStanding, cause: Cause) -> float:
        """Seconds for which the limiter lets nothing start."""
        seen = None if cause.waits_for != "pace" or self.limiter is None else self.limiter.key_status(lane.gate_key)
        return 0.0 if seen is None else min(seen.not_before_ms / 1000, LONGEST_WAIT)

    def state(self) -> str:
        if self._runner.status().is_stopping or (self._job is not None and self._job.report.stop is not None):
            return "stopping"
        return "paused" if self._runner.is_paused else "running"

    def pause(self) -> None:
        self._runner.pause()

    def resume(self) -> None:
        self._runner.resume()

    def stop(self) -> None:
        self._runner.stop()


def _title(job: Job) -> str:
    """Without folders: they say nothing to a reader elsewhere, and leave no room for what does."""
    return for_display(f"{PurePath(job.rows.name).name} to {PurePath(job.output).name}")


def _dead(one: FailureGroup) -> DeadLine:
    remedy = "" if one.remedy is None else one.remedy.value
    return DeadLine(reason=str(one.reason), count=one.count, example=one.example, remedy=remedy)


def _name_of(lane: LaneStanding) -> str:
    key = for_display(lane.key)
    return key if lane.credential is None else f"{lane.credential} of {key}"


def outlook(lane: LaneStanding, cause: Cause, credentials: States) -> int:
    """How soon rows go this way: 2 now, 1 later, 0 never. They go by the best lane of their key, and wait for that."""
    state = None if lane.credential is None else credentials.get(lane.credential)
    if state is not None and state.state == "retired":
        return 0
    rests = state is not None and state.state == "resting"
    goes = cause.waits_for in _NOT_ITS_OWN or cause.code in ORDINARY
    return 2 if goes and not rests else 1


def _worker_waits(lanes: Iterable[tuple[LaneStanding, Cause]], workers: int, unread: int) -> list[WaitLine]:
    """All lanes share them; rows of a key are counted once."""
    behind = {lane.key: lane.waiting for lane, cause in lanes if cause.waits_for == "workers" and lane.waiting}
    if not behind:
        return []
    text = workers_text(workers)
    return [WaitLine(scope="workers", sentence=text, behind=sum(behind.values()) + unread, code="workers")]
