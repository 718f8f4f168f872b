"""How far a run is at one moment: done, rate, time to go, and for each key why it waits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from headgate.batch.job import Job
from headgate.batch.row_count import RowCount
from headgate.batch.sqlite_reading import Holder
from headgate.batch.standing import LaneStanding
from headgate.core.words import span
from headgate.limiter.snapshot import SharingSnapshot
from headgate.wire.redaction import for_display

from .sharing import as_fields, in_words

LATELY = 20.0
"""Seconds by whose pace the time to go is told."""
MOST_LANES = 12
MOST_NAMED = 3
"""Other processes that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    done: int
    dead: int
    rows: int | None
    """How many there are, as far as is known."""
    rate: float
    tokens: int
    cost: float
    lanes: list[LaneStanding]
    trouble: str
    stopping: bool
    in_flight: int
    sharing: SharingSnapshot | None = None
    waits_for: list[Holder] = field(default_factory=list)
    """The processes that have all rows that are left."""

    @property
    def final(self) -> int:
        return self.done + self.dead

    @property
    def left(self) -> float | None:
        """Seconds to go at the present pace; None for a run that stops before it is through."""
        if self.rows is None or self.rate <= 0 or self.stopping:
            return None
        return max(0, self.rows - self.final) / self.rate

    def name_of(self, lane: LaneStanding) -> str:
        """The label alone where all keys are of one model."""
        alone = lane.credential is not None and all(other.key == lane.key for other in self.lanes)
        return str(lane.credential) if alone else for_display(f"{lane.key} {lane.credential or ''}".strip())

    def line(self) -> str:
        """For a pipe."""
        parts = [f"{self.done:,} done" + (f" of {self.rows:,}" if self.rows else "")]
        parts += [f"{self.dead:,} dead"] if self.dead else []
        parts += [f"{self.rate:.1f}/s"]
        parts += [f"{span(self.left)} to go"] if self.left else []
        parts += [f"{self.tokens:,} tokens"] if self.tokens else []
        parts += [f"cost {self.cost:,.4g}"] if self.cost else []
        parts += [shared] if (shared := in_words(self.sharing)) else []
        waits = [f"{self.name_of(lane)}: {why(lane)}" for lane in self.lanes if lane.reason and not lane.in_flight]
        waits += [self.elsewhere] if self.waits_for else []
        return ", ".join(parts) + (f"; {'; '.join(waits[:3])}" if waits else "")

    @property
    def elsewhere(self) -> str:
        """Why a process does nothing whose rows others have; empty if it has some."""
        if not self.waits_for:
            return ""
        who = ", ".join(f"process {one.pid} on {one.host} has {one.rows:,}" for one in self.waits_for[:MOST_NAMED])
        return f"no row is left for this process: {who} of the open rows. It takes over rows that others leave"

    def fields(self) -> dict[str, Any]:
        return {
            "event": "progress",
            "done": self.done,
            "dead": self.dead,
            "rows": self.rows,
            "rate": round(self.rate, 3),
            "left": None if self.left is None else round(self.left, 1),
            "tokens": self.tokens,
            "cost": self.cost,
            "sharing": as_fields(self.sharing),
            "waits_for": [{"pid": one.pid, "host": one.host, "rows": one.rows} for one in self.waits_for],
            "keys": [
                {
                    "key": lane.key,
                    "credential": lane.credential,
                    "learned": None if lane.rate is None else round(lane.rate, 3),
                    "in_flight": lane.in_flight,
                    "waiting": lane.waiting,
                    "opens_in": lane.opens_in,
                    "reason": lane.reason,
                    "waits_for": lane.waits_for,
                    "said": lane.said,
                }
                for lane in self.lanes
            ],
        }


def why(lane: LaneStanding) -> str:
    """Why nothing leaves here, with what the server said last."""
    return f"{lane.reason} ({lane.said})" if lane.said else lane.reason


class Looker:
    """Looks at a job again and again, and remembers enough to tell its pace."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._count = RowCount(job)
        self._marks: deque[tuple[float, int]] = deque()

    @property
    def rows(self) -> int | None:
        """How many there are, as far as is known."""
        known = self._job.report.rows
        return self._count.rows if known is None else known

    def look(self) -> Progress:
        job, report = self._job, self._job.report
        now, final = job.runner.clock.now(), report.done + report.dead
        if not report.counts.seen and not self._marks:
            final = report.before
        self._marks.append((now, final))
        while len(self._marks) > 2 and self._marks[0][0] < now - LATELY:
            self._marks.popleft()
        (began_at, began), (at, count) = self._marks[0], self._marks[-1]
        lanes = job.lanes()
        rows = self.rows
        return Progress(
            done=report.done,
            dead=report.dead,
            rows=None if rows is None else max(rows, final),
            rate=(count - began) / (at - began_at) if at > began_at else 0.0,
            tokens=report.counts.tokens,
            cost=report.counts.cost,
            lanes=sorted(lanes[:MOST_LANES], key=lambda lane: (lane.key, lane.credential or "")),
            trouble=job.silence.last if job.silence.is_silent else "",
            stopping=bool(report.stopped),
            sharing=job.runner.limiter.look_at_sharing(),
            in_flight=sum(lane.in_flight for lane in lanes),
            waits_for=job.waits_for,
        )
