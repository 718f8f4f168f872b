"""The IETF's RateLimit fields, today's and those of earlier drafts.

    RateLimit-Policy: "permin";q=50;w=60,"perhr";q=1000;w=3600     what is allowed
    RateLimit: "permin";r=12;t=30                                  what is left, and until when
    RateLimit: limit=100, remaining=50, reset=5                    an older draft, in one field
    RateLimit-Policy: 100;w=60                                     an older draft's policy
    X-RateLimit-Limit: 100, 100;window=60, 10000;window=86400      older still

Both fields are Structured Fields. Nearly all that is ever sent matches one small
pattern; the rest goes to a full parser, which is loaded only then. A field that is
malformed anywhere counts as not sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import islice

from ..core.signal import Limit
from .retry_after import within_bounds

MOST_MEMBERS = 16
"""Budgets read out of one field."""
LONGEST_BUDGET_NAME = 64
LARGEST_COUNT = 1e15
"""Limits and remainders beyond it are taken to be this: structured integers end there too."""

Parameters = Mapping[str, object]
Member = tuple[object, Parameters]

_PARAMETER = r""";[ ]*([a-z*][a-z0-9_.*-]*)=(?:(\d{1,15})|"([ !#-\[\]-~]*)")"""
_MEMBER = (
    r"""[ \t]*(?:"([ !#-\[\]-~]*)"|([a-z*][a-z0-9_.*-]*)(?:=(\d{1,15}))?|(\d{1,15}))"""  # "name", name, name=5 or 5
    r"""((?:;[ ]*[a-z*][a-z0-9_.*-]*=(?:\d{1,15}|"[ !#-\[\]-~]*"))*)[ \t]*(,|$)"""
)
_UNITS = {"requests": "requests", "content-bytes": "content-bytes", "concurrent-requests": "concurrency"}


def structured_limits(state: str | None, policy: str | None) -> list[Limit]:
    """The budgets of ``RateLimit`` and ``RateLimit-Policy``, matched by their names."""
    policies = [found for member in members(policy) if (found := _policy(*member)) is not None]
    merged = {found.name: found for found in policies}
    stated = members(state)
    if stated and all(isinstance(value, int) and key for key, value in _entries(stated)):
        return _single_field(dict(_entries(stated)), policies)
    for bare, parameters in stated:
        name, remaining = _name(bare), _count(parameters.get("r"))
        if name is None or remaining is None:
            continue
        known = merged.get(name) or Limit(dimension=_dimension(parameters) or "requests", name=name)
        merged[name] = Limit(
            dimension=known.dimension,
            limit=known.limit,
            remaining=remaining,
            reset=_seconds(parameters.get("t")),
            window=known.window,
            name=name,
        )
    return list(merged.values())[:MOST_MEMBERS]


def quotas(text: str) -> list[tuple[float, float | None]]:
    """The (limit, window) pairs of an older draft's list: ``100, 100;w=60, 10000;window=86400``."""
    pairs = []
    for bare, parameters in members(text):
        limit = _count(bare)
        if limit is not None:
            pairs.append((limit, _window(parameters)))
    return pairs


def members(text: str | None) -> list[Member]:
    """A structured list, or a dictionary given as ``(key, {"": value})``; empty where it is malformed."""
    if not text:
        return []
    found: list[Member] = []
    at, comma = 0, ","
    while comma:
        match = _compiled(_MEMBER).match(text, at)
        if match is None or len(found) >= MOST_MEMBERS:
            return _parsed(text)
        quoted, token, value, bare, parameters, comma = match.groups()
        extra: dict[str, object] = {
            key: int(digits) if digits else word for key, digits, word in _compiled(_PARAMETER).findall(parameters)
        }
        if value is not None:
            extra[""] = int(value)
        found.append((int(bare) if bare is not None else token if quoted is None else quoted, extra))
        at = match.end()
    return found


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _parsed(text: str) -> list[Member]:
    import http_sf  # rarely needed, and slow to load

    data = text.encode("utf-8", "replace")
    for kind in ("list", "dictionary"):
        try:
            found = http_sf.parse(data, tltype=kind)
        except (ValueError, TypeError, OverflowError, RecursionError):
            continue
        if isinstance(found, dict):
            return [(key, {"": _bare(value)[0]}) for key, value in islice(found.items(), MOST_MEMBERS)]
        if isinstance(found, list):
            return [_bare(member) for member in found[:MOST_MEMBERS]]
    return []


def _bare(member: object) -> Member:
    """A parsed item as text, number or neither, with its parameters."""
    value, parameters = member if isinstance(member, tuple) else (member, {})
    return (str(value) if type(value).__name__ == "Token" else value), parameters


def _entries(stated: list[Member]) -> list[tuple[str, object]]:
    return [(bare if isinstance(bare, str) else "", parameters.get("")) for bare, parameters in stated]


def _single_field(entry: dict[str, object], policies: list[Limit]) -> list[Limit]:
    """``limit=100, remaining=50, reset=5`` is about the policy with the same limit, if there is one."""
    limit, remaining = _count(entry.get("limit")), _count(entry.get("remaining"))
    if limit is None and remaining is None:
        return policies[:MOST_MEMBERS]
    window = next((policy.window for policy in policies if policy.limit == limit), None)
    others = [policy for policy in policies if policy.limit != limit or policy.window != window]
    mine = Limit(limit=limit, remaining=remaining, reset=_seconds(entry.get("reset")), window=window)
    return [mine, *others][:MOST_MEMBERS]


def _policy(bare: object, parameters: Parameters) -> Limit | None:
    if isinstance(bare, int) and not isinstance(bare, bool):  # an older draft: the item is the quota itself
        return Limit(limit=_count(bare), window=_window(parameters), name=str(bare))
    name, limit, dimension = _name(bare), _count(parameters.get("q")), _dimension(parameters)
    if name is None or limit is None or dimension is None:
        return None
    return Limit(dimension=dimension, limit=limit, window=_window(parameters), name=name)


def _dimension(parameters: Parameters) -> str | None:
    unit = parameters.get("qu", "requests")
    return _UNITS.get(str(unit), str(unit)[:LONGEST_BUDGET_NAME]) if unit else None


def _name(bare: object) -> str | None:
    return bare[:LONGEST_BUDGET_NAME] if isinstance(bare, str) else None


def _window(parameters: Parameters) -> float | None:
    seconds = parameters.get("w", parameters.get("window"))
    return _count(seconds) or None


def _seconds(value: object) -> float | None:
    count = _count(value)
    return None if count is None else within_bounds(count)


def _count(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return float(min(value, int(LARGEST_COUNT)))
