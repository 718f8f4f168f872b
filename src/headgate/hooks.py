"""Calls to the user's hooks. A hook that fails must not take the place of what it was asked about."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger("headgate")

T = TypeVar("T")


def call_hook(hook: Callable[..., Any], kind: type[T], *facts: object) -> T | None:
    """What the hook returns; None, and a warning in the log, if it raises or returns something that is no ``kind``."""
    try:
        found = hook(*facts)
    except Exception as error:  # its message may hold anything, so it is not logged
        log.warning("Ignoring hook %s: it raised %s", _name(hook), type(error).__name__)
        return None
    if found is None or isinstance(found, kind):
        return found
    log.warning("Ignoring hook %s: it returned %s instead of %s", _name(hook), type(found).__name__, kind.__name__)
    return None


def _name(hook: object) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))
