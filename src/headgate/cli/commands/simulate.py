"""``headgate simulate``: any strategy against any server, in virtual time; and what-ifs from a recording.

    SCENARIO or FILE.toml ──> every strategy, every seed ──> a table, JSON lines, an explanation, a picture
    --trace FILE ──────────> as recorded, and as asked  ──> how long it would have taken

Seeds are done in lots, all strategies of a lot before the next one, so that a Ctrl-C leaves a table of the lots
that are complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ...errors import HeadgateError
from ...formatting import nearest_name
from ...lab.baselines import BASELINES
from ...lab.charts.drawing_file import writer_for
from ...lab.charts.run_chart import MOST_PANELS, outages_of, picture_of
from ...lab.comparison import ORACLE, Figures, Task, measure, tabulate
from ...lab.experiment import OURS, run, strategies_of
from ...lab.measures import Run
from ...lab.scenario import Scenario
from ...lab.scenario_file import ScenarioError, about, bundled, bundled_names, named, read_scenario, written
from ...lab.traces.whatif import WhatIf, read_whatif_keys, read_whatif_rate
from ..ui.options import WHOLE, ExampleCommand, Notation, count_option, json_option
from ..ui.terminal import DONE, STOPPED, CannotStart
from .simulate_display import JsonReport, Report, TextReport, offset_by, progress_bar
from .simulate_whatif import answer, write

EVERYTHING = "all"
WHERE_TO_LOOK = '"headgate simulate --show step" prints a file to start from, docs/scenarios.md explains every field.'
CUTOFF = 0.5
"""How similar a misspelt name must be to a known one: names of scenarios are short."""
MOST_SEEDS = 1_000
MOST_JOBS = 64
LOT = 8
"""Runs per job that make a process worth its start."""


def read_strategies(text: str) -> tuple[str, ...]:
    names = ["+".join(part.strip() for part in name.split("+")) for name in text.split(",") if name.strip()]
    if EVERYTHING in names:
        names = [ORACLE, *OURS, *(name for name in BASELINES if name != ORACLE)]
    if not names:
        raise ValueError("no strategy given; write adaptive,aimd or all")
    for name in names:
        check_strategy(name)
    return tuple(dict.fromkeys(names))


def check_strategy(name: str) -> None:
    """Raise ``ValueError`` unless this is a strategy, or several of them side by side."""
    for part in name.split("+"):
        if not part:
            raise ValueError(f"{name!r} lacks a strategy beside +; write adaptive+aimd, or adaptive alone")
        near = nearest_name(part, [*OURS, *BASELINES, EVERYTHING], CUTOFF)
        if near and near != part:
            raise ValueError(f'unknown strategy "{part}"; did you mean "{near}"?')
    strategies_of(name)


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate simulate --list", "all servers and strategies"),
        ("headgate simulate step", "a quota that drops and rises: how well is it found and followed?"),
        ("headgate simulate step --explain", "... and why was each cut and each raise made?"),
        ("headgate simulate tb50 --strategy adaptive,cubic,backoff", "beside the AWS SDKs and plain backoff"),
        ("headgate simulate share4 --strategy all --seeds 5 --jobs 2", "beside all others, medians of 5 seeds"),
        ("headgate simulate tb50 --strategy adaptive+aimd", "against each other on the same quota: the share of each"),
        ("headgate simulate step --strategy adaptive,aimd --picture step.svg", "draw it"),
        ("headgate simulate --show step > my-api.toml", "a file to start from; docs/scenarios.md explains its fields"),
        ("headgate simulate my-api.toml", "a server of your own"),
        ("headgate demo --trace run.jsonl", "record a run ..."),
        ("headgate simulate --trace run.jsonl --rate x2 --workers 50", "... how long with twice the quota?"),
        ("headgate simulate --trace run.jsonl --keys +2", "... how long with two more API keys?"),
    ],
)
@click.argument("scenario", metavar="[SCENARIO|FILE.toml]", required=False)
@click.option("--list", "show_list", is_flag=True, help="List the scenarios and the strategies.")
@click.option("--show", "shown", metavar="SCENARIO", help="Print a scenario's TOML file, to start your own from.")
@click.option(
    "-s",
    "--strategy",
    "strategies",
    type=Notation("NAME,...", read_strategies),
    default="adaptive",
    show_default=True,
    help='Strategies to run, one after the other; "a+b" runs them against each other, "all" is all of them.',
)
@count_option("--seeds", "Runs per strategy.", 1, MOST_SEEDS, default=3)
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="The first seed; the others count up from it.")
@count_option(
    "--jobs",
    "Processes to spread a scenario's runs over; the numbers stay the same. Not for --trace.",
    1,
    MOST_JOBS,
    default=1,
)
@click.option(
    "-o",
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"Draw the first seed's runs into this file (.svg or .png); at most {MOST_PANELS} strategies.",
)
@click.option("--explain", is_flag=True, help="Show what was learned in the first seed, when and why.")
@click.option(
    "--trace",
    "recording",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Simulate a recorded run again (see "headgate demo --trace").',
)
@click.option(
    "--rate",
    type=Notation("RATE", read_whatif_rate),
    metavar="xN|N/TIME",
    help="With --trace: what if the quota had been x2, x0.5, or 100/s all the time?",
)
@click.option(
    "--keys",
    type=Notation("KEYS", read_whatif_keys),
    metavar="+N|N",
    help="With --trace: what if there had been two more keys (+2), or 5 in all? An added key has the budget of an "
    "average recorded one, after --rate.",
)
@count_option("--workers", "With --trace: what if there had been N workers?", 1, 100_000)
@json_option('Print JSON lines; their "type" is result, event or picture.')
def command(scenario: str | None, shown: str | None, recording: Path | None, as_json: bool, **given: Any) -> int:
    """Try strategies on simulated servers, in virtual time.

    Runs the real limiter, or a published strategy to compare it with, against a simulated server: minutes of traffic in
    a moment, the same seed the same run. Goodput is measured against an oracle that knows the server. With --trace it
    answers how long a recorded run would have taken with another quota, more keys or more workers.
    """
    check_usage([scenario, given["show_list"] or None, shown, recording], recording, given)
    report: Report = JsonReport() if as_json else TextReport(Console(highlight=False))
    if given["show_list"]:
        report.catalogue(bundled())
        return DONE
    if shown is not None:
        report.file(shown, show_scenario(shown))
        return DONE
    strategies, picture, explain = given["strategies"], given["picture"], given["explain"]
    seeds = range(given["seed"], given["seed"] + given["seeds"])
    if recording is not None:
        asked = WhatIf(rate=given["rate"], keys=given["keys"], workers=given["workers"])
        return answer(report, recording, asked, strategies, seeds, picture, explain=explain)
    assert scenario is not None
    return try_out(report, find_scenario(scenario), strategies, seeds, given["jobs"], picture, explain=explain)


def find_scenario(name: str) -> Scenario:
    """A scenario of the package by its name, or one in a file."""
    try:
        if name in bundled_names():
            return named(name)
        if name.endswith(".toml") or os.sep in name or Path(name).is_file():
            return read_scenario(Path(name))
    except OSError as error:
        near = nearest_name(Path(name).stem, bundled_names(), CUTOFF)
        hint = f'; did you mean "{near}", a built-in scenario?' if near else "."
        raise click.UsageError(f"cannot read {name} ({error.strerror}){hint}") from None
    except ScenarioError as error:
        raise CannotStart(f"{error}. {WHERE_TO_LOOK}") from None
    raise unknown(name, 'a file ends in ".toml".')


def show_scenario(name: str) -> str:
    """The text of a scenario's file."""
    if name not in bundled_names():
        raise unknown(name, "--show is for built-in scenarios only.")
    return written(name)


