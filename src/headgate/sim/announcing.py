"""What a simulated server says of its limits: its dialect's fields and bodies, and the scenario's Retry-After.

    every answer    the dialect's fields
    a refusal       and its own fields and body; its wait is the truth, or what the scenario has it lie
                    and a Retry-After header, if the scenario asks for one

A dialect that says nothing on good answers costs nothing there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from .dialects import DIALECTS, Standings
from .dialects.contract import says_nothing
from .quota import Standing
from .scenario import Scenario

WALL = 1_800_000_000.0
"""The date at instant 0; virtual clocks begin on it too."""

SHORT = 1.0
"""What ``retry_after = "short"`` says, whatever is true."""

Announce = Callable[[Standings, float], dict[str, str]]


def announcer(scenario: Scenario) -> Announce | None:
    """What words the fields of every answer, given where the limits stand and the date; ``None`` for nothing."""
    announce = DIALECTS[scenario.headers].announce
    if announce is says_nothing or not all(budget.limits for budget in scenario.budgets):
        return None
    return lambda standings, wall: _as_a_client_sees(announce(standings, wall))


def refusal(scenario: Scenario, unit: str, standing: Standing, now: float) -> tuple[int, dict[str, str], Any]:
    """Status, fields and body of a refusal, by the limit that was hit and how long that will last."""
    wait = _told(scenario, standing.retry or 0.0)
    fields = retry_after(scenario, wait, now)
    if scenario.headers == "none":
        return 429, fields, None
    reply = DIALECTS[scenario.headers].refuse(unit, replace(standing, retry=wait), WALL + now)
    return reply.status, _as_a_client_sees(reply.headers) | fields, reply.body


def _as_a_client_sees(fields: dict[str, str]) -> dict[str, str]:
    """Names in lower case."""
    return {name.lower(): value for name, value in fields.items()}


def _told(scenario: Scenario, wait: float) -> float:
    match scenario.retry_after:
        case "short":
            return SHORT
        case "long":
            return scenario.retry_after_long
    return wait


def retry_after(scenario: Scenario, wait: float, now: float) -> dict[str, str]:
    """The Retry-After that the scenario asks for, when ``wait`` is what is to be told."""
    match scenario.retry_after:
        case "none":
            return {}
        case "date":
            wall = WALL + now
            until = formatdate(math.ceil(wall + wait), usegmt=True)
            return {"date": formatdate(int(wall), usegmt=True), "retry-after": until}
    return {"retry-after": str(math.ceil(wait))}
