"""What a fleet's workers are told: the options of ``headgate run``, checked where the job is started.

The settings travel to other machines, so they hold references to keys (``env:NAME``, ``file:PATH``) and never a key,
and a template's text rather than the name of its file.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from ..batch.config import RETRY_CIRCUIT_AFTER, BatchConfig, job_config
from ..batch.endpoints import Endpoint, endpoint_of, unlimited_elsewhere
from ..batch.input.template import Template
from ..batch.pricing import Prices
from ..batch.target import TargetConfig
from ..config import RateLimitConfig, read_limits
from ..credentials import Credential, CredentialCoordinator, FileStore, credentials_from
from ..credentials.redis_store import RedisCredentialStore
from ..errors import ConfigError
from ..formatting import nearest_name
from ..limiter import AdaptiveRateLimiter
from ..resilience.credential_scope import PairedStore
from ..resilience.fallback import Fallback, Fallbacks, read_fallbacks
from ..stores import is_redis, open_store
from ..units import read_duration

COLUMNS = ("response", "error", "attempts", "tokens_in", "tokens_out", "cost", "headgate_state")
"""What is added to each row."""
TARGET = "headgate_target"
"""The column beside them where there are fallbacks."""
FORMATS = ("auto", "batch", "columns")
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MOST_BYTES = 4 << 30
"""Bytes of remembered answers of one run in a Redis or Valkey, unless ``answers_bytes`` says otherwise."""
NO_STORE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """Checked when it is made. Raises ``ConfigError``, which never repeats a key."""

    to: str
    store: str = NO_STORE
    path: str = ""
    template: Mapping[str, Any] | str | None = None
    """A request with {column} placeholders, or the name of a file with one."""
    format: str = "auto"
    """"batch": columns custom_id, method, url and body or params; "columns": all other."""
    keys: str | Sequence[str] = ()
    id_column: str | None = None
    run: str = ""
    job: str = ""
    """This execution of the run; a later one of the same run has another."""
    answers: str | None = None
    """"redis", "none", or a folder (any fsspec URL); None: "redis" with a Redis store, else "none"."""
    answers_bytes: int = MOST_BYTES
    limits: Mapping[str, Any] | str = field(default_factory=dict)
    price: Mapping[str, Any] | str | Sequence[str] = field(default_factory=dict)
    max_cost: float | None = None
    max_tokens: float | None = None
    timeout: float | str = 600.0
    workers: int | str = "auto"
    max_attempts: int = 5
    wait: bool = False
    keep_going: bool = False
    fallback: Fallbacks = ()
    """Other targets for rows that this one cannot take, as ``headgate run --fallback`` has them."""
    prefix: str = ""
    """Before the name of each column that is added."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RowSettings:
        """From the arguments of ``map_rows``. Raises ``ConfigError`` for one that there is not, or that is missing."""
        known = [one.name for one in fields(cls)]
        for name in options:
            if name not in known:
                near = nearest_name(name, known)
                raise ConfigError(f"unknown option {name!r}; {f'did you mean {near!r}?' if near else _listed(known)}")
        if "to" not in options:
            raise ConfigError('to= is missing: a provider such as "openai", or the URL of an API')
        return cls(**options)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))
        for source in self.keys:
            if not isinstance(source, str) or not re.match(r"(env|file):\S", source):
                raise ConfigError(
                    "keys must be env:NAME or file:PATH, which each worker reads by itself; a key itself is not "
                    "accepted here: it would travel through the cluster with the job"
                )
        put(self, "fallback", read_fallbacks(self.fallback))
        if any(not isinstance(one.keys, tuple) or "cmd:" in "".join(one.keys) for one in self.fallbacks):
            raise ConfigError("fallback keys must be env:NAME or file:PATH, which each worker reads by itself")
        put(self, "template", _template_text(self.template))
        put(self, "limits", read_limits(self.limits) if isinstance(self.limits, str) else dict(self.limits))
        put(self, "price", _price_table(self.price))
        put(self, "timeout", read_seconds(self.timeout))
        put(self, "run", self.run or secrets.token_hex(4))
        put(self, "job", self.job or secrets.token_hex(8))
        if not isinstance(self.run, str) or not RUN_NAME.fullmatch(self.run):
            raise ConfigError("run must be a name of 1 to 100 letters, digits, dots, dashes and underscores")
        if not isinstance(self.store, str) or not self.store:
            raise ConfigError("store must be a name or a URL, which each worker opens by itself")
        if self.format not in FORMATS:
            raise ConfigError(f"format={self.format!r} must be one of {', '.join(FORMATS)}")
        if self.answers is None:
            put(self, "answers", "redis" if is_redis(self.store) else "none")
        if self.answers == "redis" and not is_redis(self.store):
            raise ConfigError('answers="redis" needs store="redis://..."; else name a folder, or "none"')
        if not isinstance(self.answers_bytes, int) or self.answers_bytes < 1:
            raise ConfigError(f"answers_bytes={self.answers_bytes!r} must be a number of bytes, 1 or more")
        if self.max_cost is not None and not self.price:
            raise ConfigError('max_cost needs prices, such as price={"gpt-4o-mini*": "0.15/0.60"}')
        if (self.max_cost is not None or self.max_tokens is not None) and not is_fleet_store(self.store):
            raise ConfigError('max_cost and max_tokens hold over all workers, which needs store="redis://..." or "ray"')
        if not isinstance(self.prefix, str) or not isinstance(self.id_column, str | None):
            raise ConfigError("prefix and id_column must be texts")
        self.batch_config(), self.limit_config(), self.prices(), self.target_config(), self.parsed_template()
        endpoint_of(self.to)
        for one in self.fallbacks:
            self.target_config().for_fallback(one)

    # ------------------------------------------------------------------ what a worker makes of them

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        return read_fallbacks(self.fallback)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are added, by the names that they have in the output."""
        return tuple(self.prefix + name for name in (*COLUMNS, *((TARGET,) if self.fallbacks else ())))

    def check_columns(self, given: Sequence[str]) -> None:
        """Raises ``ConfigError`` where a column would be replaced, or one that every row needs is missing."""
        self.check_new_columns(given)
        if self.id_column is not None and self.id_column not in given:
            raise ConfigError(f"id_column={self.id_column!r} is not a column; there are {_listed(given)}")
        template = self.parsed_template()
        if template is not None:
            template.check_columns(_with_fields(given, template), "template")

    def check_new_columns(self, given: Sequence[str]) -> None:
        """Raises ``ConfigError`` where a column would be replaced."""
        if taken := [name for name in self.columns if name in given]:
            raise ConfigError(
                f"the rows already have a column {taken[0]!r}, which would be replaced; rename it, or pass "
                'prefix="..." for the columns that are added'
            )

    def parsed_template(self) -> Template | None:
        return None if self.template is None else Template(str(self.template))

    def prices(self) -> Prices:
        return Prices.of(self.price)  # type: ignore[arg-type]

    def target_config(self) -> TargetConfig:
        return TargetConfig(to=self.to, path=self.path, timeout=float(self.timeout))

    def limit_config(self) -> RateLimitConfig:
        known = RateLimitConfig(limits=self.limits, open_state_duration=RETRY_CIRCUIT_AFTER)  # type: ignore[arg-type]
        return unlimited_elsewhere(self.target_config(), self.fallbacks, known)

    def batch_config(self) -> BatchConfig:
        """The caps are not in it: they hold over all workers."""
        return job_config(max_attempts=self.max_attempts, wait=self.wait, keep_going=self.keep_going)

    def credentials(self) -> list[Credential]:
        """The keys, read on this machine; those of the vendor's usual variable where none are named."""
        return self.read_keys(tuple(self.keys), endpoint_of(self.to))

    def read_keys(self, given: tuple[str, ...], endpoint: Endpoint) -> list[Credential]:
        sources = given or ((f"env:{endpoint.key_variable}",) if endpoint.key_variable else ())
        try:
            return [one for source in sources for one in credentials_from(source)]
        except ConfigError as error:
            raise ConfigError(
                f"keys: {error}. Each worker reads its keys on its own machine: set the variable there (Ray: "
                'runtime_env={"env_vars": ...}; Spark: spark.executorEnv.NAME), or name a file that is on all of them'
            ) from None


