"""What a run has done so far, in numbers: for people, for events and for the last line of a command."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..core.row_state import FailureReason
from ..engine.supervisor import Stop
from ..events import BatchEvent as BatchEvent
from ..formatting import format_seconds
from .ledger import Counts, RowState

MOST_REASONS = 100
"""Kinds of waits and of failures that are told apart."""
OTHER = FailureReason("other")


class Remedy(Enum):
    """What to do about rows that fail, by what they fail of; sentences for people are made where they are shown."""

    CHECK_ADDRESS = "check_address"
    CHECK_REQUEST = "check_request"
    CHECK_KEY = "check_key"
    CHECK_ACCOUNT = "check_account"
    CHECK_NETWORK = "check_network"
    MAKE_SMALLER = "make_smaller"
    MORE_TIME = "more_time"
    WAIT = "wait"


_REMEDIES = {
    "auth": Remedy.CHECK_KEY,
    "key_dead": Remedy.CHECK_ACCOUNT,
    "spend": Remedy.CHECK_ACCOUNT,
    "capacity": Remedy.WAIT,
    "rate_limited": Remedy.WAIT,
    "quota_exhausted": Remedy.WAIT,
    "overloaded": Remedy.WAIT,
    "transient": Remedy.WAIT,
    "too_large": Remedy.MAKE_SMALLER,
    "invalid": Remedy.CHECK_REQUEST,
    "deadline": Remedy.MORE_TIME,
}
_NOT_THERE = (404, 405, 410, 421)


@dataclass(slots=True)
class FailureGroup:
    """Rows that have failed with the same error."""

    reason: FailureReason
    """Of the first of them."""
    example: str
    """... and what it is called."""
    count: int = 1
    status: int | None = None
    """What the server answered to it, where it did."""

    @property
    def category(self) -> str:
        return self.reason.category

    @property
    def said(self) -> str:
        """The server's own words, behind the status, or what kept it from answering."""
        return self.reason.detail

    @property
    def remedy(self) -> Remedy | None:
        if self.category == "transient" and self.status is None:
            return Remedy.CHECK_NETWORK
        if self.category == "invalid" and self.status in _NOT_THERE:
            return Remedy.CHECK_ADDRESS
        return _REMEDIES.get(self.category)


_FIRST_WORD_OR_NUMBER = re.compile(r"^\S+|[0-9]+")


class FailureSummary:
    """Failed rows, grouped by category, status and the server's words; numbers within those make no difference.

    At most ``MOST_REASONS`` are told apart; those that do not fit are counted by category.
    """

    def __init__(self) -> None:
        self._groups: dict[FailureReason, FailureGroup] = {}

    def note(self, reason: FailureReason, example: str, count: int = 1, status: int | None = None) -> None:
        alike = _FIRST_WORD_OR_NUMBER.sub(lambda found: "#" if found.start() else found[0], reason.detail)
        group = FailureReason(reason.category, alike)
        if group not in self._groups and len(self._groups) >= MOST_REASONS:
            group = reason = FailureReason(reason.category)
            if group not in self._groups and len(self._groups) >= 2 * MOST_REASONS:
                group = reason = OTHER
        found = self._groups.get(group)
        if found is None:
            self._groups[group] = FailureGroup(reason, example, count, status)
        else:
            found.count += count

    def take(self, others: Iterable[FailureGroup]) -> None:
        for one in others:
            self.note(one.reason, one.example, one.count, one.status)

    def all(self) -> list[FailureGroup]:
        """The most frequent first. Safe for threads."""
        return sorted(list(self._groups.values()), key=lambda one: -one.count)  # noqa: C414 - copied at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Why rows of a ledger have failed, grouped by error, the most frequent first."""

    dead: list[FailureGroup] = field(default_factory=list)
    waiting: list[FailureGroup] = field(default_factory=list)
    """Of rows that are open, and will be tried again."""


COUNTERS = (
    "calls",
    "attempts",
    "rate_limited_items_stored",
    "rate_limited_items_redistributed",
    "rate_limit_generations",
    "rate_limit_participants",
    "retries_held",
)
"""What a ``BatchReport`` counts of calls and rate limits."""


