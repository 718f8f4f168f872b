"""``--keys [ORIGIN=]SOURCE``: where a crawl has its credentials from, and whom they are for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import click

from headgate.crawl.address import canonical, host_of, origin_of
from headgate.credentials import (
    Credential,
    CredentialCoordinator,
    CredentialStore,
    StoreError,
    credentials_from,
)
from headgate.errors import ConfigError

from . import CommandFailed, complain


def credentials_of(
    sources: Iterable[str], header: str, seeds: Iterable[str], store: CredentialStore
) -> dict[str, tuple[CredentialCoordinator, str]]:
    """By origin. A source that names none is for the origin of the seeds, if they have one between them."""
    found: defaultdict[str, list[Credential]] = defaultdict(list)
    try:
        for given in sources:
            is_named = given.startswith(("http://", "https://"))
            origin, _, source = given.partition("=") if is_named else (_only_origin(seeds), "", given)
            found[origin] += credentials_from(source, warn=complain)
        return {
            origin: (CredentialCoordinator(keys, provider=host_of(origin), store=store), header)
            for origin, keys in found.items()
        }
    except ConfigError as error:
        raise click.UsageError(f"--keys: {error}.") from None
    except StoreError as error:
        raise CommandFailed(f"{error}; HEADGATE_STATE names another folder.") from None


def _only_origin(seeds: Iterable[str]) -> str:
    urls = (canonical(seed if "://" in seed else f"https://{seed}") for seed in seeds)
    origins = {origin_of(url) for url in urls if url is not None}
    if len(origins) != 1:
        raise click.UsageError(
            "--keys: the addresses to begin with are of several origins; say whose keys these are: "
            "--keys https://host=env:NAME."
        )
    return origins.pop()
