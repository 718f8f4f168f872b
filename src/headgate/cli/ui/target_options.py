"""Options that say where requests go and what they carry: ``--path``, ``--header``, ``--query`` and ``--dialect``.

A credential is never written on the command line, where other users can see it: ``--header 'X-Key: env:NAME'`` names
the environment variable that holds it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from ...batch.endpoints import DIALECTS
from ...batch.target import TargetConfig
from ...formatting import is_credential

F = TypeVar("F", bound=Callable[..., Any])
ENVIRONMENT = "env:"


def target_options(command: F) -> F:
    options = (
        click.option(
            "--path", "path", default="", metavar="PATH", help="For rows without a url, such as /v1/embeddings."
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
    return command


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


def read_headers(texts: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Headers by name, and the values that were read from the environment."""
    headers: dict[str, str] = {}
    hidden = []
    for text in texts:
        name, colon, value = (part.strip() for part in text.partition(":"))
        if not colon or not name or not value:
            raise click.UsageError("--header: expected 'NAME: VALUE', such as 'OpenAI-Organization: org-1'.")
        if value.startswith(ENVIRONMENT):
            variable = value.removeprefix(ENVIRONMENT)
            value = os.environ.get(variable, "").strip()
            if not value:
                raise click.UsageError(f"--header {name}: the environment variable {variable} is not set.")
            hidden.append(value)
        elif is_credential(name):
            raise click.UsageError(
                f"--header {name}: a credential is not written on the command line; name the environment variable that "
                f"holds it: '{name}: env:NAME'."
            )
        headers[name] = value
    return headers, tuple(hidden)


def read_query(texts: Iterable[str]) -> dict[str, str]:
    query: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError("--query: expected NAME=VALUE, such as api-version=2024-10-21.")
        query[name] = value
    return query
