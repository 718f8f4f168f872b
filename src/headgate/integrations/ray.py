"""A batch on Ray Data: ``headgate run`` over the actors of a cluster, with one quota for all of them.

    import ray
    from headgate.integrations.ray import map_rows

    answers = map_rows(ray.data.read_parquet("rows"), to="openai", template={...}, id_column="id", run="nightly")
    answers.write_parquet("answers")

Each row gets the columns ``response``, ``error``, ``attempts``, ``tokens_in``, ``tokens_out``, ``cost`` and
``headgate_state``, with ``fallback=`` also ``headgate_target``. Options are those of ``headgate run``.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..fleet.row_caller import RowCaller
from ..fleet.settings import RowSettings
from ..fleet.verify import Verification, repeated_calls, verify_rows
from .engine_columns import names_of, rows_of, with_results

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["Rows", "map_rows", "verify"]

log = logging.getLogger("headgate.fleet")

BATCH_SIZE = 256
CONCURRENCY = (1, 8)
CPUS = 0.25
"""Of an actor: it mostly waits."""


class Rows:
    """For ``Dataset.map_batches``; ``map_rows`` is shorter, and checks the options before anything starts.

    ``ds.map_batches(Rows, fn_constructor_kwargs=dict(to="openai", ...), batch_size=256, concurrency=(1, 50))``
    """

    def __init__(self, **options: Any) -> None:
        self._settings = _settings(options)
        self._caller = RowCaller(self._settings)

    async def __call__(self, batch: Any) -> Any:
        self._settings.check_new_columns(names_of(batch))  # others may be missing in one block of many: its rows say so
        return with_results(batch, self._settings, await self._caller.call_async(rows_of(batch)))


def map_rows(
    dataset: Dataset,
    *,
    concurrency: int | tuple[int, int] = CONCURRENCY,
    batch_size: int = BATCH_SIZE,
    ray_remote_args: dict[str, Any] | None = None,
    **options: Any,
) -> Dataset:
    """The dataset with the columns of its answers, computed as the dataset is read.

    ``concurrency``: how many actors, or from how many to how many. ``ray_remote_args``: for the actors, such as
    ``{"runtime_env": {"env_vars": {...}}}``. All others are options of ``headgate run``. Raises ``ConfigError``.
    """
    given = _settings(options)
    if (schema := dataset.schema(fetch_if_missing=False)) is not None:
        given.check_columns(list(schema.names))
    if not options.get("run"):
        print(f"headgate run {given.run}: pass run={given.run!r} to resume it", file=sys.stderr)
    if given.answers == "none":
        log.warning(
            "answers are not saved, so blocks that Ray repeats are sent and paid for again; "
            'use store="redis://...", or answers="a folder"'
        )
    passed = {**options, "template": given.template, "run": given.run, "job": given.job, "store": given.store}
    actors = {"num_cpus": CPUS, **(ray_remote_args or {})}
    return dataset.map_batches(
        Rows,
        fn_constructor_kwargs=passed,
        batch_size=batch_size,
        batch_format="pyarrow",
        concurrency=concurrency,
        **actors,
    )


def verify(
    inputs: Dataset,
    outputs: Dataset,
    *,
    id_column: str | None = None,
    prefix: str = "",
    store: str | None = None,
    run: str | None = None,
) -> Verification:
    """Whether every row of the input is in the output once. With ``store`` and ``run``, also how many calls were
    repeated."""
    columns = None if id_column is not None else list(inputs.schema().names)
    return verify_rows(
        inputs.select_columns([id_column]).iter_rows() if id_column is not None else inputs.iter_rows(),
        outputs.select_columns([*(columns or [id_column]), f"{prefix}headgate_state"]).iter_rows(),
        id_column=id_column,
        columns=columns,
        prefix=prefix,
        repeated_calls=repeated_calls(store, run),
    )


def _settings(options: dict[str, Any]) -> RowSettings:
    """The options, with Ray's own store as the default; all actors of a job belong to the same run."""
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError('this needs Ray: pip install "headgate[ray]"') from None
    job = f"ray-{ray.get_runtime_context().get_job_id()}" if ray.is_initialized() else ""
    return RowSettings(**{"store": "ray", "job": job, **options, "run": options.get("run") or job})
