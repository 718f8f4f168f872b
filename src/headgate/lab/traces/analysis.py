"""What a recording says about the server it met: its keys, its outages, its service times and its manners.

The quota of each key is read from its refusals. An outage is a row of calls that all
failed (5xx or no answer); it is taken to end midway between its last failure and the next success.
Failures outside of outages are a share of all calls.

The quota of a key shows when the server refuses: between two refusals it let through exactly what it allows, if
callers took all of it. Then calls accepted divided by time *measure* it.

    time        0 ......... 429 ........ 429 .. 429 ........ 503 503 503 .......... end
    stretch     | search     | measured   | measured | at least | outage | at least  |
    quota       | as after   | accepted   | accepted | the more of what was accepted |
                | the first  | / time     | / time   | and what had been learned     |

- Until the first refusal the caller was still searching, so the quota of the next stretch is taken, and what was
  accepted above it was a burst.
- Callers took all of it if they were waiting and their pace never fell behind the average for long: a bucket that
  is full loses what it would refill, and a caller that climbs back after a refusal leaves it full.
- Where they did not, or a stretch does not end in refusals on both sides, the quota is known only *from below*: what
  was accepted, or outside of two refusals the learned rate if that is more. Such stretches are marked, and a run that
  was never refused is one of them as a whole.
- Stretches that are too short to count in are joined to the next; neighbours that agree become one. What was
  measured holds on where nothing contradicts it, but says nothing of what was before.

What cannot be seen: how the server counts (a bucket is assumed), a limit on calls at a time, a change of quota
that was never reached, and what a slower caller left unused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median

from ...units import Outage
from .trace import TOO_MANY, Call, Learned, Trace, by_key

SHORTEST = 1.0
FEWEST_ACCEPTED = 5
"""A stretch shorter than this, or with fewer calls, is too short to count in."""
AGREE = 0.1
"""Neighbouring stretches whose quotas differ by less than this share are one; callers that were never behind the
average by more than this share of a stretch's calls used it up."""
LEAST_BURST = 4.0
USUAL_BURST = 0.1
"""A burst shows only from below too. At least so many calls, and so many seconds of the quota, are taken for granted:
a server that let no two calls through at once would have refused a caller all the time."""
LEAST_RATE = 0.01
"""Calls a second: what is left of a quota of which nothing was seen."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which one quota held."""

    since: float
    until: float
    rate: float
    """Calls a second."""
    is_measured: bool
    """Refused at both ends and used up between them; otherwise the quota is known only from below."""

    @property
    def length(self) -> float:
        return self.until - self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySeen:
    """One key's quota as far as it showed."""

    stretches: tuple[Stretch, ...]
    burst: float
    """Calls that it lets through at once, beyond its rate: those it did before the first refusal, or the usual few."""
    label: str = ""
    """Of its credential, if that was recorded."""

    def rate_at(self, at: float) -> float:
        return self.stretches[max(0, bisect_right(self.stretches, at, key=lambda one: one.since) - 1)].rate

    @property
    def mean_rate(self) -> float:
        """Calls a second, from beginning to end."""
        length = sum(stretch.length for stretch in self.stretches)
        refilled = sum(stretch.rate * stretch.length for stretch in self.stretches)
        return refilled / length if length else self.stretches[0].rate


def outage_at(at: float, outages: Sequence[Outage]) -> Outage | None:
    """The one that ``at`` falls into; ``outages`` are in the order of time and do not overlap."""
    number = bisect_right(outages, at, key=lambda outage: outage.at) - 1
    return outages[number] if number >= 0 and at < outages[number].until else None


def see_key(calls: Sequence[Call], learned: Sequence[Learned], outages: Sequence[Outage], ended_at: float) -> KeySeen:
    """The quota of one key, from its own calls in the order they were sent in."""
    accepted = [call for call in calls if call.is_served]
    accepted_at = [call.sent_at for call in accepted]
    refused_at = [call.sent_at for call in calls if call.status == TOO_MANY]
    learned_at = [sample.at for sample in learned]
    if not refused_at:
        rate = max(fastest_second(accepted_at), learned[-1].rate if learned else 0.0, LEAST_RATE)
        stretch = Stretch(0.0, ended_at, rate, is_measured=False)
        return KeySeen(stretches=(stretch,), burst=burst_above(rate, (), 0.0))

    stretches: list[Stretch] = []
    for start, until, between_refusals in spans(refused_at, accepted_at, outages, ended_at):
        settled_at = after_the_shower(refused_at, accepted_at, start, until)
        inside = accepted[bisect_right(accepted_at, settled_at) : bisect_right(accepted_at, until)]
        rate = len(inside) / (until - settled_at)
        is_measured = between_refusals and is_used_up(inside, settled_at, rate)
        if not between_refusals:
            samples = learned[bisect_right(learned_at, settled_at) : bisect_right(learned_at, until)]
            before = stretches[-1].rate if stretches else 0.0
            rate = max(rate, median(sample.rate for sample in samples) if samples else before)
        shower = refused_at[bisect_left(refused_at, start) : bisect_right(refused_at, settled_at)]
        surplus = {at: count_between(accepted_at, start, at) - rate * (at - start) for at in (start, *shower)}
        since = max(surplus, key=lambda at: round(surplus[at]))
        stretches.append(Stretch(since, until, max(rate, LEAST_RATE), is_measured))
    if not stretches:  # refused at the very end, and never before
        stretches.append(Stretch(0.0, ended_at, max(fastest_second(accepted_at), LEAST_RATE), is_measured=False))
    stretches[0] = replace(stretches[0], since=0.0)
    return KeySeen(stretches=tuple(joined(stretches)), burst=burst_above(stretches[0].rate, accepted_at, refused_at[0]))


