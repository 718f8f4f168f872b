"""``--store`` and ``--keys``: the state that processes share (quotas, what is learned, credentials) and its sources."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...config import RateLimitConfig
from ...core.quota import LONG_WINDOW
from ...errors import ConfigError
from ...limiter import AdaptiveRateLimiter
from ...limiter.snapshot import SharingSnapshot
from ...stores import Store, is_redis, open_store
from .terminal import CommandFailed, complain

if TYPE_CHECKING:
    from ...credentials import Credential, CredentialCoordinator, CredentialStore

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
        help="Which processes share limits and learned rates: machine (your processes on this machine), "
        "redis://host:6379 (all processes that use that server) or none (this process alone).",
    )


@dataclass(frozen=True, slots=True)
class SharedState:
    """The stores that ``--store`` names. What credentials need is loaded only where there are some."""

    quotas: Store | None
    server: CredentialStore | None = None
    """Where credentials are shared over machines; else they are shared in files."""

    @classmethod
    def open(cls, where: str) -> SharedState:
        """Raises ``ConfigError``, which does not repeat the address: there may be a password in it."""
        if where == NONE:
            return cls(None)
        if is_redis(where):
            from ...credentials.redis_store import RedisCredentialStore

            both = RedisCredentialStore(where)
            return cls(_closed_after_command(both), both)
        return cls(_closed_after_command(open_store(where)))

    def credentials(self) -> CredentialStore:
        from ...credentials import FileStore

        return FileStore() if self.server is None else self.server

    def warn_if_uncounted(self, config: RateLimitConfig) -> None:
        """Without a store, only this process knows what was spent of a long window."""
        if self.quotas is None and any(quota.window >= LONG_WINDOW for quota in config.quotas()):
            complain(
                "--limits has a window of an hour or longer, but --store none does not count across runs: the "
                "next one starts from zero. Use --store machine to count across runs."
            )

    def quotas_of(self, credentials_of: Callable[[str], CredentialCoordinator | None] | None) -> Store | None:
        """The store for a limiter; ``credentials_of``: those that calls under a key are made with, if any."""
        if self.quotas is None or credentials_of is None:
            return self.quotas
        from ...resilience.credential_scope import PairedStore

        return PairedStore(self.quotas, credentials_of)

    def limiter(
        self, config: RateLimitConfig, credentials_of: Callable[[str], CredentialCoordinator | None] | None
    ) -> AdaptiveRateLimiter:
        return AdaptiveRateLimiter(config, store=self.quotas_of(credentials_of))


S = TypeVar("S", bound=Store)


def _closed_after_command(store: S) -> S:
    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(store.close)
    return store


def hide_login(argument: str) -> str:
    """An argument as it may be shown: a URL without the user and password before its host."""
    scheme, mark, rest = argument.partition("://")
    _, at, rest = rest.rpartition("@")
    return f"{scheme}{mark}***@{rest}" if mark and at else argument


def sharing_fields(sharing: SharingSnapshot | None) -> dict[str, Any] | None:
    if sharing is None:
        return None
    return {
        "where": sharing.where,
        "processes": sharing.members,
        "lost": sharing.is_lost,
        "failures": sharing.failures,
    }


# ---------------------------------------------------------------------- credentials


def is_key_set(variable: str) -> bool:
    """Whether this environment variable, or the first of its numbered ones, holds a key."""
    return bool(variable and (os.environ.get(variable) or os.environ.get(f"{variable}_1")))


def read_credentials(sources: Iterable[str], option: str = "--keys") -> list[Credential]:
    """The keys of all sources (``env:NAME``, ``file:PATH``, ``cmd:WORDS``)."""
    from ...credentials import credentials_from

    try:
        return [one for source in sources for one in credentials_from(source, warn=complain)]
    except ConfigError as error:
        raise click.UsageError(f"{option}: {error}.") from None


def coordinator_of(
    credentials: Iterable[Credential], provider: str, shared: SharedState | None, groups: str = "headers"
) -> CredentialCoordinator:
    from ...credentials import CredentialCoordinator, StoreError

    store = None if shared is None else shared.credentials()
    try:
        return CredentialCoordinator(credentials, provider=provider, store=store, groups=groups)
    except ConfigError as error:
        raise click.UsageError(f"--keys: {error}.") from None
    except StoreError as error:
        raise CommandFailed(f"{error}; set HEADGATE_STATE to another folder.") from None


def vendor_coordinator(
    provider: str,
    key_variable: str,
    sources: tuple[str, ...],
    shared: SharedState | None = None,
    groups: str = "headers",
) -> CredentialCoordinator | None:
    """The keys of ``--keys``, else those of the vendor's usual variable; a URL without either needs none."""
    if not sources and key_variable:
        if not is_key_set(key_variable):
            raise click.UsageError(
                f"{provider} needs a key: set the environment variable {key_variable}, or pass --keys file:PATH."
            )
        sources = (f"env:{key_variable}",)
    return coordinator_of(read_credentials(sources), provider, shared, groups) if sources else None
