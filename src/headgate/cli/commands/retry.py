"""``headgate retry``: reopen failed rows, all of them or those of one reason."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

import click

from ...batch.job import COMMAND
from ...batch.ledger import LedgerError, RowState
from ...batch.ledger.queries import read_note, read_status
from ...batch.ledger.repair import reopen
from ...batch.ledger.schema import open_to_read
from ...formatting import printable
from ..ui.display import plural, top_counts
from ..ui.options import ExampleCommand, json_option
from ..ui.terminal import DONE, CommandFailed, say
from .status import find_ledger

UNKNOWN_COMMAND = "the same headgate run command as before"


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate retry answers.jsonl", "all failed rows of the run that writes answers.jsonl"),
        ("headgate retry answers.jsonl --only transient", "only those that failed with a transient error"),
        ("headgate status answers.jsonl", "why rows have failed"),
    ],
)
@click.argument("path", required=False, metavar="[OUTPUT|LEDGER]")
@click.option(
    "--only",
    metavar="REASON",
    help="Only rows that failed for this reason: transient, invalid, too_large, deadline, ...",
)
@json_option("Print one JSON line.")
def command(path: str | None, only: str | None, as_json: bool) -> int:
    """Reopen failed rows: the next run sends them again.

    That run rewrites the output from its ledger, without their old lines; rows that are done are not sent again. You
    may correct the lines of failed rows in the input first, but no others. If the batch is running, stop it first.
    """
    ledger = find_ledger(path)
    try:
        dead = dict(read_status(ledger).counts.reasons)
        count = reopen(ledger, only)
        counts = read_status(ledger).counts
    except LedgerError as error:
        raise CommandFailed(f"{error}.") from None
    if as_json:
        fields = {"ledger": ledger, "reopened": count, "dead": counts.states.get(RowState.DEAD, 0), "open": counts.open}
        click.echo(json.dumps(fields))
        return DONE
    shown = printable(os.path.relpath(ledger))
    if count:
        reason = f" ({only})" if only else f" ({top_counts(dead)})"
        say(f"Reopened {plural(count, 'failed row')}{reason} of {shown}.")
        say("You may correct their lines in the input first; leave all others as they are.")
        say(f"Now run: {command_of(ledger)}")
    elif dead:
        say(f"No row of {shown} failed for that reason; the reasons are {top_counts(dead)}.\nNothing was changed.")
    else:
        say(f"{shown} has no failed rows.\nNothing to do.")
    return DONE


def command_of(ledger: str) -> str:
    """The command that made the ledger, as far as it is known."""
    try:
        with closing(open_to_read(ledger)) as connection:
            return read_note(connection, COMMAND) or UNKNOWN_COMMAND
    except sqlite3.Error:
        return UNKNOWN_COMMAND
