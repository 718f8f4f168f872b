"""``headgate run IN -o OUT``: a file of requests through an API, and its answers into a file. Rerun it to go on."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from typing import Any

import click

from headgate.batch.addresses import KNOWN, address_of
from headgate.batch.formats import InputError, OutputError, Rows, Template
from headgate.batch.formats.detecting import FORMATS
from headgate.batch.formats.writing import STDOUT
from headgate.batch.job import Job
from headgate.batch.ledger import LedgerError
from headgate.batch.ledger_from_output import has_rows, ledger_from_output
from headgate.batch.runner import AUTO_WORKERS
from headgate.batch.sqlite_file import SUFFIX
from headgate.batch.target import TargetConfig
from headgate.errors import ConfigError
from headgate.observe.watched import Watched
from headgate.sim.notation import read_duration
from headgate.wire.redaction import redact

from . import DONE, USAGE, CommandFailed, say
from .notation import Notation, Number, WholeNumber
from .run_going import go
from .run_plan import plan_line, plan_of, plan_page
from .run_progress import Looker
from .run_settings import HOPELESS, keys_of, prices_of, read_config, read_limits, read_workers, settings_of
from .run_trace import Recorder
from .running import run_async
from .seeing import SeenCommand, Wishes, seeing_options, seen
from .sharing import MACHINE, Shared, store_option, without_login

DURATION = Notation("TIME", read_duration)


class CannotBegin(CommandFailed):
    """Nothing was sent: what was asked for cannot be begun."""

    exit_code = USAGE


@click.command(
    cls=SeenCommand,
    examples=[
        ("headgate run rows.jsonl -o answers.jsonl --to openai", "a file made for OpenAI's batch API, as it is"),
        ("headgate run rows.jsonl -o answers.jsonl --to openai --plan", "rows, tokens, cost, time; nothing is sent"),
        (
            "headgate run people.csv -o out.jsonl --template ask.json --to anthropic",
            'ask.json: {"model": ..., "max_tokens": 100, "messages": [{"role": "user", "content": "Greet {name}"}]}',
        ),
        (
            "headgate run rows.jsonl.gz -o out.jsonl.zst --to http://localhost:8000/v1 --keys file:keys.txt",
            "packed files, an address of your own, several keys",
        ),
        (
            "headgate run rows.jsonl -o out.jsonl --to openai --max-cost 20 --price 'gpt-4o-mini*=0.15/0.60'",
            "start nothing that could cost more than 20; prices are per million tokens, in and out",
        ),
        ("cat rows.jsonl | headgate run - -o - --to openai --ledger rows.ledger | jq .response.body", "in a pipe"),
        (
            "headgate run rows.jsonl -o out.jsonl --to openai --store redis://cache:6379",
            "on several machines at once: one quota for all of them",
        ),
        (
            "headgate run rows.jsonl -o out.jsonl --to openai --web --report run.html",
            "watch it in a browser; pictures and numbers in one file at the end",
        ),
        ("headgate mock --provider openai --rate 500/min --port 8080", "practise: an API of your own, and ..."),
        (
            "KEY=any headgate run rows.jsonl -o out.jsonl --to http://127.0.0.1:8080/openai/v1 --keys env:KEY",
            "... a run against it",
        ),
    ],
)
@click.argument("source", metavar="IN")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help='Where answers go, a line for each row as it is finished; "-" for standard output. .gz and .zst are packed.',
)
@click.option(
    "--to",
    required=True,
    metavar="URL|NAME",
    help=f"A base URL such as http://localhost:8000/v1, or one of {', '.join(KNOWN)}.",
)
@click.option("--path", "path", default="", metavar="PATH", help="Where rows go that do not say: /v1/embeddings.")
@click.option(
    "--keys",
    "sources",
    multiple=True,
    metavar="SOURCE",
    help="Where the keys are: env:NAME, file:PATH or cmd:WORDS. Repeatable.  [default: the vendor's usual variable]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="auto",
    show_default=True,
    help="What IN is: a vendor's batch file, plain JSON lines (bodies, or values for a template), or CSV. "
    "auto: what its name and its first lines show.",
)
@click.option("--template", metavar="FILE", help="JSON with {column} gaps, filled from each row. A CSV needs one.")
@click.option("--name-field", metavar="NAME", help="The column or field with each row's name.  [default: custom_id]")
@click.option(
    "--delimiter",
    metavar="CHARACTER",
    help="What stands between a CSV's fields.  [default: , ; or tab, by its header]",
)
@click.option(
    "--on-broken",
    type=click.Choice(("stop", "dead")),
    default="stop",
    show_default=True,
    help="What to do about a row that cannot be sent, or whose custom_id another row has: stop there, or write it off "
    "with the reason and go on.",
)
@click.option(
    "--plan", "only_plan", is_flag=True, help="Say rows, tokens, cost, time and what can never fit; then stop."
)
@click.option(
    "--limits",
    type=Notation("NAME=N/TIME,...", read_limits),
    help="What each key may do, if you know: requests=15/min,requests=1500/day,tokens=200000/min. All of them hold; "
    "the rest is learned.",
)
@click.option(
    "--price", "prices", multiple=True, metavar="MODEL=IN/OUT", help="Per million tokens. Repeatable; * fits all."
)
@click.option("--max-cost", type=Number(0, min_open=True), metavar="AMOUNT", help="Start nothing that could exceed it.")
@click.option("--max-tokens", type=WholeNumber(1), metavar="N", help="The same for tokens, in and out.")
@click.option("--deadline", type=DURATION, help="Stop after this long, such as 2h; run again to go on.")
@click.option("--timeout", type=DURATION, default="10min", show_default=True, help="How long one answer may take.")
@click.option(
    "--workers",
    type=Notation("auto|N", read_workers),
    default="auto",
    show_default=True,
    help="Calls at once at most; auto leaves that to the limiter.",
)
@click.option(
    "--max-attempts", type=WholeNumber(1, 1000), default=5, show_default=True, metavar="N", help="Calls of one row."
)
@store_option(MACHINE)
@click.option("--ledger", metavar="FILE", help=f"Where the run keeps its book.  [default: OUT{SUFFIX}]")
@click.option(
    "--recover",
    is_flag=True,
    help="Where OUT is there and its ledger is not, make a new ledger from IN and OUT first: rows that OUT has are not "
    "sent again.",
)
@click.option("--wait", is_flag=True, help="Stay, however long nothing can start.  [default: leave after 15 minutes]")
@click.option(
    "--keep-going",
    is_flag=True,
    help=f"Go on where the first {HOPELESS} rows have all failed alike.  [default: stop, something is wrong with all]",
)
@click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=read_config,
    help='TOML with the names of these options: to = "openai", max-cost = 20. What is typed goes before.',
)
@click.option("--trace", metavar="FILE", help="Record every call for headgate simulate --trace.")
@seeing_options
@click.option("--json", "as_json", is_flag=True, help="Tell of the progress and the end in JSON lines.")
@click.option("-q", "--quiet", is_flag=True, help="Say only the last line.")
def command(source: str, output: str, only_plan: bool, as_json: bool, quiet: bool, **given: Any) -> int:
    """Send a file of requests to an API and write the answers to OUT. The same command again goes on where it stopped.

    Lines are those of OpenAI's batch files: custom_id, method, url and body in; custom_id, response and error out.
    Answers come in the order in which they finish. How fast it may go is learned from the answers themselves.

    Ctrl-C once starts nothing more and finishes what is under way; twice stops at once. Nothing is lost either way, nor
    by a crash: OUT.ledger has it. Exit code 0: all done; 3: some rows are dead (headgate retry); 4: stopped, run it
    again. A line that cannot be sent, or whose custom_id another has, stops the run with its number (--on-broken).
    """
    try:
        with open_rows(source, given) as rows:
            to = TargetConfig(to=given["to"], path=given["path"], timeout=given["timeout"])
            if only_plan:
                return show_plan(rows, to, output, given, as_json=as_json)
            return start(rows, to, output, given, as_json=as_json, quiet=quiet)
    except ConfigError as error:
        raise click.UsageError(redact(f"{error}.")) from None
    except (InputError, OutputError, LedgerError) as error:
        raise CannotBegin(redact(f"{error}.")) from None


def open_rows(source: str, given: dict[str, Any]) -> Rows:
    template = given["template"]
    return Rows(
        source,
        format=given["form"],
        template=None if template is None else Template.read(template),
        name_field=given["name_field"],
        delimiter=given["delimiter"],
        on_broken=given["on_broken"],
    )


def ledger_of(output: str, ledger: str | None) -> str | None:
    if ledger is not None:
        if os.path.abspath(ledger) == os.path.abspath(output):
            raise click.UsageError("--ledger and --output are the same file; each needs one of its own.")
        return ledger
    return None if output == STDOUT else output + SUFFIX


def show_plan(rows: Rows, to: TargetConfig, output: str, given: dict[str, Any], *, as_json: bool) -> int:
    prices, limits = prices_of(given["prices"]), given["limits"] or {}
    try:
        credentials = keys_of(address_of(to.to), given["sources"])
    except click.UsageError:
        if given["sources"]:
            raise
        credentials = None  # a plan needs no key
    keys = 1 if credentials is None else len(credentials.labels)
    plan = plan_of(rows, to, prices, limits, keys, ledger_of(output, given["ledger"]))
    say(plan_line(plan) if as_json else plan_page(plan, has_prices=bool(prices), stops=rows.stops))
    return DONE


def recover(job: Job, rows: Rows, *, quiet: bool) -> None:
    """Make a new ledger from the output, unless there is one with rows."""
    if job.output == STDOUT or not rows.can_be_read_again:
        raise click.UsageError("--recover needs an input and an output that are files.")
    if has_rows(job.book.path):
        return
    rescued = ledger_from_output(job.book.path, job.output, rows, job.runner.identity)
    if not quiet:
        torn = "; its last line is torn, and its row is sent again" if rescued.torn else ""
        found = f"{rescued.done:,} done and {rescued.dead:,} dead rows are in {job.output}{torn}."
        click.echo(f"Made a new {os.path.relpath(job.book.path)}: {found}", err=True)


def start(rows: Rows, to: TargetConfig, output: str, given: dict[str, Any], *, as_json: bool, quiet: bool) -> int:
    wishes = Wishes.of(given)
    if wishes.report is not None and os.path.abspath(wishes.report) == os.path.abspath(output):
        raise click.UsageError("--report and --output are the same file; each needs one of its own.")
    ledger = ledger_of(output, given["ledger"])
    kept = ledger is not None
    shared = Shared.of(given["store"])
    credentials = keys_of(address_of(to.to), given["sources"], shared.credentials)
    settings = settings_of(given, shared, credentials)
    recorder = None
    if given["trace"] is not None:
        workers = AUTO_WORKERS if given["workers"] == "auto" else given["workers"]
        recorder = Recorder(given["trace"], rows, workers, 1 if credentials is None else len(credentials.labels))
    folder = "" if kept else tempfile.mkdtemp(prefix="headgate-")
    book = ledger or os.path.join(folder, f"run{SUFFIX}")
    again = redact(shlex.join(["headgate", *map(without_login, sys.argv[1:]), *([] if kept else ["--ledger", book])]))
    job = Job(
        rows,
        to,
        output=output,
        ledger=book,
        credentials=credentials,
        command=again,
        around=None if recorder is None else recorder.around,
        **settings,
    )
    if given["recover"]:
        recover(job, rows, quiet=quiet)
    looker = Looker(job)
    try:
        with seen(wishes, lambda: Watched(job=job, rows=lambda: looker.rows), quiet=quiet) as told:
            ending = run_async(go(job, looker, again=again, kept=kept, recorder=recorder, as_json=as_json, quiet=quiet))
            told.tell(ending.code, ending.about)
    finally:
        settings["limiter"].close()  # whoever shares the quota need not wait for what is left of ours
    if folder and ending.code == DONE:
        shutil.rmtree(folder, ignore_errors=True)  # a passing ledger whose rows are all done
    return told.code(ending.code)
