"""``headgate run --plan``: what a run would take, from reading its input; nothing is sent."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from headgate.batch.addresses import UnfitPathError
from headgate.batch.formats import BrokenRowError, Rows
from headgate.batch.formats.names import Names
from headgate.batch.formats.problems import same_name
from headgate.batch.ledger import RowState
from headgate.batch.prices import Prices
from headgate.batch.sqlite_reading import look
from headgate.batch.target import Target, TargetConfig
from headgate.config import Limits, RateLimitConfig
from headgate.core.bucket import Quota
from headgate.core.words import printable, span

MOST_SHOWN = 5
MOST_MODELS = 100


@dataclass(slots=True, kw_only=True)
class Plan:
    rows: int = 0
    finished: int = 0
    """Rows that an earlier run has brought to an end; they are part of all other numbers."""
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
    keys: int = 1

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def plan_of(rows: Rows, to: TargetConfig, prices: Prices, limits: Limits, keys: int, ledger: str | None) -> Plan:
    plan, target = Plan(keys=keys), Target(to, prices=prices)
    quotas = RateLimitConfig(limits=limits).quotas()
    most = min((quota.amount for quota in quotas if quota.dimension == "tokens"), default=None)
    names = Names()
    for row in rows:
        plan.rows += 1
        try:
            request = row.request()
            target.address.url(request.path or to.path)
            cost = target.cost(row)
            if rows.have_names and (before := names.line_before(request.name, row.line)) is not None:
                raise row.broken(same_name(request.name, f"line {before:,}"))
        except (BrokenRowError, UnfitPathError) as error:
            plan.broken += 1
            if len(plan.broken_lines) < MOST_SHOWN:
                what = error.what if isinstance(error, BrokenRowError) else str(error)
                plan.broken_lines.append(f"line {row.line:,}: {what}")
            continue
        tokens = int(cost["tokens"])
        if most is not None and tokens > most:
            plan.too_large += 1
            if len(plan.too_large_lines) < MOST_SHOWN:
                plan.too_large_lines.append(row.line)
            continue
        read = min(request.estimate.input, tokens)
        plan.requests += 1
        plan.input_tokens += read
        plan.output_tokens += tokens - read
        plan.cost += cost.get("money", 0.0)
        model = request.model if request.model in plan.models or len(plan.models) < MOST_MODELS else "others"
        plan.models[model] += 1
        if "money" not in cost:
            plan.without_price[model] += 1
    names.close()
    if ledger is not None and os.path.isfile(ledger):
        states = look(ledger).counts.states
        plan.finished = states.get(RowState.DONE, 0) + states.get(RowState.DEAD, 0)
    _time(plan, quotas)
    return plan


def _time(plan: Plan, quotas: tuple[Quota, ...]) -> None:
    """How long at the known limits, and which of them is the narrowest; done rows are taken as average ones."""
    share = max(0.0, 1.0 - plan.finished / plan.rows) if plan.rows else 0.0
    amounts = {"requests": share * plan.requests / plan.keys, "tokens": share * plan.tokens / plan.keys}
    for quota in quotas:
        windows = amounts[quota.dimension] / quota.amount
        seconds = quota.window * (windows if quota.paces else max(0.0, windows - 1.0))  # the first may go at once
        if plan.seconds is None or seconds > plan.seconds:
            plan.seconds, plan.narrowest = seconds, quota.dimension


def plan_page(plan: Plan, *, has_prices: bool, stops: bool) -> str:
    lines = [f"{plan.rows:,} rows" + (f", {plan.finished:,} of them finished before" if plan.finished else "")]
    models = ", ".join(
        f"{count:,} {printable(name) or 'without a model'}" for name, count in plan.models.most_common(MOST_SHOWN)
    )
    facts = {
        "models": models,
        "tokens": f"about {plan.input_tokens:,} in and at most about {plan.output_tokens:,} out",
        "cost": _cost(plan, has_prices),
        "time": _how_long(plan),
        "never": _never(plan),
        "broken": f"{plan.broken:,} rows; {'; '.join(plan.broken_lines)}" if plan.broken else "",
    }
    lines += [f"  {name:<8}{text}" for name, text in facts.items() if text]
    return "\n".join([*lines, what_next(plan, stops)])


def _cost(plan: Plan, has_prices: bool) -> str:
    if not has_prices:
        return "not known; --price MODEL=IN/OUT says what a million tokens cost"
    unknown = ", ".join(f"{count:,} of {name!r}" for name, count in plan.without_price.most_common(MOST_SHOWN))
    return f"at most about {plan.cost:,.4g}" + (f", and rows without a price: {unknown}" if unknown else "")


def _how_long(plan: Plan) -> str:
    if plan.seconds is None:
        return "not known; --limits requests=500/min,tokens=200000/min says what each key may do"
    keys = f" with {plan.keys} keys" if plan.keys > 1 else ""
    return f"at least {span(plan.seconds)}{keys}; the {plan.narrowest} are the narrowest limit"


def _never(plan: Plan) -> str:
    if not plan.too_large:
        return ""
    lines = ", ".join(f"{line:,}" for line in plan.too_large_lines)
    return f"{plan.too_large:,} rows are larger than the limit on tokens and would be dead at once: lines {lines}"


def what_next(plan: Plan, stops: bool) -> str:
    if plan.broken and stops:
        return "Nothing was sent. Put the broken lines right, or write them off with --on-broken dead."
    return "Nothing was sent. The same command without --plan runs it."


def plan_line(plan: Plan) -> str:
    fields: dict[str, Any] = {
        "event": "plan",
        "rows": plan.rows,
        "finished": plan.finished,
        "input_tokens": plan.input_tokens,
        "output_tokens": plan.output_tokens,
        "cost": plan.cost,
        "models": dict(plan.models),
        "without_price": dict(plan.without_price),
        "seconds": plan.seconds,
        "too_large": plan.too_large,
        "too_large_lines": plan.too_large_lines,
        "broken": plan.broken,
        "broken_lines": plan.broken_lines,
        "keys": plan.keys,
    }
    return json.dumps(fields)
