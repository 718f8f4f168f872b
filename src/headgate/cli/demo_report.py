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
from headgate.sim.score import CLOSE_ENOUGH, KeyScore, Score
from headgate.sim.trial import Trial
from headgate.sim.trial_notes import Sample

from .demo_live import LiveScreen, why

SMALLEST_SCREEN = (80, 18)
"""Columns and lines below which a live screen would not fit."""
CLOSE = f"within {100 * CLOSE_ENOUGH:.0f} %"
"""How near to the true quota counts as having found it, in words."""
KEY_LINE = "{:>7} {:>8} {:>9} {:>6} {:>8} {:>5} {:>4} {:>5}"


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
        f"{trial.calls:,} calls from {trial.workers} workers to {trial.url} with {len(trial.keys)} keys. The quota of "
        f"each is hidden and drops on the way; an outage interrupts them all."
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
        keys = [
            {
                "key": book.label,
                "learned": round(look.learned, 2),
                "quota": plan.rate_at(sample.at),
                "done": len(book.done_at),
                "rate_limited": book.statuses[429],
                "rests": book.rests,
                "breaker": look.state,
                "reason": look.reason,
            }
            for book, plan, look in zip(trial.keys, self.plan.accounts, sample.keys, strict=True)
        ]
        say_json(
            {
                "at": round(sample.at, 2),
                "learned": round(sample.learned, 2),
                "quota": self.plan.rate_at(sample.at),
                "done": sample.done,
                "calls": trial.calls,
                "rate_limited": trial.statuses[429],
                "waiting": sample.waiting,
                "keys": keys,
            }
        )

    def conclude(self, score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None) -> None:
        files = {"picture": picture and str(picture), "recording": recording and str(recording)}
        say_json({"summary": asdict(score), "sound": score.is_sound, **files})


class PlainLines(EverySecond):
    def line(self, trial: Trial, sample: Sample) -> None:
        learned = " + ".join(f"{look.learned:5.1f}" for look in sample.keys)
        quotas = " + ".join(f"{plan.rate_at(sample.at) or 0.0:5.1f}" for plan in self.plan.accounts)
        click.echo(
            f"{sample.at:4.0f} s  learned {learned}/s  true quotas {quotas}/s  "
            f"done {sample.done:>5} of {trial.calls}  429s {trial.statuses[429]:>3}  "
            f"breaker {sample.state.replace('_', '-'):<9}  {sample.waiting} wait: {why(trial, sample)}"
        )

    def conclude(self, score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None) -> None:
        click.echo("")
        for name, value in summary(score, plan, picture, recording):
            click.echo(f"{name + ':':<20}{value}")


class LiveReport(LiveScreen):
    def conclude(self, score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None) -> None:
        table = Table(box=None, show_header=False, padding=(0, 1))
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
    ]
    rows.append(("keys", KEY_LINE.format("quota", "found in", "drops to", "at", "found in", "done", "429s", "rests")))
    rows += [
        (key.label, in_columns(key, own, score.seconds)) for key, own in zip(score.keys, plan.accounts, strict=True)
    ]
    reached = [outage for outage in plan.outages if outage.at < score.seconds]
    rows += [("outage", f"{outage.at:.1f} s to {outage.until:.1f} s") for outage in reached]
    opened = [span for key in score.keys for span in key.breaker_open]
    if opened:
        first, last = min(start for start, _ in opened), max(end for _, end in opened)
        rows.append(("breakers open", f"from {first:.1f} s to {last:.1f} s"))
    rows.append(("wait at the gate", f"p50 {span(score.wait_p50)}, p99 {span(score.wait_p99)}"))
    rows.append(("answer took", f"p50 {span(score.latency_p50)}, p99 {span(score.latency_p99)}"))
    if picture is not None:
        rows.append(("picture", str(picture)))
    if recording is not None:
        rows.append(("recording", f'{recording} (ask it: "headgate simulate --trace {recording} --keys +2")'))
    return rows


def goodput(score: Score) -> str:
    found = score.goodput_once_found
    once_found = "" if found is None else f", {found:.1%} once found ({CLOSE})"
    return f"{score.goodput:.1%} of the true quotas{once_found}"


def in_columns(key: KeyScore, plan: MockPlan, seconds: float) -> str:
    """One key of the summary: what its quota was, how soon it was found, and what that cost."""
    quota = f"{plan.rate.per_second:.1f}/s"
    changes = [(f"{plan.rate.per_second * step.factor:.1f}/s", step.at) for step in plan.steps if step.at < seconds]
    after, at = (changes[0][0], f"{changes[0][1]:.1f} s") if changes else ("", "")
    followed = found_in(key.followed_after) if changes else ""
    found = found_in(key.found_after)
    return KEY_LINE.format(quota, found, after, at, followed, f"{key.done:,}", key.rate_limited, key.rests)


def found_in(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"


def span(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def say_json(line: dict[str, Any]) -> None:
    click.echo(json.dumps(line))
