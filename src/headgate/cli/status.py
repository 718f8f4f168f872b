"""``headgate status``: how far a batch is, read from its ledger while the run goes on elsewhere, or after it; or who
shares which quota (``--store``, in ``status_store.py``); or how the runs of this machine stand."""

from __future__ import annotations

import json
import os
import time
from glob import glob
from typing import TYPE_CHECKING, Any

import click

from headgate.batch.ledger import LedgerError, RowState
from headgate.batch.report import Death, Failures, Remedy
from headgate.batch.sqlite_file import SUFFIX
from headgate.batch.sqlite_opening import is_database
from headgate.batch.sqlite_reading import Holder, Standing, failures_of, look
from headgate.core.words import printable, span

from . import DONE, CommandFailed, say
from .examples import ExampleCommand

if TYPE_CHECKING:
    from .watch_views import Frame

WIDTH_OF_A_PIPE = 160
MOST_SHOWN = 10
MOST_KINDS = 3
"""Kinds of failures told to a person."""
LONGEST_SAID = 200
"""Reasons and processes listed for a person; ``--json`` has them all."""


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate status results.jsonl", "how far is the run that writes results.jsonl?"),
        ("headgate status", "the runs under way, and the ledger of this folder where it has one only"),
        ("headgate status run-4711", "one run: by the beginning of its name, its process, or words of its title"),
        ("headgate status results.jsonl --json | jq .done", "for programs: one JSON line"),
        ("headgate status --store machine", "who shares which quota on this machine?"),
        (
            "headgate status --store redis://cache:6379 --key openai/gpt-4o-mini",
            "... across machines; a key's name is shown where you name it",
        ),
    ],
)
@click.argument("path", required=False, metavar="[OUTPUT|LEDGER|RUN]")
@click.option(
    "--store",
    metavar="machine|URL",
    help="Show who shares which quota instead: machine, or redis://host:6379 and its relatives.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME",
    help="With --store: a key whose name to show; the store knows hashes alone. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line.")
def command(path: str | None, store: str | None, keys: tuple[str, ...], as_json: bool) -> int:
    """Show how far a batch is: what is done, what is dead and why, what waits, and who works on it.

    Name the output of the run or its ledger (OUTPUT.ledger). A run that goes on is not disturbed. What has no ledger
    may be the name of a run, as for headgate watch. Where nothing is named, show the runs of this machine, and then the
    ledger of this folder if it has one only.

    With --store, show what is shared instead: for each key its pace, what holds it back, when that was learned, and the
    processes that use it; and which credentials rest.
    """
    if store is not None:
        if path is not None:
            raise click.UsageError("a batch and a store are two things; name an output, or --store.")
        from .status_store import show_store

        return show_store(store, keys, as_json=as_json)
    if keys:
        raise click.UsageError("--key goes with --store: headgate status --store machine --key NAME.")
    frame = find_runs(path)
    told: dict[str, Any] = {"runs": frame.fields if frame is not None else []} if path is None or frame else {}
    if frame is not None and not as_json:
        show(frame)
    ledgers = len(glob(f"*{SUFFIX}")) if path is None else 0
    if ledgers == 1 or (frame is None and (path is not None or ledgers or not as_json)):
        try:
            standing = look(find_ledger(path, f", and no run under way that is called {path!r}"))
            failures = failures_of(standing.path)
        except LedgerError as error:
            raise CommandFailed(f"{error}.") from None
        told |= as_fields(standing) | {"failures": failure_fields(failures)}
        if not as_json:
            say(as_page(standing, failures, time.time()))
    if as_json:
        click.echo(json.dumps(told))
    return DONE


def find_runs(path: str | None) -> Frame | None:
    """All runs under way, or the one that is named, unless that is a ledger."""
    from .watch import runs_now

    return runs_now(path) if path is None or not os.path.isfile(beside(path)) else None


def show(frame: Frame) -> None:
    from rich.console import Console

    from .watch_page import ENDLESS

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_PIPE
    console.print(frame.page(console.width, ENDLESS))


def find_ledger(path: str | None, nor: str = "") -> str:
    """The ledger that is meant: named itself, by its output, or by being the only one here; ``nor`` says what else."""
    if path is None:
        found = sorted(glob(f"*{SUFFIX}"))
        if len(found) != 1:
            none = "there is none in this folder, and no run is under way on this machine"
            there_are = f"there are {', '.join(found[:5])}" if found else none
            raise click.UsageError(f"name the output of a run, or its ledger; {there_are}.")
        return os.path.abspath(found[0])
    if os.path.isfile(beside(path)):
        return os.path.abspath(beside(path))
    if is_database(path):
        return os.path.abspath(path)
    raise click.UsageError(f"there is no ledger {beside(path)}{nor}.")


def beside(path: str) -> str:
    """The ledger of this output, or itself."""
    return path if path.endswith(SUFFIX) else path + SUFFIX


