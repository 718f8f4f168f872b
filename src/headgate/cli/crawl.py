"""``headgate crawl URL... -o pages.jsonl``: a site's pages into a file, politely. Rerun it to go on."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from typing import Any

import click

from headgate.batch.formats import OutputError
from headgate.batch.formats.writing import STDOUT
from headgate.batch.ledger import LedgerError
from headgate.crawl.address import host_of
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler
from headgate.crawl.frontier_file import SUFFIX
from headgate.crawl.keys import FORM
from headgate.errors import ConfigError
from headgate.observe.watched import Watched
from headgate.sim.notation import read_duration, read_rate
from headgate.wire.redaction import redact

from . import USAGE, CommandFailed
from .crawl_going import go
from .crawl_keys import credentials_of
from .crawl_trace import CallRecorder
from .notation import Notation, WholeNumber
from .running import run_async
from .seeing import SeenCommand, Wishes, seeing_options, seen
from .sharing import NONE, Shared, store_option

DURATION = Notation("TIME", read_duration)
STANDSTILL = 15 * 60.0
"""Seconds without anything to start after which it is better to come back later."""
MOST_SEED_LINES = 1_000_000
_SIZE = re.compile(r"(?i)\s*(\d+(?:\.\d+)?)\s*(k|m|g)?i?b?\s*")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
DEFAULTS = CrawlConfig()


class CannotBegin(CommandFailed):
    """Nothing was asked of anybody: what was asked for cannot be begun."""

    exit_code = USAGE


def read_size(text: str) -> int:
    """Bytes from ``500kB``, ``10MB`` or a bare number."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a size; write 500kB or 10MB")
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])


def read_pace(text: str) -> float | None:
    """Calls a second; ``learn`` sets no ceiling."""
    return None if text.strip().lower() == "learn" else read_rate(text).per_second