def unknown(name: str, otherwise: str) -> click.UsageError:
    near = nearest_name(Path(name).stem, bundled_names(), CUTOFF)
    hint = f'did you mean "{near}"?' if near else otherwise
    return click.UsageError(f'unknown scenario "{name}"; {hint} "headgate simulate --list" shows all.')


def check_usage(tasks: Sequence[object], recording: Path | None, given: dict[str, Any]) -> None:
    """``tasks``: what there may be one of to do."""
    if sum(task is not None for task in tasks) != 1:
        raise click.UsageError('give a scenario ("--list" shows them), a .toml file, or --trace FILE.')
    what_if = next((name for name in ("rate", "keys", "workers") if given[name] is not None), None)
    if recording is None and what_if is not None:
        raise click.UsageError(f"--{what_if} is for recordings; add --trace FILE. A scenario sets it itself.")
    picture, strategies = given["picture"], len(given["strategies"])
    if picture is None:
        return
    if strategies > MOST_PANELS:
        raise click.UsageError(f"a picture shows at most {MOST_PANELS} strategies, got {strategies}.")
    if not picture.absolute().parent.is_dir():
        raise click.UsageError(f"--picture: no such folder: {picture.absolute().parent}.")
    try:
        writer_for(picture)
    except HeadgateError as error:
        raise click.UsageError(str(error)) from None


