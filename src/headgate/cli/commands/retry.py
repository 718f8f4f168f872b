"""``headgate retry``: open dead rows again, all of them or those of one reason."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

import click

from ...batch.job import COMMAND
from ...batch.ledger.protocol import LedgerError, RowState
from ...batch.ledger.queries import read_note, read_status
from ...batch.ledger.repair import reopen
from ...batch.ledger.schema import open_to_read
from ...formatting import printable
from ..ui.display import top_counts
from ..ui.options import ExampleCommand, json_option
from ..ui.terminal import DONE, CommandFailed, say
from .status import find_ledger

UNKNOWN_COMMAND = "the same headgate run command as before"


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate retry answers.jsonl", "all dead rows of the run that writes answers.jsonl"),
        ("headgate retry answers.jsonl --only transient", "only those that had no answer in the end"),
        ("headgate status answers.jsonl", "the reasons of dead rows"),
    ],
)
@click.argument("path", required=False, metavar="[OUTPUT|LEDGER]")
@click.option("--only", metavar="REASON", help="Only rows of this reason: transient, invalid, too_large, deadline, ...")
@json_option("Print one JSON line.")
def command(path: str | None, only: str | None, as_json: bool) -> int:
    """Open dead rows again: the next run sends them as if for the first time.

    That run writes the output anew from its ledger, without their old lines; rows that are done are not sent again.
    Their lines in the input may be corrected first, but no others. No run may be under way.
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
        rows = f"{count:,} dead rows{reason} of {shown} are" if count > 1 else f"1 dead row{reason} of {shown} is"
        say(f"{rows} open again.")
        say("Their lines in the input may be corrected first; no others may be changed.")
        say(f"Now run: {command_of(ledger)}")
    elif dead:
        say(f"No row of {shown} is dead for that reason; the reasons are {top_counts(dead)}.\nNothing was changed.")
    else:
        say(f"No row of {shown} is dead.\nNothing to do.")
    return DONE


def command_of(ledger: str) -> str:
    """The command that made the ledger, as far as it is known."""
    try:
        with closing(open_to_read(ledger)) as connection:
            return read_note(connection, COMMAND) or UNKNOWN_COMMAND
    except sqlite3.Error:
        return UNKNOWN_COMMAND
