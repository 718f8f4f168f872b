"""``headgate status``: the progress of a batch, from its ledger; or the runs of this machine; or a store (``--store``).

A run under way is not disturbed.
"""

from __future__ import annotations

import json
import os
import time
from glob import glob
from typing import Any

import click

from ...batch.ledger import LedgerError, RowState
from ...batch.ledger.queries import Holder, LedgerStatus, failures_of, read_status
from ...batch.ledger.schema import SUFFIX
from ...batch.report import Failures
from ...formatting import format_seconds, plural, printable
from ...observe.report import WAIT_NAMES
from ...observe.run_registry import machine_runs
from ...sqlite_file import is_database
from ..ui.display import MOST_GROUPS, MOST_LISTED, RESUME, failure_fields, failure_text, top_counts
from ..ui.options import ExampleCommand, json_option, shared_store_options
from ..ui.run_page import ENDLESS, RunsFrame
from ..ui.run_sampler import RunsSampler, StoreSampler, fitting_runs, fleet_run_option
from ..ui.store_page import StoreContent, StoreUnreachable
from ..ui.terminal import DONE, CommandFailed, say, table_console


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate status results.jsonl", "the progress of the run that writes results.jsonl"),
        ("headgate status", "the runs under way, and the ledger in this folder if there is only one"),
        ("headgate status run-4711", "one run: by the start of its name, its process id, or words of its title"),
        ("headgate status results.jsonl --json | jq .done", "for programs: one JSON line"),
        ("headgate status --store redis://cache:6379 --run nightly", "one run of many machines, with its workers"),
        ("headgate status --store machine", "which processes share which quota on this machine"),
        (
            "headgate status --store redis://cache:6379 --key openai/gpt-4o-mini",
            "... across machines; key names are hashed in the store, so give those to show",
        ),
    ],
)
@click.argument("path", required=False, metavar="[OUTPUT|LEDGER|RUN]")
@shared_store_options
@fleet_run_option
@json_option("Print one JSON line.")
def command(path: str | None, store: str | None, keys: tuple[str, ...], fleet_run: str | None, as_json: bool) -> int:
    """Show the progress of a batch: rows done, failed (and why) and waiting, and the processes that work on it.

    Give the output of the run or its ledger (OUTPUT.ledger). A run under way is not disturbed. A name without a
    ledger may be that of a run, as for headgate watch. Without a name, show the runs of this machine, and the ledger in
    this folder if there is only one.

    With --store, show that store instead: the runs that workers on several machines report there (--run: one of them
    in full); for each key its pace, what holds it back, when it was learned, and the processes that use it; and which
    credentials are resting.
    """
    if store is not None:
        if path is not None:
            raise click.UsageError("give an output or --store, not both.")
        return show_store(store, keys, fleet_run, as_json=as_json)
    if fleet_run is not None:
        raise click.UsageError(
            f"--run needs --store; a run of this machine needs only its name: headgate status {fleet_run}."
        )
    if keys:
        raise click.UsageError("--key needs --store: headgate status --store machine --key NAME.")
    frame = find_runs(path)
    fields: dict[str, Any] = {"runs": frame.fields() if frame is not None else []} if path is None or frame else {}
    if frame is not None and not as_json:
        console = table_console()
        console.print(frame.render(console.width, ENDLESS))
    ledgers = len(glob(f"*{SUFFIX}")) if path is None else 0
    if ledgers == 1 or (frame is None and (path is not None or ledgers or not as_json)):
        try:
            status = read_status(find_ledger(path, is_no_run=True))
            failures = failures_of(status.path)
        except LedgerError as error:
            raise CommandFailed(f"{error}.") from None
        fields |= ledger_fields(status) | {"failures": failure_fields(failures)}
        if not as_json:
            say(ledger_page(status, failures, time.time()))
    if as_json:
        click.echo(json.dumps(fields))
    return DONE


def show_store(where: str, keys: tuple[str, ...], run: str | None, *, as_json: bool) -> int:
    content = StoreSampler(where, keys, run, all_ended=True).sample()
    if isinstance(content, StoreUnreachable):
        raise CommandFailed(content.message)
    if as_json:
        if isinstance(content, RunsFrame):
            fields = content.fields()[0]
        else:
            fields = {**content.content_fields(), "runs": content.run_fields()}
        click.echo(json.dumps(fields))
    elif isinstance(content, StoreContent) and content.is_empty:
        click.echo(
            f"Nothing is shared in {content.where}, and no run reports to it.\n"
            "Programs share their limits there with AdaptiveRateLimiter(store=...), and headgate run with --store."
        )
    else:
        console = table_console()
        console.print(content.render(console.width, ENDLESS))
    return DONE


def find_runs(path: str | None) -> RunsFrame | None:
    """All runs under way, or the one with this name, unless that is a ledger; None if there is none."""
    if path is not None and os.path.isfile(ledger_of(path)):
        return None
    runs = machine_runs()
    if path is not None and not fitting_runs(runs.runs(), path):
        return None
    frame = RunsSampler(runs, path).sample()
    return frame if frame.views or frame.ended else None


# ---------------------------------------------------------------------- a ledger


