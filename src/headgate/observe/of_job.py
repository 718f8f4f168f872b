"""A batch as it is looked at: rows done and to go, what each blocked lane waits for, how many rows stand behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from ..batch.job import Job
from ..batch.lanes import OF_A_CREDENTIAL
from ..batch.ledger import Counts, RowState
from ..batch.report import BatchReport, Death
from ..batch.runner import BatchRunner
from ..batch.standing import LaneStanding
from ..core.decision import LONGEST_WAIT
from ..core.ledger import first_word
from ..core.words import span
from ..credentials import CredentialCoordinator
from ..limiter import AdaptiveRateLimiter
from ..wire.redaction import for_display
from .attaching import Telling
from .of_credentials import standing
from .snapshot import DeadLine, ProgressLine, WaitLine
from .subject import Lately, States
from .waiting import LastCauses, Waits, is_usual
from .waiting import sentence as in_a_sentence

if TYPE_CHECKING:
    from .hub import AnyEvent

MOST_LANES = 200
MOST_NAMED = 3
"""Other processes that are named."""
_NOT_ITS_OWN = ("", "rows", "workers", "paused")
"""What a lane waits for that is no matter of its key."""
_COUNTED = (
    "calls",
    "attempts",
    "rate_limited_items_stored",
    "rate_limited_items_redistributed",
    "rate_limit_generations",
    "rate_limit_participants",
    "retries_held",
)


class OfJob:
    """A ``Job``, or a ``BatchRunner`` of a program's own."""

    kind = "run"

    def __init__(self, job: Job | BatchRunner, rows: Callable[[], int | None] | None = None) -> None:
        """``rows``: how many there are, where that is known from elsewhere."""
        self._job = job if isinstance(job, Job) else None
        self._runner = job.runner if isinstance(job, Job) else job
        self._rows = rows
        self._lately = Lately()
        self._causes: LastCauses[LaneStanding] = LastCauses(lambda lane: lane.gate_key)
        self.title = "" if self._job is None else _title(self._job)
        self.clock = self._runner.clock
        self.limiter: AdaptiveRateLimiter | None = self._runner.limiter
        keys = self._runner.credentials
        self.coordinators: Mapping[str, CredentialCoordinator] = {} if keys is None else {"": keys}
        self.tellers: Sequence[Telling] = (self._runner,)

    # ------------------------------------------------------------------ how far

    def progress(self) -> ProgressLine:
        counts, total = self._counts()
        done, dead = counts.states.get(RowState.DONE, 0), counts.states.get(RowState.DEAD, 0)
        rate = self._lately.rate(self.clock.now(), done + dead, is_paused=self._runner.is_paused)
        return ProgressLine(
            total=total,
            done=done,
            dead=dead,
            open=counts.open,
            in_flight=self._runner.standing().in_flight,
            parked=counts.states.get(RowState.PARKED, 0) + counts.states.get(RowState.FAILED, 0),
            rate=rate,
            eta=None if total is None or not rate else max(0, total - done - dead) / rate,
            tokens=counts.tokens,
            cost=counts.cost,
        )

    def _counts(self) -> tuple[Counts, int | None]:
        """Of a job the whole ledger's, of a runner alone what it has done itself."""
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
        """Of those that died before this run, or in another process, the ledger counts the categories."""
        if self._job is None:
            deaths, rest = self._runner.report.deaths.all(), Counter[str]()
        else:
            deaths, rest = self._job.deaths(), Counter(self._job.report.counts.reasons)
        for one in deaths:
            rest[first_word(one.reason)] -= one.count
        return [_dead(one) for one in (*deaths, *(Death(word, "", count) for word, count in rest.items() if count > 0))]

    def example(self, event: AnyEvent) -> tuple[str, str] | None:
        return None

    def counters(self) -> Mapping[str, float]:
        report: BatchReport = self._runner.report
        return {name: getattr(report, name) for name in _COUNTED}

    # ------------------------------------------------------------------ why it waits

    def waited(self) -> Mapping[str, float]:
        return dict(self._runner.report.waits if self._job is None else self._job.report.counts.waited)

    def waits(self, credentials: States) -> Waits:
        lanes = self._causes.of(self._runner.lanes(MOST_LANES))
        blocked = [lane for lane in lanes if lane.waiting and lane.reason and lane.waits_for not in _NOT_ITS_OWN]
        run = self._runner.standing()
        unread = self._unread(lanes[0].waiting + run.later) if len({lane.key for lane in lanes}) == 1 else 0
        best: dict[str, int] = {}
        for lane in lanes:
            best[lane.key] = max(best.get(lane.key, 0), outlook(lane, credentials))
        found = []
        for lane in blocked:
            behind = lane.waiting + unread if outlook(lane, credentials) == best[lane.key] else 0
            found.append(_wait(lane, sentence(lane, credentials), self._held(lane), behind))
        found += _of_workers(lanes, self._runner.workers, unread)
        others = [] if self._job is None else self._job.waits_for
        if others:
            who = ", ".join(f"process {one.pid} on {one.host}" for one in others[:MOST_NAMED])
            words = f"nothing is left for this process: {who} has the open rows"
            found.append(WaitLine(scope="processes", sentence=words, behind=sum(one.rows for one in others)))
        if run.later:
            when = "" if run.next_in is None else f", the first in {span(run.next_in)}"
            words = f"rows that failed are tried again in their time{when}"
            found.append(WaitLine(scope="retries", sentence=words, behind=run.later, seconds=run.next_in))
        shelves = {lane.key: lane.waiting for lane in lanes if lane.waits_for not in ("", "rows")}
        return Waits(found, sum(shelves.values()) + run.later + (unread if shelves else 0))

    def _unread(self, known: int) -> int:
        """Open rows beside the ``known`` ones of this process: where there is one key, they wait for it too."""
        counts, total = self._counts()
        final = counts.states.get(RowState.DONE, 0) + counts.states.get(RowState.DEAD, 0)
        return 0 if total is None else max(0, total - final - self._runner.standing().in_flight - known)

    def _held(self, lane: LaneStanding) -> float:
        seen = None if lane.waits_for != "pace" or self.limiter is None else self.limiter.look(lane.gate_key)
        return 0.0 if seen is None else min(seen.not_before_ms / 1000, LONGEST_WAIT)

    def state(self) -> str:
        if self._runner.standing().is_stopping or (self._job is not None and self._job.report.stopped):
            return "stopping"
        return "paused" if self._runner.is_paused else "running"

    def pause(self) -> None:
        self._runner.pause()

    def resume(self) -> None:
        self._runner.resume()


