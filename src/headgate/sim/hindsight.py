"""What a recording says about the server it met: its keys, its outages, its service times and its manners.

The quota of each key is read from its refusals (``quota_seen``). An outage is a row of calls that all
failed (5xx or no answer); it is taken to end midway between its last failure and the next success.
Failures outside of outages are a share of all calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import TypeVar

from .notation import Outage
from .quota_seen import KeySeen, outage_at, see_key
from .trace import TOO_MANY, Call, Learned, Trace

OfKey = TypeVar("OfKey", Call, Learned)

FEWEST_FAILURES = 3
"""Failures in a row, with no success between them, that make an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    items: int
    """Calls that got done."""
    workers: int
    open_for: float
    """Seconds for which its circuit stayed open before a probe."""
    seconds: float
    sent: int
    refused: int
    failed: int
    keys: tuple[KeySeen, ...]
    outages: tuple[Outage, ...]
    flaky: float
    """Share of calls that failed outside of outages."""
    served_in: tuple[float, ...]
    """How long the calls took that were served, the quickest first."""
    turned_away_in: float
    """How long a refusal or failure took."""
    retry_after: tuple[float | None, ...]
    """What each refusal said of when to come back."""

    @property
    def is_measured(self) -> bool:
        """Whether refusals showed the quota at least once."""
        return any(stretch.is_measured for key in self.keys for stretch in key.stretches)


def look_back(trace: Trace) -> Hindsight:
    """Raises ``ValueError`` if nothing in the recording got done."""
    calls = sorted(trace.calls, key=lambda call: call.sent_at)
    served = sorted(call.latency for call in calls if call.is_served)
    if not served:
        raise ValueError("not one call of the recording was served, so it says nothing about the server")
    outages = find_outages(calls, trace.ended_at)
    turned_away = [call for call in calls if not call.is_served]
    flaky = [call for call in turned_away if call.status != TOO_MANY and not outage_at(call.sent_at, outages)]
    refused = [call for call in turned_away if call.status == TOO_MANY]
    learned = by_key(trace.learned)
    return Hindsight(
        items=len(served),
        workers=trace.heading.workers,
        open_for=trace.heading.open_for,
        seconds=trace.ended_at,
        sent=len(calls),
        refused=len(refused),
        failed=len(turned_away) - len(refused),
        keys=tuple(
            replace(see_key(own, learned.get(key, []), outages, trace.ended_at), label=trace.labels.get(key, ""))
            for key, own in sorted(by_key(calls).items(), key=lambda one: (trace.labels.get(one[0], ""), one[0]))
        ),
        outages=tuple(outages),
        flaky=len(flaky) / (len(served) + len(flaky)),
        served_in=tuple(served),
        turned_away_in=median(call.latency for call in turned_away) if turned_away else 0.0,
        retry_after=tuple(call.retry_after for call in refused),
    )


def by_key(facts: Iterable[OfKey]) -> dict[int, list[OfKey]]:
    keys: dict[int, list[OfKey]] = {}
    for fact in facts:
        keys.setdefault(fact.key, []).append(fact)
    return keys


def find_outages(calls: Sequence[Call], ended_at: float) -> list[Outage]:
    """Rows of failures by the time they were sent in; ``calls`` are in that order."""
    found = []
    rows = [(failing, list(row)) for failing, row in groupby(calls, lambda call: not call.status or call.status >= 500)]
    for number, (failing, row) in enumerate(rows):
        if failing and len(row) >= FEWEST_FAILURES:
            last = row[-1].sent_at
            next_at = rows[number + 1][1][0].sent_at if number + 1 < len(rows) else ended_at
            length = (last + max(last, next_at)) / 2 - row[0].sent_at
            if length > 0:
                found.append(Outage(row[0].sent_at, length))
    return found
