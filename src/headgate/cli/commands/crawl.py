"""``headgate crawl URL... -o pages.jsonl``: a site's pages into a file, politely. Re-run to resume."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import click

from ...crawl.config import CrawlConfig
from ...crawl.crawler import Crawler
from ...crawl.frontier.schema import SUFFIX
from ...crawl.url import canonical, host_of, origin_of
from ...credentials import Credential, CredentialCoordinator
from ...engine.output_file import STDOUT
from ...engine.supervisor import STANDSTILL
from ...errors import ConfigError, LedgerError, OutputError
from ...formatting import redact
from ...observe.monitor import RunMonitor
from ...resilience.context import KEY_HEADER
from ...units import read_rate
from ..ui.config_file import config_option
from ..ui.display import Summary, open_display
from ..ui.observe_options import ObservedCommand, ObserveOptions, TraceRecorder, observe_options, observed
from ..ui.options import (
    DURATION,
    Notation,
    count_option,
    deadline_option,
    json_lines_option,
    quiet_option,
    trace_option,
    wait_option,
)
from ..ui.session import ignore_late_interrupts, run_async, run_to_end
from ..ui.shared_state import NONE, SharedState, coordinator_of, read_credentials, store_option
from ..ui.terminal import CannotStart
from .crawl_display import ProgressSampler, summarize, summarize_failure, write_failures

MOST_SEED_BYTES = 100_000_000
DEFAULTS = CrawlConfig()
_SIZE = re.compile(r"(?i)\s*(\d+(?:\.\d+)?)\s*(k|m|g)?i?b?\s*")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def read_size(text: str) -> int:
    """Bytes from ``500kB``, ``10MB`` or a bare number."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size; write 500kB or 10MB")
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])


def read_ceiling(text: str) -> float | None:
    """Calls a second; ``learn`` sets no ceiling."""
    return None if text.strip().lower() == "learn" else read_rate(text).per_second


