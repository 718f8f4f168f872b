"""Where a quota that several share is kept: in this process, on this machine, or in a Redis or Valkey."""

from __future__ import annotations

from ..errors import ConfigError
from .contract import DeskView, MemberView, Store, StoreDown

__all__ = ["DeskView", "MemberView", "Store", "StoreDown", "open_store"]

_KNOWN = (
    "'memory', 'machine', 'redis://host:port/db', 'rediss://...', 'redis+sentinel://host:port,host:port/service/db' "
    "or 'redis+cluster://host:port'"
)


def open_store(where: str | Store, *, timeout: float | None = None) -> Store:
    """The store of that name, or the one that is given. Nothing is opened or connected before its first visit.

    ``timeout``: seconds for which a visit may take at most; by default what suits a store of its kind.
    """
    if not isinstance(where, str):
        if not callable(getattr(where, "visit", None)):
            raise ConfigError(f"store={type(where).__name__} must be {_KNOWN}, or a store")
        return where
    if where == "memory":
        from .memory import MemoryStore

        return MemoryStore()
    if where == "machine":
        from .sqlite import SqliteStore

        return SqliteStore() if timeout is None else SqliteStore(timeout=timeout)
    kind, mark, _ = where.partition("://")
    if mark and kind in ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"):
        from .redis import RedisStore

        return RedisStore(where) if timeout is None else RedisStore(where, timeout=timeout)
    said = kind[:32] if kind.replace("+", "").isalpha() else "..."  # anything else may be a password in the wrong place
    raise ConfigError(f"store={said + '://...' if mark else said!r} is not known; it must be {_KNOWN}")
