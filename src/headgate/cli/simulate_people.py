"""A simulation for people: tables that fit a terminal, and a word on what their numbers mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headgate.sim.baselines import BASELINES
from headgate.sim.comparison import Row
from headgate.sim.hindsight import Hindsight
from headgate.sim.measures import Told
from headgate.sim.scenario import Scenario
from headgate.sim.trace import Heading

from .simulate_catalogue import OUR_STRATEGIES, YOUR_OWN, group_of
from .simulate_report import Answered

GOOD, FAIR = 0.97, 0.90
"""Shares of the oracle's goodput that are shown in green and in yellow."""
FEW, MANY = 0.005, 0.05
"""Shares of calls refused up to which they are shown in green and in yellow."""
KINDS = {"cut": "red", "raise": "green", "hold": "yellow", "resume": "green", "learn": "cyan", "mode": "magenta"}
MOST_STRETCHES = 6
"""How many changes of a recorded quota are told."""


class People:
    def __init__(self, console: Console) -> None:
        self.console = console

    def catalogue(self, scenarios: Mapping[str, Scenario]) -> None:
        strategies = {name: baseline.about for name, baseline in BASELINES.items()}
        widest = max(map(len, (*scenarios, *strategies)))
        groups: dict[str, dict[str, str]] = {}
        for name, scenario in scenarios.items():
            groups.setdefault(group_of(scenario), {})[name] = scenario.note
        for title, entries in sorted(groups.items()):
            self._section(title.partition(" ")[2], entries, widest)
        self._section("Strategies of the limiter", OUR_STRATEGIES, widest)
        self._section("Published strategies to compare with", strategies, widest)
        self._print(Text("A server of your own, as a file my-api.toml:", "bold"))
        self._print(Padding(Text(YOUR_OWN), (0, 2)))

    def _section(self, title: str, entries: Mapping[str, str], widest: int) -> None:
        self._print(Text(title, "bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column(min_width=widest, no_wrap=True, style="cyan")
        table.add_column()
        for name, about in entries.items():
            table.add_row(name, Text(about))
        self._print(Padding(table, (0, 0, 1, 2)))

    def comparison(
        self, scenario: Scenario, seeds: Sequence[int], rows: Sequence[Row], shares: Mapping[str, Mapping[str, float]]
    ) -> None:
        self._print(Text(f"{scenario.name}: {scenario.note}", "bold"))
        self._print(Text(setting(scenario, seeds), "dim"))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        marks = list(rows[0].convergence)
        has_company = scenario.processes > 1 or bool(shares)
        table.add_column("strategy", no_wrap=True)
        headings = ["goodput", "429s", *(f"to 95 %\n{mark}" for mark in marks), "p99\nwait", "p99\nitem"]
        for heading in [*headings, *(["fairness"] if has_company else [])]:
            table.add_column(Text(heading, justify="right"), justify="right", vertical="bottom")
        for row in rows:
            table.add_row(*self._cells(row, marks, has_company))
        self._print(table)
        for strategy, parts in shares.items():
            told = ", ".join(f"{name} {part:.0%}" for name, part in parts.items())
            self._print(Text(f"{strategy}: of all that got done, {told}."))
        table = Table.grid(padding=(0, 2))
        for name, meaning in legend(marks, has_company):
            table.add_row(Text(name, "dim"), Text(meaning, "dim"))
        self._print(Padding(table, (0, 1)))

    def _cells(self, row: Row, marks: Sequence[str], has_company: bool) -> Iterator[Text]:
        yield Text(row.strategy, "bold")
        yield Text(f"{row.goodput:.1%}", "green" if row.goodput >= GOOD else "yellow" if row.goodput >= FAIR else "red")
        refused = row.refused_share
        yield Text(f"{refused:.2%}", "green" if refused <= FEW else "yellow" if refused <= MANY else "red")
        for mark in marks:
            yield Text(duration(row.convergence[mark]))
        yield Text(duration(row.wait_p99))
        yield Text(duration(row.p99))
        if has_company:
            yield Text(f"{row.jain:.2f}")

    def story(self, scenario: Scenario, strategy: str, seed: int, story: Sequence[Told]) -> None:
        self._print(Text())
        self._print(Text(f"{strategy}, seed {seed}: what it learned when, and why", "bold"))
        if not story:
            self._print(Text("  nothing: this strategy does not tell."))
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column()
        for told in story:
            who = [f"process {told.process + 1}"] if scenario.processes > 1 and not scenario.together else []
            who += [f"key {told.key + 1}"] if scenario.keys > 1 else []
            sentence = f"{', '.join(who)}: {told.sentence}" if who else told.sentence
            table.add_row(f"  {told.at:.2f} s", Text(told.kind, KINDS.get(told.kind, "")), Text(sentence))
        self._print(table)

    def what_if(self, recording: Path, heading: Heading, seen: Hindsight, answers: Sequence[Answered]) -> None:
        self._print(Text(f"{recording}: {told_of(heading, seen)}", "bold"))
        self._print(Text(f"quota as seen: {quota_in_words(seen)}", "dim"))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("")
        for title in ("takes", "calls/s", "429s", "failed"):
            table.add_column(title, justify="right")
        for answered in answers:
            outlook = answered.outlook
            takes = Text(duration(outlook.seconds), "bold" if answered.is_asked else "")
            pace = f"{outlook.per_second:.1f}" if math.isfinite(outlook.seconds) else "-"
            table.add_row(answered.words, takes, pace, f"{outlook.refused_share:.2%}", f"{outlook.failed:,}")
        self._print(table)

    def note(self, sentence: str) -> None:
        self._print(Text(sentence))

    def drawn(self, picture: Path) -> None:
        self._print(Text(f"picture: {picture}"))

    def _print(self, shown: RenderableType) -> None:
        """Print it without the spaces with which lines are filled up."""
        with self.console.capture() as captured:
            self.console.print(shown)
        for line in captured.get().splitlines():
            click.echo(line.rstrip(), color=True)


def setting(scenario: Scenario, seeds: Sequence[int]) -> str:
    """How long, by whom, and how often."""
    workers = f"{scenario.workers:,} worker{'' if scenario.workers == 1 else 's'}"
    who = workers if scenario.processes == 1 else f"{scenario.processes} processes with {workers} each"
    together = ", behind one controller" if scenario.together else ""
    times = f"seed {seeds[0]}" if len(seeds) == 1 else f"medians of {len(seeds)} seeds ({seeds[0]} to {seeds[-1]})"
    return f"{whole_time(scenario.horizon)} of traffic from {who}{together}; {times}"


def legend(marks: Sequence[str], has_company: bool) -> Iterator[tuple[str, str]]:
    yield "goodput", "calls done, as a share of those of an oracle that knows the server"
    yield "429s", "share of the calls sent that were refused"
    if marks:
        yield "to 95 %", f"until 95 % of the quota is used and few are refused, after {' / '.join(marks)}"
    yield "p99 wait", "at the gate, before a call is sent"
    yield "p99 item", "from an item's first call to its success"
    if has_company:
        yield "fairness", "between processes: 1 if all got the same (Jain's index)"


def duration(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "never"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds else "0 s"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:,.0f} s"


def whole_time(seconds: float) -> str:
    """In hours or minutes where these are whole or halves."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if (seconds >= 2 * length or seconds == length) and (2 * seconds / length).is_integer():
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


def told_of(heading: Heading, seen: Hindsight) -> str:
    of = f" of {heading.calls:,}" if seen.items < heading.calls else ""
    when = f" on {heading.recorded_at}" if heading.recorded_at else ""
    return f"{seen.items:,}{of} calls done by {seen.workers:,} workers in {duration(seen.seconds)}, recorded{when}"


def quota_in_words(seen: Hindsight) -> str:
    """The quota of the only key over time; of several keys, how many there are."""
    outages = [f"outage from {outage.at:.1f} s to {outage.until:.1f} s" for outage in seen.outages[:MOST_STRETCHES]]
    if len(seen.keys) > 1:
        return ", ".join([f"of {len(seen.keys)} keys, each its own", *outages])
    stretches = seen.keys[0].stretches
    words = []
    for number, stretch in enumerate(stretches[:MOST_STRETCHES]):
        sign = "" if stretch.is_measured else "at least "
        words.append(f"{sign}{stretch.rate:.3g}/s" + (f" from {stretch.since:.1f} s" if number else ""))
    if len(stretches) > MOST_STRETCHES:
        words.append(f"and {len(stretches) - MOST_STRETCHES} more changes")
    return ", ".join([*words, *outages])
