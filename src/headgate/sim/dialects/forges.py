"""GitHub and GitLab, whose resets are instants.

GitHub has two limits. The primary one is announced, per hour; the secondary one is not: its refusal is a 403 with
plenty left of the primary one and no word about when to come back.
"""

from __future__ import annotations

import math

from ..quota import Standing
from ..reply import Reply
from .contract import HOUR, OUT_OF_SERVICE, TICK, Dialect, Standings, told_at_once, told_per, whole_seconds

_DOCUMENTATION = "https://docs.github.com/rest"
PRIMARY = 10
"""A primary limit that is never reached is this many times the secondary one."""


def _epoch(wall: float, seconds: float | None) -> str:
    return str(math.ceil(wall + (seconds or 0.0) - TICK))


def github_fields(standings: Standings, wall: float) -> dict[str, str]:
    _, standing = standings[0]
    return _github_fields(*told_per(HOUR, standing), _epoch(wall, standing.reset))


def far_from_the_primary_limit(standings: Standings, wall: float) -> dict[str, str]:
    limit, used = PRIMARY * told_per(HOUR, standings[0][1])[0], math.ceil(standings[0][1].used)
    return _github_fields(limit, limit - used, used, _epoch(wall, HOUR))


def _github_fields(limit: int, remaining: int, used: int, reset: str) -> dict[str, str]:
    return {
        "x-ratelimit-limit": str(limit),
        "x-ratelimit-remaining": str(remaining),
        "x-ratelimit-used": str(used),
        "x-ratelimit-reset": reset,
        "x-ratelimit-resource": "core",
    }


def refuse_as_github(unit: str, standing: Standing, wall: float) -> Reply:
    return Reply(429, {"message": "API rate limit exceeded for user ID 1.", "documentation_url": _DOCUMENTATION})


def refuse_as_secondary(unit: str, standing: Standing, wall: float) -> Reply:
    message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    return Reply(403, {"message": message, "documentation_url": _DOCUMENTATION})


def gitlab_fields(standings: Standings, wall: float) -> dict[str, str]:
    _, standing = standings[0]
    limit, remaining, used = told_at_once(standing)
    return {
        "RateLimit-Limit": str(limit),
        "RateLimit-Observed": str(used),
        "RateLimit-Remaining": str(remaining),
        "RateLimit-Reset": _epoch(wall, standing.reset),
        "RateLimit-Name": "throttle_authenticated_api",
    }


def refuse_as_gitlab(unit: str, standing: Standing, wall: float) -> Reply:
    return Reply(429, "Retry later\n", {"Retry-After": str(whole_seconds(standing.retry))})


GITHUB = Dialect(github_fields, refuse_as_github, OUT_OF_SERVICE)
GITHUB_SECONDARY = Dialect(far_from_the_primary_limit, refuse_as_secondary, OUT_OF_SERVICE)
GITLAB = Dialect(gitlab_fields, refuse_as_gitlab, OUT_OF_SERVICE)
