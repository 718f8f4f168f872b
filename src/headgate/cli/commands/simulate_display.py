"""The results of a simulation: tables with a legend for a terminal, or JSON lines for a program."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ...controllers import CONTROLLERS
from ...lab.baselines import BASELINES
from ...lab.comparison import Row
from ...lab.measures import ENOUGH_ADMITTED, FEW_REFUSED, Decision
from ...lab.scenario import Scenario
from ...lab.scenario_file import about
from ...lab.traces.analysis import TraceAnalysis
from ...lab.traces.trace import Heading
from ...lab.traces.whatif import Outlook
from ...observe.snapshot import finite, plain

OUR_STRATEGIES = {name: entry.about for name, entry in CONTROLLERS.items()}

YOUR_OWN = """\
note = "half the quota after two minutes, and OpenAI's headers"
horizon = "4min"
workers = 100
limits = [{ algorithm = "bucket", rate = "50/s", burst = 20 }]
steps = ["0.5@2min"]
headers = "openai"

[marks]
drop = "2min"
"""
GOOD, FAIR = 0.97, 0.90
"""Shares of the oracle's goodput that are shown in green and in yellow."""
FEW, MANY = 0.005, 0.05
"""Shares of calls refused up to which they are shown in green and in yellow."""
EVENT_STYLES = {"cut": "red", "raise": "green", "hold": "yellow", "resume": "green", "learn": "cyan", "mode": "magenta"}
NO_BREAK = "\N{NO-BREAK SPACE}"
WITH_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|calls|tokens)\b|%)")
"""The space between a number and its unit."""
NARROWEST = 16
"""Sentences get this many columns; what a name means goes below it where there are fewer beside it."""
UNBOUNDED = 10_000
"""A width at which every table has its natural size."""
MOST_STRETCHES = 6
"""Changes of a recorded quota, or keys, that are listed."""

FIXED = "A constant quota, and bare 429s"
HEADERS = "Servers that state the remaining quota"
RETRY_AFTER = "Servers that state when to retry"
CHANGES = "Changes during the run"
SEVERAL_LIMITS = "Several keys or limits at once"
PROCESSES = "Several processes on one quota"
GROUPS = (FIXED, HEADERS, RETRY_AFTER, CHANGES, SEVERAL_LIMITS, PROCESSES)
"""What scenarios are about, in the order of the list."""


def group_of(scenario: Scenario) -> str:
    if scenario.processes > 1:
        return PROCESSES
    if scenario.headers != "none":
        return HEADERS
    changes = (scenario.steps, scenario.outages, scenario.hangs, scenario.flapping, scenario.neighbour)
    if any(changes) or scenario.arrivals:
        return CHANGES
    if scenario.keys > 1 or scenario.tokens or any(len(budget.limits) > 1 for budget in scenario.budgets):
        return SEVERAL_LIMITS
    return RETRY_AFTER if scenario.retry_after != "none" else FIXED


@dataclass(frozen=True, slots=True)
class WhatIfRow:
    """One row of the answer to a what-if question."""

    label: str
    outlook: Outlook
    is_asked: bool = False
    """Whether it answers the question; the others are there to compare with."""


# ---------------------------------------------------------------------- JSON lines


