"""Judge a trial by what only the server knew: how much of the quota was used, at what price.

Two books are kept, the client's and the server's, both by item id; an item is lost or
done twice if either of them says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .api import MockPlan
from .picture import RunPicture
from .trial import Sample, Trial

CLOSE_ENOUGH = 0.10
"""A learned rate within this share of the true quota counts as having found it ..."""
LONG_ENOUGH = 0.5
"""... once it has stayed there for so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    calls: int
    done: int
    lost: int
    """Items neither done nor still open when the trial ended: always 0, or something is broken."""
    done_twice: int
    left: int
    """Items not done because the trial was stopped."""
    seconds: float
    sent: int
    rate_limited: int
    rate_limited_share: float
    failed: int
    goodput: float
    """Calls done as a share of all that the true quota allowed in that time, its first burst included."""
    goodput_once_found: float | None
    """The same, from the moment the quota was found: changes and outages included, the first search left out."""
    found_after: float | None
    """Seconds until the learned rate was at the first quota; ``None`` if that changed before."""
    followed_after: float | None
    """Seconds until it was there again after the quota changed."""
    breaker_open: tuple[tuple[float, float], ...]
    wait_p50: float
    wait_p99: float
    latency_p50: float
    latency_p99: float

    @property
    def is_sound(self) -> bool:
        return self.lost == 0 and self.done_twice == 0

    @property
    def headline(self) -> str:
        proof = "none lost, none done twice" if self.is_sound else f"{self.lost} lost, {self.done_twice} done twice"
        found = self.goodput_once_found
        used = f"{self.goodput:.0%} of the quota used" if found is None else f"{found:.0%} of the quota used once found"
        refused = f"{self.rate_limited_share:.2%} refused with 429"
        return f"{self.done:,} calls in {self.seconds:.1f} s · {used} · {refused} · {proof}"


def judge(trial: Trial, plan: MockPlan, truth: Mapping[str, Any]) -> Score:
    """Score ``trial`` against the plan it was not told and the server's final counters."""
    sent = trial.statuses.total() + trial.broken_off
    missing = trial.calls - len(trial.times_done)
    allowed = (plan.allowed_between(0.0, trial.elapsed) or 0.0) + (plan.burst or 0.0)
    changed_at = plan.steps[0].at if plan.steps else math.inf
    found_after = time_to_find(trial.samples, plan, 0.0, changed_at)
    return Score(
        calls=trial.calls,
        done=trial.done,
        lost=(0 if trial.stopped else missing) + max(0, len(trial.times_done) - int(truth["ids_done"])),
        done_twice=max(int(truth["ids_done_twice"]), sum(times > 1 for times in trial.times_done.values())),
        left=missing if trial.stopped else 0,
        seconds=trial.elapsed,
        sent=sent,
        rate_limited=trial.statuses[429],
        rate_limited_share=trial.statuses[429] / max(sent, 1),
        failed=sent - trial.statuses[200] - trial.statuses[429],
        goodput=trial.done / max(allowed, 1.0),
        goodput_once_found=None if found_after is None else share_used(trial, plan, found_after),
        found_after=found_after,
        followed_after=time_to_find(trial.samples, plan, changed_at, math.inf),
        breaker_open=tuple(breaker_spans(trial.samples)),
        wait_p50=percentile(trial.waits, 0.50),
        wait_p99=percentile(trial.waits, 0.99),
        latency_p50=percentile(trial.latencies, 0.50),
        latency_p99=percentile(trial.latencies, 0.99),
    )


def share_used(trial: Trial, plan: MockPlan, start: float) -> float:
    """Calls done from ``start`` to the end, as a share of what the quota refilled in that time."""
    allowed = plan.allowed_between(start, trial.elapsed) or 0.0
    return sum(at >= start for at in trial.done_at) / max(allowed, 1.0)


def time_to_find(samples: Sequence[Sample], plan: MockPlan, start: float, end: float) -> float | None:
    """Seconds from ``start`` until the learned rate came close to the quota and stayed; ``None`` if not by ``end``."""
    since: float | None = None
    for sample in samples:
        if not start <= sample.at < end:
            continue
        quota = plan.rate_at(sample.at)
        if not quota or abs(sample.learned - quota) > CLOSE_ENOUGH * quota:
            since = None
            continue
        since = sample.at if since is None else since
        if sample.at - since >= LONG_ENOUGH:
            return since - start
    return None


def breaker_spans(samples: Sequence[Sample]) -> list[tuple[float, float]]:
    """When the breaker was not closed, as (from, until)."""
    spans: list[tuple[float, float]] = []
    opened_at: float | None = None
    for sample in samples:
        if sample.state != "closed" and opened_at is None:
            opened_at = sample.at
        elif sample.state == "closed" and opened_at is not None:
            spans.append((opened_at, sample.at))
            opened_at = None
    if opened_at is not None:
        spans.append((opened_at, samples[-1].at))
    return spans


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def draw(trial: Trial, plan: MockPlan, score: Score) -> RunPicture:
    """The picture of a judged trial."""
    duration = score.seconds
    edges = {
        0.0,
        *(step.at for step in plan.steps),
        *(at for outage in plan.outages for at in (outage.at, outage.until)),
    }
    return RunPicture(
        title="headgate demo: finding a quota nobody told it",
        headline=score.headline,
        duration=duration,
        learned=[(sample.at, sample.learned) for sample in trial.samples],
        quota=[(at, plan.rate_at(at) or 0.0) for at in sorted(edges) if at < duration],
        done_at=trial.done_at,
        refused_at=trial.refused_at,
        outages=[(outage.at, min(outage.until, duration)) for outage in plan.outages if outage.at < duration],
        breaker_open=score.breaker_open,
    )
