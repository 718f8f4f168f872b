"""How a run has ended, in a few sentences of which the last says what to do next, and in an exit code."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.batch.formats.writing import STDOUT
from headgate.batch.job import Job
from headgate.batch.job_report import JobReport
from headgate.batch.sqlite_file import SUFFIX
from headgate.core.words import printable, span
from headgate.credentials import CredentialCoordinator

from . import DONE, FAILED, STOPPED
from .sharing import as_fields
from .status import MOST_KINDS, failure_fields, in_words, most

MOST_NAMED = 5
AGAIN = "Run the same command again to go on."


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    code: int
    about: str
    """What was done."""
    next: str
    """What to do now: the last line."""
    fields: dict[str, Any]
    why: list[str] = field(default_factory=list)
    """Further reasons for which rows are dead or wait; the last line tells the first."""


def with_lost_keys(ending: Ending, keys: Iterable[CredentialCoordinator]) -> Ending:
    """The same, and which keys are retired by now: a run ends well without them, only slower."""
    lost = [one for coordinator in keys for one in coordinator.states() if one.state == "retired"]
    fields = {**ending.fields, "keys_lost": [{"key": one.label, "reason": one.reason} for one in lost]}
    if not lost:
        return replace(ending, fields=fields)
    named = ", ".join(f"{one.label} ({one.reason})" for one in lost[:MOST_NAMED])
    more = f" and {len(lost) - MOST_NAMED:,} more" if len(lost) > MOST_NAMED else ""
    said = f"No longer accepted: {named}{more}; headgate keys shows them."
    return replace(ending, about=f"{ending.about} {said}", fields=fields)


def name_of(job: Job) -> str:
    """What other commands find the run by: its output, if the ledger stands beside it."""
    beside = job.output != STDOUT and os.path.abspath(job.output) + SUFFIX == job.book.path
    return printable(shlex.quote(job.output if beside else os.path.relpath(job.book.path)))


def ending_of(job: Job, again: str) -> Ending:
    """``again`` is what to type to go on, where that is not the same command: where nobody would find the ledger."""
    report, kept, failures = job.report, not again, job.report.failures
    kinds = [*failures.dead[:MOST_KINDS], *failures.waiting[:MOST_KINDS]]
    if report.stopped or not report.complete:
        kinds = [*failures.waiting[:MOST_KINDS], *failures.dead[:MOST_KINDS]]
    reason = f": {in_words(kinds[0])}" if kinds else ""
    if report.stopped or not report.complete:
        code, next_ = STOPPED, what_next(job, again, reason)
    elif report.dead:
        code = FAILED
        next_ = f"{report.dead:,} rows are dead{reason}. headgate retry {name_of(job)} gives them another chance."
    elif not report.counts.seen:
        code, next_ = DONE, f"There is nothing to do: {printable(job.rows.name)} has no rows."
    else:
        code = DONE
        next_ = "All rows are done." + (f" headgate verify {name_of(job)} proves it." if kept else "")
    sharing = job.runner.limiter.look_at_sharing()
    fields = fields_of(job, code, next_) | {"failures": failure_fields(failures), "sharing": as_fields(sharing)}
    why = [in_words(one) for one in kinds[1:MOST_KINDS]]
    if sharing is not None and sharing.is_lost:
        why.append(f"{sharing.where} cannot be reached: nothing was shared through it; check --store")
    return Ending(code=code, about=about(report), next=next_, fields=fields, why=why)


def about(report: JobReport) -> str:
    counts, run = report.counts, report.run
    dead = f", {report.dead:,} dead ({most(counts.reasons)})" if report.dead else ""
    still_open = f", {counts.open:,} open" if counts.open else ""
    before = f" ({report.before:,} of them before)" if report.before else ""
    sums = [f"{run.calls:,} calls in {span(run.elapsed)}"]
    if run.rate_limit_participants:
        sums.append(f"{run.rate_limit_participants:,} rate limited")
    if counts.tokens:
        sums.append(f"{counts.tokens:,} tokens")
    if counts.cost:
        sums.append(f"cost {counts.cost:,.4g}")
    return f"{report.done:,} done{dead}{before}{still_open}; {', '.join(sums)}."


def what_next(job: Job, again: str, reason: str) -> str:
    """Why it stopped, and what to do about it; ``reason`` is why most rows have failed, where any have."""
    report = job.report
    word, _, said = report.stopped.partition(":")
    said = said.strip()
    go_on = f"To go on: {again}" if again else AGAIN
    if word == "stopped":
        return f"Stopped{reason}. {go_on}"
    if word == "standstill":
        seconds = report.run.come_back_in
        when = "" if seconds is None else f"; come back in {span(seconds)}, at {clock_time(time.time() + seconds)}"
        why = f" ({printable(report.run.held_why)})" if report.run.held_why and not reason else ""
        return f"Nothing can start for now{why}{when}{reason}. {go_on} (--wait stays.)"
    if word == "deadline":
        return f"The time is up ({said}){reason}. {go_on}"
    if word == "caps":
        return f"The next row could cost more than is allowed; raise --max-cost or --max-tokens. {go_on}"
    if word == "no_credential":
        instead = "; put in others, or free one that is good after all (headgate keys)"
        return f"None of the keys is accepted any more{reason or instead}. {go_on}"
    if word == "fail_fast":
        key = "The key was not accepted" if job.runner.credentials is not None else "It wants a key"
        return f"{key} ({printable(said)}). Say where a good one is with --keys env:NAME or file:PATH. {go_on}"
    if word == "hopeless":
        return (
            f"The first {report.dead:,} rows have all failed alike ({printable(said)}). Check --to and what the rows "
            f"ask for; then headgate retry {name_of(job)} opens them again. (--keep-going does not stop for this.)"
        )
    if word == "broken":
        return f"{said}. Put that line right, or write such rows off with --on-broken dead. {go_on}"
    if word == "silent":
        return f"{job.target.address.name} does not answer: {said}. Check --to and the network. {go_on} (--wait stays.)"
    if word in ("output", "input"):
        return f"{said.rstrip('.')}." if again == "" else f"{said.rstrip('.')}. {go_on}"
    if word == "shorter":
        return f"{said}. Bring the input back as it was, or name another ledger and output."
    if report.stopped:
        return f"{report.stopped}. {go_on}"
    if report.counts.open:
        return f"{report.counts.open:,} rows are open that were not in this input or that others had. {go_on}"
    return f"Another process still writes {printable(job.output)}. {go_on}"


def clock_time(at: float) -> str:
    near = at - time.time() < 12 * 3600
    return time.strftime("%H:%M" if near else "%Y-%m-%d %H:%M", time.localtime(at))


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
