"""What the adapters of Ray and Spark share: blocks as rows, results as columns, the start of a job, and ``verify``.

A block is an Arrow table or record batch, a pandas frame, or a dict of NumPy arrays.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..fleet.row_result import RowResult
from ..fleet.settings import RowSettings
from ..fleet.verify import Verification, repeated_calls, verify_rows

log = logging.getLogger("headgate.fleet")

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
    found = verify_rows(
        _all_rows(inputs, columns),
        _all_rows(outputs, [*columns, f"{prefix}headgate_state"]),
        id_column=id_column,
        columns=columns,
        prefix=prefix,
    )
    return replace(found, repeated_calls=repeated_calls(store, run))  # after that: reading the output may compute it


def _all_rows(dataset: Any, columns: list[str]) -> Iterable[Mapping[str, Any]]:
    if hasattr(dataset, "select_columns"):  # Ray's
        rows: Iterable[Mapping[str, Any]] = dataset.select_columns(columns).iter_rows()
        return rows
    return (row.asDict() for row in dataset.select(*columns).toLocalIterator())


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
