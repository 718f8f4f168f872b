"""What ``adaptive`` is held to, by class of scenario and beside its rivals, and whether it gets there.

A raised quota cannot be noticed at once on bare 429s: with a budget of b refusals for each call and k of them for
each look that finds nothing, looks are at least k/(b R) apart. The mark for a step up is 1.2 times that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.lab.plan import ADAPTIVE, RIVALS
from bench.lab.results import Cell, Results
from headgate.lab.scenario import Scenario

BUDGET, REFUSALS_PER_LOOK, SLACK = 0.005, 1.5, 1.2
"""b, k and the factor of the mark for steps up."""
JUST_BEFORE = 1e-6
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """Scenarios with the same marks; None where nothing is asked."""

    title: str
    goodput: float
    refused: float
    scenarios: tuple[str, ...]
    also: tuple[str, ...] = ()
    """Scenarios that are no part of the class as it was agreed on, and are held to its marks all the same."""
    p99: float | None = None
    """Times the oracle's p99 of an item."""
    follow: float | None = None
    """Seconds to follow any step."""
    steps_up: bool = False
    """Whether a step up has to be followed within ``SLACK`` times the bound."""
    jain: float | None = None
    first_minute: float | None = None
    """The share refused in the minute from the first refusal on; ``refused`` is asked of what comes after it."""


CLASSES = (
    Class(
        title="The server sends usable headers",
        goodput=0.99,
        refused=0.0005,
        follow=2.0,
        scenarios=("hdr-tb", "hdr-fw60", "share4-hdr"),
        also=("hdr-openai",),
    ),
    Class(
        title="Bare 429s or Retry-After, one process, stationary",
        goodput=0.97,
        refused=0.005,
        p99=1.5,
        scenarios=(
            "tb50",
            "tb-rpm",
            "tb500",
            "gcra20",
            "fw1s",
            "fw60",
            "fw60-ra",
            "ra-short",
            "slide10",
            "slide-pen",
            "conc16",
            "queue80",
            "keys3",
        ),
        also=("ra-date", "limits2", "day", "stream"),
    ),
    Class(
        title="A slow quota, and tokens that are nowhere stated: up to one call in a hundred may tell",
        goodput=0.97,
        refused=0.01,
        p99=1.5,
        scenarios=("tb-slow",),
        also=("tokens",),
    ),
    Class(
        title="Steps, outages, flapping",
        goodput=0.97,
        refused=0.005,
        steps_up=True,
        scenarios=("step", "outage", "flap5xx"),
        also=("outage-hang",),
    ),
    Class(
        title="4 processes together (a shared controller)",
        goodput=0.98,
        refused=0.004,
        jain=0.99,
        scenarios=("share4-together", "share4-fw-together", "share4-hdr-together", "share4-conc-together"),
    ),
    Class(
        title="4 processes blind, bucket",
        goodput=0.98,
        refused=0.005,
        jain=0.95,
        scenarios=("share4",),
    ),
    Class(
        title="A neighbour, a Retry-After that misleads, a cap shared blindly",
        goodput=0.90,
        refused=0.01,
        scenarios=("neighbour", "step-ra", "ra-long", "share4-conc"),
    ),
    Class(title="A log that says what is left", goodput=0.97, refused=0.0005, scenarios=("hdr-log",)),
    Class(title="A small budget that says it grew", goodput=0.95, refused=0.01, scenarios=("hdr-gcra-up",)),
    Class(title="A small cap on calls in flight", goodput=0.93, refused=0.005, scenarios=("conc3", "conc12")),
    Class(
        title="A slow window that grows in silence",
        goodput=0.88,
        refused=0.01,
        scenarios=("fw60-up", "fw10-up"),
    ),
    Class(title="A small log that counts refusals", goodput=0.88, refused=0.015, scenarios=("pen12",)),
    Class(
        title="A slow quota behind a big bucket: 429s after the first minute, which is judged apart",
        goodput=0.97,
        refused=0.01,
        first_minute=0.05,
        scenarios=("tb-burst",),
    ),
)


