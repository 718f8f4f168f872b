"""The demo as people watch it: a curve and a line for each key, what happens to them, and why they wait."""

from __future__ import annotations

from bisect import bisect_left
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headgate.sim.api import MockPlan
from headgate.sim.chart import Points, nice_ceiling, ticks_up_to
from headgate.sim.score import CLOSE_ENOUGH, learned_by
from headgate.sim.trial import Trial
from headgate.sim.trial_notes import Sample

from .dots import DotCanvas
from .live_display import LiveDisplay

LATELY = 3.0
"""Seconds by whose pace the time to go is told, and for which a change is news."""
AXIS = 6
"""Characters left of the plot, for its numbers."""
LINES_AROUND_THE_PLOT = 17
FEWEST_ROWS, MOST_ROWS = 4, 18
KEYS = ("bold cyan", "bold green", "bold magenta")
"""The colours of the keys, over and over if there are more."""
QUOTA, REFUSED, BREAKER = "yellow", "red", "red"
STATE_STYLES = {"closed": "green", "half_open": "yellow", "open": "bold red"}


class LiveScreen:
    """Shows each sample in place; what it leaves behind is the last screen."""

    def __init__(self, console: Console, plan: MockPlan, seconds: float) -> None:
        self.console = console
        self.plan = plan
        self.seconds = seconds
        self._display = LiveDisplay(console, transient=False)

    def __enter__(self) -> Self:
        self._display.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.__exit__()

    def show(self, trial: Trial, sample: Sample) -> None:
        self._display.show(self.screen(trial, sample))

    def screen(self, trial: Trial, sample: Sample) -> RenderableType:
        width = min(self.console.width, 120)
        rows = min(max(self.console.height - LINES_AROUND_THE_PLOT, FEWEST_ROWS), MOST_ROWS)
        title = Text.assemble(
            ("━", style_of(0)),
            ("━", style_of(1)),
            ("━", style_of(2)),
            (" learned rate of each key   ", "not dim"),
            ("╍╍", QUOTA),
            (" its true quota, never told", "not dim"),
            (" (calls/s)", "dim"),
        )
        plot = Panel(
            self.plot(trial, width - 4, rows), title=title, title_align="left", width=width, border_style="dim"
        )
        now = Text.assemble("  ", ("now: ", "dim"), (story(self.plan, trial, sample), "bold"))
        now.truncate(width, overflow="ellipsis")
        return Group(plot, self.progress(trial, width), now, self.keys(trial, sample), self.why(trial, sample, width))

    def plot(self, trial: Trial, width: int, rows: int) -> Text:
        canvas = DotCanvas(width - AXIS, rows)
        span = max(self.seconds, trial.elapsed * 1.02)
        instants = [span * (x + 0.5) / canvas.width for x in range(canvas.width)]
        learned = [resample(learned_by(trial.samples, number), instants) for number in range(len(trial.keys))]
        quotas = [[key.rate_at(at) if at <= trial.elapsed else None for at in instants] for key in self.plan.accounts]
        highest = max((rate for curve in quotas for rate in curve if rate is not None), default=0.0)
        top = nice_ceiling(1.05 * max(1.0, highest), about=4)  # a guess far above must not flatten the rest
        for curve in quotas:
            canvas.curve([None if rate is None else rate / top for rate in curve], QUOTA, every=2)
        for number, curve in enumerate(learned):
            canvas.curve([None if rate is None else rate / top for rate in curve], style_of(number))

        text = Text(no_wrap=True, overflow="crop")
        labels = {round((1 - rate / top) * (rows - 1)): f"{rate:g}" for rate in ticks_up_to(top, about=4)}
        for number, row in enumerate(canvas.rows()):
            text.append(f"{labels.get(number, ''):>{AXIS - 2}} {'┤' if number in labels else '│'}", "dim")
            for character, style in row:
                text.append(character, style)
            text.append("\n")
        text.append_text(time_axis(span, width - AXIS))
        column = (width - AXIS) / span
        refused = {int(at * column): style_of(n) for n, book in enumerate(trial.keys) for at in book.refused_at}
        failing = {int(sample.at * column): BREAKER for sample in trial.samples if sample.state != "closed"}
        for name, marked, mark in (("429s", refused, "▏"), ("open", failing, "━")):
            text.append(f"\n{name:>{AXIS - 2}}  ", REFUSED if marked else "dim")
            for place in range(width - AXIS):
                text.append(mark if place in marked else " ", marked.get(place))
        return text

    def progress(self, trial: Trial, width: int) -> Table:
        table = Table.grid(padding=(0, 2), expand=False)
        share = trial.done / trial.calls
        since = trial.elapsed - LATELY
        lately = sum(len(book.done_at) - bisect_left(book.done_at, since) for book in trial.keys)
        left = (trial.calls - trial.done) * min(LATELY, trial.elapsed) / lately if lately else 0.0
        eta = f"about {left:.0f} s to go" if left >= 0.5 else ""
        bar = ProgressBar(total=trial.calls, completed=trial.done, width=max(10, width - 50), complete_style="green")
        table.add_row(f"  {trial.done:>6,} of {trial.calls:,} done", bar, f"{share:4.0%}", Text(eta, "dim"))
        return table

    def keys(self, trial: Trial, sample: Sample) -> Text:
        """A line for each key."""
        text = Text(f"  {'':7}{'learned':>10}{'true quota':>13}{'done':>9}{'429s':>7}{'rests':>8}  breaker", "dim")
        for number, (book, plan, look) in enumerate(zip(trial.keys, self.plan.accounts, sample.keys, strict=True)):
            down, refused = plan.is_down_at(sample.at), book.statuses[429]
            quota = (" OUTAGE ", "bold white on red") if down else (f"{plan.rate_at(sample.at) or 0.0:6.1f}/s", QUOTA)
            text = Text.assemble(
                text,
                "\n  ",
                (f"{book.label:7}", style_of(number)),
                (f"{look.learned:8.1f}/s", style_of(number)),
                "     ",
                quota,
                f"{len(book.done_at):>9,}",
                (f"{refused:>7}", REFUSED if refused else ""),
                f"{book.rests:>8}",
                "  ",
                (look.state.replace("_", "-"), STATE_STYLES.get(look.state, "")),
            )
        return text

    def why(self, trial: Trial, sample: Sample, width: int) -> Text:
        if sample.done == trial.calls:
            return Text()
        line = Text.assemble(f"  {sample.waiting} wait: ", (why(trial, sample), "italic"))
        line.truncate(width, overflow="ellipsis")
        return line


