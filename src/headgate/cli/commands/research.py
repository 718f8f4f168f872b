"""``headgate research QUESTION``: query several search APIs at once, merged into one page.

Keys come from the environment, a file or a command, and are never shown. Their state (resting, used up) is kept with
``headgate keys``, so that a key whose daily quota is spent is not tried again by the next question.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from ...credentials import Credential, CredentialCoordinator, FileStore
from ...errors import CircuitOpenError, ConfigError
from ...formatting import nearest_name, redact
from ...mock.providers import PROVIDER_APIS
from ...providers import PROVIDERS, GoogleProvider, SearchProvider, TavilyExtractProvider
from ...research import DeepResearch, ProviderReport, ResearchResult
from ...research.deep_research import LONGEST_BUDGET, MOST_RESULTS
from ...resilience import ProviderResilienceConfig
from ...wire.urls import host_key
from ..ui.options import DURATION, ExampleCommand, count_option
from ..ui.session import run_async
from ..ui.shared_state import is_key_set, read_credentials
from ..ui.terminal import DONE, FAILED, CommandFailed, SecretFilter, complain
from .research_display import FORMS, progress_line, reasons, render, summary

ENGINE_VARIABLE = "GOOGLE_CSE_ID"
LONGEST_ATTEMPT = 15.0
"""Seconds for one answer; a slower one is retried, if there is time."""
SUFFIXES = {".json": "json", ".txt": "page"}
ALL = "all"


@click.command(
    cls=ExampleCommand,
    examples=[
        ('headgate research "adaptive rate limiting"', "all providers that need no key, and those whose key is set"),
        ('headgate research "adaptive rate limiting" --providers crossref,semantic_scholar', "papers, without any key"),
        ("export TAVILY_API_KEY=...  # one key, or several separated by commas", "keys stay out of the command line"),
        ('headgate research "who was Agnes Pockels?" --providers tavily,crossref -o pockels.md', "a page in Markdown"),
        ("headgate research gates --providers tavily --keys tavily=file:keys.txt", "keys from a file, one per line"),
        ("headgate research gates --format json | jq '.findings[].url'", "for programs"),
        ("headgate mock --provider all --port 8080", "try it without the network: mock the same APIs, and ..."),
        ("headgate research gates --providers crossref --base-url all=http://127.0.0.1:8080", "... query them"),
    ],
)
@click.argument("words", nargs=-1, required=True, metavar="QUESTION")
@click.option(
    "--providers",
    "chosen",
    metavar="NAME,...",
    help=f"The providers: {', '.join(PROVIDERS)}. tavily_extract reads the pages the others find.  "
    "[default: those that need no key, and those whose key is set]",
)
@count_option(
    "--max-results", "Maximum results to show, and to request from each provider.", 1, MOST_RESULTS, default=10
)
@click.option(
    "--budget",
    type=DURATION,
    default="30s",
    show_default=True,
    help="Time limit; later results are left out.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="The output format.  [default: page, or by the ending of --output]",
)
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it here: Markdown, JSON if the name ends in .json, a page if it ends in .txt.",
)
@click.option(
    "--keys",
    "sources",
    multiple=True,
    metavar="NAME=SOURCE",
    help="A provider's keys: env:VARIABLE, file:PATH or cmd:WORDS. Repeatable.  "
    "[default: its usual variable, such as TAVILY_API_KEY]",
)
@click.option(
    "--base-url",
    "addresses",
    multiple=True,
    metavar="NAME=URL",
    help='Use this address instead of the real API; all=URL is a "headgate mock --provider all". Repeatable.',
)
def command(
    words: tuple[str, ...],
    chosen: str | None,
    max_results: int,
    budget: float,
    form: str | None,
    output: Path | None,
    sources: tuple[str, ...],
    addresses: tuple[str, ...],
) -> int:
    """Query several search APIs at once, merged into one page.

    Duplicates are merged, and results that most providers rank high come first. If one provider fails, the others
    continue, and the page says what it returned and why it stopped; the exit code is then 3.

    Keys are read from each provider's usual variable (TAVILY_API_KEY, PERPLEXITY_API_KEY, GOOGLE_API_KEY together with
    the engine's id in GOOGLE_CSE_ID) or from --keys. Semantic Scholar and Crossref need none.
    """
    if not 0 < budget <= LONGEST_BUDGET:
        raise click.UsageError(f"--budget must be above 0 s and at most {LONGEST_BUDGET:g} s.")
    if output is not None and not output.parent.is_dir():
        raise click.UsageError(f"--output: folder {output.parent} does not exist.")
    form = form or (SUFFIXES.get(output.suffix.lower(), "markdown") if output else "page")
    base_urls = pairs(addresses, "--base-url", "http://...", (*PROVIDERS, ALL))
    sources_of = pairs(sources, "--keys", "env:VARIABLE, file:PATH or cmd:WORDS", tuple(PROVIDERS))
    names = [name for name in PROVIDERS if is_ready(name, sources_of)] if chosen is None else names_of(chosen)
    keys = {name: keys_of(name, sources_of.get(name)) for name in names}
    hide = SecretFilter(key.secret for found in keys.values() for key in found)
    try:
        providers = [build(name, keys[name], address_of(name, base_urls), budget) for name in names]
        result = run_async(gather(providers, " ".join(words), max_results, budget))
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except CircuitOpenError as error:
        raise CommandFailed(hide(str(error))) from None
    text = render(result, form, hide, plain=output is not None)
    if output is None:
        click.echo(text)
    else:
        save(text, output)
        click.echo(f"{summary(result)} Written to {output}.")
        for name, why in reasons(result.metadata["providers"]):
            complain(hide(f"{name}: {why}"))
    return DONE if result.is_complete and result.findings else FAILED


# ---------------------------------------------------------------------- the command line


def pairs(given: Iterable[str], option: str, like: str, names: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE`` each; a value is not repeated in an error, since it may be a key in the wrong place."""
    told: dict[str, str] = {}
    for number, one in enumerate(given, 1):
        name, equals, value = one.partition("=")
        if not equals or name not in names:
            raise click.UsageError(f"{option}, number {number}: expected NAME={like}; NAME is {', '.join(names)}.")
        told[name] = value
    return told


