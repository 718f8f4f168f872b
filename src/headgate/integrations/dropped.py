"""Calls whose answers were thrown away unread, and what becomes of their permits: they go back with the next request.

The collector finds such an answer anywhere, also in the middle of a decision: no place to take locks.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from .request_call import RequestCall

MOST_DROPPED = 10_000
dropped: deque[RequestCall] = deque(maxlen=MOST_DROPPED)


def end_dropped() -> None:
    """Give back what they hold."""
    while dropped:
        with suppress(IndexError):  # another thread was faster
            dropped.popleft().left()