class JsonReport:
    """One JSON line for each fact; "type" says what it is."""

    def catalogue(self, scenarios: Mapping[str, Scenario]) -> None:
        for name, scenario in scenarios.items():
            fields = {"group": group_of(scenario), "note": about(scenario), "horizon": scenario.horizon}
            print_fields("scenario", {"scenario": name, **fields})
        for name, does in (*OUR_STRATEGIES.items(), *((name, one.about) for name, one in BASELINES.items())):
            print_fields("strategy", {"strategy": name, "about": does})

    def file(self, name: str, text: str) -> None:
        print_fields("scenario", {"scenario": name, "toml": text})

    def comparison(
        self, scenario: Scenario, seeds: Sequence[int], rows: Sequence[Row], shares: Mapping[str, Mapping[str, float]]
    ) -> None:
        for row in rows:
            facts = {"scenario": scenario.name, "seeds": list(seeds), **asdict(row)}
            print_fields("result", facts | ({"shares": shares[row.strategy]} if row.strategy in shares else {}))

    def explanation(self, scenario: Scenario, strategy: str, seed: int, events: Sequence[Decision]) -> None:
        for event in events:
            print_fields("event", {"strategy": strategy, "seed": seed, **asdict(event)})

    def what_if(self, recording: Path, heading: Heading, seen: TraceAnalysis, answers: Sequence[WhatIfRow]) -> None:
        for row in answers:
            facts = {**row.outlook.facts(), "quota_is_measured": seen.is_measured}
            print_fields("result", {"recording": str(recording), "what": row.label, **facts})

    def note(self, sentence: str) -> None:
        click.echo(sentence, err=True)

    def drawn(self, picture: Path) -> None:
        print_fields("picture", {"picture": str(picture)})


def print_fields(kind: str, facts: dict[str, Any]) -> None:
    """One line; its type is result, event or picture, and of a list scenario or strategy."""
    click.echo(json.dumps(finite(plain({"type": kind, **facts}))))


# ---------------------------------------------------------------------- tables


