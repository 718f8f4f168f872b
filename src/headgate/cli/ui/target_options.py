"""Options that say where requests go and what they carry: ``--to``, ``--keys``, ``--path``, ``--header``, ``--query``,
``--dialect`` and ``--fallback``.

A credential is never written on the command line, where other users can see it: ``--header 'X-Key: env:NAME'`` names
the environment variable that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...batch.endpoints import DIALECTS, KNOWN_ENDPOINTS
from ...batch.target_config import TargetConfig, read_headers, read_query
from ...config import RateLimitConfig
from ...core.fallback import MoveReason
from ...resilience.fallback import Fallback
from .options import complete_from
from .shared_state import SharedState, coordinator_of, is_key_set, read_credentials

if TYPE_CHECKING:
    from ...credentials import CredentialCoordinator

F = TypeVar("F", bound=Callable[..., Any])


def target_options(command: F) -> F:
    options = (
        click.option(
            "--to",
            required=True,
            metavar="URL|NAME",
            shell_complete=complete_from(KNOWN_ENDPOINTS),
            help=f"A base URL such as http://localhost:8000/v1, or one of {', '.join(KNOWN_ENDPOINTS)}.",
        ),
        click.option(
            "--path", "path", default="", metavar="PATH", help="For rows without a url, such as /v1/embeddings."
        ),
        click.option(
            "--keys",
            "sources",
            multiple=True,
            metavar="SOURCE",
            help="API keys: env:NAME, file:PATH or cmd:WORDS. Repeatable.  "
            "[default: the vendor's environment variable]",
        ),
        click.option(
            "--header",
            "headers",
            multiple=True,
            metavar="'NAME: VALUE'",
            help="Sent with every request to --to, and to no other host. A credential is taken from an environment "
            "variable: 'api-key: env:AZURE_KEY'. Repeatable.",
        ),
        click.option(
            "--query",
            "query",
            multiple=True,
            metavar="NAME=VALUE",
            help="Added to every URL, such as api-version=2024-10-21 for Azure. Repeatable.",
        ),
        click.option(
            "--dialect",
            type=click.Choice(tuple(DIALECTS)),
            help="The API that a base URL in --to has: its usual path, and the header of its key.  [default: openai]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return fallback_option(command)


fallback_option = click.option(
    "--fallback",
    "fallback",
    multiple=True,
    metavar="MODEL|NAME=VALUE,...",
    help="Where requests go that --to cannot take: another model (gpt-4o-mini), or "
    "to=groq,model=llama-3.3-70b-versatile, with keys=env:NAME and on=REASON+REASON. Tried in the order given; --to is "
    "used again as soon as it can. "
    f"Reasons: {', '.join(MoveReason)}; refused_content only where it is named. Repeatable.",
)


def fallback_credentials(
    to: TargetConfig, fallbacks: Sequence[Fallback], shared: SharedState | None
) -> list[CredentialCoordinator | None]:
    """The keys of each fallback; None for one that uses those of ``--keys``, or needs none."""
    return [_credentials_of(to, one, shared) for one in fallbacks]


def _credentials_of(to: TargetConfig, fallback: Fallback, shared: SharedState | None) -> CredentialCoordinator | None:
    endpoint = to.for_fallback(fallback).endpoint
    sources = fallback.sources
    if not sources:
        if endpoint.base_url == to.endpoint.base_url or not endpoint.key_variable:
            return None
        if not is_key_set(endpoint.key_variable):
            raise click.UsageError(
                f"--fallback: {endpoint.name} needs a key: set the environment variable {endpoint.key_variable}, or "
                "add keys=env:NAME."
            )
        sources = (f"env:{endpoint.key_variable}",)
    return coordinator_of(read_credentials(sources, "--fallback"), endpoint.name, shared)


def unlimited_elsewhere(to: TargetConfig, fallbacks: Sequence[Fallback], config: RateLimitConfig) -> RateLimitConfig:
    """``--limits`` are those of ``--to``: what other vendors allow is learned."""
    names = {to.for_fallback(one).endpoint.name for one in fallbacks} - {to.endpoint.name}
    learned = replace(config, limits={})
    return replace(config, overrides={key: learned for name in names for key in (name, f"{name}/*")})


def target_of(given: dict[str, Any]) -> TargetConfig:
    """The target of a command. Raises ``UsageError`` and ``ConfigError``."""
    headers, hidden = read_headers(given["headers"])
    return TargetConfig(
        to=given["to"],
        path=given["path"],
        timeout=given["timeout"],
        headers=headers,
        hidden=hidden,
        query=read_query(given["query"]),
        dialect=given["dialect"] or "",
    )
