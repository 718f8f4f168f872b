"""Garbage collection, less often while many calls are made: by a job, a block of rows or a proxy."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from .. import fork_safety

NEW_OBJECTS = 50_000
"""Between two collections: a few megabytes of garbage at most."""
_lock = fork_safety.lock()
_running = 0
_threshold_before = (0, 0, 0)


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Collect garbage less often within this block.

    Python looks for reference cycles after every 700 new objects. A call makes dozens, nearly all of which are freed
    without it, while thousands of others are looked at again and again: a fifteenth of a job's or a proxy's time. The
    setting is the whole process's, so it goes back to what it was with the last block that runs; a higher one is left
    alone.
    """
    global _running, _threshold_before
    with _lock:
        _running += 1
        if _running == 1:
            _threshold_before = gc.get_threshold()
            if 0 < _threshold_before[0] < NEW_OBJECTS:
                gc.set_threshold(NEW_OBJECTS, *_threshold_before[1:])
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if _running == 0:
                gc.set_threshold(*_threshold_before)