def as_fields(standing: Standing) -> dict[str, Any]:
    counts = standing.counts
    return {
        "ledger": standing.path,
        "rows": counts.seen,
        **{state.value: counts.states.get(state, 0) for state in RowState},
        "open": counts.open,
        "reasons": dict(counts.reasons),
        "attempts": counts.attempts,
        "tokens": counts.tokens,
        "cost": counts.cost,
        "waited": dict(counts.waited),
        "written": standing.written,
        "output_bytes": standing.offset,
        "output_file_bytes": standing.output_length,
        "next_at": standing.next_at,
        "processes": [
            {
                "pid": one.pid,
                "host": one.host,
                "began_at": one.began_at,
                "alive": one.alive,
                "rows": one.rows,
                "writes_output": one.writes_output,
            }
            for one in standing.holders
        ],
    }


def as_page(standing: Standing, failures: Failures, now: float) -> str:
    counts = standing.counts
    final = {state: counts.states.get(state, 0) for state in (RowState.DONE, RowState.DEAD)}
    lines = [
        f"{printable(os.path.relpath(standing.path))}: {final[RowState.DONE]:,} done, {final[RowState.DEAD]:,} dead, "
        f"{counts.open:,} open of {counts.seen:,} rows read so far"
    ]
    waiting = [(state, counts.states.get(state, 0)) for state in RowState if not state.final]
    rows = {
        "open": ", ".join(f"{count:,} {state.value}" for state, count in waiting if count),
        "dead": most(counts.reasons),
        "spent": spent(standing),
        "waited": ", ".join(f"{span(seconds)} {why}" for why, seconds in sorted(counts.waited.items())),
        "output": f"{standing.written:,} rows, {standing.offset:,} bytes",
    }
    lines += [f"  {name:<8}{text}" for name, text in rows.items() if text]
    lines += [f"  {'why':<8}{in_words(one)}" for one in (*failures.dead[:MOST_KINDS], *failures.waiting[:MOST_KINDS])]
    lines += [f"  {'at work' if one.alive else 'gone':<8}{about(one, now)}" for one in standing.holders[:MOST_SHOWN]]
    return "\n".join([*lines, what_next(standing, now)])


def spent(standing: Standing) -> str:
    counts = standing.counts
    parts = [f"{counts.attempts:,} attempts"]
    parts += [f"{counts.tokens:,} tokens"] if counts.tokens else []
    parts += [f"cost {counts.cost:,.4g}"] if counts.cost else []
    return ", ".join(parts)


def most(reasons: Any) -> str:
    by_count = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{count:,} {word}" for word, count in by_count[:MOST_SHOWN])


REMEDIES = {
    Remedy.CHECK_ADDRESS: "check --to and --path, and the url of the rows",
    Remedy.CHECK_REQUEST: "put the rows right",
    Remedy.CHECK_KEY: "give a key that is good (--keys)",
    Remedy.CHECK_ACCOUNT: "see to the account's billing, then headgate keys free; or give another key (--keys)",
    Remedy.CHECK_NETWORK: "check --to and the network",
    Remedy.MAKE_SMALLER: "make the rows smaller",
    Remedy.MORE_TIME: "give rows more time",
    Remedy.WAIT: "try again later",
}


def in_words(one: Death) -> str:
    """``20 invalid: 404 Not Found, such as row-3; check --to ...``, for one line of a terminal."""
    said = f": {printable(one.said)[:LONGEST_SAID].rstrip('.')}" if one.said else ""
    such_as = f", such as {printable(one.example)}" if one.example else ""
    remedy = "" if one.remedy is None else f" ({REMEDIES[one.remedy]})"
    return f"{one.count:,} {one.category}{said}{such_as}{remedy}"


def failure_fields(failures: Failures) -> list[dict[str, Any]]:
    return [
        {
            "state": state,
            "reason": one.category,
            "said": one.said,
            "count": one.count,
            "example": one.example,
            "status": one.status,
            "remedy": None if one.remedy is None else one.remedy.value,
        }
        for state, kinds in (("dead", failures.dead), ("waiting", failures.waiting))
        for one in kinds[:MOST_SHOWN]
    ]


def about(one: Holder, now: float) -> str:
    writes = ", writes the output" if one.writes_output else ""
    since = span(max(0.0, now - one.began_at))
    return f"process {one.pid} on {one.host}, began {since} ago, holds {one.rows:,} rows{writes}"


def what_next(standing: Standing, now: float) -> str:
    """The last line always says what to do."""
    dead = standing.counts.states.get(RowState.DEAD, 0)
    if any(one.alive for one in standing.holders):
        wait = (standing.next_at or 0.0) - now
        aside = f" The first row that was put aside is due in {span(wait)}." if wait > 0 else ""
        return f"A run is under way.{aside}"
    more = 0 if standing.output_length is None else standing.output_length - standing.offset
    if more and not standing.is_replaced:
        differs = f"{abs(more):,} {'more' if more > 0 else 'fewer'}"
        return f"The output has {differs} bytes than this ledger knows of: headgate verify says what is wrong."
    if standing.counts.open or standing.written < standing.counts.seen:
        return "Nobody works on it: run the same command again to go on."
    if dead:
        return f"All rows are final, {dead:,} of them dead: headgate retry gives those another chance."
    return "All rows are done."
