"""How work has ended: a few sentences for a person, of which the last says what to do next, fields and an exit code."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...batch.report import FailureGroup, Failures, Remedy
from ...credentials import CredentialCoordinator
from ...formatting import format_seconds, printable

RESUME = "Re-run to resume."
MOST_KEYS = 5
MOST_GROUPS = 3
"""Groups of failures shown to a person."""
MOST_LISTED = 10
"""Reasons and processes shown to a person."""
LONGEST_MESSAGE = 200
"""Characters of a server's message."""
TODAY = 12 * 3600.0

REMEDIES = {
    Remedy.CHECK_ADDRESS: "check --to and --path, and the url of the rows",
    Remedy.CHECK_REQUEST: "correct the rows",
    Remedy.CHECK_KEY: "pass a valid key (--keys)",
    Remedy.CHECK_ACCOUNT: "check the account's billing, then headgate keys free; or pass another key (--keys)",
    Remedy.CHECK_NETWORK: "check --to and the network",
    Remedy.MAKE_SMALLER: "make the rows smaller",
    Remedy.MORE_TIME: "give rows more time",
    Remedy.WAIT: "try again later",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    code: int
    headline: str
    """What was done."""
    next: str
    """What to do now: the last line."""
    fields: dict[str, Any]
    details: list[str] = field(default_factory=list)
    """Further reasons for failed or waiting rows; ``next`` has the first."""


def with_retired_keys(summary: Summary, coordinators: Iterable[CredentialCoordinator]) -> Summary:
    """Add the keys that are retired by now: the work ends without them, only slower."""
    retired = [one for coordinator in coordinators for one in coordinator.states() if one.state == "retired"]
    fields = {**summary.fields, "keys_lost": [{"key": one.label, "reason": one.reason} for one in retired]}
    if not retired:
        return replace(summary, fields=fields)
    named = ", ".join(f"{one.label} ({one.reason})" for one in retired[:MOST_KEYS])
    more = f" and {len(retired) - MOST_KEYS:,} more" if len(retired) > MOST_KEYS else ""
    sentence = f"Retired keys: {named}{more}; see headgate keys."
    return replace(summary, headline=f"{summary.headline} {sentence}", fields=fields)


def until(seconds: float | None) -> str:
    """`` until 14:20 (3 min)``; empty where the end is not known."""
    return "" if seconds is None else f" until {clock_time(time.time() + seconds)} ({format_seconds(seconds)})"


def clock_time(at: float, *, seconds: bool = False) -> str:
    """``14:20``, with the date where that is not within half a day."""
    is_near = abs(at - time.time()) < TODAY
    short = "%H:%M:%S" if seconds else "%H:%M"
    return time.strftime(short if is_near else "%Y-%m-%d %H:%M", time.localtime(at))


def top_counts(reasons: Mapping[str, int]) -> str:
    """``12 transient, 3 invalid``, the most frequent first."""
    by_count = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count:,} {word}" for word, count in by_count[:MOST_LISTED])


def plural(count: int, word: str) -> str:
    """``1 page``, ``2 pages``, ``2 addresses``."""
    return f"{count:,} {word}" + ("" if count == 1 else "es" if word.endswith("s") else "s")


def sentence(text: str) -> str:
    """The text with one full stop at its end."""
    return f"{text.rstrip('.')}."


# ---------------------------------------------------------------------- failed rows, grouped by error


def failure_text(group: FailureGroup) -> str:
    """``20 invalid: 404 Not Found, such as row-3 (check --to ...)``, for one line of a terminal."""
    message = f": {printable(group.said)[:LONGEST_MESSAGE].rstrip('.')}" if group.said else ""
    example = f", such as {printable(group.example)}" if group.example else ""
    remedy = "" if group.remedy is None else f" ({REMEDIES[group.remedy]})"
    return f"{group.count:,} {group.category}{message}{example}{remedy}"


def failure_fields(failures: Failures) -> list[dict[str, Any]]:
    return [
        {
            "state": state,
            "reason": group.category,
            "said": group.said,
            "count": group.count,
            "example": group.example,
            "status": group.status,
            "remedy": None if group.remedy is None else group.remedy.value,
        }
        for state, groups in (("dead", failures.dead), ("waiting", failures.waiting))
        for group in groups[:MOST_LISTED]
    ]
