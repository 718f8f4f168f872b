"""The public names of stores, where a quota that several processes share is kept; ``open_store`` opens one by name.

The stores themselves are in ``headgate.distributed.backends``: this process, a file of this machine, a Redis or Valkey.
"""

from __future__ import annotations

import warnings
from typing import Any

from .distributed.store import FormerStore, MemberView, QuotaView, Store, StoreDown
from .errors import ConfigError
from .plugins import STORES, PluginError, load_plugin

__all__ = ["MemberView", "QuotaView", "Store", "StoreDown", "open_store"]

_KNOWN = (
    "'memory', 'machine', 'ray', 'redis://host:port/db', 'rediss://...', "
    "'redis+sentinel://host:port,host:port/service/db' or 'redis+cluster://host:port'"
)


def open_store(where: str | Store, *, timeout: float | None = None) -> Store:
    """The store of that name, or the one that is given. Nothing is opened or connected before its first use.

    ``timeout``: seconds that an exchange may take at most; by default what suits a store of its kind.
    """
    if not isinstance(where, str):
        if callable(getattr(where, "sync", None)):
            return where
        if callable(getattr(where, "visit", None)):
            return FormerStore(where)
        raise ConfigError(f"store={type(where).__name__} must be {_KNOWN}, or a store")
    if where == "memory":
        from .distributed.backends.memory import MemoryStore

        return MemoryStore()
    if where == "machine":
        from .distributed.backends.sqlite import SqliteStore

        return SqliteStore() if timeout is None else SqliteStore(timeout=timeout)
    if where == "ray":
        from .distributed.backends.ray_actor import RayStore

        return RayStore() if timeout is None else RayStore(timeout=timeout)
    kind, mark, _ = where.partition("://")
    if mark and kind in ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"):
        from .distributed.backends.redis import RedisStore

        return RedisStore(where, timeout=timeout)
    try:
        plugin = load_plugin(STORES, kind)
    except PluginError as error:
        raise ConfigError(f"store: {error}") from None
    if plugin is not None:
        return open_store(plugin(where, timeout))
    said = kind[:32] if kind.replace("+", "").isalpha() else "..."  # anything else may be a password in the wrong place
    raise ConfigError(f"store={said + '://...' if mark else said!r} is unknown; expected {_KNOWN}")


def is_redis(where: str) -> bool:
    """Whether a store's name is the URL of a Redis or Valkey, which all machines can reach."""
    return where.startswith("redis") and "://" in where


def __getattr__(name: str) -> Any:
    if name != "DeskView":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.DeskView has been renamed: use QuotaView", DeprecationWarning, stacklevel=2)
    return QuotaView
