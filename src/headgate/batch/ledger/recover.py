"""A new ledger made from the input and the output, where the run's own is gone or damaged.

    output:  each line's id ─┐
    input:   each row's id ──┴─ the same? the row is done, or dead, and this is its line

An id is made of a row's position and content (``row_id``), so a line counts only for the very row that it answers. Rows
without a line are not in the new ledger, and are sent. A line that answers no row, or one that another has answered,
is named and nothing is made: it might be the user's, and the output must be what the ledger has.

Nothing is kept in memory but a line and a row: the database sorts. The ledger takes its name when it is whole.
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
from ...engine.database import UNREADABLE
from ...engine.output_file import length_of
from ...errors import OutputError
from ...exchange import Answer
from ...wire.redact import redact
from ...wire.responses import error_message as words_of
from ...wire.token_usage import usage_of
from ..input.rows import InputRow
from ..output import REPLACED, fingerprint, row_id
from .schema import DEAD, DONE, check_log, ledger_error, open_to_write, storable
from .transaction import LONGEST_REASON
from .verify import OutputLines

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
        raise OutputError(f"{output}: there is nothing to recover; it is empty, no file, or not there")
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
            state, reason, tokens = _read(line)
            connection.execute(ROW, (row.index, storable(row.key), row.digest, state, storable(reason), tokens))
            connection.execute("INSERT INTO results VALUES (?, ?, ?)", (row.index, state, line))
            connection.execute("INSERT INTO temp.answered VALUES (?, ?)", (number, row.index))
            rescued.done, rescued.dead = rescued.done + (state == DONE), rescued.dead + (state == DEAD)
            totals["tokens"] += tokens
            if reason:
                totals[f"reason.{FailureReason.parse(reason).category}"] += 1
    strangers = [number for (number,) in connection.execute(STRANGERS)]
    if strangers:
        raise _refusal(output, strangers, "answer no row of this input")
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
        name = _id_of(line)
        if line[-1:] != b"\n" and line.startswith(OUR_LINE):
            rescued.torn = True
        elif name is None or line[-1:] != b"\n":
            strangers.append(number)
        elif connection.execute("INSERT OR IGNORE INTO temp.lines VALUES (?, ?, ?)", (name, number, line)).rowcount < 1:
            doubles.append(number)
        if len(strangers) + len(doubles) > MOST_NAMED:
            break
    if strangers:
        raise _refusal(output, strangers, "answer no row of this input")
    if doubles:
        raise _refusal(output, doubles, "repeat an earlier line")
    if lines.damage and not lines.torn:
        raise OutputError(f"{output}: is damaged ({lines.damage}); put it right, or recover from what can be unpacked")
    rescued.torn |= lines.torn


def _read(line: bytes) -> tuple[int, str, int]:
    """The state, the reason and the tokens of a row with this line."""
    read: dict[str, Any] = json.loads(line)
    response, error = read.get("response"), read.get("error")
    if not isinstance(response, dict):
        code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else ("unknown", "")
        return DEAD, f"{code}: {message}"[:LONGEST_REASON], 0
    status, body = response.get("status_code"), response.get("body")
    status = status if isinstance(status, int) else 0
    used = usage_of(body)
    tokens = 0 if used is None else round(used.tokens)
    outcome = wire.read(status, None, body if isinstance(body, dict) else None, wall=0.0).outcome
    if outcome is Outcome.OK:
        return DONE, "", tokens
    said = words_of(Answer(status, {}, json.dumps(body).encode()), "")
    return DEAD, redact(f"{outcome.value}: {said}")[:LONGEST_REASON], tokens


def _id_of(line: bytes) -> str | None:
    try:
        read = json.loads(line)
    except (ValueError, RecursionError):
        return None
    name = read.get("id") if isinstance(read, dict) else None
    return name if isinstance(name, str) and name.isprintable() else None


def _refusal(output: str, numbers: list[int], what: str) -> OutputError:
    named = ", ".join(f"{number:,}" for number in numbers[:MOST_NAMED])
    more = " and others" if len(numbers) > MOST_NAMED else ""
    return OutputError(
        f"{output}: lines that {what} ({named}{more}); nothing was changed. Take them out, and the ledger can be made "
        "from the rest"
    )


def _remove(unfinished: str) -> None:
    for name in (unfinished, f"{unfinished}-wal", f"{unfinished}-shm"):
        with suppress(FileNotFoundError):
            os.unlink(name)
