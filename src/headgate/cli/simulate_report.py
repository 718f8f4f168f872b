"""How a simulation speaks: what there is to tell, and how programs are told it, one JSON line for each fact."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from headgate.sim.baselines import BASELINES
from headgate.sim.comparison import Row
from headgate.sim.hindsight import Hindsight
from headgate.sim.measures import Told
from headgate.sim.scenario import Scenario
from headgate.sim.scenario_words import about
from headgate.sim.trace import Heading
from headgate.sim.whatif import Outlook

from .simulate_catalogue import OUR_STRATEGIES, group_of


@dataclass(frozen=True, slots=True)
class Answered:
    """One row of the answer to a what-if."""

    words: str
    outlook: Outlook
    is_asked: bool = False
    """Whether it is what was asked, and not only there to compare with."""


class Report(Protocol):
    def catalogue(self, scenarios: Mapping[str, Scenario]) -> None: ...

    def file(self, name: str, text: str) -> None:
        """A scenario as it is written down."""

    def comparison(
        self, scenario: Scenario, seeds: Sequence[int], rows: Sequence[Row], shares: Mapping[str, Mapping[str, float]]
    ) -> None:
        """``shares``: for strategies side by side, what part of all that got done each of them did."""

    def story(self, scenario: Scenario, strategy: str, seed: int, story: Sequence[Told]) -> None: ...

    def what_if(self, recording: Path, heading: Heading, seen: Hindsight, answers: Sequence[Answered]) -> None: ...

    def note(self, sentence: str) -> None:
        """Something to mind about what was told."""

    def drawn(self, picture: Path) -> None: ...


class Machines:
    def catalogue(self, scenarios: Mapping[str, Scenario]) -> None:
        for name, scenario in scenarios.items():
            group = group_of(scenario).partition(" ")[2]
            say("scenario", {"scenario": name, "group": group, "note": about(scenario), "horizon": scenario.horizon})
        for name, does in (*OUR_STRATEGIES.items(), *((name, one.about) for name, one in BASELINES.items())):
            say("strategy", {"strategy": name, "about": does})

    def file(self, name: str, text: str) -> None:
        say("scenario", {"scenario": name, "toml": text})

    def comparison(
        self, scenario: Scenario, seeds: Sequence[int], rows: Sequence[Row], shares: Mapping[str, Mapping[str, float]]
    ) -> None:
        for row in rows:
            facts = {"scenario": scenario.name, "seeds": list(seeds), **asdict(row)}
            say("result", facts | ({"shares": shares[row.strategy]} if row.strategy in shares else {}))

    def story(self, scenario: Scenario, strategy: str, seed: int, story: Sequence[Told]) -> None:
        for told in story:
            say("event", {"strategy": strategy, "seed": seed, **asdict(told)})

    def what_if(self, recording: Path, heading: Heading, seen: Hindsight, answers: Sequence[Answered]) -> None:
        for answered in answers:
            facts = {**answered.outlook.facts(), "quota_is_measured": seen.is_measured}
            say("result", {"recording": str(recording), "what": answered.words, **facts})

    def note(self, sentence: str) -> None:
        click.echo(sentence, err=True)

    def drawn(self, picture: Path) -> None:
        say("picture", {"picture": str(picture)})


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int], None]]:
    """Shows on a terminal's stderr how many runs are done; nothing is shown to anyone else."""
    console = Console(stderr=True)
    columns = (TextColumn("simulating"), BarColumn(), TextColumn("{task.completed:.0f} of {task.total:.0f} runs"))
    shown = Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal)
    with shown:
        task = shown.add_task("", total=total)
        yield lambda done: shown.update(task, completed=done)


def counting_from(before: int, show: Callable[[int], None]) -> Callable[..., None]:
    """Tells of runs that are done beside those that were done before."""
    return lambda done, *_: show(before + done)


def say(kind: str, facts: dict[str, Any]) -> None:
    """One line, which tells first what it is: a result, an event, a picture; of a list, a scenario or a strategy."""
    click.echo(json.dumps(without_infinities({"type": kind, **facts})))


def without_infinities(value: Any) -> Any:
    """The same with ``null`` for numbers that JSON does not have: what never came, or was never measured."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: without_infinities(one) for name, one in value.items()}
    return [without_infinities(one) for one in value] if isinstance(value, list | tuple) else value
