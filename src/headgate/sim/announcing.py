"""What a simulated server says of its limits: header fields with names in lower case, as a client sees them.

| headers   | speaks of                                        |
|-----------|--------------------------------------------------|
| ratelimit | the first limit, in the older RateLimit-* fields |
| ietf      | every limit of calls, as a list of policies      |
| openai    | the first limit of calls and the first of tokens |
| anthropic | the same                                         |
| github    | the first limit                                  |

``Retry-After`` comes on refusals, and says the truth or not as the scenario wants it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from email.utils import formatdate

from .dialects import DIALECTS
from .quota import Standing
from .scenario import Scenario

WALL = 1_800_000_000.0
"""The date at instant 0; virtual clocks begin on it too."""

Standings = list[tuple[str, Standing]]


def announcer(headers: str) -> Callable[[Standings, float], dict[str, str]]:
    """The function that words ``headers`` for every answer, given where the limits stand and the time."""
    if headers == "ratelimit":
        return _ratelimit
    dialect = DIALECTS[headers].announce
    if headers == "ietf":
        return _ietf
    told = 2 if headers in ("openai", "anthropic") else 1

    def announce(standings: Standings, now: float) -> dict[str, str]:
        first: dict[str, Standing] = {}
        for unit, standing in standings:
            first.setdefault(unit, standing)
        fields: dict[str, str] = {}
        for unit, standing in list(first.items())[:told]:
            for name, value in dialect(standing, WALL + now).items():
                fields[name.replace("requests", "tokens") if unit == "tokens" else name] = value
        return fields

    return announce


def retry_after(scenario: Scenario, wait: float, now: float) -> dict[str, str]:
    """The fields of a refusal, when the next call would be let through in ``wait`` seconds."""
    match scenario.retry_after:
        case "exact":
            return {"retry-after": str(math.ceil(wait))}
        case "short":
            return {"retry-after": "1"}
        case "long":
            return {"retry-after": str(int(scenario.retry_after_long))}
        case "date":
            wall = WALL + now
            until = formatdate(math.ceil(wall + wait), usegmt=True)
            return {"date": formatdate(int(wall), usegmt=True), "retry-after": until}
    return {}


def _ratelimit(standings: Standings, now: float) -> dict[str, str]:
    _, standing = standings[0]
    size = standing.burst
    fills_in = size * standing.window / standing.limit if standing.window else 0.0
    return {
        "ratelimit-limit": str(int(size)),
        "ratelimit-policy": f'"default";q={int(size)};w={math.ceil(fills_in)}',
        "ratelimit-remaining": str(int(standing.remaining)),
        "ratelimit-reset": str(math.ceil(standing.relief or 0.0)),
    }


def _ietf(standings: Standings, now: float) -> dict[str, str]:
    told: dict[str, list[str]] = {}
    of_calls = [standing for unit, standing in standings if unit == "calls"]
    for number, standing in enumerate(of_calls, 1):
        for name, value in DIALECTS["ietf"].announce(standing, WALL + now).items():
            policy = "default" if len(of_calls) == 1 else f"limit-{number}"
            told.setdefault(name.lower(), []).append(value.replace("default", policy, 1))
    return {name: ", ".join(values) for name, values in told.items()}
