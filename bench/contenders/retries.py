"""The peers' retry decorators, each allowing three attempts, around functions that succeed at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ATTEMPTS = 3

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


def backoff(function: Function) -> Function:
    import backoff

    return backoff.on_exception(backoff.expo, Exception, max_tries=ATTEMPTS)(function)


def hyx(function: Function) -> Function:
    from hyx.retry import retry

    return retry(attempts=ATTEMPTS)(function)


def stamina(function: Function) -> Function:
    import stamina

    return stamina.retry(on=Exception, attempts=ATTEMPTS)(function)


def tenacity(function: Function) -> Function:
    from tenacity import retry, stop_after_attempt

    return retry(stop=stop_after_attempt(ATTEMPTS))(function)
