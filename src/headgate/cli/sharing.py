"""``--store``: with whom a command shares its quotas, what it has learned of them, and how its credentials stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from headgate.config import RateLimitConfig
from headgate.core.bucket import LONG_WINDOW
from headgate.credentials import CredentialCoordinator, CredentialStore, FileStore
from headgate.limiter import AdaptiveRateLimiter
from headgate.limiter.snapshot import SharingSnapshot
from headgate.resilience.pairing import PairedStore
from headgate.stores import Store, open_store

from . import complain

NONE, MACHINE = "none", "machine"
VARIABLE = "HEADGATE_STORE"

F = TypeVar("F", bound=Callable[..., Any])


def store_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--store",
        "store",
        default=default,
        envvar=VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="machine|none|URL",
        help="With whom it shares limits and what it learns of them: machine, all your processes here that use the "
        "same API and key; redis://host:6379, all who use that server; none, nobody.",
    )


@dataclass(frozen=True, slots=True)
class Shared:
    """What ``--store`` stands for."""

    quotas: Store | None
    credentials: CredentialStore

    @classmethod
    def of(cls, where: str) -> Shared:
        """Raises ``ConfigError``, which does not repeat the address: there may be a password in it."""
        if where == NONE:
            return cls(None, FileStore())
        if where.startswith("redis") and "://" in where:
            from headgate.credentials.redis_store import RedisCredentialStore

            both = RedisCredentialStore(where)
            return cls(both, both)
        return cls(open_store(where), FileStore())

    def warn_if_forgotten(self, config: RateLimitConfig) -> None:
        """Without a store, what was spent of a long window is known to this process alone."""
        if self.quotas is None and any(quota.window >= LONG_WINDOW for quota in config.quotas()):
            complain(
                "--limits has a window of an hour or longer, and --store none keeps no count of it: the next run "
                "starts from zero. Use --store machine to count across runs."
            )

    def limiter(
        self, config: RateLimitConfig, whose: Callable[[str], CredentialCoordinator | None]
    ) -> AdaptiveRateLimiter:
        """``whose``: the credentials that calls under a key are made with."""
        store = None if self.quotas is None else PairedStore(self.quotas, whose)
        return AdaptiveRateLimiter(config, store=store)


def without_login(word: str) -> str:
    """What was typed, to be shown: an address without whatever stands before its host."""
    scheme, mark, rest = word.partition("://")
    _, at, rest = rest.rpartition("@")
    return f"{scheme}{mark}***@{rest}" if mark and at else word


def in_words(sharing: SharingSnapshot | None) -> str:
    """For a line of its own; empty where nothing is shared, and where nobody is there to share it with."""
    if sharing is None:
        return ""
    if sharing.is_lost:
        how = "as without a store; check --store" if sharing.members == 1 else "at this process's own share"
        return f"{sharing.where} cannot be reached: calls go on {how}"
    others = sharing.members - 1
    if not others:
        return ""
    return f"shared with {others} other process{'es' if others > 1 else ''} through {sharing.where}"


def as_fields(sharing: SharingSnapshot | None) -> dict[str, Any] | None:
    if sharing is None:
        return None
    return {
        "where": sharing.where,
        "processes": sharing.members,
        "lost": sharing.is_lost,
        "failures": sharing.failures,
    }
