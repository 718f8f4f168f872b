"""The progress of a run at one moment: rows done, rate, time left, and for each key why it waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...batch.job import Job
from ...batch.job_input import RowCount
from ...batch.lanes import LaneStanding
from ...batch.ledger.queries import Holder
from ...formatting import for_display, format_seconds, printable
from ...limiter.snapshot import SharingSnapshot
from ...observe.sources import RecentRate
from ..ui.display import (
    WIDEST,
    Column,
    cost_text,
    fitted_table,
    note,
    plural,
    progress_row,
    sharing_note,
    sharing_text,
)
from ..ui.shared_state import sharing_fields

MOST_LANES = 12
SLOWEST_SHOWN = 0.05
"""Rows a second; less would be shown as 0.0."""
LONGEST_FORECAST = 24 * 3600.0
MOST_HOLDERS = 3
"""Other processes that are named."""
COLUMNS = (Column("key", 0), Column("learned", 1, True), Column("in flight", 3, True), Column("why it waits", 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """A ``Frame`` of a run."""

    done: int
    dead: int
    rows: int | None
    """How many there are, as far as is known."""
    rate: float
    tokens: int
    cost: float
    lanes: list[LaneStanding]
    trouble: str
    """What calls have met for so long that it is worth a line."""
    stopping: bool
    in_flight: int
    sharing: SharingSnapshot | None = None
    waits_for: list[Holder] = field(default_factory=list)
    """The processes that hold all rows that are left."""

    @property
    def final(self) -> int:
        return self.done + self.dead

    @property
    def left(self) -> float | None:
        """Seconds to go at the present rate; None for a run that stops before its end."""
        if self.rows is None or self.rate <= 0 or self.stopping:
            return None
        return max(0, self.rows - self.final) / self.rate

    @property
    def has_forecast(self) -> bool:
        """Whether the time left is worth showing: days at less than a row a second are a wait, not a rate."""
        return self.left is not None and (self.rate >= 1.0 or self.left <= LONGEST_FORECAST)

    def lines(self) -> list[str]:
        parts = [f"{self.done:,} done" + (f" of {self.rows:,}" if self.rows else "")]
        parts += [f"{self.dead:,} failed"] if self.dead else []
        parts += [f"{self.rate:.1f}/s"] if self.rate >= SLOWEST_SHOWN else []
        parts += [f"{format_seconds(self.left)} to go"] if self.has_forecast and self.left else []
        parts += [plural(self.tokens, "token")] if self.tokens else []
        parts += [cost_text(self.cost)] if self.cost else []
        parts += [shared] if (shared := sharing_text(self.sharing)) else []
        waiting = [lane for lane in self.lanes if lane.reason and lane.waits_for != "rows" and not lane.in_flight]
        waits = [f"{self._name(lane)}: {wait_text(lane)}" for lane in waiting]
        waits += [self._elsewhere()] if self.waits_for else []
        return [", ".join(parts) + (f"; {'; '.join(waits[:3])}" if waits else "")]

    def render(self, width: int, height: int) -> RenderableType:
        width = min(width, WIDEST)
        of = "" if self.rows is None else f" of {self.rows:,}"
        parts: list[RenderableType] = [progress_row(f"{self.done:,} done{of}", self.final, self.rows, width)]
        parts += [totals] if (totals := self._totals()) else []
        parts += [fitted_table(COLUMNS, list(map(self._cells, self.lanes)), width)] if self.lanes else []
        parts += sharing_note(self.sharing)
        if self.waits_for:
            parts.append(Text(f"  {printable(self._elsewhere())}", "yellow", overflow="fold"))
        if self.trouble:
            parts.append(note(self.trouble, "red"))
        if self.stopping:
            calls = plural(self.in_flight, "call")
            parts.append(note(f"stopping: {calls} in flight; press Ctrl-C again to stop now", "yellow"))
        return Group(*parts)

    def _totals(self) -> Text:
        parts = [Text(f"{self.rate:.1f} rows/s")] if self.rate >= SLOWEST_SHOWN else []
        if self.has_forecast and self.left is not None:
            parts.append(Text(f"about {format_seconds(self.left)} to go"))
        if self.dead:
            parts.append(Text(f"{self.dead:,} failed", "red"))
        if self.tokens:
            parts.append(Text(plural(self.tokens, "token")))
        if self.cost:
            parts.append(Text(cost_text(self.cost)))
        return Text("  ").append_text(Text(", ").join(parts)) if parts else Text()

    def _cells(self, lane: LaneStanding) -> list[Text]:
        rate = "" if lane.rate is None else f"{lane.rate:,.1f}/s"
        style = "yellow" if lane.reason and not lane.in_flight else "dim"
        return [
            Text(self._name(lane)),
            Text(rate, "cyan"),
            Text(f"{lane.in_flight:,}"),
            Text(printable(wait_text(lane)), style),
        ]

    def _name(self, lane: LaneStanding) -> str:
        """The label alone where all keys are of one model."""
        is_enough = lane.credential is not None and all(other.key == lane.key for other in self.lanes)
        return str(lane.credential) if is_enough else for_display(f"{lane.key} {lane.credential or ''}".strip())

    def _elsewhere(self) -> str:
        """Why this process does nothing: others hold all rows."""
        holders = self.waits_for[:MOST_HOLDERS]
        named = ", ".join(f"process {one.pid} on {one.host} holds {plural(one.rows, 'open row')}" for one in holders)
        return f"no rows left for this process: {named}; this process takes over rows that are returned"

    def fields(self) -> list[dict[str, Any]]:
        return [
            {
                "event": "progress",
                "done": self.done,
                "dead": self.dead,
                "rows": self.rows,
                "rate": round(self.rate, 3),
                "left": None if self.left is None else round(self.left, 1),
                "tokens": self.tokens,
                "cost": self.cost,
                "sharing": sharing_fields(self.sharing),
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
        ]


def wait_text(lane: LaneStanding) -> str:
    """Why nothing is sent here, with the server's last message."""
    return f"{lane.reason} ({lane.said})" if lane.said else lane.reason


class ProgressSampler:
    """Samples a job and remembers enough to tell its rate."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._count = RowCount(job.rows)
        self._rate = RecentRate()
        self._has_sampled = False

    @property
    def rows(self) -> int | None:
        """How many rows there are, as far as is known."""
        known = self._job.report.rows
        return self._count.rows if known is None else known

    def sample(self) -> RunProgress:
        job, report = self._job, self._job.report
        final = report.done + report.dead
        if not report.counts.seen and not self._has_sampled:
            final = report.before
        self._has_sampled = True
        lanes, rows = job.runner.lanes(), self.rows
        return RunProgress(
            done=report.done,
            dead=report.dead,
            rows=None if rows is None else max(rows, final),
            rate=self._rate.rate(job.runner.clock.now(), final),
            tokens=report.counts.tokens,
            cost=report.counts.cost,
            lanes=sorted(lanes[:MOST_LANES], key=lambda lane: (lane.key, lane.credential or "")),
            trouble=job.responses.last_error if job.responses.is_silent else "",
            stopping=report.stop is not None,
            sharing=job.runner.limiter.look_at_sharing(),
            in_flight=sum(lane.in_flight for lane in lanes),
            waits_for=job.holders,
        )
