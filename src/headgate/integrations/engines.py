"""What the adapters of Ray and Spark share: blocks as rows, results as columns, the start of a job, and ``verify``.

A block is an Arrow table or record batch, a pandas frame, or a dict of NumPy arrays. ``verify`` compares the names of
the rows of both sides, on disk where there are many: their id column, or a digest of all columns of the input.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from ..fleet.row_reader import json_value
from ..fleet.row_result import RowEnd, RowResult
from ..fleet.settings import RowSettings
from ..fleet.state_store import open_run_state
from ..sqlite_file import scratch

log = logging.getLogger("headgate.fleet")

MOST_SHOWN = 10
"""Names of missing and repeated rows that a verification lists."""
TYPES = ("string", "string", "int64", "int64", "int64", "float64", "string", "string")
"""Arrow's, of the columns that are added, in their order; the last is there where there are fallbacks."""


def announce(settings: RowSettings, given: Mapping[str, Any], repeated: str) -> None:
    """Print the name of a run that was ``given`` none, and warn where what the engine repeats is paid for again."""
    if not given.get("run"):
        print(f"headgate run {settings.run}: pass run={settings.run!r} to resume it", file=sys.stderr)
    if settings.answers == "none":
        log.warning(
            'answers are not saved, so %s are sent and paid for again; use store="redis://...", or answers="a folder"',
            repeated,
        )


def rows_of(block: Any) -> list[dict[str, Any]]:
    """The rows of a block, by the names of its columns."""
    if hasattr(block, "to_pylist"):
        rows: list[dict[str, Any]] = block.to_pylist()
        return rows
    if hasattr(block, "to_dict"):
        records: list[dict[str, Any]] = block.to_dict("records")
        return records
    names = list(block)
    return [dict(zip(names, values, strict=True)) for values in zip(*block.values(), strict=True)]


def names_of(block: Any) -> list[str]:
    """The names of the columns of a block, or of a whole dataset."""
    if hasattr(block, "column_names"):
        return list(block.column_names)
    if hasattr(block, "columns") and not callable(block.columns):
        return [str(name) for name in block.columns]
    if hasattr(block, "schema"):
        return list((block.schema() if callable(block.schema) else block.schema).names)
    return [str(name) for name in block]


def with_results(block: Any, settings: RowSettings, results: Sequence[RowResult]) -> Any:
    """The block with the columns of its results, as the kind of block that it is."""
    added = arrow_columns(settings, results)
    if hasattr(block, "to_pylist"):
        for name, column in added.items():
            block = block.append_column(name, column)
        return block
    if isinstance(block, Mapping):
        return {**block, **{name: column.to_numpy(zero_copy_only=False) for name, column in added.items()}}
    return block.assign(**{name: column.to_pandas().set_axis(block.index) for name, column in added.items()})


def arrow_columns(settings: RowSettings, results: Sequence[RowResult]) -> dict[str, Any]:
    import pyarrow as pa

    columns = [
        [one.response for one in results],
        [one.error for one in results],
        [one.attempts for one in results],
        [one.tokens_in for one in results],
        [one.tokens_out for one in results],
        [one.cost for one in results],
        [one.state.value for one in results],
        [one.target for one in results],
    ]
    types = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64()}
    names = settings.columns
    return {name: pa.array(values, types[kind]) for name, values, kind in zip(names, columns, TYPES, strict=False)}


# ---------------------------------------------------------------------- every row once


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


def verify(
    inputs: Any,
    outputs: Any,
    *,
    id_column: str | None = None,
    prefix: str = "",
    store: str | None = None,
    run: str | None = None,
) -> Verification:
    """Whether every row of the input, a dataset of Ray's or a DataFrame of Spark's, is in the output once. With
    ``store`` and ``run``, also how many calls were repeated."""
    columns = [id_column] if id_column is not None else names_of(inputs)
    state_column = f"{prefix}headgate_state"
    rows_in, rows_out = _all_rows(inputs, columns), _all_rows(outputs, [*columns, state_column])
    found = verify_rows(rows_in, rows_out, columns, id_column=id_column, state_column=state_column)
    return replace(found, repeated_calls=repeated_calls(store, run))  # after that: reading the output may compute it


def _all_rows(dataset: Any, columns: list[str]) -> Iterable[Mapping[str, Any]]:
    if hasattr(dataset, "select_columns"):  # Ray's
        rows: Iterable[Mapping[str, Any]] = dataset.select_columns(columns).iter_rows()
        return rows
    return (row.asDict() for row in dataset.select(*columns).toLocalIterator())


def verify_rows(
    inputs: Iterable[Mapping[str, Any]],
    outputs: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    id_column: str | None = None,
    state_column: str = "headgate_state",
) -> Verification:
    """``columns``: those of the input, by which rows are known that have no id column."""
    states = dict.fromkeys(RowEnd, 0)
    rows_in = rows_out = 0
    with closing(scratch()) as names:
        names.execute("CREATE TABLE names (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID")
        put = "INSERT INTO names VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET n = n + excluded.n"
        for row in inputs:
            rows_in += 1
            names.execute(put, (_name(row, id_column, columns), 1))
        for row in outputs:
            rows_out += 1
            states[RowEnd(row[state_column])] += 1
            names.execute(put, (_name(row, id_column, columns), -1))
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
    with closing(open_run_state(store)) as state:
        view = state.view(run)
    return None if view is None else view.counts.repeated


def _name(row: Mapping[str, Any], id_column: str | None, columns: Sequence[str]) -> str:
    if id_column is not None:
        return str(row[id_column])
    values = json.dumps([json_value(row.get(name), name) for name in columns], ensure_ascii=False)
    return "row " + blake2b(values.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
