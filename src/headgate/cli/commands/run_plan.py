"""``headgate run --plan``: what a run would take, from reading its input; nothing is sent.

each row    ──>  counted: tokens, cost, model   |   too large for a limit   |   broken
the ledger  ──>  rows that an earlier run has finished
the limits  ──>  how long the rest takes at least, and the limit that decides it
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...batch.endpoints import InvalidPathError
from ...batch.input import BrokenRowError, InputRow, Rows
from ...batch.input.rows import same_name
from ...batch.ledger import RowState
from ...batch.ledger.queries import read_status
from ...batch.pricing import Prices
from ...batch.target import Target, TargetConfig
from ...config import Limits, RateLimitConfig
from ...core.quota import Quota, never_fits
from ...formatting import format_number, format_seconds, printable
from ...sqlite_file import scratch
from ..ui.display import plural

MOST_SHOWN = 5
"""Lines and models that are named."""
MOST_MODELS = 100
OTHER_MODELS = "others"
JSON_FIELDS = (
    "rows", "finished", "input_tokens", "output_tokens", "cost", "models", "without_price", "seconds", "too_large",
    "too_large_lines", "broken", "broken_lines", "keys",
)  # fmt: skip


class RowEstimate(NamedTuple):
    """What one row would take."""

    model: str
    input_tokens: int
    output_tokens: int
    cost: float | None
    """None: the price of its model is not known."""
    counted: Mapping[str, float]
    """What it takes of limits, by the dimension, as the vendor counts."""


@dataclass(slots=True, kw_only=True)
class Plan:
    """What all rows together would take; those that an earlier run has finished are part of all numbers."""

    rows: int = 0
    finished: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    models: Counter[str] = field(default_factory=Counter)
    without_price: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    broken_lines: list[str] = field(default_factory=list)
    too_large: int = 0
    too_large_lines: list[int] = field(default_factory=list)
    seconds: float | None = None
    """At the known limits, all keys together."""
    narrowest: str = ""
    """The dimension whose limit decides how long it takes."""
    keys: int = 1
    counted: Counter[str] = field(default_factory=Counter)
    """What they take of limits, by the dimension."""

    def count(self, row: RowEstimate) -> None:
        model = row.model if row.model in self.models or len(self.models) < MOST_MODELS else OTHER_MODELS
        self.requests += 1
        self.input_tokens += row.input_tokens
        self.output_tokens += row.output_tokens
        self.models[model] += 1
        for dimension, amount in row.counted.items():
            self.counted[dimension] += int(amount)
        if row.cost is None:
            self.without_price[model] += 1
        else:
            self.cost += row.cost

    def count_broken(self, line: int, error: BrokenRowError | InvalidPathError) -> None:
        self.broken += 1
        if len(self.broken_lines) < MOST_SHOWN:
            what = error.what if isinstance(error, BrokenRowError) else str(error)
            self.broken_lines.append(f"line {line:,}: {what}")

    def count_too_large(self, line: int) -> None:
        self.too_large += 1
        if len(self.too_large_lines) < MOST_SHOWN:
            self.too_large_lines.append(line)


def plan_of(rows: Rows, to: TargetConfig, prices: Prices, limits: Limits, keys: int, ledger: str | None) -> Plan:
    plan, quotas = Plan(keys=keys), RateLimitConfig(limits=limits).quotas()
    target, names = Target(to, prices=prices), RowNames()
    for row in rows:
        plan.rows += 1
        try:
            estimate = _estimate(row, target, names if rows.have_names else None)
        except (BrokenRowError, InvalidPathError) as error:
            plan.count_broken(row.line, error)
            continue
        if never_fits(quotas, estimate.counted) is not None:
            plan.count_too_large(row.line)
        else:
            plan.count(estimate)
    names.close()
    if ledger is not None and os.path.isfile(ledger):
        states = read_status(ledger).counts.states
        plan.finished = states.get(RowState.DONE, 0) + states.get(RowState.DEAD, 0)
    _set_time(plan, quotas)
    return plan


class RowNames:
    """The names of rows where there is no ledger: kept on disk, so that millions of them cost no memory."""

    def __init__(self) -> None:
        self._names = scratch()
        self._names.execute("CREATE TABLE names (name TEXT PRIMARY KEY, line INTEGER NOT NULL) WITHOUT ROWID")

    def line_before(self, name: str, line: int) -> int | None:
        """The line on which this name was seen first, if it was before."""
        if self._names.execute("INSERT OR IGNORE INTO names VALUES (?, ?)", (name, line)).rowcount:
            return None
        (first,) = self._names.execute("SELECT line FROM names WHERE name = ?", (name,)).fetchone()
        return int(first)

    def close(self) -> None:
        self._names.close()


def _estimate(row: InputRow, target: Target, names: RowNames | None) -> RowEstimate:
    """Raises what a run would find broken. ``names``: those taken by earlier rows, where rows have names."""
    request = row.request()
    target.endpoint.url(request.path or target.config.path)
    cost = target.cost(row)
    if names is not None and (before := names.line_before(request.name, row.line)) is not None:
        raise row.reject(same_name(request.name, f"line {before:,}"))
    return RowEstimate(request.model, int(cost["input_tokens"]), int(cost["output_tokens"]), cost.get("money"), cost)


def _set_time(plan: Plan, quotas: tuple[Quota, ...]) -> None:
    """How long the rest takes at the known limits; finished rows are taken as average ones."""
    share = max(0.0, 1.0 - plan.finished / plan.rows) if plan.rows else 0.0
    for quota in quotas:
        windows = share * plan.counted[quota.dimension] / plan.keys / quota.amount
        seconds = quota.window * (windows if quota.paces else max(0.0, windows - 1.0))  # the first may go at once
        if plan.seconds is None or seconds > plan.seconds:
            plan.seconds, plan.narrowest = seconds, quota.dimension


# ---------------------------------------------------------------------- as text


def plan_page(plan: Plan, *, has_prices: bool, stops: bool) -> str:
    """``stops``: a broken row stops the run."""
    first = plural(plan.rows, "row") + (
        f", {plan.finished:,} of them finished in earlier runs" if plan.finished else ""
    )
    facts = {
        "models": _models_text(plan),
        "tokens": f"about {plan.input_tokens:,} in and at most about {plan.output_tokens:,} out",
        "cost": _cost_text(plan, has_prices),
        "time": _time_text(plan),
        "too big": _too_large_text(plan),
        "broken": _broken_text(plan),
    }
    return "\n".join([first, *(f"  {name:<8}{text}" for name, text in facts.items() if text), _next_text(plan, stops)])


def _models_text(plan: Plan) -> str:
    shown = plan.models.most_common(MOST_SHOWN)
    return ", ".join(f"{count:,} {printable(name) or 'without a model'}" for name, count in shown)


def _cost_text(plan: Plan, has_prices: bool) -> str:
    if not has_prices:
        return "unknown; pass --price MODEL=IN/OUT (per million tokens)"
    unknown = ", ".join(f"{count:,} of {name!r}" for name, count in plan.without_price.most_common(MOST_SHOWN))
    return f"at most about {format_number(plan.cost, 4)}" + (
        f", plus rows without a price: {unknown}" if unknown else ""
    )


def _time_text(plan: Plan) -> str:
    if plan.seconds is None:
        return "unknown; pass the limits of each key, such as --limits requests=500/min,tokens=200000/min"
    keys = f" with {plan.keys} keys" if plan.keys > 1 else ""
    return f"at least {format_seconds(plan.seconds)}{keys}, limited by {plan.narrowest}"


def _too_large_text(plan: Plan) -> str:
    if not plan.too_large:
        return ""
    lines = ", ".join(f"{line:,}" for line in plan.too_large_lines) + _more(plan.too_large)
    return f"{plural(plan.too_large, 'row')} would fail at once, above the limit on tokens: line {lines}"


def _broken_text(plan: Plan) -> str:
    return f"{plural(plan.broken, 'row')}: {'; '.join(plan.broken_lines)}{_more(plan.broken)}" if plan.broken else ""


def _more(count: int) -> str:
    return f" and {count - MOST_SHOWN:,} more" if count > MOST_SHOWN else ""


def _next_text(plan: Plan, stops: bool) -> str:
    if plan.broken and stops:
        return "Nothing was sent. Correct the broken lines, or record them as failed with --on-broken dead."
    return "Nothing was sent. Run the same command without --plan to start."


def plan_line(plan: Plan) -> str:
    """The same as one line of JSON."""
    return json.dumps({"event": "plan"} | {name: getattr(plan, name) for name in JSON_FIELDS})
