"""How the demo speaks: a live screen for people, one plain line a second for pipes, JSON for programs."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.sim.api import MockPlan
from headgate.sim.score import CLOSE_ENOUGH, Score
from headgate.sim.trial import Sample, Trial

from .demo_live import LiveScreen

SMALLEST_SCREEN = (80, 18)
"""Columns and lines below which a live screen would not fit."""
CLOSE = f"within {100 * CLOSE_ENOUGH:.0f} %"
"""How near to the true quota counts as having found it, in words."""


class Reporter(AbstractContextManager["Reporter"], Protocol):
    def show(self, trial: Trial, sample: Sample) -> None:
        """Called ten times a second; shows what it sees fit."""

    def conclude(self, score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None) -> None: ...


def reporter_for(trial: Trial, plan: MockPlan, seconds: float, *, as_json: bool) -> Reporter:
    if as_json:
        return JsonLines(plan)
    console = Console(highlight=False)
    columns, lines = SMALLEST_SCREEN
    fits = console.width >= columns and console.height >= lines and "utf" in console.encoding
    lively = console.is_terminal and not console.is_dumb_terminal and fits
    intro = (
        f"{trial.calls:,} calls from {trial.workers} workers to {trial.url}, whose quota is hidden, drops on the way "
        f"and is interrupted by an outage."
    )
    console.print(Text(intro), soft_wrap=not lively)
    return LiveReport(console, plan, seconds) if lively else PlainLines(plan)


class EverySecond:
    """Lets one sample in a second through to ``line``."""

    def __init__(self, plan: MockPlan) -> None:
        self.plan = plan
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, trial: Trial, sample: Sample) -> None:
        if sample.at >= self._next:
            self._next = int(sample.at) + 1
            self.line(trial, sample)

    def line(self, trial: Trial, sample: Sample) -> None:
        raise NotImplementedError


class JsonLines(EverySecond):
    def line(self, trial: Trial, sample: Sample) -> None:
        say_json(
            {
                "at": round(sample.at, 2),
                "learned": round(sample.learned, 2),
                "quota": self.plan.rate_at(sample.at),
                "done": sample.done,
                "calls": trial.calls,
                "rate_limited": trial.statuses[429],
                "breaker": sample.state,
                "waiting": sample.waiting,
                "reason": sample.reason,
            }
        )

    def conclude(self, score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None) -> None:
        files = {"picture": picture and str(picture), "recording": recording and str(recording)}
        say_json({"summary": asdict(score), "sound": score.is_sound, **files})


class PlainLines(EverySecond):
    def line(self, trial: Trial, sample: Sample) -> None:
        quota = self.plan.rate_at(sample.at) or 0.0
        click.echo(
            f"{sample.at:4.0f} s  learned {sample.learned:6.1f}/s  true quota {quota:6.1f}/s  "
            f"done {sample.done:>5} of {trial.calls}  429s {trial.statuses[429]:>3}  "
            f"breaker {sample.state.replace('_', '-'):<9}  {sample.waiting} wait: {sample.reason or 'nobody has to'}"
        )

    def conclude(self, score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None) -> None:
        click.echo("")
        for name, value in summary(score, plan, picture, recording):
            click.echo(f"{name + ':':<20}{value}")


class LiveReport(LiveScreen):
    def conclude(self, score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None) -> None:
        table = Table(box=None, show_header=False, padding=(0, 2))
        table.add_column(style="dim")
        table.add_column()
        for name, value in summary(score, plan, picture, recording):
            table.add_row(
                name, Text(value, ("bold green" if score.is_sound else "bold red") if name == "proof" else "")
            )
        self.console.print()
        self.console.print(table)


def summary(score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None) -> list[tuple[str, str]]:
    """What a person wants to know afterwards, most important first."""
    proof = "none lost, none done twice" if score.is_sound else f"{score.lost} LOST, {score.done_twice} DONE TWICE"
    left = f", {score.left:,} left" if score.left else ""
    rows = [
        ("result", f"{score.done:,} of {score.calls:,} calls done in {score.seconds:.1f} s{left}"),
        ("proof", f"{proof} (counted by id on both sides)"),
        ("goodput", goodput(score)),
        ("refused with 429", f"{score.rate_limited} of {score.sent:,} calls sent ({score.rate_limited_share:.2%})"),
        ("failed with 503", f"{score.failed}"),
        ("quota found", quota_found(score, plan)),
    ]
    for step in plan.steps[:1]:
        if step.at < score.seconds:
            rate = f"{plan.rate.per_second * step.factor:.1f}/s"
            when = f"it changed at {step.at:.1f} s"
            late = score.followed_after
            followed = f"not found after {when} ({CLOSE})" if late is None else f"{CLOSE}, {late:.1f} s after {when}"
            rows.append(("change followed", f"{rate} {followed}"))
    reached = [outage for outage in plan.outages if outage.at < score.seconds]
    rows += [("outage", f"{outage.at:.1f} s to {outage.until:.1f} s") for outage in reached]
    opened = ", ".join(f"{start:.1f} s to {end:.1f} s" for start, end in score.breaker_open)
    rows.append(("breaker open", opened or "never"))
    rows.append(("wait at the gate", f"p50 {span(score.wait_p50)}, p99 {span(score.wait_p99)}"))
    rows.append(("answer took", f"p50 {span(score.latency_p50)}, p99 {span(score.latency_p99)}"))
    if picture is not None:
        rows.append(("picture", str(picture)))
    if recording is not None:
        rows.append(("recording", f'{recording} (ask it: "headgate simulate --trace {recording} --rate x2")'))
    return rows


def goodput(score: Score) -> str:
    found = score.goodput_once_found
    once_found = "" if found is None else f", {found:.1%} once it was found"
    return f"{score.goodput:.1%} of the true quota{once_found}"


def quota_found(score: Score, plan: MockPlan) -> str:
    rate = f"{plan.rate.per_second:.1f}/s"
    if score.found_after is not None:
        return f"{rate} {CLOSE}, {score.found_after:.1f} s after the start"
    changed = any(step.at < score.seconds for step in plan.steps)
    return f"{rate} not found before {'it changed' if changed else 'the end'} ({CLOSE})"


def span(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def say_json(line: dict[str, Any]) -> None:
    click.echo(json.dumps(line))
