"""From the book of a run to its picture: what was counted by half seconds becomes points to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .chart import Points, Spans
from .measures import BIN, Run
from .run_picture import RunPanel, RunsPicture
from .scenario import Scenario


def picture_of(
    runs: Sequence[tuple[str, Run]],
    *,
    title: str,
    note: str,
    outages: Spans = (),
    duration: float | None = None,
    quota_name: str = "true quota",
) -> RunsPicture:
    """Runs that were watched, each with its headline, in one world; up to ``duration`` if that is given."""
    first = runs[0][1]
    end = first.horizon if duration is None else duration
    return RunsPicture(
        title=title,
        note=note,
        duration=end,
        quota=quota_of(first, end),
        outages=[(start, until) for start, until in outages if start < end],
        panels=[panel_of(run, headline, end) for headline, run in runs],
        quota_name=quota_name,
    )


def panel_of(run: Run, headline: str, end: float) -> RunPanel:
    samples = [sample for sample in run.samples if sample.at <= end]
    bins = math.ceil(end / BIN)
    return RunPanel(
        name=run.strategy,
        headline=headline,
        learned=[(sample.at, sample.learned) for sample in samples if sample.learned is not None],
        admitted=[(number * BIN, count / BIN) for number, count in enumerate(run.admitted_per_bin[:bins])],
        refused_at=[(number + 0.5) * BIN for number, count in enumerate(run.refused_per_bin[:bins]) if count],
        waiting=[(sample.at, float(sample.waiting)) for sample in samples],
        in_flight=[(sample.at, float(sample.in_flight)) for sample in samples],
    )


def quota_of(run: Run, end: float) -> Points:
    """What the quota allowed, as the points at which it changed."""
    points: list[tuple[float, float]] = []
    for number, allowed in enumerate(run.allowed_per_bin[: math.ceil(end / BIN)]):
        rate = round(allowed / BIN, 6)
        if not points or points[-1][1] != rate:
            points.append((number * BIN, rate))
    return points


def outages_of(scenario: Scenario) -> Spans:
    return [(outage.at, outage.until) for outage in (*scenario.outages, *scenario.hangs)]