def spans(
    refused_at: Sequence[float], accepted_at: Sequence[float], outages: Sequence[Outage], ended_at: float
) -> Iterator[tuple[float, float, bool]]:
    """From the first refusal on: since, until, and whether both of these were refusals. Outages are left out."""
    edges = [(at, True) for at in refused_at]
    edges += [(at, False) for outage in outages for at in (outage.at, outage.until) if at > refused_at[0]]
    edges.append((max(ended_at, refused_at[-1]), False))
    since, since_refusal = refused_at[0], True
    for until, is_refusal in sorted(edges):
        if outage_at((since + until) / 2, outages):
            since, since_refusal = until, False
            continue
        too_short = until - since < SHORTEST or count_between(accepted_at, since, until) < FEWEST_ACCEPTED
        if until <= since or (is_refusal and too_short):
            continue
        yield since, until, is_refusal and since_refusal
        since, since_refusal = until, is_refusal


def after_the_shower(refused_at: Sequence[float], accepted_at: Sequence[float], since: float, until: float) -> float:
    """From where to count: a quota that drops is met with several refusals, and the last of them is surely below it."""
    last = refused_at[max(0, bisect_right(refused_at, since + SHORTEST) - 1)]
    enough = until - last >= SHORTEST and count_between(accepted_at, last, until) >= FEWEST_ACCEPTED
    return last if last > since and enough else since


def is_used_up(accepted: Sequence[Call], since: float, rate: float) -> bool:
    """Whether callers that got ``rate`` on average were waiting, and never so far behind it that a bucket was full."""
    behind = max((rate * (call.sent_at - since) - number for number, call in enumerate(accepted)), default=0.0)
    slack = max(LEAST_BURST, USUAL_BURST * rate, AGREE * len(accepted))
    return behind <= slack and median(call.waited for call in accepted) > 0


def count_between(instants: Sequence[float], since: float, until: float) -> int:
    return bisect_right(instants, until) - bisect_right(instants, since)


def joined(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Neighbours that agree made one, with nothing between them left open."""
    result: list[Stretch] = []
    for stretch in stretches:
        before = result[-1] if result else None
        if before is not None:
            before = result[-1] = replace(before, until=stretch.since)
        if before is None or abs(stretch.rate - before.rate) > AGREE * before.rate:
            result.append(stretch)
        elif before.is_measured == stretch.is_measured:
            share = before.length / (before.length + stretch.length)
            rate = share * before.rate + (1 - share) * stretch.rate
            result[-1] = replace(before, until=stretch.until, rate=rate)
        elif before.is_measured:
            result[-1] = replace(before, until=stretch.until)
        else:
            result.append(stretch)
    return result


def fastest_second(accepted_at: Sequence[float]) -> float:
    """The most calls accepted within any one second."""
    return max((number - bisect_left(accepted_at, at - 1.0) + 1 for number, at in enumerate(accepted_at)), default=0)


def burst_above(rate: float, accepted_at: Sequence[float], until: float) -> float:
    """What the smallest bucket that refills at ``rate`` must hold to let through all that was accepted."""
    level, most = 1.0, max(LEAST_BURST, USUAL_BURST * rate)
    for before, at in pairwise(accepted_at[: bisect_right(accepted_at, until)]):
        level = max(0.0, level - rate * (at - before)) + 1.0
        most = max(most, level)
    return most


FEWEST_FAILURES = 3
"""Failures in a row, with no success between them, that make an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAnalysis:
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


def analyze_trace(trace: Trace) -> TraceAnalysis:
    """Raises ``ValueError`` if nothing in the recording got done."""
    calls = sorted(trace.calls, key=lambda call: call.sent_at)
    served = sorted(call.latency for call in calls if call.is_served)
    if not served:
        raise ValueError("the recording has no served call, so it says nothing about the server")
    outages = find_outages(calls, trace.ended_at)
    turned_away = [call for call in calls if not call.is_served]
    flaky = [call for call in turned_away if call.status != TOO_MANY and not outage_at(call.sent_at, outages)]
    refused = [call for call in turned_away if call.status == TOO_MANY]
    learned = by_key(trace.learned)
    return TraceAnalysis(
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
