"""The store of credentials that a word stands for."""

from __future__ import annotations

from ..clock import Clock
from ..errors import ConfigError
from .record import CredentialStore

_KNOWN = "'machine', 'redis://host:port/db' or one of its relatives, or an object such as FileStore(path)"


def open_credential_store(where: str | CredentialStore, clock: Clock | None = None) -> CredentialStore:
    """The one that is named, or the one that is given. Nothing is opened or connected before it is used.

    ``clock``: the one by which records are written.
    """
    if not isinstance(where, str):
        if not all(callable(getattr(where, name, None)) for name in ("load", "save", "stamp")):
            raise ConfigError(f"store={type(where).__name__} must be {_KNOWN}")
        return where
    if where == "machine":
        from .store import FileStore

        return FileStore()
    if where.startswith(("redis://", "rediss://", "redis+", "rediss+")):
        from .redis_store import RedisCredentialStore

        return RedisCredentialStore(where, clock=clock)
    raise ConfigError(f"store: it is no store of credentials; it must be {_KNOWN}")  # not repeated: it may be a secret
