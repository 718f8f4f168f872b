"""Whether every row that went in came out once: the names of both sides compared, on disk where there are many.

Rows are known by their id column; without one, by a digest of all columns of the input.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ..sqlite_file import scratch
from .row_reader import json_value
from .row_result import RowEnd

MOST_SHOWN = 10
"""Names of missing and repeated rows that a verification lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    rows_in: int
    rows_out: int
    missing: int
    """Rows of the input that the output has fewer times."""
    surplus: int
    """Rows of the output that the input has fewer times."""
    done: int = 0
    failed: int = 0
    stopped: int = 0
    repeated_calls: int | None = None
    """Rows that were called again after a worker had died, as far as the store knows; None without a fleet's store."""
    examples: tuple[str, ...] = field(default=())
    """Names of a few rows that are missing or surplus."""

    @property
    def ok(self) -> bool:
        """Every row of the input is in the output, as often as there."""
        return not self.missing and not self.surplus

    def __str__(self) -> str:
        states = f"{self.done:,} done, {self.failed:,} failed, {self.stopped:,} stopped"
        wrong = "" if self.ok else f"; {self.missing:,} missing, {self.surplus:,} too many, such as {self.examples[0]}"
        again = "" if self.repeated_calls is None else f"; {self.repeated_calls:,} calls repeated"
        return f"{self.rows_in:,} rows in, {self.rows_out:,} out: {states}{wrong}{again}"


def verify_rows(
    inputs: Iterable[Mapping[str, Any]],
    outputs: Iterable[Mapping[str, Any]],
    *,
    id_column: str | None = None,
    columns: Sequence[str] | None = None,
    prefix: str = "",
) -> Verification:
    """``columns``: those of the input, by which rows are known that have no id column."""
    states = dict.fromkeys(RowEnd, 0)
    rows_in = rows_out = 0
    with closing(scratch()) as names:
        names.execute("CREATE TABLE names (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID")
        put = "INSERT INTO names VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET n = n + excluded.n"
        for row in inputs:
            rows_in += 1
            names.execute(put, (_name(row, id_column, columns or list(row)), 1))
            columns = columns or list(row)
        for row in outputs:
            rows_out += 1
            states[RowEnd(row[f"{prefix}headgate_state"])] += 1
            names.execute(put, (_name(row, id_column, columns or []), -1))
        ((missing, surplus),) = names.execute("SELECT total(max(n, 0)), total(max(-n, 0)) FROM names")
        wrong = names.execute("SELECT name FROM names WHERE n <> 0 ORDER BY name LIMIT ?", (MOST_SHOWN,)).fetchall()
    return Verification(
        rows_in=rows_in,
        rows_out=rows_out,
        missing=int(missing),
        surplus=int(surplus),
        done=states[RowEnd.DONE],
        failed=states[RowEnd.FAILED],
        stopped=states[RowEnd.STOPPED],
        examples=tuple(name for (name,) in wrong),
    )


def repeated_calls(store: str | None, run: str | None) -> int | None:
    """What the store counted in this run; None without either."""
    if store is None or run is None:
        return None
    from .state_store import open_run_state

    state = open_run_state(store)
    try:
        view = state.view(run)
    finally:
        state.close()
    return None if view is None else view.counts.repeated


def _name(row: Mapping[str, Any], id_column: str | None, columns: Sequence[str]) -> str:
    if id_column is not None:
        return str(row[id_column])
    values = json.dumps([json_value(row.get(name), name) for name in columns], ensure_ascii=False)
    return "row " + blake2b(values.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
