"""Forking: a child process begins with locks that work, and without the callers of its parent.

    before the fork    take every lock, so that no decision is cut in half
    in the parent      free them
    in the child       free them, and tell their owners, which forget the parent's threads and tasks

A lock that cannot be had in time is made again in the child. This is the one place that hears of a fork: a lock that
several threads use is made by ``lock()`` or ``rlock()``, an owner asks for ``start_over_in_child``.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

PATIENCE = 1.0
"""Seconds for which a fork waits for all locks together."""

_forking = threading.Lock()
"""Held from before a fork until after it, so that two threads that fork do not mix up what they have taken."""
_slow: dict[int, weakref.ref[Any]] = {}
_quick: dict[int, weakref.ref[Any]] = {}
_start_over: dict[int, weakref.ref[Callable[[], None]]] = {}
"""What still lives of all locks, and of the methods to call, in the order they were made."""
_numbers = count()
_taken: list[Any] = []
_not_taken: list[Any] = []


def lock(*, slow: bool = False) -> threading.Lock:
    """A lock. One that is ``slow``, held over a visit to a disk or a server, is waited for before all others."""
    made = threading.Lock()
    _keep(_slow if slow else _quick, weakref.ref, made)
    return made


def rlock() -> threading.RLock:
    """A lock that its thread may take again."""
    made = threading.RLock()
    _keep(_quick, weakref.ref, made)
    return made


def start_over_in_child(method: Callable[[], None]) -> None:
    """Call this method of an object, as long as that lives, in every child that is forked; in the order of asking."""
    _keep(_start_over, weakref.WeakMethod, method)


def _keep(kept: dict[int, weakref.ref[Any]], refer: Callable[..., weakref.ref[Any]], what: object) -> None:
    number = next(_numbers)
    kept[number] = refer(what, lambda _: kept.pop(number, None))


def _alive(kept: dict[int, weakref.ref[Any]]) -> list[Any]:
    return [one for one in (reference() for reference in list(kept.values())) if one is not None]


def _before() -> None:
    _forking.acquire()
    ends_at = time.monotonic() + PATIENCE
    for one in _alive(_slow) + _alive(_quick):
        taken = one.acquire(timeout=max(0.0, ends_at - time.monotonic()))
        (_taken if taken else _not_taken).append(one)


def _after() -> None:
    while _taken:
        _taken.pop().release()
    _not_taken.clear()
    _forking.release()


def _in_child() -> None:
    for one in _not_taken:
        one._at_fork_reinit()  # as the standard library does with its own locks
    _after()
    for start_over in _alive(_start_over):
        start_over()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
