"""A store: ``example://NAME`` is shared by all limiters of this process that use the same name.

A real one would keep the requests and replies of ``sync`` somewhere that several processes reach.
"""

from __future__ import annotations

from headgate.distributed.backends.memory import MemoryStore

_stores: dict[str, MemoryStore] = {}


def open_example(where: str, timeout: float | None) -> MemoryStore:
    """``where`` is what was written after ``--store``; ``timeout`` the most that one exchange may take."""
    return _stores.setdefault(where, MemoryStore())
