"""Results as columns beside a block's own: for Arrow tables, pandas frames and dicts of NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..fleet.row_result import RowResult
from ..fleet.settings import RowSettings

TYPES = ("string", "string", "int64", "int64", "int64", "float64", "string", "string")
"""Arrow's, of the columns that are added, in their order; the last is there where there are fallbacks."""


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
    if hasattr(block, "column_names"):
        return list(block.column_names)
    if hasattr(block, "schema"):
        return list(block.schema.names)
    return [str(name) for name in (block.columns if hasattr(block, "columns") else block)]


def with_results(block: Any, settings: RowSettings, results: Sequence[RowResult]) -> Any:
    """The block with the columns of its results; a dict becomes an Arrow table, whose columns may have nulls."""
    added = arrow_columns(settings, results)
    if hasattr(block, "to_pylist"):
        for name, column in added.items():
            block = block.append_column(name, column)
        return block
    if isinstance(block, Mapping):
        return {**block, **{name: column.to_numpy(zero_copy_only=False) for name, column in added.items()}}
    return block.assign(**{name: column.to_pandas() for name, column in added.items()})


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
