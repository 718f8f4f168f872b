"""How a limiter behaves: every setting with its default, its range and its reason.

A config is frozen and checked when it is made; what is wrong is said by field, value and range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf

from .checks import FINITE, LONGEST_VALUE, WHOLE, check_field, shown
from .controllers import CONTROLLERS, ControllerFactory, controller_factory, is_controller
from .core.circuit_breaker import BreakerSettings
from .core.controller import Controller
from .core.decision import LONGEST_WAIT
from .core.gate_config import FASTEST, GateConfig
from .core.quota import LONG_WINDOW, USUAL_BURST, Quota, known_pace
from .core.rolling_stats import MOST_BUCKETS
from .errors import ConfigError
from .formatting import nearest_name, redact
from .plugins import PluginError
from .units import read_quota
from .wire.urls import host_key

Strategy = Callable[["RateLimitConfig"], Controller]
"""Makes the controller of one key. A ``Controller`` subclass that takes the config is one."""

Limits = Mapping[str, str | Sequence[str]]
"""Known limits by dimension: one, or several that all hold."""

MOST_OVERRIDES = 10_000
MOST_COUNT = 2**63
MOST_WINDOWS = 8
"""Limits that one dimension may have."""
SMALL_LIMIT = 16
"""Up to so many times ``token_bucket_capacity``, a limit on requests is kept by its window alone."""
USUAL_DIMENSIONS = ("requests", "tokens", "input_tokens", "output_tokens")
"""Those of limits that are written as one text."""
LIKE = 0.82
"""How similar two names are of which one is a typing error; "tokens_in" is another name than "tokens"."""
_ABBREVIATED = dict.fromkeys(("req", "reqs", "rps", "rpm", "rph", "rpd"), "requests")
_ABBREVIATED |= dict.fromkeys(("tok", "toks", "tps", "tpm", "tph", "tpd"), "tokens")
_PER = re.compile(r"\s*/|[\s_]per[\s_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitConfig:
    """Settings of an ``AdaptiveRateLimiter``. The defaults suit an API with unknown limits."""

    enabled: bool = True
    """False lets everything through and learns nothing."""
    strategy: str | Strategy | Controller = "adaptive"
    """A strategy by its name (docs/limiter.md lists them), a ``Controller``, or a function that makes one from this."""

    initial_rps: float = 2.0
    """Calls a second to begin with. A known limit on requests takes its place."""
    min_rps: float = 0.01
    """The learned pace never falls below this. Limits, floors and open circuits still win."""
    max_rps: float | None = None
    token_bucket_capacity: float = 4.0
    """Calls that may start at once after a rest; more above 1,000 calls a second: 4 ms of the pace, unless it is 1."""

    limits: Limits = field(default_factory=dict)
    """Limits that are known, by dimension: ``{"requests": ["15/min", "1500/day"], "tokens": "200000/min"}``."""
    burst: Mapping[str, float] = field(default_factory=dict)
    """How much of a known limit may go at once; by default ``token_bucket_capacity`` requests, a tenth of others, and
    all of it where the window is an hour or longer."""

    aimd_increase: float = 0.25
    aimd_decrease: float = 0.5
    latency_target: float = 1.0
    latency_degrade_factor: float = 2.0

    error_rate_threshold: float = 0.4
    min_samples_to_trip: int = 10
    consecutive_fail_threshold: int = 5
    open_state_duration: float = 15.0
    half_open_probes: int = 1
    successes_to_close: int = 1

    retry_base_delay: float = 0.2
    """How a crawl under this limiter retries what failed, unless its ``CrawlConfig`` says otherwise. Calls and batches
    have settings of their own."""
    retry_max_delay: float = 5.0
    retry_max_attempts: int = 3

    stats_window: float = 30.0
    stats_bucket: float = 2.0
    domain_state_ttl: float = 120.0
    """Keys that were not used for this long are forgotten."""
    max_keys: int = 100_000
    group_subdomains: bool = False
    """Whether a.example.com and b.example.com share one key."""
    without_store: str = "share"
    """While a shared store cannot be reached: go on at this process's share of the limit, or "refuse" every call."""
    overrides: Mapping[str, RateLimitConfig] = field(default_factory=dict)
    """Other settings for keys or patterns, ``{"*.example.com": RateLimitConfig(...)}``; the first match counts."""

    def __post_init__(self) -> None:
        for name in ("enabled", "group_subdomains"):
            check_field(self, name, lambda value: isinstance(value, bool), "True or False")
        for name in ("limits", "burst", "overrides"):
            check_field(self, name, lambda value: isinstance(value, Mapping), "a mapping, such as a dict")
            object.__setattr__(self, name, dict(getattr(self, name)))  # the caller's own may change
        lists = {name: tuple(given) for name, given in self.limits.items() if isinstance(given, list)}
        object.__setattr__(self, "limits", {**self.limits, **lists})
        check_field(self, "without_store", lambda value: value in ("share", "refuse"), "'share' or 'refuse'")
        for name in _POSITIVE:
            check_field(self, name, lambda value: 0 < value + 0.0 < inf, FINITE)
        for name in _COUNTS:
            check_field(self, name, lambda value: isinstance(value, int) and 1 <= value < MOST_COUNT, WHOLE)
        for name in ("open_state_duration", "retry_base_delay", "retry_max_delay"):
            check_field(self, name, lambda seconds: seconds <= LONGEST_WAIT, "at most 31 days")
        least, base, window = self.min_rps, self.retry_base_delay, self.stats_window
        check_field(
            self, "max_rps", lambda top: top is None or top + 0.0 >= least, f"None or at least min_rps ({least:g})"
        )
        check_field(self, "token_bucket_capacity", lambda size: size >= 1, "1 or more, or no call would ever fit")
        check_field(self, "aimd_decrease", lambda factor: 0 < factor < 1, "between 0 and 1")
        check_field(self, "latency_degrade_factor", lambda factor: 1 <= factor < inf, "a finite number, 1 or more")
        check_field(self, "error_rate_threshold", lambda share: 0 < share <= 1, "above 0 and at most 1")
        check_field(
            self,
            "stats_bucket",
            lambda width: window / MOST_BUCKETS <= width <= window,
            f"at most stats_window ({window:g}) and at least stats_window / {MOST_BUCKETS}",
        )
        check_field(self, "retry_max_delay", lambda most: base <= most < inf, f"at least retry_base_delay ({base:g})")
        check_field(
            self, "overrides", lambda patterns: len(patterns) <= MOST_OVERRIDES, f"at most {MOST_OVERRIDES} patterns"
        )
        for key, override in self.overrides.items():
            if not isinstance(override, RateLimitConfig):
                name = redact(repr(host_key(key)))
                raise ConfigError(f"overrides[{name}]={type(override).__name__} must be a RateLimitConfig")
        object.__setattr__(self, "overrides", {host_key(key): override for key, override in self.overrides.items()})
        check_field(
            self,
            "strategy",
            lambda strategy: callable(strategy) or isinstance(strategy, Controller) or is_controller(strategy),
            f"one of {', '.join(CONTROLLERS)}, a plugin's name, a Controller, or a function that makes one",
            _misspelt,
        )
        self._check_dimensions()
        self.quotas()

    def for_key(self, key: str) -> RateLimitConfig:
        """The settings of this key: the exact override, the first pattern that matches, or these."""
        if not self.overrides:
            return self
        exact = self.overrides.get(key)
        if exact is not None:
            return exact
        return next((config for pattern, config in self.overrides.items() if fnmatchcase(key, pattern)), self)

    def _check_dimensions(self) -> None:
        """A limit whose name no call uses would limit nothing."""
        for name in self.limits:
            meant = _meant(name)
            if meant is not None:
                raise ConfigError(
                    redact(f"limits: unknown dimension {repr(name)[:LONGEST_VALUE]}; did you mean {meant!r}?")
                )

    def quotas(self) -> tuple[Quota, ...]:
        """The known limits, each with its burst; of a dimension the shortest window first."""
        for dimension in self.burst:
            if dimension not in self.limits:
                given = ", ".join(self.limits) or "none"
                raise ConfigError(redact(f"burst[{dimension!r}] has no limit of that name; limits: {given}"))
        return tuple(quota for dimension in self.limits for quota in self._quotas_of(dimension))

    def _quotas_of(self, dimension: str) -> list[Quota]:
        given = self.limits[dimension]
        texts = (given,) if isinstance(given, str) else given
        if not isinstance(texts, tuple) or not texts or not all(isinstance(text, str) for text in texts):
            shown_value = repr(given)[:LONGEST_VALUE]
            raise ConfigError(
                redact(f"limits[{dimension!r}]={shown_value} must be a string like '500/min', or a list of them")
            )
        if len(texts) > MOST_WINDOWS:
            raise ConfigError(redact(f"limits[{dimension!r}] has {len(texts)} entries; the limit is {MOST_WINDOWS}"))
        try:
            windows = sorted((self._window(dimension, text) for text in texts), key=lambda pair: pair[1])
            return [
                Quota(
                    dimension=dimension, amount=amount, window=window, burst=self._burst(dimension, amount, window, nth)
                )
                for nth, (amount, window) in enumerate(windows)
            ]
        except ValueError as wrong:
            raise ConfigError(redact(f"limits[{dimension!r}]: {wrong}")) from None

    def _window(self, dimension: str, text: str) -> tuple[float, float]:
        amount, window = read_quota(text)
        if dimension == "requests" and 0 < amount < 1:  # "0.5/s" is one call in two seconds
            return 1.0, window / amount
        return amount, window

    def _burst(self, dimension: str, amount: float, window: float, nth: int) -> float:
        """What may go at once. One that is set counts for windows that pace, and for the shortest in any case."""
        if dimension in self.burst and (window < LONG_WINDOW or nth == 0):
            burst = self.burst[dimension]
            if not isinstance(burst, int | float):
                raise ValueError(f"burst={burst!r} must be above 0 and at most the limit, {amount:,.10g}")
            return burst
        if window >= LONG_WINDOW:
            return amount
        if dimension != "requests":
            return amount / USUAL_BURST
        # Of a small limit a burst would leave too little to refill; there the window alone decides,
        # exactly, and the pace keeps bursts down.
        return amount if amount <= SMALL_LIMIT * self.token_bucket_capacity else self.token_bucket_capacity

    def starting_rate(self) -> float:
        paces = known_pace(self.quotas())
        rate = self.initial_rps if paces is None else paces
        return min(max(rate, self.min_rps), inf if self.max_rps is None else self.max_rps)

    def gate_config(self) -> GateConfig:
        return GateConfig(
            controller=_factory(self.strategy, self),
            burst=1.0 if self.strategy == "leaky" else self.token_bucket_capacity,
            least=self.min_rps,
            most=FASTEST if self.max_rps is None else min(self.max_rps, FASTEST),
            breaker=BreakerSettings(
                failures_to_trip=self.consecutive_fail_threshold,
                error_rate_to_trip=self.error_rate_threshold,
                calls_to_judge=self.min_samples_to_trip,
                window=self.stats_window,
                window_bucket=self.stats_bucket,
                cool_off=self.open_state_duration,
                half_open_probes=self.half_open_probes,
                successes_to_close=self.successes_to_close,
            ),
            quotas=self.quotas(),
        )


