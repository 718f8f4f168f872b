"""The command class, the value types and the options that several commands share.

A command's help ends in examples; values are written in the short forms of ``units`` (``50/s``, ``40ms``); what cannot
be understood is answered with the right form, and never repeated where it could be a key in the wrong place.

Also here: where requests go and what they carry (``--to``, ``--keys``, ``--path``, ``--header``, ``--query``,
``--dialect``, ``--fallback``). A credential is never written on the command line, where other users can see it:
``--header 'X-Key: env:NAME'`` names the environment variable that holds it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ...batch.endpoints import DIALECTS, KNOWN_ENDPOINTS, TargetConfig, read_headers, read_query
from ...config import read_limits
from ...core.fallback import MoveReason
from ...core.shared_budget import GROUPINGS
from ...resilience.fallback import Fallback
from ...units import read_duration, read_whole_number
from .shared_state import SharedState, coordinator_of, is_key_set, read_credentials

if TYPE_CHECKING:
    from ...credentials import CredentialCoordinator


HIGHEST_PORT = 65_535
FILE_NAME = re.compile(r"\[?((IN|OUT)\b|(\w+\|)*(FILE|OUTPUT)\b).*")
"""Metavars of arguments and options that are names of files."""

F = TypeVar("F", bound=Callable[..., Any])


class ExampleCommand(click.Command):
    """A command whose help ends in examples: ``(what you type, what it does)``, in the order to try them."""

    def __init__(self, *args: Any, examples: list[tuple[str, str]], **kwargs: Any) -> None:
        kwargs.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **kwargs)
        self.examples = examples
        for parameter in self.params:
            if parameter.type is click.STRING and FILE_NAME.fullmatch(parameter.metavar or ""):
                parameter.type = FilePath()

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        context.allow_extra_args = True
        try:
            super().parse_args(context, args)
            if context.args and not context.resilient_parsing:  # not repeated: it may be a key in the wrong place
                count = len(context.args)
                raise click.UsageError(
                    f"{count} unexpected argument{'s'[: count - 1]}; quote values that contain spaces"
                )
            return context.args
        except click.UsageError as error:
            error.ctx = error.ctx or context  # click does not say whose option lacks its value
            raise

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for typed, does in self.examples:
                indent = " " * formatter.current_indent
                formatter.write(
                    fill(does, formatter.width, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
                )
                formatter.write(f"\n{indent}{typed}\n")
        super().format_options(context, formatter)


# ---------------------------------------------------------------------- value types


class FilePath(click.types.StringParamType):
    """Text that a shell completes to the name of a file."""

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def complete_from(names: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """``shell_complete`` of an option that takes one of these names, or something else."""
    return lambda context, parameter, incomplete: [name for name in names if name.startswith(incomplete)]


class Notation(click.ParamType):  # type: ignore[type-arg]
    """A value read by a function that raises ``ValueError`` with a sentence for a person."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), parameter, context)

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return FilePath().shell_complete(context, parameter, incomplete) if self.name == "FILE" else []


WHOLE = Notation("INTEGER", read_whole_number)
DURATION = Notation("TIME", read_duration)


class WholeNumber(click.IntRange):
    """A whole number within a range."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        return super().convert(WHOLE.convert(value, parameter, context), parameter, context)


class Number(click.FloatRange):
    """A number within a range. "nan" is rejected: it compares with nothing, so it would pass every bound."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not a number", parameter, context)
        return super().convert(number, parameter, context)


# ---------------------------------------------------------------------- options of several commands


def json_option(help: str) -> Callable[[F], F]:  # noqa: A002  # as click calls it
    return click.option("--json", "as_json", is_flag=True, help=help)


json_lines_option = json_option("Print progress and the summary as JSON lines.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only the last line.")
deadline_option = click.option("--deadline", type=DURATION, help="Stop after this long, such as 2h; re-run to resume.")
wait_option = click.option(
    "--wait",
    is_flag=True,
    help="Wait as long as it takes while nothing can be sent.  [default: stop if that is over 15 minutes]",
)
trace_option = click.option("--trace", metavar="FILE", help="Record every call for headgate simulate --trace.")
limits_option = click.option(
    "--limits",
    type=Notation("NAME=N/TIME,...", read_limits),
    help="Known limits of each key: requests=15/min,requests=1500/day,tokens=200000/min. All of them apply; the "
    "rest is learned.",
)
allow_host_option = click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Another host name, address or network to accept in the Host header. Repeatable.",
)


def host_option(token_variable: str) -> Callable[[F], F]:
    return click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        metavar="ADDRESS",
        help=f"The address to listen on. Any but a loopback address needs a token in {token_variable}.",
    )


def count_option(
    name: str,
    help: str,  # noqa: A002  # as click calls it
    lowest: int,
    highest: int | None = None,
    *,
    default: int | None = None,
) -> Callable[[F], F]:
    """``--name N``: a whole number from ``lowest`` to ``highest``."""
    return click.option(
        name,
        type=WholeNumber(lowest, highest),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=help,
    )


def port_option(default: int, help: str) -> Callable[[F], F]:  # noqa: A002  # as click calls it
    return click.option(
        "--port",
        type=WholeNumber(0, HIGHEST_PORT),
        default=default,
        show_default=default > 0,
        metavar="PORT",
        help=help,
    )


def groups_option(command: F) -> F:
    """Whether keys that turn out to share a limit are used as one group."""
    return click.option(
        "--groups",
        type=click.Choice(GROUPINGS),
        default=GROUPINGS[0],
        show_default=True,
        help="Keys that share one limit: headers joins those whose rate-limit headers show it, auto also those that "
        "are refused together, off none. Groups in a key file stay.",
    )(command)


def shared_store_options(command: F) -> F:
    """``--store`` and ``--key`` of the commands that show what is in a store."""
    store = click.option(
        "--store",
        metavar="machine|URL",
        help="Show a store instead: the runs that workers report there, and which processes share which quota. "
        "machine, or redis://host:6379.",
    )
    key = click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="NAME",
        help="With --store: a key to show by name; the store holds only hashes. Repeatable.",
    )
    return store(key(command))


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
            "variable: 'X-Gateway-Key: env:GATEWAY_KEY'. Repeatable.",
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
    to: TargetConfig, fallback: Fallback, shared: SharedState | None
) -> CredentialCoordinator | None:
    """The keys of a fallback; None if it uses those of ``--keys``, or needs none."""
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
