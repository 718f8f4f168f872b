"""The demo as people watch it: one screen of plot, progress, breaker, and the reason for every wait."""

from __future__ import annotations

from bisect import bisect_left
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headgate.sim.api import MockPlan
from headgate.sim.chart import nice_ceiling, ticks_up_to
from headgate.sim.trial import Sample, Trial

from .dots import DotCanvas

LATELY = 3.0
"""Seconds by whose pace the time to go is told."""
AXIS = 6
"""Characters left of the plot, for its numbers."""
LINES_AROUND_THE_PLOT = 15
FEWEST_ROWS, MOST_ROWS = 4, 18
LEARNED, QUOTA, REFUSED, BREAKER = "bold cyan", "yellow", "red", "magenta"
STATE_STYLES = {"closed": "green", "half_open": "yellow", "open": "bold red"}


class LiveScreen:
    """Shows each sample in place; what it leaves behind is the last screen."""

    def __init__(self, console: Console, plan: MockPlan, seconds: float) -> None:
        self.console = console
        self.plan = plan
        self.seconds = seconds
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, trial: Trial, sample: Sample) -> None:
        self._live.update(self.screen(trial, sample), refresh=True)

    def screen(self, trial: Trial, sample: Sample) -> RenderableType:
        width = min(self.console.width, 120)
        rows = min(max(self.console.height - LINES_AROUND_THE_PLOT, FEWEST_ROWS), MOST_ROWS)
        title = Text.assemble(
            ("━━", LEARNED),
            (" learned rate   ", "not dim"),
            ("╍╍", QUOTA),
            (" true quota, which the client is never told", "not dim"),
            (" (calls/s)", "dim"),
        )
        plot = Panel(
            self.plot(trial, width - 4, rows), title=title, title_align="left", width=width, border_style="dim"
        )
        return Group(
            plot, self.progress(trial, width), self.numbers(trial, sample, width), self.why(trial, sample, width)
        )

    def plot(self, trial: Trial, width: int, rows: int) -> Text:
        canvas = DotCanvas(width - AXIS, rows)
        span = max(self.seconds, trial.elapsed * 1.02)
        instants = [span * (x + 0.5) / canvas.width for x in range(canvas.width)]
        learned = resample(trial.samples, instants)
        quota = [self.plan.rate_at(at) if at <= trial.elapsed else None for at in instants]
        top = nice_ceiling(1.05 * max(1.0, *(rate for rate in (*learned, *quota) if rate is not None)), about=4)
        canvas.curve([None if rate is None else rate / top for rate in quota], QUOTA, every=2)
        canvas.curve([None if rate is None else rate / top for rate in learned], LEARNED)

        text = Text(no_wrap=True, overflow="crop")
        labels = {round((1 - rate / top) * (rows - 1)): f"{rate:g}" for rate in ticks_up_to(top, about=4)}
        for number, row in enumerate(canvas.rows()):
            text.append(f"{labels.get(number, ''):>{AXIS - 2}} {'┤' if number in labels else '│'}", "dim")
            for character, style in row:
                text.append(character, style)
            text.append("\n")
        text.append_text(time_axis(span, width - AXIS))
        refused = {int(at / span * (width - AXIS)) for at in trial.refused_at}
        failing = {int(sample.at / span * (width - AXIS)) for sample in trial.samples if sample.state != "closed"}
        for name, marked, mark, style in (("429s", refused, "▏", REFUSED), ("open", failing, "━", BREAKER)):
            text.append(f"\n{name:>{AXIS - 2}}  ", style if marked else "dim")
            text.append("".join(mark if column in marked else " " for column in range(width - AXIS)), style)
        return text

    def progress(self, trial: Trial, width: int) -> Table:
        table = Table.grid(padding=(0, 2), expand=False)
        share = trial.done / trial.calls
        lately = trial.done - bisect_left(trial.done_at, trial.elapsed - LATELY)
        left = (trial.calls - trial.done) * min(LATELY, trial.elapsed) / lately if lately else 0.0
        eta = f"about {left:.0f} s to go" if left >= 0.5 else ""
        bar = ProgressBar(total=trial.calls, completed=trial.done, width=max(10, width - 50), complete_style="green")
        table.add_row(f"  {trial.done:>6,} of {trial.calls:,} done", bar, f"{share:4.0%}", Text(eta, "dim"))
        return table

    def numbers(self, trial: Trial, sample: Sample, width: int) -> Text:
        quota = self.plan.rate_at(sample.at) or 0.0
        sent = max(1, trial.statuses.total())
        true = (" OUTAGE ", "bold white on red") if self.plan.is_down_at(sample.at) else (f"{quota:6.1f}/s", QUOTA)
        return Text.assemble(
            "  learned ",
            (f"{sample.learned:.1f}/s".rjust(8), LEARNED),
            "  true ",
            true,
            "  429s ",
            (f"{trial.statuses[429]} ({trial.statuses[429] / sent:.1%})", REFUSED if trial.statuses[429] else ""),
            "  503s ",
            (f"{trial.statuses[503]}", REFUSED if trial.statuses[503] else ""),
            "  breaker ",
            (sample.state.replace("_", "-"), STATE_STYLES.get(sample.state, "")),
            no_wrap=True,
            overflow="ellipsis",
        )

    def why(self, trial: Trial, sample: Sample, width: int) -> Text:
        waiting = f"  {sample.waiting} wait: "
        line = Text.assemble(waiting, (sample.reason or "their turn is now", "italic"))
        if sample.done == trial.calls:
            line = Text("  every call is done")
        line.truncate(width, overflow="ellipsis")
        return line


def resample(samples: list[Sample], instants: list[float]) -> list[float | None]:
    """The learned rate at each instant: the last one seen by then, and nothing beyond the last sample."""
    rates: list[float | None] = []
    position, last = 0, None
    for at in instants:
        while position < len(samples) and samples[position].at <= at:
            last = samples[position].learned
            position += 1
        rates.append(last if samples and at <= samples[-1].at else None)
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
