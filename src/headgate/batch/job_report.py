"""How a job stands: the whole ledger, and this process's share of the work."""

from __future__ import annotations

from dataclasses import dataclass, field

from .ledger import Counts, RowState
from .report import BatchReport, Failures


@dataclass(slots=True, kw_only=True)
class JobReport:
    """How a job stands. ``counts`` are of the whole ledger, ``run`` is this process's share of it."""

    counts: Counts = field(default_factory=Counts)
    run: BatchReport = field(default_factory=BatchReport)
    before: int = 0
    """Rows that were final when this run began."""
    written: int = 0
    """Rows in the output."""
    rows: int | None = None
    """Rows of the input, once it has been read to its end."""
    failures: Failures = field(default_factory=Failures)
    """Why rows of the whole ledger are dead, or wait: at the end."""
    stopped: str = ""
    """Why it ended before everything was final: a word, and a sentence after it."""

    @property
    def done(self) -> int:
        return self.counts.states.get(RowState.DONE, 0)

    @property
    def dead(self) -> int:
        return self.counts.states.get(RowState.DEAD, 0)

    @property
    def complete(self) -> bool:
        """Whether every row of the input is done or dead, and in the output."""
        return not self.stopped and not self.counts.open and self.written >= self.done + self.dead


def added_up(first: BatchReport, second: BatchReport) -> BatchReport:
    """Two runs of one job as one."""
    both = BatchReport(stopped=second.stopped, come_back_in=second.come_back_in, elsewhere=second.elsewhere)
    both.held_by, both.held_why = second.held_by, second.held_why
    both.seen = max(first.seen, second.seen)
    both.skipped = second.skipped if not first.seen else first.skipped
    for name in (
        "done",
        "dead",
        "calls",
        "attempts",
        "rate_limited_items_stored",
        "rate_limited_items_redistributed",
        "rate_limit_generations",
        "rate_limit_participants",
        "retries_held",
        "tokens",
        "cost",
        "elapsed",
    ):
        setattr(both, name, getattr(first, name) + getattr(second, name))
    both.reasons = first.reasons + second.reasons
    for report in (first, second):
        both.deaths.take(report.deaths.all())
        for why, seconds in report.waits.items():
            both.waits[why] += seconds
    return both
