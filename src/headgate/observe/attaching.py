"""Give somebody who looks on his place: beside whoever listens already, in front of nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from ..events import tell_missed
from ..limiter import AdaptiveRateLimiter

log = logging.getLogger("headgate")

Listener = Callable[[Any], None]


class Telling(Protocol):
    """A limiter, a manager, a runner, a crawler, or whoever else tells events."""

    on_event: Any


def limiter_of(owner: object) -> AdaptiveRateLimiter:
    """The limiter behind it, or itself."""
    limiter = owner if isinstance(owner, AdaptiveRateLimiter) else getattr(owner, "limiter", None)
    if not isinstance(limiter, AdaptiveRateLimiter):
        raise TypeError(f"{type(owner).__name__} has no limiter; give a limiter, a runner, a crawler or a manager")
    return limiter


def also_tell(owner: Telling, listener: Listener) -> None:
    """From now on this one is told as well, whoever is told already."""
    present = owner.on_event
    if present is listener or (isinstance(present, Both) and present.tells(listener)):
        return
    if present is None:
        owner.on_event = listener
    elif hasattr(present, "add"):  # a hub
        present.add(listener)
    else:
        owner.on_event = Both(present, listener)


def _wants_all(kind: str) -> bool:
    return True


class Both:
    """Two listeners; one that raises is no reason not to tell the other."""

    def __init__(self, first: Listener, second: Listener) -> None:
        self._first, self._second = first, second

    def tells(self, listener: Listener) -> bool:
        parts = (self._first, self._second)
        return listener in parts or any(isinstance(one, Both) and one.tells(listener) for one in parts)

    def wants(self, kind: str) -> bool:
        """Whether one of them does."""
        return any(getattr(one, "wants", _wants_all)(kind) for one in (self._first, self._second))

    def missed(self, kind: str, count: int) -> None:
        """So many were not made, because neither wanted them."""
        for one in (self._first, self._second):
            tell_missed(one, kind, count)

    def __call__(self, event: object) -> None:
        try:
            self._first(event)
        except Exception:
            log.exception("a listener failed on %s", type(event).__name__)
        self._second(event)
