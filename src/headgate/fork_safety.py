"""Forking: a child process begins with locks that work, and without the callers of its parent.

    before the fork    take every lock, so that no decision is cut in half
    in the parent      free them
    in the child       free them, and reset their owners, which forget the parent's threads and tasks

A lock that cannot be had in time is made again in the child. This is the one handler of forks: a lock that several
threads use is made by ``lock()`` or ``rlock()``, and an owner registers a method with ``reset_in_child``.
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
_owners: dict[int, weakref.ref[Any]] = {}
"""The locks, and the owners to reset, that are still alive, in the order they were made."""
_resets: dict[int, Callable[[Any], None]] = {}
"""The function that resets each owner."""
_numbers = count()
_taken: list[Any] = []
_not_taken: list[Any] = []


def lock(*, slow: bool = False) -> threading.Lock:
    """A lock. One that is ``slow``, held while a disk or a server is used, is waited for before all others."""
    made = threading.Lock()
    _register(_slow if slow else _quick, made)
    return made


def rlock() -> threading.RLock:
    """A lock that its thread may take again."""
    made = threading.RLock()
    _register(_quick, made)
    return made


def run_locked(lock: threading.Lock, timeout: float, act: Callable[[], object]) -> bool:
    """Act under the lock; False if it cannot be had in so many seconds.

    A signal handler may raise after any call: also after ``acquire(timeout=...)``, before the ``try`` that would free
    the lock is reached. Here taking it and noting that are one call.
    """
    taken: list[bool] = []
    try:
        taken.extend(map(lock.acquire, (True,), (timeout,)))
        if True in taken:
            act()
            return True
        return False
    finally:
        if True in taken:
            lock.release()


def reset_in_child(method: Callable[[], None]) -> None:
    """Call this bound method, while its object lives, in every forked child; in the order of registration."""
    _resets[_register(_owners, method.__self__)] = method.__func__  # type: ignore[attr-defined]


def _register(kept: dict[int, weakref.ref[Any]], what: object) -> int:
    number = next(_numbers)

    def forget(_: object, number: int = number, kept: dict[int, Any] = kept, resets: dict[int, Any] = _resets) -> None:
        kept.pop(number, None)
        resets.pop(number, None)

    kept[number] = weakref.ref(what, forget)
    return number


def _alive(kept: dict[int, weakref.ref[Any]]) -> list[tuple[int, Any]]:
    # A copy, which no garbage collection can interrupt: that of a lock takes it out of ``kept``.
    found = [(number, reference()) for number, reference in kept.copy().items()]
    return [(number, one) for number, one in found if one is not None]


def _before() -> None:
    _forking.acquire()
    ends_at = time.monotonic() + PATIENCE
    for _, one in _alive(_slow) + _alive(_quick):
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
    for number, owner in _alive(_owners):
        _resets[number](owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