@dataclass(slots=True, kw_only=True)
class BatchReport:
    """A run, now or at its end. Rows seen = done + dead + skipped + elsewhere + open."""

    seen: int = 0
    """Rows the input has shown in this run."""
    done: int = 0
    dead: int = 0
    skipped: int = 0
    """Rows that an earlier run had finished."""
    elsewhere: int = 0
    """Rows that another process works on."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Dead rows by category."""
    moved: Counter[str] = field(default_factory=Counter)
    """Done rows that another target than the primary has answered, by target and reason."""
    deaths: FailureSummary = field(default_factory=FailureSummary)
    """... and by what exactly was wrong."""

    calls: int = 0
    """Calls of the worker."""
    attempts: int = 0
    """... that ended in anything but a rate limit."""
    rate_limited_items_stored: int = 0
    """Rows parked because of a rate limit or for another credential."""
    rate_limited_items_redistributed: int = 0
    """... and sent again."""
    rate_limit_generations: int = 0
    """Cooldowns: one for each burst of refusals."""
    rate_limit_participants: int = 0
    """Refusals that started a cooldown or joined one."""
    retries_held: int = 0
    """Times a failed row had to wait because the retry budget was spent."""

    tokens: int = 0
    cost: float = 0.0
    waits: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds rows have waited, by what for."""
    elapsed: float = 0.0
    stop: Stop | None = None
    """Why the run ended before its input did."""
    come_back_in: float | None = None
    """In how many seconds it is worth going on, where that is known ..."""
    held_by: str = ""
    """... and what nothing could start for, in a word (``LaneStanding.waits_for``) ..."""
    held_why: str = ""
    """... and in a clause."""

    @property
    def stopped(self) -> str:
        """Why the run ended before its input did: a word, and a sentence after it; empty if it did not."""
        return "" if self.stop is None else str(self.stop)

    @property
    def open(self) -> int:
        """Rows seen that are neither finished nor another's."""
        return self.seen - self.done - self.dead - self.skipped - self.elsewhere

    def __str__(self) -> str:
        """For ``print``: what became of the rows, why some have failed, and what it took."""
        counts = {"seen": self.seen, "done": self.done, "failed": self.dead, "skipped": self.skipped}
        counts |= {"elsewhere": self.elsewhere, "open": self.open}
        rows = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count or what in ("seen", "done"))
        lines = [f"rows: {rows}"]
        failed = ", ".join(f"{count:,} {why}" for why, count in self.reasons.most_common(5))
        lines += [f"failed: {failed}"] * bool(failed)
        spent = f", {self.tokens:,} tokens" if self.tokens else ""
        spent += f", {self.cost:,.4f} cost" if self.cost else ""
        limited = f", {self.rate_limit_participants:,} rate limited" if self.rate_limit_participants else ""
        lines += [f"calls: {self.calls:,} in {format_seconds(self.elapsed)}{limited}{spent}"]
        lines += [f"stopped: {self.stop}"] * (self.stop is not None)
        return "\n".join(lines)

    @property
    def complete(self) -> bool:
        """Whether the whole input was read and every row is done or dead."""
        return self.stop is None and not self.open and not self.elsewhere

    def all_failed_alike(self, after: int | None) -> bool:
        """Whether so many rows are dead, all for the same reason, and none was ever done."""
        return after is not None and self.dead >= after and not self.done + self.skipped and len(self.reasons) == 1

    def rate_limits(self) -> dict[str, int]:
        return {
            "rate_limited_items_stored": self.rate_limited_items_stored,
            "rate_limited_items_redistributed": self.rate_limited_items_redistributed,
            "rate_limit_generations": self.rate_limit_generations,
            "rate_limit_participants": self.rate_limit_participants,
        }

    def note_final(
        self, reason: FailureReason | None, waited: Mapping[str, float], name: str = "", status: int | None = None
    ) -> None:
        """A row is done, or dead for a reason."""
        if reason is None:
            self.done += 1
        else:
            self.dead += 1
            self.deaths.note(reason, name, status=status)
            is_known = reason.category in self.reasons or len(self.reasons) < MOST_REASONS
            self.reasons[reason.category if is_known else OTHER.category] += 1
        for why, seconds in waited.items():
            self.waits[why] += seconds


@dataclass(slots=True, kw_only=True)
class JobReport:
    """The state of a job. ``counts`` are of the whole ledger, ``run`` is this process's share of it."""

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
    stop: Stop | None = None
    """Why it ended before everything was final."""

    @property
    def stopped(self) -> str:
        """Why it ended before everything was final: a word, and a sentence after it; empty if it did not."""
        return "" if self.stop is None else str(self.stop)

    @property
    def done(self) -> int:
        return self.counts.states.get(RowState.DONE, 0)

    @property
    def dead(self) -> int:
        return self.counts.states.get(RowState.DEAD, 0)

    @property
    def moved(self) -> dict[str, dict[str, int]]:
        """Done rows that a fallback has answered, by target and reason."""
        found: dict[str, dict[str, int]] = {}
        for told, rows in self.counts.moved.items():
            target, _, why = told.rpartition(" ")
            found.setdefault(target, {})[why] = rows
        return found

    @property
    def complete(self) -> bool:
        """Whether every row of the input is done or dead, and in the output."""
        return self.stop is None and not self.counts.open and self.written >= self.done + self.dead


def added_up(first: BatchReport, second: BatchReport) -> BatchReport:
    """Two runs of one job as one."""
    both = BatchReport(stop=second.stop, come_back_in=second.come_back_in, elsewhere=second.elsewhere)
    both.held_by, both.held_why = second.held_by, second.held_why
    both.seen = max(first.seen, second.seen)
    both.skipped = second.skipped if not first.seen else first.skipped
    for name in ("done", "dead", *COUNTERS, "tokens", "cost", "elapsed"):
        setattr(both, name, getattr(first, name) + getattr(second, name))
    both.reasons = first.reasons + second.reasons
    both.moved = first.moved + second.moved
    for report in (first, second):
        both.deaths.take(report.deaths.all())
        for why, seconds in report.waits.items():
            both.waits[why] += seconds
    return both
