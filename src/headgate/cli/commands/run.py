"""``headgate run IN -o OUT``: send a file of requests to an API, write the answers to a file. Re-run to resume."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from typing import Any

import click

from ...batch.config import RETRY_CIRCUIT_AFTER
from ...batch.endpoints import unlimited_elsewhere
from ...batch.input import Rows
from ...batch.job import Job
from ...batch.ledger.schema import SUFFIX
from ...batch.target import TargetConfig
from ...config import RateLimitConfig
from ...engine.output_file import STDOUT
from ...errors import ConfigError, InputError, LedgerError, OutputError
from ...formatting import redact
from ...observe.monitor import RunMonitor
from ...resilience.fallback import read_fallbacks
from ..ui.display import Summary, open_display
from ..ui.observe_options import ObservedCommand, ObserveOptions, TraceRecorder, observed
from ..ui.options import fallback_credentials, target_of
from ..ui.session import run_async, run_to_end
from ..ui.shared_state import SharedState, hide_login
from ..ui.terminal import DONE, CannotStart, say
from .run_display import ProgressSampler, RunProgress, summarize, summarize_failure
from .run_options import credentials_of, ledger_path, open_rows, prices_of, run_options, settings_of, trace_recorder


@click.command(
    cls=ObservedCommand,
    examples=[
        ("headgate run rows.jsonl -o answers.jsonl --to openai", "a file made for OpenAI's batch API, unchanged"),
        ("headgate run rows.jsonl -o answers.jsonl --to openai --plan", "rows, tokens, cost, time; nothing is sent"),
        (
            "headgate run people.csv -o out.jsonl --template ask.json --to anthropic",
            'ask.json: {"model": ..., "max_tokens": 100, "messages": [{"role": "user", "content": "Greet {name}"}]}',
        ),
        (
            "headgate run rows.jsonl.gz -o out.jsonl.zst --to http://localhost:8000/v1 --keys file:keys.txt",
            "compressed files, your own server, several keys",
        ),
        (
            "headgate run rows.jsonl -o out.jsonl --to openai --max-cost 20 --price 'gpt-4o-mini*=0.15/0.60'",
            "stop before the cost could exceed 20; prices are per million tokens, in and out",
        ),
        ("cat rows.jsonl | headgate run - -o - --to openai --ledger rows.ledger | jq .response.body", "in a pipe"),
        (
            "headgate run rows.jsonl -o out.jsonl --to openai --store redis://cache:6379",
            "on several machines at once: one quota for all of them",
        ),
        (
            "headgate run rows.jsonl -o out.jsonl --to openai --web --report run.html",
            "watch it in a browser; charts and numbers in one file at the end",
        ),
        ("headgate mock --provider openai --rate 500/min --port 8080", "to practise: a mock API, and ..."),
        ("KEY=x headgate run rows.jsonl -o o.jsonl --to http://127.0.0.1:8080/openai/v1 --keys env:KEY", "... a run"),
    ],
)
@run_options
def command(source: str, output: str, only_plan: bool, as_json: bool, quiet: bool, **given: Any) -> int:
    """Send a file of requests to an API and write the answers to OUT. Run the same command again to resume.

    Lines have the format of OpenAI's batch files: custom_id, method, url and body in; custom_id, response and error
    out. Results are written in the order in which they finish. The rate is learned from the responses.

    Ctrl-C once finishes the calls in flight and starts no more; twice stops at once. Nothing is lost either way, nor by
    a crash: the state of every row is in OUT.ledger. Exit code 0: all done; 3: some rows failed (see headgate retry);
    4: stopped, re-run to resume. An invalid line, or one that repeats a custom_id, stops the run with its line number
    (see --on-broken).
    """
    try:
        with open_rows(source, given) as rows:
            to = target_of(given)
            for one in read_fallbacks(given["fallback"]):
                to.for_fallback(one)
            if only_plan:
                return show_plan(rows, to, output, given, as_json=as_json)
            return start(rows, to, output, given, as_json=as_json, quiet=quiet)
    except ConfigError as error:
        raise click.UsageError(redact(str(error))) from None
    except (InputError, OutputError, LedgerError) as error:
        raise CannotStart(redact(f"{error}.")) from None


# ---------------------------------------------------------------------- --plan


def show_plan(rows: Rows, to: TargetConfig, output: str, given: dict[str, Any], *, as_json: bool) -> int:
    from .run_plan import plan_line, plan_of, plan_page

    prices, limits = prices_of(given["prices"]), given["limits"] or {}
    try:
        credentials = credentials_of(to, given)
    except click.UsageError:
        if given["sources"]:
            raise
        credentials = None  # a plan needs no key
    keys = 1 if credentials is None else len(credentials.labels)
    plan = plan_of(rows, to, prices, limits, keys, ledger_path(output, given["ledger"]))
    say(plan_line(plan) if as_json else plan_page(plan, has_prices=bool(prices), stops=rows.stops))
    return DONE


# ---------------------------------------------------------------------- a run


def start(rows: Rows, to: TargetConfig, output: str, given: dict[str, Any], *, as_json: bool, quiet: bool) -> int:
    options = ObserveOptions.of(given)
    if options.report is not None and os.path.abspath(options.report) == os.path.abspath(output):
        raise click.UsageError("--report and --output are the same file; each needs its own.")
    ledger = ledger_path(output, given["ledger"])
    shared = SharedState.open(given["store"])
    credentials = credentials_of(to, given, shared)
    settings, fallbacks = settings_of(given), read_fallbacks(given["fallback"])
    others = [fallback_credentials(to, one, shared) for one in fallbacks]
    limits = RateLimitConfig(limits=given["limits"] or {}, open_state_duration=RETRY_CIRCUIT_AFTER)
    shared.warn_if_uncounted(limits)
    jobs: list[Job] = []  # the limiter is made first, and asks it whose credential a key is for
    with_keys = credentials is not None or any(others)
    limiter = shared.limiter(
        unlimited_elsewhere(to, fallbacks, limits),
        (lambda key: jobs[0].runner.credentials_of(key)) if with_keys else None,
    )
    recorder = trace_recorder(given, rows, credentials)
    folder = "" if ledger is not None else tempfile.mkdtemp(prefix="headgate-")
    path = ledger or os.path.join(folder, f"run{SUFFIX}")
    typed = ["headgate", *map(hide_login, sys.argv[1:]), *([] if ledger is not None else ["--ledger", path])]
    resume = redact(shlex.join(typed))
    job = Job(
        rows,
        to,
        output=output,
        ledger=path,
        credentials=credentials,
        command=resume,
        around=None if recorder is None else recorder.record_sends,
        limiter=limiter,
        fallback=fallbacks,
        fallback_credentials=others,
        **settings,
    )
    jobs.append(job)
    if given["recover"]:
        recover(job, rows, quiet=quiet)
    sampler = ProgressSampler(job)
    try:
        with observed(options, lambda: RunMonitor(job=job, rows=lambda: sampler.rows), quiet=quiet) as run:
            summary = run_async(
                execute(job, sampler, recorder, resume="" if ledger else resume, as_json=as_json, quiet=quiet)
            )
            run.end(summary)
    finally:
        limiter.close()  # returns its share of the quota to the other processes at once
    if folder and summary.code == DONE:
        shutil.rmtree(folder, ignore_errors=True)  # a temporary ledger whose rows are all done
    return run.exit_code(summary.code)


def recover(job: Job, rows: Rows, *, quiet: bool) -> None:
    """Rebuild the ledger from the output, unless there is one with rows."""
    from ...batch.ledger.repair import has_rows, recover_ledger

    if job.output == STDOUT or not rows.can_be_read_again:
        raise click.UsageError("--recover needs files as input and output, not a pipe.")
    if has_rows(job.ledger.path):
        return
    found = recover_ledger(job.ledger.path, job.output, rows, job.identity)
    if not quiet:
        torn = "; its last line is incomplete, so that row is sent again" if found.torn else ""
        counts = f"{job.output} has {found.done:,} done and {found.dead:,} failed rows{torn}."
        click.echo(f"Rebuilt {os.path.relpath(job.ledger.path)}: {counts}", err=True)


async def execute(
    job: Job, sampler: ProgressSampler, recorder: TraceRecorder | None, *, resume: str, as_json: bool, quiet: bool
) -> Summary:
    """Run the job to its end. Raises what kept it from starting.

    ``resume``: the command that resumes it, where the same command would not find its ledger.
    """
    display = open_display(as_json=as_json, quiet=quiet, stdout_is_taken=job.output == STDOUT)

    def sample() -> RunProgress | None:
        if recorder is not None:
            recorder.record_rates(job.runner.lanes())
        return sampler.sample() if job.has_begun else None

    try:
        task = await run_to_end(job.run(), display, sample, job.stop)
    finally:
        if recorder is not None:
            recorder.close()
    try:
        task.result()
    except (LedgerError, OutputError, InputError) as error:
        if not job.report.run.calls:
            raise
        summary = summarize_failure(job, error, resume)
    else:
        summary = summarize(job, resume)
    display.end(summary)
    return summary