class Verdict(NamedTuple):
    scenario: str
    what: str
    measured: float
    mark: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        if self.at_least:
            return self.measured >= self.mark - ROUNDING
        return self.measured <= self.mark + ROUNDING

    @property
    def asked(self) -> str:
        return f"{'>=' if self.at_least else '<='} {_shown(self.mark, self.unit)}"

    @property
    def told(self) -> str:
        """The figure, to as many digits as it takes to see which side of the mark it is on."""
        digits = 2 if self.unit else 3
        while digits < 6 and not self.met and float(f"{self._scaled:.{digits}f}") == self._scaled_mark:
            digits += 1
        return _shown(self.measured, self.unit, digits)

    @property
    def _scaled(self) -> float:
        return 100 * self.measured if self.unit == "%" else self.measured

    @property
    def _scaled_mark(self) -> float:
        return round(100 * self.mark if self.unit == "%" else self.mark, 9)


def verdicts(results: Results, scenarios: Mapping[str, Scenario]) -> Iterator[tuple[Class, str, list[Verdict]]]:
    """For each class, and each of its scenarios that was run, what was asked and what was reached."""
    for one in CLASSES:
        for name in (*one.scenarios, *one.also):
            cell = results.cell(name, ADAPTIVE)
            if cell is not None:
                yield one, name, list(_verdicts(one, scenarios[name], cell))


def _verdicts(one: Class, scenario: Scenario, cell: Cell) -> Iterator[Verdict]:
    name = scenario.name
    yield Verdict(name, "goodput", cell.goodput, one.goodput, "%", at_least=True)
    if one.first_minute is None:
        yield Verdict(name, "429s", cell.refused_share, one.refused, "%")
    else:
        yield Verdict(name, "429s", cell.refused_later, one.refused, "%")
        yield Verdict(name, "429s in the first minute", cell.refused_first, one.first_minute, "%")
    if one.p99 is not None:
        yield Verdict(name, "p99 item", cell.p99_against_oracle, one.p99, "x")
    for mark, before, after in _steps(scenario):
        if one.follow is not None:
            yield Verdict(name, f"95 % after {mark}", cell.convergence[mark], one.follow, "s")
        if one.steps_up and 0 < before < after:
            within = SLACK * REFUSALS_PER_LOOK / (BUDGET * before)
            yield Verdict(name, f"95 % after {mark}", cell.convergence[mark], within, "s")
    if one.jain is not None:
        yield Verdict(name, "Jain", cell.jain, one.jain, "", at_least=True)


def _steps(scenario: Scenario) -> Iterator[tuple[str, float, float]]:
    """The marks at which the quota changes, with what it was before and is from then on."""
    for mark in scenario.marks:
        before, after = scenario.quota_at(mark.at - JUST_BEFORE), scenario.quota_at(mark.at)
        if mark.at > 0 and before != after:
            yield mark.name, before, after


def without_marks(names: Iterable[str]) -> list[str]:
    held = {name for one in CLASSES for name in (*one.scenarios, *one.also)}
    return [name for name in names if name not in held]


def _shown(value: float, unit: str, digits: int | None = None) -> str:
    if not math.isfinite(value):
        return "never"
    number = 100 * value if unit == "%" else value
    text = f"{number:.4g}" if digits is None else f"{number:.{digits}f}"
    return {"%": f"{text} %", "s": f"{text} s", "x": f"{text} x", "": text}[unit]


# ---------------------------------------------------------------------- rivals
#
# No rival may be better on goodput and no worse on refusals. A rival is compared over its own seeds: a window that
# begins at another moment is another scenario. Strategies that are told the quota are compared apart from the others.

TOLD_THE_QUOTA = ("fixed-half", "cookbook")
AHEAD = 0.01
"""Of the oracle's goodput: so much more is better."""


class Beaten(NamedTuple):
    scenario: str
    rival: str
    theirs: Cell
    ours: Cell


class Comparison(NamedTuple):
    pairs: int
    """How many rivals were looked at, over all scenarios."""
    ahead: int
    """In how many of them the rival's goodput is better by more than ``AHEAD``, at whatever price."""
    beaten: list[Beaten]
    """... without sending more 429s."""


FINDERS = tuple(name for name in RIVALS if name not in TOLD_THE_QUOTA)


def compare(results: Results, rivals: Sequence[str] = FINDERS) -> Comparison:
    pairs = ahead = 0
    beaten = []
    for scenario in results.runs:
        for rival in rivals:
            theirs = results.cell(scenario, rival)
            ours = theirs and results.cell(scenario, ADAPTIVE, theirs.seeds)
            if theirs is None or ours is None:
                continue
            pairs += 1
            if theirs.goodput > ours.goodput + AHEAD + ROUNDING:
                ahead += 1
                if theirs.refused_share <= ours.refused_share + ROUNDING:
                    beaten.append(Beaten(scenario, rival, theirs, ours))
    return Comparison(pairs, ahead, beaten)