class TextReport:
    """Tables that fit the terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def catalogue(self, scenarios: Mapping[str, Scenario]) -> None:
        strategies = {name: baseline.about for name, baseline in BASELINES.items()}
        widest = max(map(len, (*scenarios, *strategies)))
        groups: dict[str, dict[str, str]] = {}
        for name, scenario in scenarios.items():
            groups.setdefault(group_of(scenario), {})[name] = about(scenario)
        for title in filter(groups.get, GROUPS):
            self._section(title, groups[title], widest)
        self._section("Strategies of the limiter", OUR_STRATEGIES, widest)
        self._section("Published strategies to compare with", strategies, widest)
        self._say("A server of your own, as a file my-api.toml:", "bold")
        click.echo(textwrap.indent(YOUR_OWN, "  "))
        self._say('"headgate simulate --show step" prints the file of step; docs/scenarios.md explains every field.')

    def file(self, name: str, text: str) -> None:
        click.echo(text, nl=False)

    def _section(self, title: str, entries: Mapping[str, str], widest: int) -> None:
        self._say(title, "bold")
        for name, sentence in entries.items():
            self._define(name, sentence, indent=2, widest=widest, styles=("cyan", ""))
        self._say("")

    def comparison(
        self, scenario: Scenario, seeds: Sequence[int], rows: Sequence[Row], shares: Mapping[str, Mapping[str, float]]
    ) -> None:
        """``shares``: of strategies that ran against each other, the share of the finished calls of each."""
        self._say(f"{scenario.name}: {about(scenario)}", "bold")
        self._say(setup_text(scenario, seeds), "dim")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        marks = list(rows[0].convergence)
        is_compared = scenario.processes > 1 or bool(shares)
        table.add_column("strategy", no_wrap=True)
        headings = ["goodput", "429s", *(f"to 95 %\n{mark}" for mark in marks), "p99\nwait", "p99\nitem"]
        headings += ["fairness"] if is_compared else []
        for heading in headings:
            table.add_column(Text(heading, justify="right"), justify="right", vertical="bottom", no_wrap=True)
        cells = [list(self._cells(row, marks, is_compared)) for row in rows]
        for row_cells in cells:
            table.add_row(*row_cells)
        if self._fits(table):
            self._print(table)
        else:
            for strategy, *values in cells:
                self._facts(strategy, headings, values)
        for strategy_name, parts in shares.items():
            each = ", ".join(f"{name} {part:.0%}" for name, part in parts.items())
            self._say(f"{strategy_name}: of the finished calls, {each}.")
        entries = dict(legend(marks, scenario.settling, is_compared))
        for name, meaning in entries.items():
            self._define(name, meaning, indent=1, widest=max(map(len, entries)), styles=("dim", "dim"))

    def _fits(self, table: Table) -> bool:
        wide = self.console.options.update(width=UNBOUNDED)
        return self.console.measure(table, options=wide).maximum <= self.console.width

    def _facts(self, title: Text, headings: Sequence[str], values: Sequence[Text]) -> None:
        """A row of a table that is too wide, as lines: numbers are neither cut nor broken."""
        self._print(Text())
        self._print(title)
        names = [heading.replace("\n", " ") for heading in headings]
        for name, value in zip(names, values, strict=True):
            self._print(Text.assemble(f"  {name.ljust(max(map(len, names)))}  ", value))
        self._print(Text())

    def _cells(self, row: Row, marks: Sequence[str], is_compared: bool) -> Iterator[Text]:
        yield Text(row.strategy, "bold")
        yield Text(f"{row.goodput:.1%}", "green" if row.goodput >= GOOD else "yellow" if row.goodput >= FAIR else "red")
        refused = row.refused_share
        yield Text(f"{refused:.2%}", "green" if refused <= FEW else "yellow" if refused <= MANY else "red")
        for mark in marks:
            yield Text(duration(row.convergence[mark]))
        yield Text(duration(row.wait_p99))
        yield Text(duration(row.p99))
        if is_compared:
            yield Text(f"{row.jain:.2f}")

    def explanation(self, scenario: Scenario, strategy: str, seed: int, events: Sequence[Decision]) -> None:
        self._print(Text())
        self._say(f"{strategy}, seed {seed}: decisions, with time and reason", "bold")
        if not events:
            self._say("  this strategy reports no events.")
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column()
        instants = [f"  {event.at:.2f} s" for event in events]
        taken = max(map(len, instants), default=0) + max((len(event.kind) for event in events), default=0) + 4
        is_several = len({event.process for event in events}) > 1
        for instant, event in zip(instants, events, strict=True):
            source = [f"process {event.process + 1}"] if is_several else []
            source += [f"key {event.key + 1}"] if scenario.keys > 1 else []
            sentence = f"{', '.join(source)}: {event.sentence}" if source else event.sentence
            kind = Text(event.kind, EVENT_STYLES.get(event.kind, ""))
            table.add_row(instant, kind, Text("\n".join(self._lines(sentence, taken))))
        self._print(table)

    def what_if(self, recording: Path, heading: Heading, seen: TraceAnalysis, answers: Sequence[WhatIfRow]) -> None:
        self._say(f"{recording}: {recording_text(heading, seen)}", "bold")
        self._say(f"quota as seen: {quota_text(seen)}", "dim")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("")
        for title in ("takes", "calls/s", "429s", "failed"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in answers:
            outlook = row.outlook
            takes = Text(duration(outlook.seconds), "bold" if row.is_asked else "")
            pace = f"{outlook.per_second:.1f}" if math.isfinite(outlook.seconds) else "-"
            table.add_row(row.label, takes, pace, f"{outlook.refused_share:.2%}", f"{outlook.failed:,}")
        self._print(table)

    def note(self, sentence: str) -> None:
        self._say(sentence)

    def drawn(self, picture: Path) -> None:
        click.echo(f"picture: {picture}")

    def _say(self, sentence: str, style: str = "") -> None:
        self._print(Text("\n".join(self._lines(sentence, 0)), style))

    def _define(self, name: str, sentence: str, *, indent: int, widest: int, styles: tuple[str, str]) -> None:
        """A name, and beside it what it means."""
        below = self.console.width - (indent + widest + 2) < NARROWEST
        margin = indent + 2 if below else indent + widest + 2
        meaning = f"\n{' ' * margin}".join(self._lines(sentence, margin))
        between = f"\n{' ' * margin}" if below else "  "
        self._print(Text.assemble(" " * indent, (name.ljust(widest), styles[0]), between, (meaning, styles[1])))

    def _lines(self, sentence: str, taken: int) -> list[str]:
        """The sentence in lines that fit beside ``taken`` columns; a number stays with its unit."""
        width = max(NARROWEST, self.console.width - taken)
        whole = textwrap.wrap(WITH_UNIT.sub(NO_BREAK, sentence), width, break_long_words=False, break_on_hyphens=False)
        return [line.replace(NO_BREAK, " ") for line in whole] or [""]

    def _print(self, shown: RenderableType) -> None:
        """Print it without the spaces with which lines are filled up."""
        with self.console.capture() as captured:
            self.console.print(shown)
        for line in captured.get().splitlines():
            click.echo(line.rstrip(), color=True)


Report = TextReport | JsonReport

# ---------------------------------------------------------------------- words


def setup_text(scenario: Scenario, seeds: Sequence[int]) -> str:
    """The length, the load and the seeds."""
    workers = f"{scenario.workers:,} worker{'' if scenario.workers == 1 else 's'}"
    load = workers if scenario.processes == 1 else f"{scenario.processes} processes with {workers} each"
    together = ", as behind one shared limiter" if scenario.together else ""
    times = f"seed {seeds[0]}" if len(seeds) == 1 else f"medians of {len(seeds)} seeds ({seeds[0]} to {seeds[-1]})"
    return f"{whole_time(scenario.horizon)} of traffic from {load}{together}; {times}"


def legend(marks: Sequence[str], settling: float, is_compared: bool) -> Iterator[tuple[str, str]]:
    yield (
        "goodput",
        "calls done, as a share of those of an oracle that knows the server and is never refused; "
        "slightly over 100 % is possible, and 100 % even with half of the calls refused",
    )
    yield "429s", "share of the calls sent that were refused"
    if marks:
        yield (
            "to 95 %",
            f"from {' / '.join(marks)} until {ENOUGH_ADMITTED * 100:.0f} % of the quota is used and at most "
            f"{FEW_REFUSED * 100:.0f} % are refused, for {settling:g} s on end; never: not before the next change",
        )
    yield "p99 wait", "from the request for a permit until it is sent"
    yield "p99 item", "from the first send to success, retries included"
    if is_compared:
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


def recording_text(heading: Heading, seen: TraceAnalysis) -> str:
    of = f" of {heading.calls:,}" if seen.items < heading.calls else ""
    when = f" on {heading.recorded_at}" if heading.recorded_at else ""
    return f"{seen.items:,}{of} calls done by {seen.workers:,} workers in {duration(seen.seconds)}, recorded{when}"


def quota_text(seen: TraceAnalysis) -> str:
    """The quota of the only key over time; of several keys, what each had on average."""
    outages = [f"outage from {outage.at:.1f} s to {outage.until:.1f} s" for outage in seen.outages[:MOST_STRETCHES]]
    if len(seen.keys) > 1:
        first = seen.keys[:MOST_STRETCHES]
        words = [f"{key.label or f'key {number}'} {key.mean_rate:.3g}/s" for number, key in enumerate(first, 1)]
        if len(seen.keys) > MOST_STRETCHES:
            words.append(f"and {len(seen.keys) - MOST_STRETCHES} more keys")
        return "on average " + ", ".join([*words, *outages])
    stretches = seen.keys[0].stretches
    words = []
    for number, stretch in enumerate(stretches[:MOST_STRETCHES]):
        sign = "" if stretch.is_measured else "at least "
        words.append(f"{sign}{stretch.rate:.3g}/s" + (f" from {stretch.since:.1f} s" if number else ""))
    if len(stretches) > MOST_STRETCHES:
        words.append(f"and {len(stretches) - MOST_STRETCHES} more changes")
    return ", ".join([*words, *outages])


# ---------------------------------------------------------------------- while it runs


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, if that is a terminal; call the function with the number of finished runs."""
    console = Console(stderr=True)
    columns = (TextColumn("simulating"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f} runs"))
    shown = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal)
    with shown:
        task = shown.add_task("", total=total)
        yield lambda done: shown.update(task, completed=done)


def offset_by(before: int, show: Callable[[int], None]) -> Callable[..., None]:
    """``show`` for runs that come after ``before`` others."""
    return lambda done, *_: show(before + done)
