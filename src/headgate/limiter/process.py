"""Forking and ending: what a process that shares a quota must do at both.

A child begins as a member of its own that holds nothing: the numbers its parent held are the parent's, and its
parent's thread is not there. Whoever forks waits until no visit is under way and no decision is being made: a lock that
was taken over, of ours or of a database's, would never be freed. A process that ends gives back what it holds.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sharing import Sharing

PATIENCE = 1.0
"""Seconds for which a fork waits for a visit, and for a decision, to be over."""

_sharing: dict[int, weakref.ref[Sharing]] = {}
_taken: list[threading.Lock] = []


def watch(sharing: Sharing) -> None:
    """From now on it hears of a fork and of the end."""
    name = id(sharing)
    _sharing[name] = weakref.ref(sharing, lambda _: _sharing.pop(name, None))


def _all() -> list[Sharing]:
    return [one for one in (reference() for reference in list(_sharing.values())) if one is not None]


def _before_fork() -> None:
    for one in _all():
        limiter = one.limiter
        locks = () if limiter is None else (one.visiting, limiter.lock)
        _taken.extend(lock for lock in locks if lock.acquire(timeout=PATIENCE))


def _after_fork() -> None:
    while _taken:
        _taken.pop().release()


def _in_child() -> None:
    for one in _all():
        one.start_over()
    _after_fork()


def _at_the_end() -> None:
    for one in _all():
        one.close()


atexit.register(_at_the_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