def names_of(chosen: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in chosen.split(",") if name.strip()))
    if unknown := [name for name in names if name not in PROVIDERS]:
        near = nearest_name(unknown[0], PROVIDERS)
        hint = f'did you mean "{near}"?' if near else f"the providers are {', '.join(PROVIDERS)}."
        raise click.UsageError(f"--providers: unknown provider {redact(unknown[0])!r}; {hint}")
    if not names:
        raise click.UsageError(f"--providers is empty; the providers are {', '.join(PROVIDERS)}.")
    return names


def is_ready(name: str, sources: dict[str, str]) -> bool:
    """Whether it is used without being named; reading pages costs extra, so it must be."""
    kind = PROVIDERS[name]
    has_engine = kind is not GoogleProvider or bool(os.environ.get(ENGINE_VARIABLE))
    has_key = not kind.needs_key or name in sources or is_key_set(kind.key_variable)
    return kind is not TavilyExtractProvider and has_engine and has_key


def keys_of(name: str, source: str | None) -> list[Credential]:
    """The keys of ``--keys``, else of the usual variable; none if that is not set."""
    if source is not None:
        return read_credentials([source], f"--keys {name}")
    variable = PROVIDERS[name].key_variable
    return read_credentials([f"env:{variable}"], variable) if is_key_set(variable) else []


def address_of(name: str, told: dict[str, str]) -> str | None:
    if name in told or ALL not in told:
        return told.get(name)
    return f"{told[ALL].rstrip('/')}/{PROVIDER_APIS[name].site}"


# ---------------------------------------------------------------------- the search


def build(name: str, keys: list[Credential], address: str | None, budget: float) -> SearchProvider:
    kind = PROVIDERS[name]
    if kind.needs_key and not keys:
        raise click.UsageError(
            f"{name} needs a key: set the environment variable {kind.key_variable}, or pass --keys {name}=file:PATH."
        )
    settings: dict[str, Any] = {"base_url": address, "timeout": min(LONGEST_ATTEMPT, budget)}
    if kind is GoogleProvider:
        settings["engine_id"] = os.environ.get(ENGINE_VARIABLE, "")
        if not settings["engine_id"]:
            raise click.UsageError(
                f"google needs the id (cx) of a search engine: set the environment variable {ENGINE_VARIABLE}."
            )
    if keys:
        origin = name if address is None else host_key(address)  # a key that is refused there may be accepted elsewhere
        settings["credentials"] = CredentialCoordinator(keys, provider=origin, store=FileStore())
    return kind(resilience_config=ProviderResilienceConfig(time_budget=budget), **settings)


async def gather(providers: list[SearchProvider], question: str, max_results: int, budget: float) -> ResearchResult:
    """Gather, with progress on a terminal."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    reports: dict[str, ProviderReport] = {}
    with console.status("searching ...") if console.is_terminal else nullcontext() as status:

        def show(report: ProviderReport) -> None:
            reports[report.provider] = report
            if status is not None:
                status.update(progress_line(reports.values()))

        research = DeepResearch(providers, time_budget=budget, on_progress=show)
        return await research.gather(question, max_results)


def save(text: str, path: Path) -> None:
    """Write all of it or nothing: an older file stays until the new one is complete."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise CommandFailed(f"cannot write {path} ({error.strerror}); choose another file with --output.") from None
