"""What a worker shares with all others that use the same store: its limiter and its keys."""

from __future__ import annotations

from typing import Any

from ..credentials import CredentialCoordinator, FileStore
from ..credentials.redis_store import RedisCredentialStore
from ..limiter import AdaptiveRateLimiter
from ..resilience.credential_scope import PairedStore
from ..stores import open_store
from .settings import NO_STORE, RowSettings, is_redis


def open_shared(settings: RowSettings, provider: str) -> tuple[AdaptiveRateLimiter, CredentialCoordinator | None]:
    """The limiter and the keys, shared with all workers that use the same store."""
    keys, store = settings.credentials(), settings.store
    quotas: Any = None
    records: Any = None
    if is_redis(store):
        quotas = records = RedisCredentialStore(store)
    elif store != NO_STORE:
        quotas = open_store(store)
    if not keys:
        return AdaptiveRateLimiter(settings.limit_config(), store=quotas), None
    credentials = CredentialCoordinator(keys, provider=provider, store=records or FileStore())
    paired = None if quotas is None else PairedStore(quotas, lambda _: credentials)
    return AdaptiveRateLimiter(settings.limit_config(), store=paired), credentials
