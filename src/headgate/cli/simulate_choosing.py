"""What was asked for by name: a scenario of the package, a file, strategies; and what was meant where there is none."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

import click

from headgate.sim.baselines import BASELINES
from headgate.sim.comparison import ORACLE
from headgate.sim.experiment import OURS, strategies_of
from headgate.sim.scenario import Scenario
from headgate.sim.scenario_file import ScenarioError, bundled_names, named, read_scenario, written

from . import USAGE

EVERYTHING = "all"
WHERE_TO_LOOK = '"headgate simulate --show step" prints a file to start from, docs/scenarios.md explains every field.'


class WrongFileError(click.ClickException):
    """A scenario file that cannot be used: the command line's help would not help."""

    exit_code = USAGE


def read_strategies(text: str) -> tuple[str, ...]:
    names = ["+".join(part.strip() for part in name.split("+")) for name in text.split(",") if name.strip()]
    if EVERYTHING in names:
        names = [ORACLE, *OURS, *(name for name in BASELINES if name != ORACLE)]
    if not names:
        raise ValueError("no strategy is named; write adaptive,aimd or all")
    for name in names:
        check_strategy(name)
    return tuple(dict.fromkeys(names))


def check_strategy(name: str) -> None:
    """Raise ``ValueError`` unless this is a strategy, or several of them side by side."""
    for part in name.split("+"):
        if not part:
            raise ValueError(f"{name!r} names nothing on one side of a +; write adaptive+aimd, or adaptive alone")
        near = closest(part, [*OURS, *BASELINES, EVERYTHING])
        if near and near != part:
            raise ValueError(f'there is no strategy "{part}"; did you mean "{near}"?')
    strategies_of(name)


def find_scenario(name: str) -> Scenario:
    """A scenario of the package by its name, or one in a file."""
    try:
        if name in bundled_names():
            return named(name)
        if name.endswith(".toml") or os.sep in name or Path(name).is_file():
            return read_scenario(Path(name))
    except OSError as error:
        near = closest(Path(name).stem, bundled_names())
        hint = f'; did you mean "{near}", which comes with headgate?' if near else "."
        raise click.UsageError(f"cannot read {name} ({error.strerror}){hint}") from None
    except ScenarioError as error:
        raise WrongFileError(f"{error}. {WHERE_TO_LOOK}") from None
    raise unknown(name, 'a file ends in ".toml".')


def show_scenario(name: str) -> str:
    """The text of a scenario's file, to start one's own from."""
    if name not in bundled_names():
        raise unknown(name, "only those that come with headgate are shown.")
    return written(name)


def unknown(name: str, otherwise: str) -> click.UsageError:
    near = closest(Path(name).stem, bundled_names())
    hint = f'did you mean "{near}"?' if near else otherwise
    return click.UsageError(f'there is no scenario "{name}"; {hint} "headgate simulate --list" shows what is there.')


def closest(name: str, names: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=0.5)
    return near[0] if near else None
