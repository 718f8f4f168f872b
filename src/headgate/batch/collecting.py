"""Look for garbage less often while a job runs.

Python looks for objects that hold each other after every 700 that are new. A row makes dozens, nearly all of
which go by themselves, while thousands of others are looked at again and again: a fifteenth of a job's time. The
setting is the whole process's, so it goes back to what it was with the last job that runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from .. import fork_safety

NEW_OBJECTS = 50_000
"""Between two looks: a few megabytes of garbage at most."""

_lock = fork_safety.lock()
_jobs = 0
_before = (0, 0, 0)


@contextmanager
def seldom() -> Iterator[None]:
    """As long as this lasts; whoever looks even less often is left alone."""
    global _jobs, _before
    with _lock:
        _jobs += 1
        if _jobs == 1:
            _before = gc.get_threshold()
            if 0 < _before[0] < NEW_OBJECTS:
                gc.set_threshold(NEW_OBJECTS, *_before[1:])
    try:
        yield
    finally:
        with _lock:
            _jobs -= 1
            if _jobs == 0:
                gc.set_threshold(*_before)
