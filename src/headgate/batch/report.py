"""What a run has done so far, in numbers: for people, for events and for the last line of a command."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..core.ledger import first_word
from ..core.words import span
from .ledger import RowState

MOST_REASONS = 100
"""Kinds of waits and of deaths that are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEvent:
    """One thing that happened in a batch."""

    at: float
    """On the runner's clock."""
    kind: str
    """cooldown_started, cooldown_extended, cooldown_ended, item_parked, item_failed, item_done, item_dead, item_lost,
    ramp_started, circuit_open, caps_reached or stopped."""
    key: str = ""
    """The gate key, with the credential's label behind it where there is one."""
    index: int | None = None
    reason: str = ""
    seconds: float | None = None
    attempts: int = 0
    rate_limited: int = 0
    tokens: int = 0
    cost: float = 0.0
    waited: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    """The four counters of rate limits, with events of a cooldown."""


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
class Death:
    """Rows that have failed with the same error."""

    reason: str
    """Of the first of them: its category, and a sentence without secrets after it."""
    example: str
    """... and what it is called."""
    count: int = 1
    status: int | None = None
    """What the server answered to it, where it did."""

    @property
    def category(self) -> str:
        return first_word(self.reason)

    @property
    def said(self) -> str:
        """The server's own words, behind the status, or what kept it from answering."""
        return self.reason.partition(":")[2].strip()

    @property
    def remedy(self) -> Remedy | None:
        if self.category == "transient" and self.status is None:
            return Remedy.CHECK_NETWORK
        if self.category == "invalid" and self.status in _NOT_THERE:
            return Remedy.CHECK_ADDRESS
        return _REMEDIES.get(self.category)


_NUMBERS = re.compile(r"[0-9]+")


class Deaths:
    """Dead rows by category, status and the server's words; numbers within those make no difference.

    At most ``MOST_REASONS`` are told apart; those that do not fit are counted by category.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, Death] = {}

    def note(self, reason: str, example: str, count: int = 1, status: int | None = None) -> None:
        head = reason.split(" ", 2)
        kind = " ".join([*head[:2], *(_NUMBERS.sub("#", rest) for rest in head[2:])])
        if kind not in self._kinds and len(self._kinds) >= MOST_REASONS:
            kind = reason = first_word(reason)
            if kind not in self._kinds and len(self._kinds) >= 2 * MOST_REASONS:
                kind = reason = "other"
        found = self._kinds.get(kind)
        if found is None:
            self._kinds[kind] = Death(reason, example, count, status)
        else:
            found.count += count

    def take(self, others: Iterable[Death]) -> None:
        for one in others:
            self.note(one.reason, one.example, one.count, one.status)

    def all(self) -> list[Death]:
        """The most frequent first. Safe for threads."""
        return sorted(list(self._kinds.values()), key=lambda one: -one.count)  # noqa: C414 - copied at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Why rows of a ledger have failed, grouped by error, the most frequent first."""

    dead: list[Death] = field(default_factory=list)
    waiting: list[Death] = field(default_factory=list)
    """Of rows that are open, and will be tried again."""


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
    deaths: Deaths = field(default_factory=Deaths)
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
    stopped: str = ""
    """Why the run ended before its input did; empty if it did not."""
    come_back_in: float | None = None
    """In how many seconds it is worth going on, where that is known ..."""
    held_by: str = ""
    """... and what nothing could start for, in a word (``LaneStanding.waits_for``) ..."""
    held_why: str = ""
    """... and in a clause."""

    @property
    def open(self) -> int:
        """Rows seen that are neither finished nor another's."""
        return self.seen - self.done - self.dead - self.skipped - self.elsewhere

    def __str__(self) -> str:
        """For ``print``: what became of the rows, why some are dead, and what it took."""
        counts = {"seen": self.seen, "done": self.done, "dead": self.dead, "skipped": self.skipped}
        counts |= {"elsewhere": self.elsewhere, "open": self.open}
        rows = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count or what in ("seen", "done"))
        lines = [f"rows: {rows}"]
        dead = ", ".join(f"{count:,} {why}" for why, count in self.reasons.most_common(5))
        lines += [f"dead: {dead}"] * bool(dead)
        spent = f", {self.tokens:,} tokens" if self.tokens else ""
        spent += f", {self.cost:,.4f} cost" if self.cost else ""
        limited = f", {self.rate_limit_participants:,} rate limited" if self.rate_limit_participants else ""
        lines += [f"calls: {self.calls:,} in {span(self.elapsed)}{limited}{spent}"]
        lines += [f"stopped: {self.stopped}"] * bool(self.stopped)
        return "\n".join(lines)

    @property
    def complete(self) -> bool:
        """Whether the whole input was read and every row is done or dead."""
        return not self.stopped and not self.open and not self.elsewhere

    def is_hopeless(self, after: int | None) -> bool:
        """Whether so many rows have died, all of the same, and none was ever done."""
        return after is not None and self.dead >= after and not self.done + self.skipped and len(self.reasons) == 1

    def rate_limits(self) -> dict[str, int]:
        return {
            "rate_limited_items_stored": self.rate_limited_items_stored,
            "rate_limited_items_redistributed": self.rate_limited_items_redistributed,
            "rate_limit_generations": self.rate_limit_generations,
            "rate_limit_participants": self.rate_limit_participants,
        }

    def note_final(
        self, state: RowState, reason: str, waited: Mapping[str, float], name: str, status: int | None = None
    ) -> None:
        if state is RowState.DONE:
            self.done += 1
        else:
            self.dead += 1
            self.deaths.note(reason, name, status=status)
            category = reason.partition(":")[0]
            self.reasons[category if len(self.reasons) < MOST_REASONS else "other"] += 1
        for why, seconds in waited.items():
            self.waits[why] += seconds