def read_limits(text: str) -> dict[str, list[str]]:
    """``requests=15/min,requests=1500/day,tokens=200000/min``: a dimension may have several limits."""
    limits: dict[str, list[str]] = {}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        if not equals or name not in USUAL_DIMENSIONS:
            raise ConfigError(f"{part!r} is not a limit; write requests=500/min,tokens=200000/min")
        limits.setdefault(name, []).append(amount.strip())
    RateLimitConfig(limits=limits)
    return limits


def _factory(strategy: str | Strategy | Controller, config: RateLimitConfig) -> ControllerFactory:
    """What makes the controllers of single keys: of an object each key gets a copy."""
    if isinstance(strategy, str):
        try:
            return controller_factory(strategy, config)
        except PluginError as error:
            raise ConfigError(f"strategy: {error}") from None
    if isinstance(strategy, Controller):
        return lambda: deepcopy(strategy)
    return lambda: strategy(config)


_POSITIVE = (
    "initial_rps",
    "min_rps",
    "token_bucket_capacity",
    "aimd_increase",
    "latency_target",
    "open_state_duration",
    "retry_base_delay",
    "stats_window",
    "stats_bucket",
    "domain_state_ttl",
)
_COUNTS = (
    "min_samples_to_trip",
    "consecutive_fail_threshold",
    "half_open_probes",
    "successes_to_close",
    "retry_max_attempts",
    "max_keys",
)


def _meant(dimension: object) -> str | None:
    """The usual dimension that this name is a slip of, if it is one."""
    if not isinstance(dimension, str) or not dimension.strip():
        return USUAL_DIMENSIONS[0]
    if dimension in USUAL_DIMENSIONS:
        return None
    plain = dimension[:LONGEST_VALUE].strip().lower().replace("-", "_")
    name = _PER.split(plain, maxsplit=1)[0]
    return nearest_name(name, USUAL_DIMENSIONS, LIKE) or _ABBREVIATED.get(name)


def _misspelt(value: object) -> str:
    """A strategy's name with a slip in it, as it was written; of anything else, which may be a secret, its kind."""
    if isinstance(value, str):
        close = nearest_name(value[:LONGEST_VALUE], CONTROLLERS)
        return f"{value!r} (did you mean {close!r}?)" if close else f"<text of {len(value)} characters>"
    return shown(value)
