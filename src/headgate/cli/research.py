"""``headgate research QUESTION``: ask several search APIs at once, and read one page.

Keys come from the environment, a file or a command, and are shown nowhere. How they stand (resting, used up) is kept
with ``headgate keys``, so that a key whose day is spent is not tried again by the next question.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import click

from headgate.credentials import Credential, CredentialCoordinator, FileStore, credentials_from
from headgate.errors import CircuitOpenError, ConfigError
from headgate.providers import PROVIDERS, GoogleProvider, SearchProvider, TavilyExtractProvider
from headgate.research import DeepResearch, ProviderReport, ResearchResult
from headgate.research.gathering import LONGEST_BUDGET, MOST_RESULTS
from headgate.resilience import ProviderResilienceConfig
from headgate.sim.notation import read_duration
from headgate.sim.providers import PROVIDER_APIS
from headgate.wire.redaction import redact
from headgate.wire.urls import host_key

from . import DONE, FAILED, CommandFailed, complain
from .examples import ExampleCommand
from .notation import Notation, WholeNumber
from .research_report import FORMS, Hide, progress_line, reasons, summary, written
from .running import run_async

ENGINE_VARIABLE = "GOOGLE_CSE_ID"
LONGEST_ATTEMPT = 15.0
"""Seconds for one answer; a slower one is asked for again, if there is time."""
SUFFIXES = {".json": "json", ".txt": "page"}
ALL = "all"


@click.command(
    cls=ExampleCommand,
    examples=[
        ('headgate research "adaptive rate limiting"', "whoever can be asked: those that need no key, and yours"),
        ('headgate research "adaptive rate limiting" --providers crossref,semantic_scholar', "papers, without any key"),
        ("export TAVILY_API_KEY=...  # one key or several, with commas between", "keys stay out of the command line"),
        ('headgate research "who was Agnes Pockels?" --providers tavily,crossref -o pockels.md', "a page in Markdown"),
        ("headgate research gates --providers tavily --keys tavily=file:keys.txt", "keys from a file, a line for each"),
        ("headgate research gates --format json | jq '.findings[].url'", "for programs"),
        ("headgate mock --provider all --port 8080", "practise without the network: serve the same APIs here, and ..."),
        ("headgate research gates --providers crossref --base-url all=http://127.0.0.1:8080", "... ask them"),
    ],
)
@click.argument("words", nargs=-1, required=True, metavar="QUESTION")
@click.option(
    "--providers",
    "chosen",
    metavar="NAME,...",
    help=f"Whom to ask: {', '.join(PROVIDERS)}. tavily_extract reads the pages the others find.  "
    "[default: those without a key, and those whose key is set]",
)
@click.option(
    "--max-results",
    type=WholeNumber(1, MOST_RESULTS),
    default=10,
    show_default=True,
    metavar="N",
    help="How many works to show, and to ask each provider for.",
)
@click.option(
    "--budget",
    type=Notation("TIME", read_duration),
    default="30s",
    show_default=True,
    help="What is not there by then is left out.",
)
@click.option(
    "--format", "form", type=click.Choice(FORMS), help="How to write it.  [default: page, or by the ending of --output]"
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
    help="Where a provider's keys are: env:VARIABLE, file:PATH or cmd:WORDS. Repeatable.  "
    "[default: its usual variable, such as TAVILY_API_KEY]",
)
@click.option(
    "--base-url",
    "addresses",
    multiple=True,
    metavar="NAME=URL",
    help='Ask this address instead of the real API; all=URL is a "headgate mock --provider all". Repeatable.',
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
    """Ask several search APIs at once, and read one page.

    All are asked side by side. What several of them found is shown once, and what most of them name early stands first.
    If one fails, the others go on, and the page says what it brought and why it stopped; the exit code is then 3.

    Keys are read from each provider's usual variable (TAVILY_API_KEY, PERPLEXITY_API_KEY, GOOGLE_API_KEY together with
    the engine's id in GOOGLE_CSE_ID) or from --keys. Semantic Scholar and Crossref need none.
    """
    if not 0 < budget <= LONGEST_BUDGET:
        raise click.UsageError(f"--budget must be longer than 0 s and at most {LONGEST_BUDGET:g} s.")
    if output is not None and not output.parent.is_dir():
        raise click.UsageError(f"--output: there is no folder {output.parent}.")
    form = form or (SUFFIXES.get(output.suffix.lower(), "markdown") if output else "page")
    told_addresses = pairs(addresses, "--base-url", "http://...", (*PROVIDERS, ALL))
    told_sources = pairs(sources, "--keys", "env:VARIABLE, file:PATH or cmd:WORDS", tuple(PROVIDERS))
    names = [name for name in PROVIDERS if is_ready(name, told_sources)] if chosen is None else names_of(chosen)
    keys = {name: keys_of(name, told_sources.get(name)) for name in names}
    hide = Hide(key.secret for found in keys.values() for key in found)
    try:
        providers = [build(name, keys[name], address_of(name, told_addresses), budget) for name in names]
        result = run_async(gather(providers, " ".join(words), max_results, budget))
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except CircuitOpenError as error:
        raise CommandFailed(hide(str(error))) from None
    text = written(result, form, hide, plain=output is not None)
    if output is None:
        click.echo(text)
    else:
        save(text, output)
        click.echo(f"{summary(result)} Written to {output}.")
        for name, why in reasons(result.metadata["providers"]):
            complain(hide(f"{name}: {why}"))
    return DONE if result.is_complete and result.findings else FAILED


# ---------------------------------------------------------------------- what was typed


def pairs(given: Iterable[str], option: str, like: str, names: tuple[str, ...]) -> dict[str, str]:
    """``NAME=VALUE`` each; a value is not repeated in an error, since it may be a key in the wrong place."""
    told: dict[str, str] = {}
    for number, one in enumerate(given, 1):
        name, equals, value = one.partition("=")
        if not equals or name not in names:
            raise click.UsageError(f"{option}, number {number}, is written NAME={like}; NAME is {', '.join(names)}.")
        told[name] = value
    return told


def names_of(chosen: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in chosen.split(",") if name.strip()))
    if unknown := [name for name in names if name not in PROVIDERS]:
        raise click.UsageError(f"--providers: {redact(unknown[0])!r} is unknown; there are {', '.join(PROVIDERS)}.")
    if not names:
        raise click.UsageError(f"--providers names nobody; there are {', '.join(PROVIDERS)}.")
    return names


def has_key(name: str, sources: dict[str, str]) -> bool:
    variable = PROVIDERS[name].key_variable
    return name in sources or bool(os.environ.get(variable) or os.environ.get(f"{variable}_1"))


def is_ready(name: str, sources: dict[str, str]) -> bool:
    """Whether it may be asked without being named; reading pages costs extra, and is for those who ask for it."""
    kind = PROVIDERS[name]
    has_engine = kind is not GoogleProvider or bool(os.environ.get(ENGINE_VARIABLE))
    return kind is not TavilyExtractProvider and has_engine and (has_key(name, sources) or not kind.needs_key)


def keys_of(name: str, source: str | None) -> list[Credential]:
    """From where the user says, else from the usual variable; none if that is not set."""
    if source is None and not has_key(name, {}):
        return []
    try:
        return credentials_from(source or f"env:{PROVIDERS[name].key_variable}", warn=complain)
    except ConfigError as error:
        raise click.UsageError(f"--keys {name}: {error}." if source else f"{error}.") from None


def address_of(name: str, told: dict[str, str]) -> str | None:
    if name in told or ALL not in told:
        return told.get(name)
    return f"{told[ALL].rstrip('/')}/{PROVIDER_APIS[name].site}"


# ---------------------------------------------------------------------- doing it


def build(name: str, keys: list[Credential], address: str | None, budget: float) -> SearchProvider:
    kind = PROVIDERS[name]
    if kind.needs_key and not keys:
        raise click.UsageError(
            f"{name} needs a key: put it into the environment variable {kind.key_variable}, or say where it is "
            f"with --keys {name}=file:PATH."
        )
    settings: dict[str, Any] = {"base_url": address, "timeout": min(LONGEST_ATTEMPT, budget)}
    if kind is GoogleProvider:
        settings["engine_id"] = os.environ.get(ENGINE_VARIABLE, "")
        if not settings["engine_id"]:
            raise click.UsageError(
                f"google needs to know which engine to ask: put its id (cx) into the environment variable "
                f"{ENGINE_VARIABLE}."
            )
    if keys:
        origin = name if address is None else host_key(address)  # a key that is refused there may be accepted elsewhere
        settings["credentials"] = CredentialCoordinator(keys, provider=origin, store=FileStore())
    return kind(resilience_config=ProviderResilienceConfig(time_budget=budget), **settings)


async def gather(providers: list[SearchProvider], question: str, max_results: int, budget: float) -> ResearchResult:
    """Gather, and show on a terminal how it goes."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    reports: dict[str, ProviderReport] = {}
    with console.status("asking ...") if console.is_terminal else nullcontext() as status:

        def show(report: ProviderReport) -> None:
            reports[report.provider] = report
            if status is not None:
                status.update(progress_line(reports.values()))

        research = DeepResearch(providers, time_budget=budget, on_progress=show)
        return await research.gather(question, max_results)


def save(text: str, path: Path) -> None:
    """All of it or nothing: an older file stays until the new one is whole."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise CommandFailed(f"cannot write {path} ({error.strerror}); choose another file with --output.") from None