def style_of(number: int) -> str:
    return KEYS[number % len(KEYS)]


def story(plan: MockPlan, trial: Trial, sample: Sample) -> str:
    """What a stranger should know of this moment: the last thing that happened, or else what the limiter is at."""
    at = sample.at
    if sample.done == trial.calls:
        return "every call is done"
    if plan.is_down_at(at):
        return "the API is down; once circuits are open, only probes are sent"
    if any(0 <= at - outage.until < LATELY for outage in plan.outages):
        return "the API is back; the pace comes back by a ramp"
    keys = [*zip(trial.keys, plan.accounts, sample.keys, strict=True)]
    dropped = [book.label for book, own, _ in keys for step in own.steps if 0 <= at - step.at < LATELY]
    if dropped:
        return f"the quota of {' and '.join(dropped)} has dropped, and nobody said so"
    if all(abs(look.learned / (own.rate_at(at) or 1.0) - 1) <= CLOSE_ENOUGH for _, own, look in keys):
        return "every quota is found, and held"
    return "looking for the quotas: faster until refused, then measured"


def why(trial: Trial, sample: Sample) -> str:
    """The reason of the first key that has one."""
    reasons = (f"{book.label} {look.reason}" for book, look in zip(trial.keys, sample.keys, strict=True) if look.reason)
    return next(reasons, "their turn is now")


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
