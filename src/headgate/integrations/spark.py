"""A batch on Spark: ``headgate run`` over the executors of a cluster, with one quota for all of them.

    from headgate.integrations.spark import map_rows

    answers = map_rows(df, to="openai", store="redis://cache:6379", template={...}, id_column="id", run="nightly")
    answers.write.parquet("answers")

Each row gets the columns ``response``, ``error``, ``attempts``, ``tokens_in``, ``tokens_out``, ``cost`` and
``headgate_state``, with ``fallback=`` also ``headgate_target``. Options are those of ``headgate run``. Spark computes a
DataFrame each time it is read; its answers are remembered, so that it is paid for once.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..fleet.row_caller import RowCaller
from ..fleet.settings import RowSettings
from .engines import TYPES, announce, rows_of, verify, with_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Rows", "map_rows", "verify"]

AT_ONCE = 2
"""Arrow batches of a task that are under way together, so that the last rows of one do not hold up the next."""


def map_rows(df: DataFrame, **options: Any) -> DataFrame:
    """The rows with the columns of their answers, computed where Spark computes them.

    All options are those of ``headgate run``; ``store`` must be given. How many rows a batch has is Spark's
    ``spark.sql.execution.arrow.maxRecordsPerBatch``. Raises ``ConfigError``.
    """
    rows = Rows(**options)
    return df.mapInArrow(rows, rows.schema(df))


class Rows:
    """For ``DataFrame.mapInPandas`` and ``mapInArrow``; ``map_rows`` is shorter, and checks the columns before.

    ``rows = Rows(to="openai", ...)``, then ``df.mapInPandas(rows, rows.schema(df))``
    """

    def __init__(self, **options: Any) -> None:
        if not options.get("store"):
            raise ConfigError('store= is missing: "redis://host:6379", or "machine" where Spark runs on one machine')
        if options["store"] == "ray":
            raise ConfigError('store="ray" is for Ray; on Spark use "redis://host:6379"')
        self.settings, self._given = RowSettings.of(options), options

    def schema(self, df: DataFrame) -> Any:
        """That of the output, for rows of ``df``. Raises ``ConfigError`` where its columns do not fit."""
        from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

        self.settings.check_columns(df.columns)
        _check_speculation(df, self.settings)
        announce(self.settings, self._given, "tasks that Spark repeats")
        types = {"string": StringType(), "int64": LongType(), "float64": DoubleType()}
        names = zip(self.settings.columns, TYPES, strict=False)
        return StructType([*df.schema.fields, *(StructField(name, types[kind], True) for name, kind in names)])

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        caller, task = caller_of(self.settings), TaskContext.get()
        group = "" if task is None else f"partition-{task.partitionId()}"
        waiting: deque[tuple[Any, Any]] = deque()
        for batch in batches:
            waiting.append((batch, caller.submit(rows_of(batch), group)))
            if len(waiting) >= AT_ONCE:
                yield self._finished(*waiting.popleft())
        while waiting:
            yield self._finished(*waiting.popleft())

    def _finished(self, batch: Any, results: Any) -> Any:
        return with_results(batch, self.settings, results.result())


_callers: dict[tuple[int, str], RowCaller] = {}
_callers_lock = threading.Lock()


def caller_of(settings: RowSettings) -> RowCaller:
    """The caller of this job in this process, since a job's tasks come and go; those of earlier jobs are closed."""
    with _callers_lock:
        place = os.getpid(), settings.job
        if place not in _callers:
            _close_idle_callers()
            _callers[place] = RowCaller(settings)
        return _callers[place]


def _close_idle_callers() -> None:
    for other in [other for other, caller in _callers.items() if caller.is_idle]:
        _callers.pop(other).close()


def _check_speculation(df: DataFrame, settings: RowSettings) -> None:
    """Two copies of a task at once would both pay where the memory has no claims."""
    if settings.answers in ("redis", "none"):
        return
    if str(df.sparkSession.conf.get("spark.speculation", "false")).lower() == "true":
        raise ConfigError(
            "answers in a folder have no claims, so spark.speculation would call rows twice; switch it off, or use "
            'answers="redis"'
        )