def _title(job: Job) -> str:
    """Without folders: they say nothing to whoever reads it elsewhere, and leave no room for what does."""
    return for_display(f"{PurePath(job.rows.name).name} to {PurePath(job.output).name}")


def _dead(one: Death) -> DeadLine:
    remedy = "" if one.remedy is None else one.remedy.value
    return DeadLine(reason=one.reason, count=one.count, example=one.example, remedy=remedy)


def name_of(lane: LaneStanding) -> str:
    key = for_display(lane.key)
    return key if lane.credential is None else f"{lane.credential} of {key}"


def _wait(lane: LaneStanding, words: str, held: float, behind: int) -> WaitLine:
    """``held``: seconds for which the limiter lets nothing start."""
    key = "" if lane.waits_for in OF_A_CREDENTIAL else for_display(lane.gate_key)
    seconds = lane.opens_in or held or None
    return WaitLine(scope=name_of(lane), sentence=words, said=lane.said, behind=behind, seconds=seconds, key=key)


def outlook(lane: LaneStanding, credentials: States) -> int:
    """How soon rows go this way: 2 now, 1 later, 0 never. They go by the best lane of their key, and wait for that."""
    state = None if lane.credential is None else credentials.get(lane.credential)
    if state is not None and state.state == "retired":
        return 0
    rests = state is not None and state.state == "resting"
    goes = lane.waits_for in _NOT_ITS_OWN or is_usual(in_a_sentence(name_of(lane), lane.reason))
    return 2 if goes and not rests else 1


def sentence(lane: LaneStanding, credentials: States) -> str:
    state = None if lane.credential is None else credentials.get(lane.credential)
    if lane.waits_for in OF_A_CREDENTIAL and state is not None:
        return f"{name_of(lane)} {standing(state)}"
    return in_a_sentence(name_of(lane), lane.reason)


def _of_workers(lanes: Iterable[LaneStanding], workers: int, unread: int) -> list[WaitLine]:
    """All lanes share them; rows of a key are counted once."""
    behind = {lane.key: lane.waiting for lane in lanes if lane.waits_for == "workers" and lane.waiting}
    words = f"all {workers:,} workers are busy"
    return [WaitLine(scope="workers", sentence=words, behind=sum(behind.values()) + unread)] if behind else []