@click.command(
    cls=ObservedCommand,
    examples=[
        ("headgate crawl https://docs.example.org/ -o pages.jsonl", "one whole host, one line per page"),
        ("headgate crawl example.org -o pages.jsonl --depth 2 --max-pages 500", "the first pages only"),
        (
            "headgate crawl https://example.org/ -o p.jsonl --subdomains --include '/guide/*' --exclude '*.pdf'",
            "a part of the site, subdomains included",
        ),
        (
            "headgate crawl --seeds urls.txt -o pages.jsonl.gz --hosts '*' --depth 0",
            "a list of URLs, without following links",
        ),
        ("headgate crawl https://example.org/ -o p.jsonl --warc p.warc.gz", "write a web archive too"),
        (
            "headgate crawl https://wiki.example.org/ -o p.jsonl --keys env:WIKI_TOKEN",
            "with a key, sent to this site only",
        ),
        ("headgate crawl https://example.org/ -o p.jsonl --web", "watch it in a browser"),
        ("headgate crawl http://localhost:8000/ -o - --allow-private | jq -r .title", "a local site, in a pipe"),
    ],
)
@click.argument("seeds", nargs=-1, metavar="URL...")
@click.option("--seeds", "seed_file", metavar="FILE", help='More start URLs, one per line; "-" is standard input.')
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help='Write pages here, one JSON line each; "-" is standard output. .gz and .zst are compressed.',
)
@click.option("--warc", metavar="FILE", help="Also write a web archive with every response.")
@count_option("--depth", "Follow links up to this many steps from a start URL.  [default: no limit]", 0)
@count_option("--max-pages", "Stop after this many pages.", 1)
@click.option(
    "--hosts",
    multiple=True,
    metavar="HOST",
    help="Hosts to crawl; '*' is all. Repeatable.  [default: those of the start URLs]",
)
@click.option("--subdomains", is_flag=True, help="Include their subdomains.")
@click.option(
    "--include", multiple=True, metavar="GLOB", help="Only URLs that match: '/guide/*' or re:REGEX. Repeatable."
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Skip URLs that match. Repeatable.")
@count_option(
    "--max-per-shape", "Maximum URLs of one host that differ only in numbers.", 1, default=DEFAULTS.max_per_shape
)
@count_option("--max-per-host", "Maximum URLs of one host.  [default: no limit]", 1)
@click.option(
    "--keys",
    "sources",
    multiple=True,
    metavar="[ORIGIN=]SOURCE",
    help="API keys from env:NAME, file:PATH or cmd:WORDS, sent to one origin only. If the start URLs have several "
    "origins, write https://host=SOURCE. Repeatable.",
)
@click.option(
    "--key-header", default=KEY_HEADER, show_default=True, metavar="HEADER", help="Header that carries the key."
)
@click.option(
    "--rate",
    type=Notation("N/TIME|learn", read_ceiling),
    default=f"{DEFAULTS.rate:g}/s",
    show_default=True,
    help="Maximum rate per host; learn: no maximum, only the learned rate.",
)
@click.option(
    "--delay",
    type=DURATION,
    default="0s",
    help="Minimum delay between two calls to one host; a longer crawl-delay wins.",
)
@count_option("--workers", "Maximum concurrent fetches.", 1, 10_000, default=256)
@click.option("--timeout", type=DURATION, default="30s", show_default=True, help="Timeout for one response.")
@click.option(
    "--max-size",
    type=Notation("SIZE", read_size),
    default="10MB",
    show_default=True,
    help="Maximum size of one response.",
)
@count_option("--max-attempts", "Maximum fetches per URL.", 1, 1000, default=3)
@click.option("--allow-private", is_flag=True, help="Crawl private and loopback addresses too.")
@click.option("--agent", default=DEFAULTS.agent, metavar="TEXT", help="User-Agent header: name and contact.")
@click.option(
    "--robots-agent",
    default=DEFAULTS.robots_agent,
    show_default=True,
    metavar="NAME",
    help="User agent whose rules in robots.txt apply.",
)
@click.option("--no-sitemaps", is_flag=True, help="Ignore sitemaps.")
@store_option(NONE)
@deadline_option
@wait_option
@config_option
@click.option("--failures", metavar="FILE", help="Write failed URLs and their reasons to this file at the end.")
@trace_option
@observe_options
@json_lines_option
@quiet_option
def command(seeds: tuple[str, ...], output: str, as_json: bool, quiet: bool, **given: Any) -> int:
    """Crawl a site and write the text, titles and links of its pages to OUT. Run the same command again to resume.

    The rate of each host is learned from its responses: 429, Retry-After and growing latency slow it down; a host that
    keeps failing is paused and retried later. robots.txt is always obeyed.

    Press Ctrl-C once to finish the fetches in flight and stop, twice to stop now. Nothing is lost, even in a crash:
    OUT.headgate holds the state, and each page is in OUT exactly once. Exit code 0: all done; 3: some URLs failed
    (--failures lists them); 4: stopped, re-run to resume.
    """
    check_files_differ(output, given)
    options = ObserveOptions.of(given)
    try:
        config = config_of(given)
        recorder = None if given["trace"] is None else TraceRecorder(given["trace"], workers=config.workers)
        seeds = (*seeds, *seeds_of(given["seed_file"]))
        shared = SharedState.open(given["store"])
        credentials = credentials_of(given["sources"], given["key_header"], seeds, shared)
        by_host = {host_of(origin): coordinator for origin, (coordinator, _) in credentials.items()}
        limiter = shared.limiter(config.pace(), by_host.get if by_host else None)
        with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
            has_no_file = output == STDOUT and given["warc"] is None
            crawler = Crawler(
                seeds,
                output=output,
                warc=given["warc"],
                frontier=os.path.join(folder, "frontier") if has_no_file else None,  # until the summary is made
                config=config,
                limiter=limiter,
                credentials=credentials,
                on_event=None if recorder is None else recorder.on_crawl_event,
            )
            try:
                with observed(options, lambda: RunMonitor(crawler=crawler), quiet=quiet) as run:
                    work = execute(crawler, output, given["failures"], recorder, as_json=as_json, quiet=quiet)
                    summary = run_async(work)
                    run.end(summary)
                return run.exit_code(summary.code)
            finally:
                limiter.close()
    except ConfigError as error:
        raise click.UsageError(redact(f"{error}.")) from None
    except (OutputError, LedgerError) as error:
        raise CannotStart(redact(f"{error}.")) from None


async def execute(
    crawler: Crawler, output: str, failures: str | None, recorder: TraceRecorder | None, *, as_json: bool, quiet: bool
) -> Summary:
    """Crawl to the end. Raises what kept it from starting."""
    display = open_display(as_json=as_json, quiet=quiet, stdout_is_taken=output == STDOUT)

    try:
        task = await run_to_end(crawler.run(), display, ProgressSampler(crawler).sample, crawler.stop)
    finally:
        if recorder is not None:
            recorder.close()
    try:
        task.result()
    except (LedgerError, OutputError) as error:
        if not crawler.report().fetches:
            raise
        summary = summarize_failure(crawler, error)
    else:
        if failures is not None:
            write_failures(crawler, failures)
        summary = summarize(crawler, output, failures)
    ignore_late_interrupts()
    display.end(summary)
    return summary


def check_files_differ(output: str, given: dict[str, Any]) -> None:
    """Two options with the same file would overwrite each other."""
    files = {"--output": output, "--warc": given["warc"], "--failures": given["failures"], "--trace": given["trace"]}
    files["--report"] = given["report"]
    files["--seeds"] = None if given["seed_file"] == "-" else given["seed_file"]
    taken: dict[str, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        place = path if path == STDOUT else os.path.realpath(os.path.expanduser(path))
        if (other := taken.get(place)) is not None:
            raise click.UsageError(f"{other} and {option} are the same file; each needs its own.")
        taken[place] = option
        if option in ("--output", "--warc"):
            taken.setdefault(place + SUFFIX, f"the frontier of {option}")


def config_of(given: dict[str, Any]) -> CrawlConfig:
    return CrawlConfig(
        hosts=tuple(host for one in given["hosts"] for host in one.split(",") if host),
        subdomains=given["subdomains"],
        include=given["include"],
        exclude=given["exclude"],
        max_depth=given["depth"],
        max_pages=given["max_pages"],
        max_per_host=given["max_per_host"],
        max_per_shape=given["max_per_shape"],
        sitemaps=not given["no_sitemaps"],
        agent=given["agent"],
        robots_agent=given["robots_agent"],
        rate=given["rate"],
        delay=given["delay"],
        workers=given["workers"],
        max_size=given["max_size"],
        timeout=given["timeout"],
        first_byte=min(DEFAULTS.first_byte, given["timeout"]),
        allow_private=given["allow_private"],
        max_attempts=given["max_attempts"],
        standstill=None if given["wait"] else STANDSTILL,
        deadline=given["deadline"],
    )


def seeds_of(path: str | None) -> list[str]:
    """One URL per line; empty lines and those that begin with # are skipped."""
    if path is None:
        return []
    try:
        if path == "-":
            lines = sys.stdin.readlines(MOST_SEED_BYTES)
        else:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
    except OSError as error:
        raise click.UsageError(f"--seeds: cannot read {path} ({error.strerror}).") from None
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def credentials_of(
    sources: Iterable[str], header: str, seeds: Iterable[str], shared: SharedState
) -> dict[str, tuple[CredentialCoordinator, str]]:
    """By origin. A source without one is for the origin of the start URLs, if they have only one."""
    found: defaultdict[str, list[Credential]] = defaultdict(list)
    for given in sources:
        has_origin = given.startswith(("http://", "https://"))
        origin, _, source = given.partition("=") if has_origin else (_only_origin(seeds), "", given)
        found[origin] += read_credentials([source])
    return {origin: (coordinator_of(keys, host_of(origin), shared), header) for origin, keys in found.items()}


def _only_origin(seeds: Iterable[str]) -> str:
    urls = (canonical(seed if "://" in seed else f"https://{seed}") for seed in seeds)
    origins = {origin_of(url) for url in urls if url is not None}
    if len(origins) != 1:
        raise click.UsageError(
            "--keys: the start URLs do not share one origin; name the origin of the keys: --keys https://host=env:NAME."
        )
    return origins.pop()