def find_ledger(path: str | None, *, is_no_run: bool = False) -> str:
    """The ledger of this output, or the ledger itself, or the only one in this folder.

    ``is_no_run``: no run under way fits either, which a message then says.
    """
    if path is None:
        found = sorted(glob(f"*{SUFFIX}"))
        if len(found) != 1:
            nothing_runs = "no run is under way on this machine; " if is_no_run else ""
            there_are = f"this folder has {', '.join(found[:5]) or 'none'}"
            raise click.UsageError(f"{nothing_runs}give the output of a run, or its ledger; {there_are}.")
        return os.path.abspath(found[0])
    if os.path.isfile(ledger_of(path)):
        return os.path.abspath(ledger_of(path))
    if is_database(path):
        return os.path.abspath(path)
    nothing_runs = f", and no run {path!r} is under way" if is_no_run else ""
    raise click.UsageError(f"there is no ledger {ledger_of(path)}{nothing_runs}.")


def ledger_of(path: str) -> str:
    """The ledger beside this output, or the path itself if it is one."""
    return path if path.endswith(SUFFIX) else path + SUFFIX


def ledger_fields(status: LedgerStatus) -> dict[str, Any]:
    counts = status.counts
    return {
        "ledger": status.path,
        "rows": counts.seen,
        **{state.value: counts.states.get(state, 0) for state in RowState},
        "open": counts.open,
        "reasons": dict(counts.reasons),
        "attempts": counts.attempts,
        "tokens": counts.tokens,
        "cost": counts.cost,
        "waited": dict(counts.waited),
        "written": status.written,
        "output_bytes": status.offset,
        "output_file_bytes": status.output_length,
        "next_at": status.next_at,
        "processes": [
            {
                "pid": one.pid,
                "host": one.host,
                "began_at": one.began_at,
                "alive": one.alive,
                "rows": one.rows,
                "writes_output": one.writes_output,
            }
            for one in status.holders
        ],
    }


_OPEN_ROWS = {
    RowState.PENDING: "pending",
    RowState.LEASED: "held by a process",
    RowState.PARKED: "waiting for the rate limit",
    RowState.FAILED: "waiting for a retry",
}


def ledger_page(status: LedgerStatus, failures: Failures, now: float) -> str:
    counts = status.counts
    final = {state: counts.states.get(state, 0) for state in (RowState.DONE, RowState.DEAD)}
    lines = [
        f"{printable(os.path.relpath(status.path))}: {final[RowState.DONE]:,} done, {final[RowState.DEAD]:,} failed, "
        f"{counts.open:,} open of {counts.seen:,} rows read so far"
    ]
    waiting = [(state, counts.states.get(state, 0)) for state in RowState if not state.final]
    spent = [plural(counts.attempts, "attempt")]
    spent += [f"{counts.tokens:,} tokens"] if counts.tokens else []
    spent += [f"cost {counts.cost:,.4g}"] if counts.cost else []
    rows = {
        "open": ", ".join(f"{count:,} {_OPEN_ROWS[state]}" for state, count in waiting if count),
        "failed": top_counts(counts.reasons),
        "spent": ", ".join(spent),
        "waited": "; ".join(
            f"{format_seconds(seconds)} for {WAIT_NAMES.get(why, why)}"
            for why, seconds in sorted(counts.waited.items())
        )
        + (" (all rows together)" if counts.waited else ""),
        "output": f"{plural(status.written, 'row')}, {plural(status.offset, 'byte')}",
    }
    lines += [f"  {name:<8}{text}" for name, text in rows.items() if text]
    groups = (*failures.dead[:MOST_GROUPS], *failures.waiting[:MOST_GROUPS])
    lines += [f"  {'why':<8}{failure_text(group)}" for group in groups]
    holders = status.holders[:MOST_LISTED]
    lines += [f"  {'at work' if one.alive else 'gone':<8}{holder_text(one, now)}" for one in holders]
    return "\n".join([*lines, next_step(status, now)])


def holder_text(holder: Holder, now: float) -> str:
    writes = ", writes the output" if holder.writes_output else ""
    since = format_seconds(max(0.0, now - holder.began_at))
    return f"process {holder.pid} on {holder.host}, began {since} ago, holds {plural(holder.rows, 'row')}{writes}"


def next_step(status: LedgerStatus, now: float) -> str:
    """The last line always says what to do."""
    dead = status.counts.states.get(RowState.DEAD, 0)
    if any(one.alive for one in status.holders):
        wait = (status.next_at or 0.0) - now
        deferred = f" The first deferred row is due in {format_seconds(wait)}." if wait > 0 else ""
        return f"A run is under way.{deferred}"
    more = 0 if status.output_length is None else status.output_length - status.offset
    if more and not status.is_replaced:
        differs = f"{abs(more):,} {'more' if more > 0 else 'fewer'}"
        return f"The output has {differs} bytes than the ledger recorded; headgate verify shows what is wrong."
    if status.counts.open or status.written < status.counts.seen:
        return f"No process is working on it. {RESUME}"
    if dead:
        return f"Finished, {plural(dead, 'row')} failed; headgate retry opens them again."
    return "All rows are done."
