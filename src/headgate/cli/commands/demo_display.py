"""How the demo is shown: a curve and a line for each key, what happens to them and why they wait; and its score."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...formatting import format_seconds
from ...lab.charts.drawing import Points, nice_ceiling, ticks_up_to
from ...lab.score import CLOSE_ENOUGH, KeyScore, Score, learned_by
from ...lab.trial import Sample, Trial
from ...mock.api import MockPlan
from ..ui.display import CIRCUIT_STYLES, WIDEST, Display, Mode, progress_row

SMALLEST_SCREEN = (80, 18)
"""Columns and lines that a live screen needs."""
SCREEN_EVERY, LINE_EVERY = 0.1, 1.0
RECENT = 3.0
"""Seconds by whose rate the time to go is estimated, and for which a change is news."""
AXIS = 6
"""Characters left of the plot, for its numbers."""
LINES_AROUND_PLOT = 17
FEWEST_ROWS, MOST_ROWS = 4, 18
KEY_STYLES = ("bold cyan", "bold green", "bold magenta")
"""The colours of the keys, repeated if there are more."""
QUOTA, REFUSED, OPEN = "yellow", "red", "red"
CLOSE = f"within {100 * CLOSE_ENOUGH:.0f} %"
"""How near to the true quota counts as having found it."""
KEY_LINE = "{:>7} {:>8} {:>9} {:>6} {:>8} {:>5} {:>4} {:>5}"


def open_demo_display(trial: Trial, *, as_json: bool) -> Display:
    """JSON lines, a live screen where it fits, or plain lines; all on standard output."""
    if as_json:
        return Display(Mode.JSON, every=LINE_EVERY)
    console = Console(highlight=False)
    columns, lines = SMALLEST_SCREEN
    fits = console.width >= columns and console.height >= lines and "utf" in console.encoding
    is_live = console.is_terminal and not console.is_dumb_terminal and fits
    intro = (
        f"{trial.calls:,} calls from {trial.workers} workers to {trial.url} with {len(trial.keys)} keys. The quota of "
        f"each is hidden and drops on the way; an outage interrupts them all."
    )
    console.print(Text(intro), soft_wrap=not is_live)
    if is_live:
        return Display(Mode.SCREEN, every=SCREEN_EVERY, console=console, transient=False)
    return Display(Mode.LINES, every=LINE_EVERY, lines_err=False)


@dataclass(frozen=True, slots=True)
class DemoFrame:
    """A ``Frame`` of the demo."""

    trial: Trial
    sample: Sample
    plan: MockPlan
    seconds: float
    """The planned length."""

    def lines(self) -> list[str]:
        trial, sample = self.trial, self.sample
        learned = " + ".join(f"{key.learned:5.1f}" for key in sample.keys)
        quotas = " + ".join(f"{plan.rate_at(sample.at) or 0.0:5.1f}" for plan in self.plan.accounts)
        return [
            f"{sample.at:4.0f} s  learned {learned}/s  true quotas {quotas}/s  "
            f"done {sample.done:>5} of {trial.calls}  429s {trial.statuses[429]:>3}  "
            f"breaker {sample.state.replace('_', '-'):<9}  {sample.waiting} wait: {wait_text(trial, sample)}"
        ]

    def fields(self) -> list[dict[str, Any]]:
        trial, sample = self.trial, self.sample
        keys = [
            {
                "key": record.label,
                "learned": round(key.learned, 2),
                "quota": plan.rate_at(sample.at),
                "done": len(record.done_at),
                "rate_limited": record.statuses[429],
                "rests": record.rests,
                "breaker": key.state,
                "reason": key.reason,
            }
            for record, plan, key in zip(trial.keys, self.plan.accounts, sample.keys, strict=True)
        ]
        return [
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
        ]

    def render(self, width: int, height: int) -> RenderableType:
        width = min(width, WIDEST)
        rows = min(max(height - LINES_AROUND_PLOT, FEWEST_ROWS), MOST_ROWS)
        title = Text.assemble(
            ("━", key_style(0)),
            ("━", key_style(1)),
            ("━", key_style(2)),
            (" learned rate of each key   ", "not dim"),
            ("╍╍", QUOTA),
            (" its true quota, hidden from the client", "not dim"),
            (" (calls/s)", "dim"),
        )
        plot = Panel(self._plot(width - 4, rows), title=title, title_align="left", width=width, border_style="dim")
        now = Text.assemble("  ", ("now: ", "dim"), (phase_text(self.plan, self.trial, self.sample), "bold"))
        now.truncate(width, overflow="ellipsis")
        return Group(plot, self._progress(width), now, self._keys(), self._waits(width))

    def _plot(self, width: int, rows: int) -> Text:
        trial = self.trial
        canvas = BrailleCanvas(width - AXIS, rows)
        span = max(self.seconds, trial.elapsed * 1.02)
        instants = [span * (x + 0.5) / canvas.width for x in range(canvas.width)]
        learned = [resample(learned_by(trial.samples, number), instants) for number in range(len(trial.keys))]
        quotas = [[key.rate_at(at) if at <= trial.elapsed else None for at in instants] for key in self.plan.accounts]
        highest = max((rate for curve in quotas for rate in curve if rate is not None), default=0.0)
        top = nice_ceiling(1.05 * max(1.0, highest), about=4)  # a guess far above must not flatten the rest
        for curve in quotas:
            canvas.curve([None if rate is None else rate / top for rate in curve], QUOTA, every=2)
        for number, curve in enumerate(learned):
            canvas.curve([None if rate is None else rate / top for rate in curve], key_style(number))

        text = Text(no_wrap=True, overflow="crop")
        labels = {round((1 - rate / top) * (rows - 1)): f"{rate:g}" for rate in ticks_up_to(top, about=4)}
        for number, row in enumerate(canvas.rows()):
            text.append(f"{labels.get(number, ''):>{AXIS - 2}} {'┤' if number in labels else '│'}", "dim")
            for character, style in row:
                text.append(character, style)
            text.append("\n")
        text.append_text(time_axis(span, width - AXIS))
        column = (width - AXIS) / span
        refused = {int(at * column): key_style(n) for n, record in enumerate(trial.keys) for at in record.refused_at}
        failing = {int(sample.at * column): OPEN for sample in trial.samples if sample.state != "closed"}
        for name, marked, mark in (("429s", refused, "▏"), ("open", failing, "━")):
            text.append(f"\n{name:>{AXIS - 2}}  ", REFUSED if marked else "dim")
            for place in range(width - AXIS):
                text.append(mark if place in marked else " ", marked.get(place))
        return text

    def _progress(self, width: int) -> Table:
        trial = self.trial
        since = trial.elapsed - RECENT
        recent = sum(len(record.done_at) - bisect_left(record.done_at, since) for record in trial.keys)
        left = (trial.calls - trial.done) * min(RECENT, trial.elapsed) / recent if recent else 0.0
        eta = Text(f"about {left:.0f} s to go" if left >= 0.5 else "", "dim")
        return progress_row(f"{trial.done:>6,} of {trial.calls:,} done", trial.done, trial.calls, width, eta)

    def _keys(self) -> Text:
        """A line for each key."""
        trial, sample = self.trial, self.sample
        text = Text(f"  {'':7}{'learned':>10}{'true quota':>13}{'done':>9}{'429s':>7}{'rests':>8}  breaker", "dim")
        for number, (record, plan, key) in enumerate(zip(trial.keys, self.plan.accounts, sample.keys, strict=True)):
            down, refused = plan.is_down_at(sample.at), record.statuses[429]
            quota = (" OUTAGE ", "bold white on red") if down else (f"{plan.rate_at(sample.at) or 0.0:6.1f}/s", QUOTA)
            text = Text.assemble(
                text,
                "\n  ",
                (f"{record.label:7}", key_style(number)),
                (f"{key.learned:8.1f}/s", key_style(number)),
                "     ",
                quota,
                f"{len(record.done_at):>9,}",
                (f"{refused:>7}", REFUSED if refused else ""),
                f"{record.rests:>8}",
                "  ",
                (key.state.replace("_", "-"), CIRCUIT_STYLES.get(key.state, "")),
            )
        return text

    def _waits(self, width: int) -> Text:
        trial, sample = self.trial, self.sample
        if sample.done == trial.calls:
            return Text()
        line = Text.assemble(f"  {sample.waiting} wait: ", (wait_text(trial, sample), "italic"))
        line.truncate(width, overflow="ellipsis")
        return line


def key_style(number: int) -> str:
    return KEY_STYLES[number % len(KEY_STYLES)]


def phase_text(plan: MockPlan, trial: Trial, sample: Sample) -> str:
    """What is going on: the last thing that happened, or else what the limiter is doing."""
    at = sample.at
    if sample.done == trial.calls:
        return "all calls are done"
    if plan.is_down_at(at):
        return "the API is down; once circuits are open, only probes are sent"
    if any(0 <= at - outage.until < RECENT for outage in plan.outages):
        return "the API is back; the rate ramps up again"
    keys = [*zip(trial.keys, plan.accounts, sample.keys, strict=True)]
    dropped = [record.label for record, own, _ in keys for step in own.steps if 0 <= at - step.at < RECENT]
    if dropped:
        return f"the quota of {' and '.join(dropped)} has dropped, without notice"
    if all(abs(key.learned / (own.rate_at(at) or 1.0) - 1) <= CLOSE_ENOUGH for _, own, key in keys):
        return "every quota is found and held"
    return "searching for the quotas: faster until refused, then measured"


def wait_text(trial: Trial, sample: Sample) -> str:
    """The reason of the first key that has one."""
    reasons = (
        f"{record.label} {key.reason}" for record, key in zip(trial.keys, sample.keys, strict=True) if key.reason
    )
    return next(reasons, "starting now")


def resample(learned: Points, instants: list[float]) -> list[float | None]:
    """The learned rate at each instant: the last one seen by then, and nothing beyond the last sample."""
    rates: list[float | None] = []
    position, last = 0, None
    for at in instants:
        while position < len(learned) and learned[position][0] <= at:
            last = learned[position][1]
            position += 1
        rates.append(last if learned and at <= learned[-1][0] else None)
    return rates


def time_axis(span: float, columns: int) -> Text:
    marks = [" "] * columns
    for share in (0.0, 0.25, 0.5, 0.75):
        label = f"{span * share:.0f} s"
        start = int(share * columns)
        marks[start : start + len(label)] = label
    label = f"{span:.0f} s"
    marks[columns - len(label) :] = label
    return Text(" " * AXIS + "".join(marks), "dim")


# ---------------------------------------------------------------------- the score


def show_score(
    display: Display, score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None
) -> None:
    if display.mode is Mode.JSON:
        files = {"picture": picture and str(picture), "recording": recording and str(recording)}
        click.echo(json.dumps({"summary": asdict(score), "sound": score.is_sound, **files}))
        return
    rows = score_rows(score, plan, picture, recording)
    if display.mode is Mode.LINES:
        click.echo("")
        for name, value in rows:
            click.echo(f"{name + ':':<20}{value}")
        return
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows:
        style = ("bold green" if score.is_sound else "bold red") if name == "proof" else ""
        table.add_row(name, Text(value, style))
    display.console.print()
    display.console.print(table)


def score_rows(
    score: Score, plan: MockPlan, picture: Path | None, recording: Path | None = None
) -> list[tuple[str, str]]:
    """Names and values, the most important first."""
    proof = "none lost, none done twice" if score.is_sound else f"{score.lost} LOST, {score.done_twice} DONE TWICE"
    left = f", {score.left:,} left" if score.left else ""
    rows = [
        ("result", f"{score.done:,} of {score.calls:,} calls done in {score.seconds:.1f} s{left}"),
        ("proof", f"{proof} (counted by id on both sides)"),
        ("goodput", goodput(score)),
        ("rate limited (429)", f"{score.rate_limited} of {score.sent:,} calls sent ({score.rate_limited_share:.2%})"),
        ("failed with 503", f"{score.failed}"),
    ]
    rows.append(("keys", KEY_LINE.format("quota", "found in", "drops to", "at", "found in", "done", "429s", "rests")))
    rows += [
        (key.label, key_columns(key, own, score.seconds)) for key, own in zip(score.keys, plan.accounts, strict=True)
    ]
    reached = [outage for outage in plan.outages if outage.at < score.seconds]
    rows += [("outage", f"{outage.at:.1f} s to {outage.until:.1f} s") for outage in reached]
    opened = [span for key in score.keys for span in key.breaker_open]
    if opened:
        first, last = min(start for start, _ in opened), max(end for _, end in opened)
        rows.append(("breakers open", f"from {first:.1f} s to {last:.1f} s"))
    rows.append(("wait for a permit", f"p50 {format_seconds(score.wait_p50)}, p99 {format_seconds(score.wait_p99)}"))
    rows.append(("response time", f"p50 {format_seconds(score.latency_p50)}, p99 {format_seconds(score.latency_p99)}"))
    if picture is not None:
        rows.append(("picture", str(picture)))
    if recording is not None:
        rows.append(("recording", f'{recording} (replay it: "headgate simulate --trace {recording} --keys +2")'))
    return rows


def goodput(score: Score) -> str:
    found = score.goodput_once_found
    once_found = "" if found is None else f", {found:.1%} once found ({CLOSE})"
    return f"{score.goodput:.1%} of the true quotas{once_found}"


def key_columns(key: KeyScore, plan: MockPlan, seconds: float) -> str:
    """One key of the summary: what its quota was, how soon it was found, and what that cost."""
    quota = f"{plan.rate.per_second:.1f}/s"
    changes = [(f"{plan.rate.per_second * step.factor:.1f}/s", step.at) for step in plan.steps if step.at < seconds]
    after, at = (changes[0][0], f"{changes[0][1]:.1f} s") if changes else ("", "")
    followed = found_in(key.followed_after) if changes else ""
    found = found_in(key.found_after)
    return KEY_LINE.format(quota, found, after, at, followed, f"{key.done:,}", key.rate_limited, key.rests)


def found_in(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.1f} s"


# ---------------------------------------------------------------------- a plot of braille dots


_DOT_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_EMPTY = 0x2800


class BrailleCanvas:
    """Curves of dots, eight to a character: each is 2 dots wide and 4 high.

        ⢀⡠⠤⠤⠤⢄
        ⡰⠁    ⠈⢆

    ``columns`` by ``rows`` characters; the curve drawn last sets the colour of a shared character.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.width, self.height = 2 * columns, 4 * rows
        self._bits = [[0] * columns for _ in range(rows)]
        self._styles = [[""] * columns for _ in range(rows)]

    def dot(self, x: int, y: int, style: str) -> None:
        """Set the dot ``x`` from the left and ``y`` from the bottom; outside the canvas nothing happens."""
        if 0 <= x < self.width and 0 <= y < self.height:
            row, column = (self.height - 1 - y) // 4, x // 2
            self._bits[row][column] |= _DOT_BITS[(self.height - 1 - y) % 4][x % 2]
            self._styles[row][column] = style

    def curve(self, heights: Sequence[float | None], style: str, *, every: int = 1) -> None:
        """Draw one height (0 to 1) per dot column, joined up; ``None`` leaves a gap, ``every`` thins it to dashes."""
        before: int | None = None
        for x, height in enumerate(heights[: self.width]):
            if height is None:
                before = None
                continue
            y = round(min(max(height, 0.0), 1.0) * (self.height - 1))
            low, high = (y, y) if before is None else (min(y, before), max(y, before))
            if x % every == 0 or high > low:
                for level in range(low, high + 1):
                    self.dot(x, level, style)
            before = y

    def rows(self) -> Iterable[list[tuple[str, str]]]:
        """Each row from the top as (character, style) pairs."""
        for bits, styles in zip(self._bits, self._styles, strict=True):
            yield [(chr(_EMPTY + bit) if bit else " ", style) for bit, style in zip(bits, styles, strict=True)]