def try_out(
    report: Report,
    scenario: Scenario,
    strategies: Sequence[str],
    seeds: Sequence[int],
    jobs: int,
    picture: Path | None,
    *,
    explain: bool,
) -> int:
    tasks: list[Task] = []
    figures: list[Figures] = []
    interrupted = False
    try:
        with progress_bar(len(seeds) * len({ORACLE, *strategies})) as show:
            for lot in lots(scenario, strategies, seeds, jobs):
                figures += measure(lot, jobs, offset_by(len(tasks), show))
                tasks += lot
    except KeyboardInterrupt:
        interrupted = True
    figures = figures[: len(tasks)]
    finished = list(dict.fromkeys(task.seed for task in tasks))
    if finished:
        rows = tabulate(tasks, figures, strategies)
        report.comparison(scenario, finished, list(rows.values()), shares(tasks, figures))
    if interrupted:
        report.note(f"Stopped: {len(finished)} of {len(seeds)} seeds are done.")
        return STOPPED
    if explain or picture is not None:
        oracle = next(one for task, one in zip(tasks, figures, strict=True) if task.strategy == ORACLE)
        watched = [run(scenario, strategy, seeds[0], watch=True) for strategy in strategies]
        if explain:
            for one in watched:
                report.explanation(scenario, one.strategy, one.seed, one.decisions)
        if picture is not None:
            draw(report, scenario, watched, oracle, picture)
    return DONE


def lots(scenario: Scenario, strategies: Sequence[str], seeds: Sequence[int], jobs: int) -> Iterator[list[Task]]:
    """All runs, the oracle's included, in lots of whole seeds."""
    names = list(dict.fromkeys([ORACLE, *strategies]))
    size = 1 if jobs == 1 else max(1, LOT * jobs // len(names))
    for start in range(0, len(seeds), size):
        yield [
            Task(scenario=scenario, strategy=name, seed=seed) for seed in seeds[start : start + size] for name in names
        ]


def shares(tasks: Sequence[Task], figures: Sequence[Figures]) -> dict[str, dict[str, float]]:
    """For strategies that ran against each other: the share of the finished calls of each."""
    done: dict[str, dict[str, float]] = {}
    for task, one in zip(tasks, figures, strict=True):
        names = strategies_of(task.strategy)
        if len(names) > 1:
            parts = done.setdefault(task.strategy, dict.fromkeys(names, 0.0))
            for process, count in enumerate(one.per_process):
                parts[names[process % len(names)]] += count
    return {
        strategy: {name: count / (sum(parts.values()) or 1) for name, count in parts.items()}
        for strategy, parts in done.items()
    }


def draw(report: Report, scenario: Scenario, watched: Sequence[Run], oracle: Figures, picture: Path) -> None:
    headed = [
        (f"{one.ok / max(oracle.ok, 1):.1%} of an oracle's goodput, {one.refused_share:.2%} refused", one)
        for one in watched
    ]
    title = f"headgate simulate {scenario.name}, seed {watched[0].seed}"
    write(report, picture_of(headed, title=title, note=about(scenario), outages=outages_of(scenario)), picture)