@click.command(
    cls=SeenCommand,
    examples=[
        ("headgate crawl https://docs.example.org/ -o pages.jsonl", "the whole of one host, a line for each page"),
        ("headgate crawl example.org -o pages.jsonl --depth 2 --max-pages 500", "the first pages only"),
        (
            "headgate crawl https://example.org/ -o p.jsonl --subdomains --include '/guide/*' --exclude '*.pdf'",
            "some of its pages, on all of its hosts",
        ),
        ("headgate crawl --seeds urls.txt -o pages.jsonl.gz --hosts '*' --depth 0", "a list of addresses, and no more"),
        ("headgate crawl https://example.org/ -o p.jsonl --warc p.warc.gz", "a web archive beside the text"),
        (
            "headgate crawl https://wiki.example.org/ -o p.jsonl --keys env:WIKI_TOKEN",
            "with a key, which only it gets to see",
        ),
        ("headgate crawl https://example.org/ -o p.jsonl --web", "watch it in a browser"),
        ("headgate crawl http://localhost:8000/ -o - --allow-private | jq -r .title", "a site of your own, in a pipe"),
    ],
)
@click.argument("seeds", nargs=-1, metavar="URL...")
@click.option(
    "--seeds", "seed_file", metavar="FILE", help='More addresses to begin with, one on a line; "-" reads them.'
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help='Where pages go, a line of JSON for each; "-" for standard output. .gz and .zst are packed.',
)
@click.option("--warc", metavar="FILE", help="A web archive as well: every answer as it came.")
@click.option("--depth", type=WholeNumber(0), metavar="N", help="Links from a seed at most.  [default: no bound]")
@click.option("--max-pages", type=WholeNumber(1), metavar="N", help="Stop once so many pages are written.")
@click.option(
    "--hosts",
    multiple=True,
    metavar="HOST",
    help="Where it may go; '*' is everywhere. Repeatable.  [default: the seeds']",
)
@click.option("--subdomains", is_flag=True, help="Hosts below these as well.")
@click.option(
    "--include", multiple=True, metavar="GLOB", help="Only such addresses: '/guide/*' or re:REGEX. Repeatable."
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="None of these. Repeatable.")
@click.option(
    "--max-per-shape",
    type=WholeNumber(1),
    default=DEFAULTS.max_per_shape,
    show_default=True,
    metavar="N",
    help="Addresses of one host that differ only in numbers.",
)
@click.option("--max-per-host", type=WholeNumber(1), metavar="N", help="Addresses of one host.  [default: no bound]")
@click.option(
    "--keys",
    "sources",
    multiple=True,
    metavar="[ORIGIN=]SOURCE",
    help="Keys that go to one origin alone: env:NAME, file:PATH or cmd:WORDS; after https://host= where the seeds do "
    "not say whose they are. Repeatable.",
)
@click.option("--key-header", default=FORM, show_default=True, metavar="HEADER", help="Where the key goes.")
@click.option(
    "--rate",
    type=Notation("N/TIME|learn", read_pace),
    default=f"{DEFAULTS.rate:g}/s",
    show_default=True,
    help="Calls to one host at most, however many it would take; learn: as many as it takes.",
)
@click.option("--delay", type=DURATION, default="0s", help="Between two calls to one host; a longer crawl-delay wins.")
@click.option(
    "--workers",
    type=WholeNumber(1, 10_000),
    default=256,
    show_default=True,
    metavar="N",
    help="Fetches at once, in all.",
)
@click.option("--timeout", type=DURATION, default="30s", show_default=True, help="How long one answer may take.")
@click.option("--max-size", type=Notation("SIZE", read_size), default="10MB", show_default=True, help="Of one answer.")
@click.option(
    "--max-attempts",
    type=WholeNumber(1, 1000),
    default=3,
    show_default=True,
    metavar="N",
    help="Fetches of one address.",
)
@click.option("--allow-private", is_flag=True, help="Go to private and loopback addresses too.")
@click.option(
    "--agent", default=DEFAULTS.agent, metavar="TEXT", help="The User-Agent: who asks, and where to complain."
)
@click.option(
    "--robots-agent",
    default=DEFAULTS.robots_agent,
    show_default=True,
    metavar="NAME",
    help="Whose rules count in robots.txt.",
)
@click.option("--no-sitemaps", is_flag=True, help="Leave out what only sitemaps name.")
@store_option(NONE)
@click.option("--deadline", type=DURATION, help="Stop after this long, such as 2h; run again to go on.")
@click.option("--wait", is_flag=True, help="Stay, however long nothing can start.  [default: leave after 15 minutes]")
@click.option("--failures", metavar="FILE", help="Where to write, at the end, which addresses failed and why.")
@click.option("--trace", metavar="FILE", help="Record every call for headgate simulate --trace.")
@seeing_options
@click.option("--json", "as_json", is_flag=True, help="Tell of the progress and the end in JSON lines.")
@click.option("-q", "--quiet", is_flag=True, help="Say only the last line.")
def command(seeds: tuple[str, ...], output: str, as_json: bool, quiet: bool, **given: Any) -> int:
    """Visit a site's pages and write their text, titles and links to OUT. The same command again goes on.

    How fast a host may be asked is learned from its answers: it is slowed down by 429, by Retry-After and by answers
    that take ever longer, and a host that fails is left alone and tried again later. robots.txt is always obeyed.

    Ctrl-C once starts nothing more and finishes what is under way; twice stops at once. Nothing is lost either way, nor
    by a crash: OUT.headgate has it, and every page is in OUT exactly once. Exit code 0: all done; 3: some addresses
    failed (--failures says why); 4: stopped, run it again.
    """
    check_apart(output, given)
    wishes = Wishes.of(given)
    try:
        config = config_of(given)
        recorder = None if given["trace"] is None else CallRecorder(given["trace"], config.workers)
        seeds = (*seeds, *seeds_of(given["seed_file"]))
        shared = Shared.of(given["store"])
        credentials = credentials_of(given["sources"], given["key_header"], seeds, shared.credentials)
        by_host = {host_of(origin): coordinator for origin, (coordinator, _) in credentials.items()}
        limiter = shared.limiter(config.pace(), by_host.get)
        with tempfile.TemporaryDirectory(prefix="headgate-") as folder:
            in_pipe = output == STDOUT and given["warc"] is None
            crawler = Crawler(
                seeds,
                output=output,
                warc=given["warc"],
                frontier=os.path.join(folder, "frontier") if in_pipe else None,  # until it is told what failed
                config=config,
                limiter=limiter,
                credentials=credentials,
                on_event=None if recorder is None else recorder.hear,
            )
            try:
                with seen(wishes, lambda: Watched(crawler=crawler), quiet=quiet) as told:
                    ending = run_async(go(crawler, output, given["failures"], recorder, as_json=as_json, quiet=quiet))
                    told.tell(ending.code, ending.about)
                return told.code(ending.code)
            finally:
                limiter.close()
    except ConfigError as error:
        raise click.UsageError(redact(f"{error}.")) from None
    except (OutputError, LedgerError) as error:
        raise CannotBegin(redact(f"{error}.")) from None


def check_apart(output: str, given: dict[str, Any]) -> None:
    """Two options that name one file would cost what the first of them has written."""
    named = {"--output": output, "--warc": given["warc"], "--failures": given["failures"], "--trace": given["trace"]}
    named["--report"] = given["report"]
    named["--seeds"] = None if given["seed_file"] == "-" else given["seed_file"]
    taken: dict[str, str] = {}
    for option, path in named.items():
        if path is None:
            continue
        place = path if path == STDOUT else os.path.realpath(os.path.expanduser(path))
        if (other := taken.get(place)) is not None:
            raise click.UsageError(f"{other} and {option} are the same file; each needs one of its own.")
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
    """One on each line; empty ones and those that begin with # do not count."""
    if path is None:
        return []
    try:
        if path == "-":
            lines = sys.stdin.readlines(MOST_SEED_LINES * 100)
        else:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
    except OSError as error:
        raise click.UsageError(f"--seeds: {path} cannot be read ({error.strerror}).") from None
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
