"""Questions to functions of the user's. If one fails, that must not take the place of what it was asked about."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

log = logging.getLogger("headgate")

T = TypeVar("T")


def ask(hook: Callable[..., Any], kind: type[T], *facts: object) -> T | None:
    """What the hook says; None, and a word in the log, if it raises or says something that is no ``kind``."""
    try:
        said = hook(*facts)
    except Exception as error:  # its message may hold anything, so it is not logged
        log.warning("%s raised %s and is not heeded", _name(hook), type(error).__name__)
        return None
    if said is None or isinstance(said, kind):
        return said
    log.warning("%s said %s instead of %s and is not heeded", _name(hook), type(said).__name__, kind.__name__)
    return None


def _name(hook: object) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))
