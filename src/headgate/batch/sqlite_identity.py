"""What a ledger's rows belong to: their input, template and target, so that results of two runs are never mixed.

Where there is no result yet there is nothing to mix. Whoever mistyped an address, and saw nobody answer, may put it
right and go on with the same ledger.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping

from ..wire.redaction import redact
from .formats.writing import STDOUT
from .ledger import LedgerError
from .sqlite_alive import is_alive
from .sqlite_file import DONE, SUFFIX

LONGEST_SHOWN = 80
"""Characters of each value in the message that says what has changed."""
_BESIDE_THE_INPUT = frozenset(("target", "template", "names"))
"""What rows are made of besides their lines."""


def take_identity(connection: sqlite3.Connection, identity: Mapping[str, str], path: str) -> None:
    """The rows in the book belong to this; raises if they belong to something else."""
    known = dict(connection.execute("SELECT name, value FROM identity"))
    if known == identity:
        return
    (rows,) = connection.execute("SELECT EXISTS (SELECT 1 FROM rows)").fetchone()
    if rows:
        changed = [name for name in sorted({*known, *identity}) if known.get(name) != identity.get(name)]
        (done,) = connection.execute("SELECT EXISTS (SELECT 1 FROM results WHERE state = ?)", (DONE,)).fetchone()
        (dead,) = connection.execute("SELECT EXISTS (SELECT 1 FROM results)").fetchone()
        processes = connection.execute("SELECT id FROM processes").fetchall()
        open_to_change = (
            not done and _BESIDE_THE_INPUT.issuperset(changed) and not any(is_alive(path, one) for (one,) in processes)
        )
        if dead or not open_to_change:
            was = [
                f"the {name} was {_shown(known.get(name))} and is now {_shown(identity.get(name))}" for name in changed
            ]
            instead = ", or headgate retry and then this: no row is done yet" if open_to_change else ""
            raise LedgerError(
                f"the rows in {path} belong to another run: {'; '.join(was)}. Results of both would be mixed. "
                f"Run it as it was, or name another ledger and output{instead}"
            )
        connection.execute("UPDATE rows SET digest = x''")  # what they are called may be another thing now
    connection.execute("DELETE FROM identity")
    connection.executemany("INSERT INTO identity VALUES (?, ?)", identity.items())


def output_of(ledger: str, identity: Mapping[str, str]) -> str | None:
    """Where the run has put its output; what bears the ledger's name, if it did not say. None for standard output."""
    named = identity.get("output", os.path.basename(ledger).removesuffix(SUFFIX))
    return None if named == STDOUT else beside(ledger, named)


def beside(ledger: str, name: str) -> str:
    """Files are named as seen from the ledger, so that all of them may be moved together."""
    return os.path.join(os.path.dirname(ledger), name)


def _shown(value: str | None) -> str:
    if value is None:
        return "not given"
    text = redact(value)
    return repr(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")
