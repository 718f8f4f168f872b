"""What a call takes: a number of requests, or so much of each dimension of a known limit."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NOTHING: Mapping[str, float] = MappingProxyType({})
_NUMBER = (int, float)
"""What a cost mostly is; asking for that first spares the slow question whether it is a mapping."""


def costs_of(cost: float | Mapping[str, float]) -> Mapping[str, float]:
    """What a call takes of each known limit: at least one request."""
    if isinstance(cost, _NUMBER) or not isinstance(cost, Mapping):
        return {"requests": cost}
    return cost if "requests" in cost else {"requests": 1, **cost}


def requests_of(cost: float | Mapping[str, float]) -> float:
    """How many calls' worth of pace a cost takes."""
    return cost if isinstance(cost, _NUMBER) or not isinstance(cost, Mapping) else cost.get("requests", 1)
