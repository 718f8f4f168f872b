"""Judge a trial by what only the server knew: how much of the quota was used, at what price.

Client and server each keep a log, both by item id; an item is lost or
done twice if either of them says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..mock.api import MockPlan
from .charts.drawing import Points, Spans
from .charts.trial_chart import KeyPanel, RunPicture
from .trial import KeyLog, Sample, Trial

CLOSE_ENOUGH = 0.10
"""A learned rate within this share of the true quota counts as having found it ..."""
LONG_ENOUGH = 0.5
"""... once it has stayed there for so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyScore:
    """How one key fared, by its label."""

    label: str
    done: int
    rate_limited: int
    rests: int
    """How often the coordinator gave its work to the others for a while."""
    found_after: float | None
    """Seconds until the learned rate was at the first quota; ``None`` if that changed before."""
    followed_after: float | None
    """Seconds until it was there again after the quota changed."""
    breaker_open: Spans


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
    """The same, from the moment every key's quota was found: changes and outages included, the search left out."""
    found_after: float | None
    """Seconds until the learned rate of each key was at its first quota; ``None`` if one of these changed before."""
    keys: tuple[KeyScore, ...]
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
        share, when = (self.goodput, "") if found is None else (found, " once found")
        used = f"{share:.0%} of the quotas used{when}"
        refused = f"{self.rate_limited_share:.2%} rate limited (429)"
        return f"{self.done:,} calls in {self.seconds:.1f} s · {used} · {refused} · {proof}"


def judge(trial: Trial, plan: MockPlan, truth: Mapping[str, Any]) -> Score:
    """Score ``trial`` against the plan it was not told and the server's final counters."""
    statuses = trial.statuses
    sent = statuses.total() + trial.broken_off
    missing = trial.calls - len(trial.times_done)
    allowed = (plan.allowed_between(0.0, trial.elapsed) or 0.0) + sum(key.burst or 0.0 for key in plan.accounts)
    keys = tuple(judge_key(trial, number, key) for number, key in enumerate(plan.accounts))
    found = [key.found_after for key in keys if key.found_after is not None]
    found_after = max(found) if len(found) == len(keys) else None
    return Score(
        calls=trial.calls,
        done=trial.done,
        lost=(0 if trial.stopped else missing) + max(0, len(trial.times_done) - int(truth["ids_done"])),
        done_twice=max(int(truth["ids_done_twice"]), sum(times > 1 for times in trial.times_done.values())),
        left=missing if trial.stopped else 0,
        seconds=trial.elapsed,
        sent=sent,
        rate_limited=statuses[429],
        rate_limited_share=statuses[429] / max(sent, 1),
        failed=sent - statuses[200] - statuses[429],
        goodput=trial.done / max(allowed, 1.0),
        goodput_once_found=None if found_after is None else share_used(trial, plan, found_after),
        found_after=found_after,
        keys=keys,
        wait_p50=percentile(trial.waits, 0.50),
        wait_p99=percentile(trial.waits, 0.99),
        latency_p50=percentile(trial.latencies, 0.50),
        latency_p99=percentile(trial.latencies, 0.99),
    )


def judge_key(trial: Trial, number: int, plan: MockPlan) -> KeyScore:
    log, learned = trial.keys[number], learned_by(trial.samples, number)
    changed_at = plan.steps[0].at if plan.steps else math.inf
    return KeyScore(
        label=log.label,
        done=len(log.done_at),
        rate_limited=log.statuses[429],
        rests=log.rests,
        found_after=time_to_find(learned, plan, 0.0, changed_at),
        followed_after=time_to_find(learned, plan, changed_at, math.inf),
        breaker_open=tuple(breaker_spans(trial.samples, number)),
    )


def learned_by(samples: Sequence[Sample], number: int) -> list[tuple[float, float]]:
    """The pace of one key as it was learned over time."""
    return [(sample.at, sample.keys[number].learned) for sample in samples]


def share_used(trial: Trial, plan: MockPlan, start: float) -> float:
    """Calls done from ``start`` to the end, as a share of what the quotas refilled in that time."""
    allowed = plan.allowed_between(start, trial.elapsed) or 0.0
    return sum(at >= start for log in trial.keys for at in log.done_at) / max(allowed, 1.0)


def time_to_find(learned: Points, plan: MockPlan, start: float, end: float) -> float | None:
    """Seconds from ``start`` until the learned rate came close to the quota and stayed; ``None`` if not by ``end``."""
    since: float | None = None
    for at, rate in learned:
        if not start <= at < end:
            continue
        quota = plan.rate_at(at)
        if not quota or abs(rate - quota) > CLOSE_ENOUGH * quota:
            since = None
            continue
        since = at if since is None else since
        if at - since >= LONG_ENOUGH:
            return since - start
    return None


def breaker_spans(samples: Sequence[Sample], number: int) -> list[tuple[float, float]]:
    """When the breaker of one key was not closed, as (from, until)."""
    spans: list[tuple[float, float]] = []
    opened_at: float | None = None
    for sample in samples:
        closed = sample.keys[number].state == "closed"
        if not closed and opened_at is None:
            opened_at = sample.at
        elif closed and opened_at is not None:
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
    return RunPicture(
        title=f"headgate demo: finding {len(score.keys)} hidden quotas",
        headline=score.headline,
        duration=duration,
        outages=[(outage.at, min(outage.until, duration)) for outage in plan.outages if outage.at < duration],
        panels=[
            panel_of(trial.keys[number], key, plan.accounts[number], learned_by(trial.samples, number), duration)
            for number, key in enumerate(score.keys)
        ],
    )


def panel_of(log: KeyLog, key: KeyScore, plan: MockPlan, learned: Points, duration: float) -> KeyPanel:
    changes = {0.0, *(step.at for step in plan.steps), *(at for one in plan.outages for at in (one.at, one.until))}
    rests = f"{key.rests} rest{'' if key.rests == 1 else 's'}"
    return KeyPanel(
        name=key.label,
        headline=f"{key.done:,} calls, {key.rate_limited} rate limited (429), {rests}",
        learned=learned,
        quota=[(at, plan.rate_at(at) or 0.0) for at in sorted(changes) if at < duration],
        done_at=log.done_at,
        refused_at=log.refused_at,
        breaker_open=key.breaker_open,
    )