def is_fleet_store(store: str) -> bool:
    """Whether workers of several machines are counted, stopped and capped there."""
    return is_redis(store) or store == "ray"


def read_seconds(given: float | str) -> float:
    try:
        return read_duration(given) if isinstance(given, str) else float(given)
    except (ValueError, TypeError):
        wrong = f"timeout={str(given)[:40]!r}"
        raise ConfigError(f"{wrong} must be a number of seconds, or a text such as '10min'") from None


def _template_text(given: Mapping[str, Any] | str | None) -> str | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        try:
            return json.dumps(dict(given))
        except (TypeError, ValueError, RecursionError):
            raise ConfigError("template must be a mapping that JSON can hold, or the name of a file") from None
    if not isinstance(given, str):
        raise ConfigError("template must be a mapping, or the name of a file")
    if given.lstrip().startswith("{"):
        return given
    Template.read(given)
    with open(os.path.expanduser(given), encoding="utf-8-sig") as file:
        return file.read()


def _price_table(given: Mapping[str, Any] | str | Sequence[str]) -> dict[str, Any]:
    return dict(given) if isinstance(given, Mapping) else Prices.table([given] if isinstance(given, str) else given)


def _with_fields(columns: Sequence[str], template: Template) -> list[str]:
    """The columns, and the fields of them that a template asks for: whether those are there, each row shows."""
    return [*columns, *(name for name in template.names if name.partition(".")[0] in columns)]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:12])) or "none"


CredentialsOf = Callable[[str, CredentialCoordinator | None], CredentialCoordinator | None]


class SharedParts(NamedTuple):
    """The limiter and the keys, shared with all workers that use the same store."""

    limiter: AdaptiveRateLimiter
    credentials: CredentialCoordinator | None
    of_fallbacks: list[CredentialCoordinator | None]


def open_shared(settings: RowSettings, credentials_of: CredentialsOf) -> SharedParts:
    """``credentials_of(key, primary)`` says whose credential a key of the limiter is for."""
    keys, store, to = settings.credentials(), settings.store, settings.target_config()
    quotas: Any = None
    records: Any = None
    if is_redis(store):
        quotas = records = RedisCredentialStore(store)
    elif store != NO_STORE:
        quotas = open_store(store)

    def coordinator(found: list[Credential], provider: str) -> CredentialCoordinator | None:
        return CredentialCoordinator(found, provider=provider, store=records or FileStore()) if found else None

    credentials = coordinator(keys, to.endpoint.name)
    others: list[CredentialCoordinator | None] = []
    for one in settings.fallbacks:
        endpoint = to.for_fallback(one).endpoint
        is_ours = not one.keys and endpoint.base_url == to.endpoint.base_url
        others.append(None if is_ours else coordinator(settings.read_keys(one.sources, endpoint), endpoint.name))
    if quotas is not None and (credentials is not None or any(others)):
        quotas = PairedStore(quotas, lambda key: credentials_of(key, credentials))
    return SharedParts(AdaptiveRateLimiter(settings.limit_config(), store=quotas), credentials, others)
