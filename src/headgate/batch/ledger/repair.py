"""Changes to a ledger outside of a run: rebuild one that is lost, and reopen dead rows.

``recover_ledger`` (``headgate run --recover``) makes a new ledger from the input and the output:

    output:  each line's id ─┐
    input:   each row's id ──┴─ the same? the row is done, or dead, and this is its line

An id is made of a row's position and content (``row_id``), so a line counts only for the row that it answers. Rows
without a line are not in the new ledger, and are sent. If a line answers no row, or one that another line has answered,
nothing is made and the error names the line: it might be the user's, and the output must be what the ledger has.
Only one line and one row are in memory at a time; the database sorts. The file gets its name when it is complete.

``reopen`` (``headgate retry``) makes dead rows pending. Their lines leave the ledger, so the next run writes the output
again from its beginning. The present output is verified first and its fingerprint kept: the next run replaces
that file and no other.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from ... import wire
from ...core.decision import Outcome
from ...core.row_state import FailureReason
from ...engine.database import UNREADABLE, storable
from ...engine.output_file import length_of
from ...errors import OutputError
from ...exchange import Answer
from ...formatting import redact
from ...process_lock import is_alive
from ...wire.responses import error_message as words_of
from ...wire.token_usage import usage_of
from ..input.rows import InputRow
from ..output import REPLACED, fingerprint, row_id
from . import LedgerError
from .schema import DEAD, DONE, check_log, ledger_error, open_to_write, output_of
from .transaction import LONGEST_REASON, LedgerTransaction
from .verify import LedgerVerifier, OutputLines, text_in

UNFINISHED = ".unfinished"
"""What the name of a ledger ends with while it is made."""
MOST_NAMED = 5
OUR_LINE = b'{"id": "batch_req_'
"""How every line begins that a run writes."""

TABLES = (
    "CREATE TEMP TABLE lines (id TEXT PRIMARY KEY, number INTEGER NOT NULL, line BLOB NOT NULL)",
    "CREATE TEMP TABLE answered (number INTEGER PRIMARY KEY, idx INTEGER NOT NULL)",
)
STRANGERS = "SELECT number FROM temp.lines WHERE number NOT IN (SELECT number FROM temp.answered) ORDER BY number"
ROW = "INSERT INTO rows VALUES (?, ?, ?, ?, 1, 0, 1, 0, 0, 0, ?, ?, 0, '')"


@dataclass(slots=True, kw_only=True)
class RecoveredRows:
    """What was found in the output."""

    done: int = 0
    dead: int = 0
    torn: bool = False
    """Whether its last line was cut short; its row is sent again."""


def has_rows(path: str) -> bool:
    """Whether there is a ledger that has rows. Raises ``LedgerError``."""
    if not length_of(path):
        return False
    try:
        with closing(open_to_write(path)) as connection:  # the last to close it leaves no log behind
            return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM rows)").fetchone()[0])
    except UNREADABLE as error:
        raise ledger_error(error, path) from None


def recover_ledger(path: str, output: str, rows: Iterable[InputRow], identity: Mapping[str, str]) -> RecoveredRows:
    """Make the ledger of the run that has written this output, in place of one without rows.

    Raises ``OutputError`` and ``LedgerError``.
    """
    if not length_of(output):
        raise OutputError(f"nothing to recover: {output} is empty or not a file")
    check_log(path)
    unfinished = path + UNFINISHED
    try:
        _remove(unfinished)
        with closing(open_to_write(unfinished)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            rescued = _fill(connection, output, rows)
            connection.executemany("INSERT INTO identity VALUES (?, ?)", identity.items())
            connection.execute("COMMIT")
        os.rename(unfinished, path)
    except (sqlite3.Error, OSError) as error:
        raise ledger_error(error, path) from None
    finally:
        _remove(unfinished)
    return rescued


def _fill(connection: sqlite3.Connection, output: str, rows: Iterable[InputRow]) -> RecoveredRows:
    for statement in TABLES:
        connection.execute(statement)
    rescued, totals = RecoveredRows(), Counter[str]()
    _take_lines(connection, output, rescued)
    for row in rows:
        found = connection.execute(
            "SELECT number, line FROM temp.lines WHERE id = ?", (row_id(row.index, row.digest),)
        ).fetchone()
        if found is not None:
            number, line = found
            name, state, reason, tokens = _read(line)
            connection.execute(ROW, (row.index, storable(name or row.key), row.digest, state, storable(reason), tokens))
            connection.execute("INSERT INTO results VALUES (?, ?, ?)", (row.index, state, line))
            connection.execute("INSERT INTO temp.answered VALUES (?, ?)", (number, row.index))
            rescued.done, rescued.dead = rescued.done + (state == DONE), rescued.dead + (state == DEAD)
            totals["tokens"] += tokens
            if reason:
                totals[f"reason.{FailureReason.parse(reason).category}"] += 1
    strangers = [number for (number,) in connection.execute(STRANGERS)]
    if strangers:
        raise _refusal(output, strangers, "match no row of this input")
    connection.execute("INSERT INTO finals (idx) SELECT idx FROM temp.answered ORDER BY number")
    totals |= {"state.done": rescued.done, "state.dead": rescued.dead, "attempts": rescued.done + rescued.dead}
    connection.executemany("INSERT INTO totals VALUES (?, ?)", [one for one in totals.items() if one[1]])
    if rescued.torn:  # the next run writes the output again from here
        connection.execute("INSERT INTO notes VALUES (?, ?)", (REPLACED, fingerprint(output)))
    else:
        place = (rescued.done + rescued.dead, length_of(output))
        connection.execute("UPDATE output SET number = ?, offset = ?", place)
    return rescued


def _take_lines(connection: sqlite3.Connection, output: str, rescued: RecoveredRows) -> None:
    doubles, strangers = [], []
    lines = OutputLines(output)
    for number, line in enumerate(lines, 1):
        name = text_in(line, "id")
        if line[-1:] != b"\n" and line.startswith(OUR_LINE):
            rescued.torn = True
        elif name is None or not name.isprintable() or line[-1:] != b"\n":
            strangers.append(number)
        elif connection.execute("INSERT OR IGNORE INTO temp.lines VALUES (?, ?, ?)", (name, number, line)).rowcount < 1:
            doubles.append(number)
        if len(strangers) + len(doubles) > MOST_NAMED:
            break
    if strangers:
        raise _refusal(output, strangers, "match no row of this input")
    if doubles:
        raise _refusal(output, doubles, "repeat an earlier line")
    if lines.damage and not lines.torn:
        raise OutputError(f"{output} is damaged ({lines.damage}); repair it, or recover from what can be unpacked")
    rescued.torn |= lines.torn


def _read(line: bytes) -> tuple[str, int, str, int]:
    """The name, the state, the reason and the tokens of a row with this line.

    The name is the line's: of rows with the same custom_id, the run has renamed all but the first.
    """
    read: dict[str, Any] = json.loads(line)
    name, response, error = read.get("custom_id"), read.get("response"), read.get("error")
    name = name if isinstance(name, str) else ""
    if not isinstance(response, dict):
        code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else ("unknown", "")
        return name, DEAD, f"{code}: {message}"[:LONGEST_REASON], 0
    status, body = response.get("status_code"), response.get("body")
    status = status if isinstance(status, int) else 0
    used = usage_of(body)
    tokens = 0 if used is None else round(used.tokens)
    outcome = wire.read(status, None, body if isinstance(body, dict) else None, wall=0.0).outcome
    if outcome is Outcome.OK:
        return name, DONE, "", tokens
    said = words_of(Answer(status, {}, json.dumps(body).encode()), "")
    return name, DEAD, redact(f"{outcome.value}: {said}")[:LONGEST_REASON], tokens


def _refusal(output: str, numbers: list[int], what: str) -> OutputError:
    named = ", ".join(f"{number:,}" for number in numbers[:MOST_NAMED])
    more = " and more" if len(numbers) > MOST_NAMED else ""
    return OutputError(
        f"{output}: lines {named}{more} {what}; nothing was changed. Remove them, and the ledger can be rebuilt from "
        "the rest"
    )


def _remove(unfinished: str) -> None:
    for name in (unfinished, f"{unfinished}-wal", f"{unfinished}-shm"):
        with suppress(FileNotFoundError):
            os.unlink(name)


# ---------------------------------------------------------------------- dead rows, opened again

REOPENED_AT_ONCE = 1000


def reopen(path: str, only: str | None = None) -> int:
    """Make dead rows pending (those whose reason begins with the word ``only``); how many there were.

    Raises ``LedgerError`` while a run is under way, which would go on writing the old output, and where the output
    holds what the ledger does not know.
    """
    if not os.path.exists(path):
        raise LedgerError(f"there is no ledger at {path}")
    try:
        with closing(open_to_write(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            _check_alone(connection, path)
            dead = _dead(connection, only)
            if dead:
                _replace_output(connection, path)
                _reopen(connection, path, dead)
            connection.execute("COMMIT")
            return len(dead)
    except UNREADABLE as error:
        raise ledger_error(error, path) from None


def _check_alone(connection: sqlite3.Connection, path: str) -> None:
    for process, pid in connection.execute("SELECT id, pid FROM processes").fetchall():
        if is_alive(path, process):
            raise LedgerError(f"process {pid} is still working on {path}; stop it with Ctrl-C, then try again")


def _dead(connection: sqlite3.Connection, only: str | None) -> list[int]:
    rows = connection.execute("SELECT idx, reason FROM rows WHERE state = ? ORDER BY idx", (DEAD,))
    return [index for index, reason in rows if only is None or FailureReason.parse(reason).category == only]


def _replace_output(connection: sqlite3.Connection, path: str) -> None:
    """Let the next run replace the present output, if that is wholly ours."""
    output = output_of(path, dict(connection.execute("SELECT name, value FROM identity")))
    replaced = ""
    if output is not None and length_of(output):
        with LedgerVerifier(path, output) as verifier:
            verifier.check_output()
        lines = [finding for finding in verifier.result.findings if finding.problem.is_foreign]
        if lines:
            raise LedgerError(
                f"{lines[0].text}, and the next run would rewrite the output without it; nothing was changed. "
                "headgate verify lists all such lines: remove them, or move the output away, then try again"
            )
        replaced = fingerprint(output)
    connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (REPLACED, replaced))
    connection.execute("UPDATE output SET holder = 0, number = 0, offset = 0")


def _reopen(connection: sqlite3.Connection, path: str, dead: list[int]) -> None:
    transaction = LedgerTransaction(connection, path)
    for start in range(0, len(dead), REOPENED_AT_ONCE):
        part = dead[start : start + REOPENED_AT_ONCE]
        transaction.load(part)
        transaction.reopen(part)
        transaction.flush()
        for table in ("results", "finals"):
            sql = f"DELETE FROM {table} WHERE idx IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own words
            connection.execute(sql, (json.dumps(part),))
    _renumber(connection)


def _renumber(connection: sqlite3.Connection) -> None:
    """Close the gaps; the order stays."""
    connection.execute("CREATE TEMP TABLE kept AS SELECT idx FROM finals ORDER BY number")
    connection.execute("DELETE FROM finals")
    connection.execute("INSERT INTO finals (idx) SELECT idx FROM temp.kept ORDER BY rowid")
    connection.execute("DROP TABLE temp.kept")
