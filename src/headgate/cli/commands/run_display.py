"""What a run shows: its progress at one moment, with why each key waits, and how it has ended."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...batch.job import Job
from ...batch.job_input import RowCount
from ...batch.lanes import LaneStanding
from ...batch.ledger.queries import Holder
from ...batch.ledger.schema import SUFFIX
from ...batch.report import JobReport, Remedy
from ...engine.output_file import STDOUT
from ...engine.supervisor import Stop, StopReason
from ...formatting import for_display, format_seconds, printable, redact
from ...limiter.snapshot import SharingSnapshot
from ...observe.sources import RecentRate
from ..ui.display import (
    MOST_GROUPS,
    RESUME,
    WIDEST,
    Column,
    Summary,
    cost_text,
    failure_fields,
    failure_text,
    fitted_table,
    note,
    plural,
    progress_row,
    sentence,
    sharing_note,
    sharing_text,
    top_counts,
    until,
    with_retired_keys,
)
from ..ui.shared_state import sharing_fields
from ..ui.terminal import DONE, FAILED, STOPPED

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


# ---------------------------------------------------------------------- the end

RATE_LIMITS = ("cooldown", "credential", "limiter", "pace")
"""What a lane waits for that is a rate limit; the rest is an outage or a decision of the operator's."""
ENDED_BY_USER = (StopReason.STOPPED, StopReason.DEADLINE)
KEY_REMEDIES = (Remedy.CHECK_KEY, Remedy.CHECK_ACCOUNT)
SPEND_HINTS = " (which sends a row every 15 min to check)", "; once it has credit, headgate keys free frees its key"
OF_THE_LIMITER = ("limiter", "pace")
"""... and whose reason names the limit."""


def summarize(job: Job, resume: str) -> Summary:
    """The end of a job. ``resume``: the command that resumes it, where that is not the same command."""
    report, failures = job.report, job.report.failures
    is_whole = report.complete
    groups = [*failures.dead[:MOST_GROUPS], *failures.waiting[:MOST_GROUPS]]
    if not is_whole:
        groups = [*failures.waiting[:MOST_GROUPS], *failures.dead[:MOST_GROUPS]]
    reason = None if report.stop is None else report.stop.reason
    if reason is StopReason.NO_CREDENTIAL:
        groups.sort(key=lambda group: group.remedy not in KEY_REMEDIES)
    cause, others = groups[:1], groups[1:]
    if reason in ENDED_BY_USER:  # no failure has ended it
        cause, others = [], groups
    error = f": {failure_text(cause[0])}" if cause else ""
    if not is_whole:
        code, next_ = STOPPED, stop_text(job, resume, error)
    elif report.dead:
        code = FAILED
        where = "" if len(groups) < 2 else f" Each failed row's line in {_output_name(job)} gives the reason."
        next_ = f"{plural(report.dead, 'row')} failed{error}.{where} Retry them with: headgate retry {name_of(job)}"
    elif not report.counts.seen:
        code, next_ = DONE, f"Nothing to do: {printable(job.rows.name)} has no rows."
    else:
        code = DONE
        next_ = "All rows are done." + ("" if resume else f" Check with: headgate verify {name_of(job)}")
    sharing = job.runner.limiter.look_at_sharing()
    details = [failure_text(group) for group in others[: MOST_GROUPS - len(cause)]]
    for target, reasons in report.moved.items():
        rows = plural(sum(reasons.values()), "row")
        details.append(f"{rows} answered by {printable(target)} ({top_counts(reasons)})")
    if sharing is not None and sharing.is_lost:
        details.append(f"{sharing_text(sharing)}; check --store")
    fields = fields_of(job, code, next_)
    fields |= {"failures": failure_fields(failures), "sharing": sharing_fields(sharing)}
    summary = Summary(code=code, headline=counts_text(report), next=next_, fields=fields, details=details)
    return with_retired_keys(summary, job.runner.coordinators.values())


def summarize_failure(job: Job, error: Exception, resume: str) -> Summary:
    """The end of a job whose files failed under it: a full disk, a ledger that is gone."""
    message = redact(f"{error}")
    next_ = f"{sentence(message)} {resume_text(resume)}"
    job.report.stop = job.report.stop or Stop(StopReason.FAILED, message)
    summary = Summary(code=STOPPED, headline=counts_text(job.report), next=next_, fields=fields_of(job, STOPPED, next_))
    return with_retired_keys(summary, job.runner.coordinators.values())


def name_of(job: Job) -> str:
    """The name by which other commands find the run: its output, if the ledger is beside it."""
    is_beside = job.output != STDOUT and os.path.abspath(job.output) + SUFFIX == job.ledger.path
    return printable(shlex.quote(job.output if is_beside else os.path.relpath(job.ledger.path)))


