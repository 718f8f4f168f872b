"""A batch on Ray Data: ``headgate run`` over the actors of a cluster, with one quota for all of them.

    import ray
    from headgate.integrations.ray import map_rows

    answers = map_rows(ray.data.read_parquet("rows"), to="openai", template={...}, id_column="id", run="nightly")
    answers.write_parquet("answers")

Each row gets the columns ``response``, ``error``, ``attempts``, ``tokens_in``, ``tokens_out``, ``cost`` and
``headgate_state``, with ``fallback=`` also ``headgate_target``. Options are those of ``headgate run``.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..fleet.row_caller import RowCaller
from ..fleet.settings import RowSettings
from .engines import announce, names_of, rows_of, verify, with_results

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["Rows", "map_rows", "verify"]

BATCH_SIZE = 256
CONCURRENCY = (1, 8)
CPUS = 0.25
"""Of an actor: it mostly waits."""
REPEATED = "blocks that Ray repeats"


class Rows:
    """For ``Dataset.map_batches``; ``map_rows`` is shorter, and checks the options before anything starts.

    ``ds.map_batches(Rows, fn_constructor_kwargs=dict(to="openai", ...), batch_size=256, concurrency=(1, 50))``
    """

    def __init__(self, **options: Any) -> None:
        job = _job()
        self._settings = RowSettings.of({"store": "ray", "job": job, **options, "run": options.get("run") or job})
        if "job" not in options:
            announce(self._settings, options, REPEATED)
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
    settings = RowSettings.of({"store": "ray", **options})
    if (schema := dataset.schema(fetch_if_missing=False)) is not None:
        settings.check_columns(list(schema.names))
    announce(settings, options, REPEATED)
    from ray.data import ActorPoolStrategy

    least, most = (concurrency, concurrency) if isinstance(concurrency, int) else concurrency
    passed = {name: getattr(settings, name) for name in ("template", "run", "job", "store")}
    return dataset.map_batches(
        Rows,
        fn_constructor_kwargs={**options, **passed},
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(min_size=least, max_size=most),
        **{"num_cpus": CPUS, **(ray_remote_args or {})},
    )


def _job() -> str:
    """A name that all actors of a driver's program have in common, and no other program has."""
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError('this needs Ray: pip install "headgate[ray]"') from None
    if not ray.is_initialized():
        return ""
    about = ray.get_runtime_context()
    session = about.get_session_name() if hasattr(about, "get_session_name") else about.gcs_address
    return blake2b(f"{session} {about.get_job_id()}".encode(), digest_size=8).hexdigest()
