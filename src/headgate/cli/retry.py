"""``headgate retry``: dead rows get another chance, all of them or those of one reason."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing

import click

from headgate.batch.job import COMMAND
from headgate.batch.ledger import LedgerError, RowState
from headgate.batch.sqlite_file import open_to_read
from headgate.batch.sqlite_reading import look, read_note
from headgate.batch.sqlite_retry import reopen
from headgate.core.words import printable

from . import DONE, CommandFailed, say
from .examples import ExampleCommand
from .status import find_ledger, most


@click.command(
    cls=ExampleCommand,
    examples=[
        ("headgate retry answers.jsonl", "all dead rows of the run that writes answers.jsonl"),
        ("headgate retry answers.jsonl --only transient", "those alone that had no answer in the end"),
        ("headgate status answers.jsonl", "which reasons are there?"),
    ],
)
@click.argument("path", required=False, metavar="[OUTPUT|LEDGER]")
@click.option(
    "--only", metavar="REASON", help="Rows of this reason alone: transient, invalid, too_large, deadline, ..."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line.")
def command(path: str | None, only: str | None, as_json: bool) -> int:
    """Give dead rows another chance: the next run sends them again, as if for the first time.

    Their lines leave the output, which that run writes anew from its ledger; rows that are done are not sent again.
    Their lines in the input may be put right before that, but no others. No run may be under way.
    """
    ledger = find_ledger(path)
    try:
        dead = dict(look(ledger).counts.reasons)
        count = reopen(ledger, only)
        counts = look(ledger).counts
    except LedgerError as error:
        raise CommandFailed(f"{error}.") from None
    if as_json:
        fields = {"ledger": ledger, "reopened": count, "dead": counts.states.get(RowState.DEAD, 0), "open": counts.open}
        click.echo(json.dumps(fields))
        return DONE
    shown = printable(os.path.relpath(ledger))
    if count:
        reason = f" ({only})" if only else f" ({most(dead)})"
        rows = f"{count:,} dead rows{reason} of {shown} are" if count > 1 else f"1 dead row{reason} of {shown} is"
        say(f"{rows} open again.")
        say("Lines of theirs that are wrong in the input may be put right first; no others may be changed.")
        say(f"Now run it: {typed(ledger)}")
    elif dead:
        say(f"No row of {shown} is dead for that reason; there are {most(dead)}.\nNothing was changed.")
    else:
        say(f"No row of {shown} is dead.\nNothing is to be done.")
    return DONE


def typed(ledger: str) -> str:
    """The command that made the ledger, as far as it is known."""
    try:
        with closing(open_to_read(ledger)) as connection:
            return read_note(connection, COMMAND) or "the same headgate run command as before"
    except sqlite3.Error:
        return "the same headgate run command as before"