def _output_name(job: Job) -> str:
    return "the output" if job.output == STDOUT else printable(job.output)


def resume_text(resume: str) -> str:
    return f"To resume: {resume}" if resume else RESUME


def counts_text(report: JobReport) -> str:
    """``137 done, 3 failed (3 invalid), 10 open; 150 calls in 8.0 s, 900 tokens.``"""
    counts, run = report.counts, report.run
    failed = f", {report.dead:,} failed ({top_counts(counts.reasons)})" if report.dead else ""
    is_open = f", {counts.open:,} open" if counts.open else ""
    before = f", {report.before:,} of them in earlier runs" if report.before else ""
    totals = [plural(run.calls, "call") + (f" in {format_seconds(run.elapsed)}" if run.calls else "")]
    totals += [f"{run.rate_limit_participants:,} rate limited"] if run.rate_limit_participants else []
    totals += [plural(counts.tokens, "token")] if counts.tokens else []
    totals += [cost_text(counts.cost)] if counts.cost else []
    return f"{report.done:,} done{failed}{before}{is_open}; {', '.join(totals)}."


def stop_text(job: Job, resume: str, error: str) -> str:
    """Why the job stopped and what to do about it; ``error``: why most rows have failed, where any have."""
    report = job.report
    reason, detail = (None, "") if report.stop is None else (report.stop.reason, printable(report.stop.detail))
    detail = detail.rstrip(".")
    again = resume_text(resume)
    match reason:
        case StopReason.STOPPED:
            return f"Stopped. {again}"
        case StopReason.STANDSTILL:
            tries, freed = SPEND_HINTS if report.run.held_by == "spend" else ("", "")
            return f"{_standstill_text(report)}{error or freed}. {again.rstrip('.')}, or pass --wait{tries}."
        case StopReason.NO_MODEL:
            return (
                f"The server does not have the model ({detail}). Other rows of it were not sent and stay open; correct "
                f"the rows, or the key's access to the model. {again}"
            )
        case StopReason.DEADLINE:
            return f"Stopped at the deadline, {detail}. {again}"
        case StopReason.CAPS:
            return f"The next row could cost more than allowed; raise --max-cost or --max-tokens. {again}"
        case StopReason.NO_CREDENTIAL:
            remedy = "; pass others with --keys, or enable one again with headgate keys free"
            return f"No key is accepted any more{error or remedy}. {again}"
        case StopReason.FAIL_FAST:
            what = "The key was not accepted" if job.runner.credentials is not None else "A key is required"
            return f"{what} ({detail}). Pass a valid one with --keys env:NAME or file:PATH. {again}"
        case StopReason.HOPELESS:
            return (
                f"The first {report.dead:,} rows have all failed with the same error ({detail}). Check --to and the "
                f"rows, then headgate retry {name_of(job)}. (--keep-going continues anyway.)"
            )
        case StopReason.BROKEN:
            return f"{detail}. Correct that line, or record such rows as failed with --on-broken dead. {again}"
        case StopReason.SILENT:
            name = job.targets.primary.endpoint.name
            return f"No answer from {name}: {detail}. Check --to and the network. {again} (--wait keeps trying.)"
        case StopReason.OUTPUT | StopReason.INPUT:
            return f"{sentence(detail)} {again}"
        case StopReason.SHORTER:
            return f"{detail}. Restore the input, or choose another ledger and output."
    if report.stop is not None:
        return f"{sentence(printable(str(report.stop)))} {again}"
    if report.counts.open:
        return f"{report.counts.open:,} open rows are not in this input, or belong to other processes. {again}"
    return f"Another process is still writing {printable(job.output)}. {again}"


def _standstill_text(report: JobReport) -> str:
    run = report.run
    why = f" ({printable(run.held_why)})" if run.held_why else ""
    if run.held_by == "spend":
        return "The account has no credit left, or has reached its spending limit"
    if run.held_by not in RATE_LIMITS:
        return f"Nothing can start{until(run.come_back_in)}{why}"
    limit = why if run.held_by in OF_THE_LIMITER else ""
    return f"Rate limited{until(run.come_back_in)}{limit}"


def fields_of(job: Job, code: int, next_: str) -> dict[str, Any]:
    report = job.report
    return {
        "event": "end",
        "exit_code": code,
        "done": report.done,
        "dead": report.dead,
        "open": report.counts.open,
        "before": report.before,
        "written": report.written,
        "reasons": dict(report.counts.reasons),
        "moved": report.moved,
        "calls": report.run.calls,
        **report.run.rate_limits(),
        "tokens": report.counts.tokens,
        "cost": report.counts.cost,
        "elapsed": round(report.run.elapsed, 3),
        "stopped": report.stopped,
        "come_back_in": report.run.come_back_in,
        "held_by": report.run.held_by,
        "next": next_,
    }
