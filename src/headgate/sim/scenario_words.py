"""A scenario in one line: its own note, or what its fields say."""

from __future__ import annotations

from collections.abc import Iterator

from .scenario import Scenario
from .scenario_parts import Budget, Limit

MOST_TOLD = 3
"""Of more limits, budgets or changes than this, only their number is told."""

KINDS = {
    "bucket": "token bucket",
    "gcra": "GCRA",
    "window": "fixed window",
    "log": "sliding log",
    "strict-log": "strict sliding log",
}


def about(scenario: Scenario) -> str:
    return scenario.note or "; ".join(_facts(scenario))


def _facts(scenario: Scenario) -> Iterator[str]:
    if any(budget.limits for budget in scenario.budgets):
        yield _few([_budget(budget) for budget in scenario.budgets], "budgets", " beside ")
    if scenario.queue:
        yield f"{scenario.queue.servers:,} servers behind a queue for {scenario.queue.room:,}"
    if scenario.steps:
        yield _few([f"x{step.factor:g} from {step.at:g} s" for step in scenario.steps], "steps")
    for name, troubles in (("outage", scenario.outages), ("hang", scenario.hangs)):
        if troubles:
            told = [f"{name} from {trouble.at:g} to {trouble.until:g} s" for trouble in troubles]
            yield _few(told, f"{name}s")
    if scenario.flapping:
        yield f"{scenario.flapping:.3g} of the calls fail"
    if scenario.neighbour:
        yield f"a neighbour of {scenario.neighbour.rate}"
    if scenario.arrivals:
        yield "work at " + _few([f"{stream.rate} from {stream.at:g} s" for stream in scenario.arrivals], "rates")
    said = [f"{scenario.headers} headers"] if scenario.headers != "none" else []
    said += [f"Retry-After ({scenario.retry_after})"] if scenario.retry_after != "none" else []
    yield " and ".join(said) or "bare 429s"


def _budget(budget: Budget) -> str:
    limits = _few([_limit(limit) for limit in budget.limits], "limits", " and ")
    if budget.keys == 1:
        return limits
    return f"{budget.keys:,} keys {'that share' if budget.shared else 'with each'} {limits}"


def _limit(limit: Limit) -> str:
    if limit.rate is None:
        return f"{limit.at_once:,} at once"
    burst = f", burst {limit.burst:g}" if limit.burst is not None else ""
    return f"{KINDS[limit.algorithm]} of {limit.rate}{' tokens' if limit.of == 'tokens' else ''}{burst}"


def _few(told: list[str], what: str, between: str = ", ") -> str:
    return between.join(told) if len(told) <= MOST_TOLD else f"{len(told):,} {what}"
