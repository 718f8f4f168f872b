"""How calls to a provider behave, and which setting counts.

    argument of the call  >  the provider's resilience_config  >  PROVIDER_CONFIGS  >  GLOBAL_DEFAULTS

The order holds for every setting on its own: ``None`` leaves it to the next. Where there should be no bound at all,
say ``math.inf``.

``execute_with_resilience``, its sync twin, ``stream_with_resilience`` and ``@guarded`` take the same keyword arguments:
those of ``CallKeywords``. At the public edge they become one immutable ``CallOptions``, checked once and handed on as a
whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields, replace
from math import inf
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ..checks import check, check_finite, check_time, check_whole, number
from ..config import RateLimitConfig, Strategy
from ..core.controller import Controller
from ..errors import ConfigError
from ..formatting import nearest_name
from ..limiter.permit import Cost, WhenOpen, check_cost, check_when_open
from .classify import ClassifyError
from .context import Credentials, check_credentials
from .recovery import ObservedRateCap

if TYPE_CHECKING:
    from .manager import ProviderResilienceManager

LONGEST_WAIT = 3600.0
"""Seconds that a call which waits out outages may wait for its turn, unless something else is set: a long queue, but
not a day's quota."""
NEVER_TRIPS = 2**62
"""More failures in a row than there will ever be."""
REMEMBERED = 3600.0
"""Seconds for which what was learned about a provider is kept while it is not called."""


@dataclass(frozen=True, slots=True)
class RateLimiterConfig:
    """How fast a provider, or each of its credentials, is called."""

    requests_per_second: float = 1.0
    """A known limit: never more than this; what the provider really takes is learned below it."""
    burst_limit: int = 5
    """Calls that may start at once after a rest."""
    max_wait_seconds: float = 30.0
    """A call that would wait longer for its turn is refused at once."""
    _: KW_ONLY
    strategy: str | Strategy | Controller = "adaptive"
    ceiling: bool = True
    """False: nothing is known, ``requests_per_second`` is only where to begin, and the pace is learned upward too."""

    def __post_init__(self) -> None:
        check_finite("requests_per_second", self.requests_per_second)
        check("burst_limit", self.burst_limit, number(self.burst_limit) >= 1, "1 or more")
        check("max_wait_seconds", self.max_wait_seconds, number(self.max_wait_seconds) >= 0, "0 or more seconds")
        RateLimitConfig(strategy=self.strategy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderResilienceConfig:
    """The settings of one provider. What is ``None`` here is decided by the next in the order of precedence."""

    rate_limiter: RateLimiterConfig | None = None
    failure_threshold: int | None = None
    """Failures in a row that open the circuit."""
    recovery_timeout: float | None = None
    """Seconds for which it stays open."""
    half_open_probes: int | None = None
    max_attempts: int | None = None
    """Calls in all; being rate limited does not count."""
    max_rate_limit_retries: int | None = None
    """How often one call may be rate limited. Going on with another credential is counted apart."""
    base_delay: float | None = None
    max_delay: float | None = None
    """The backoff's ceiling; only what the server asks for is longer."""
    time_budget: float | None = None
    """Seconds for everything together: waiting, attempts and backoff."""
    attempt_timeout: float | None = None
    """Seconds for one attempt; one that takes longer has failed."""
    retry_budget: float | None = None
    """The share of calls that may be retries of failures."""

    def __post_init__(self) -> None:
        for name in ("failure_threshold", "half_open_probes", "max_attempts"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        if self.max_rate_limit_retries is not None:
            check_whole("max_rate_limit_retries", self.max_rate_limit_retries, 0)
        for name in ("recovery_timeout", "base_delay", "max_delay"):
            if getattr(self, name) is not None:
                check_finite(name, getattr(self, name))
        for name in ("time_budget", "attempt_timeout"):
            check_time(name, getattr(self, name))
        share = self.retry_budget
        check("retry_budget", share, share is None or 0 <= number(share) < inf, "a share, 0 or more")
        if self.base_delay is not None and self.max_delay is not None:
            check("base_delay", self.base_delay, self.base_delay <= self.max_delay, "at most max_delay")


GLOBAL_DEFAULTS = ProviderResilienceConfig(
    rate_limiter=RateLimiterConfig(requests_per_second=2.0, burst_limit=4, ceiling=False),
    failure_threshold=5,
    recovery_timeout=30.0,
    half_open_probes=1,
    max_attempts=3,
    max_rate_limit_retries=20,
    base_delay=0.2,
    max_delay=5.0,
    time_budget=60.0,
    retry_budget=0.2,
)
"""For a provider of which nothing is known."""


def _documented(calls: int, seconds: float, burst: int = 5) -> ProviderResilienceConfig:
    """A documented limit as the ceiling: with the burst on top, no window holds more than it says."""
    rate = (calls - burst) / seconds
    return ProviderResilienceConfig(rate_limiter=RateLimiterConfig(requests_per_second=rate, burst_limit=burst))


PROVIDER_CONFIGS: dict[str, ProviderResilienceConfig] = {
    "tavily": _documented(100, 60.0),  # with a development key; 1,000 a minute with a production key
    "tavily_extract": _documented(100, 60.0),
    "google": _documented(100, 100.0),  # of one user
    "perplexity": _documented(50, 60.0),  # to begin with; more by usage
    "semantic_scholar": ProviderResilienceConfig(  # one a second with a key, and a shared pool without
        rate_limiter=RateLimiterConfig(requests_per_second=1.0, burst_limit=1)
    ),
    "crossref": ProviderResilienceConfig(  # searches of the public pool; three a second with a mail address
        rate_limiter=RateLimiterConfig(requests_per_second=1.0, burst_limit=1, ceiling=False)
    ),
}
"""What is known of some providers, read at the first call to one. Those that bill have their documented rate
as a ceiling; a config of your own lifts it (``RateLimiterConfig(..., ceiling=False)``, or a higher rate)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a provider, decided."""

    rate_limiter: RateLimiterConfig
    failure_threshold: int
    recovery_timeout: float
    half_open_probes: int
    max_attempts: int
    max_rate_limit_retries: int
    base_delay: float
    max_delay: float
    time_budget: float
    attempt_timeout: float
    retry_budget: float

    def of_gate(self) -> tuple[Any, ...]:
        """The settings that all calls to the provider share."""
        limiter = self.rate_limiter
        pace = (limiter.requests_per_second, limiter.burst_limit, limiter.strategy, limiter.ceiling)
        return (pace, self.failure_threshold, self.recovery_timeout, self.half_open_probes, self.retry_budget)


def resolve(provider: str, config: ProviderResilienceConfig | None) -> Settings:
    """Each setting from the first that says something about it."""
    says = [one for one in (config, PROVIDER_CONFIGS.get(provider), GLOBAL_DEFAULTS) if one is not None]
    decided: dict[str, Any] = {
        field.name: next((value for one in says if (value := getattr(one, field.name)) is not None), inf)
        for field in fields(ProviderResilienceConfig)
    }
    decided["max_delay"] = max(decided["max_delay"], decided["base_delay"])
    return Settings(**decided)


def bounds_for_outages(provider: str, settings: Settings, config: ProviderResilienceConfig | None) -> Settings:
    """For a call that waits out outages: where no bounds are set, the usual ones are too short for it."""
    budget = next(
        (one.time_budget for one in (config, PROVIDER_CONFIGS.get(provider)) if one and one.time_budget is not None),
        inf,
    )
    limiter = settings.rate_limiter
    if config is None or config.rate_limiter is None:
        limiter = replace(limiter, max_wait_seconds=max(LONGEST_WAIT, limiter.max_wait_seconds))
    return replace(settings, time_budget=budget, rate_limiter=limiter)


def paced(settings: Settings, *, circuit: bool) -> RateLimitConfig:
    """The gate of a provider that is called without credentials, or (without a circuit) of one of its credentials."""
    limiter = settings.rate_limiter
    rate = limiter.requests_per_second
    return RateLimitConfig(
        strategy=limiter.strategy,
        initial_rps=rate,
        min_rps=min(0.01, rate),
        max_rps=rate if limiter.ceiling else None,
        token_bucket_capacity=limiter.burst_limit,
        domain_state_ttl=REMEMBERED,
        **_breaker(settings if circuit else None),
    )


def unpaced(settings: Settings) -> RateLimitConfig:
    """The gate of a provider whose credentials have a pace each: nothing but the circuit, and the way back from it."""
    few = settings.failure_threshold
    return RateLimitConfig(strategy=lambda _: ObservedRateCap(few), domain_state_ttl=REMEMBERED, **_breaker(settings))


def _breaker(settings: Settings | None) -> dict[str, Any]:
    """Providers are judged by failures in a row alone; a share of 1 adds nothing to that."""
    if settings is None:
        return {"consecutive_fail_threshold": NEVER_TRIPS, "min_samples_to_trip": NEVER_TRIPS}
    return {
        "consecutive_fail_threshold": settings.failure_threshold,
        "error_rate_threshold": 1.0,
        "min_samples_to_trip": NEVER_TRIPS,
        "open_state_duration": settings.recovery_timeout,
        "half_open_probes": settings.half_open_probes,
    }


# ---------------------------------------------------------------------- what one call may say


class CallKeywords(TypedDict, total=False):
    """The keyword arguments of a call, for type checkers; ``CallOptions`` says what each of them means."""

    time_budget: float | None
    max_wait_seconds: float | None
    attempt_timeout: float | None
    max_attempts: int | None
    cost: Cost
    credentials: Credentials | None
    classify_error: ClassifyError | None
    manager: ProviderResilienceManager | None
    resilience_config: ProviderResilienceConfig | None
    correlation_id: str | None
    when_open: WhenOpen


class UnknownOptionError(ConfigError, TypeError):
    """There is no option of this name."""


def _check_wait(name: str, seconds: object) -> None:
    check(name, seconds, seconds is None or number(seconds) >= 0, "0 or more seconds")


def _check_attempts(name: str, attempts: object) -> None:
    if attempts is not None:
        check_whole(name, attempts)


def _check_credentials(name: str, credentials: object) -> None:
    if credentials is not None:
        check_credentials(credentials)


_CHECKS: dict[str, Callable[[str, Any], None] | None] = {
    "time_budget": check_time,
    "attempt_timeout": check_time,
    "max_wait_seconds": _check_wait,
    "max_attempts": _check_attempts,
    "cost": lambda _, cost: check_cost(cost),
    "credentials": _check_credentials,
    "when_open": lambda _, when_open: check_when_open(when_open),
    **dict.fromkeys(("classify_error", "manager", "resilience_config", "correlation_id")),
}
"""By the name of an option: raises if it cannot have this value; None where any value can be."""


class CallOptions:
    """The options of one call, or of all calls of a function. ``None`` leaves a setting to the provider's."""

    time_budget: float | None = None
    """Seconds for everything together: waiting, attempts and backoff. ``math.inf`` is no bound."""
    max_wait_seconds: float | None = None
    """Seconds that the wait for a permit may take; a longer one is refused at once."""
    attempt_timeout: float | None = None
    """Seconds for one attempt; one that takes longer has failed."""
    max_attempts: int | None = None
    """Calls in all; being rate limited does not count."""
    cost: Cost = 1
    """What the call takes of the known limits: a number of requests, or an amount for each dimension."""
    credentials: Credentials | None = None
    """A ``CredentialCoordinator``; the function finds the leased secret in ``ctx.credential``."""
    classify_error: ClassifyError | None = None
    """A hook that says what an answer or an exception means."""
    manager: ProviderResilienceManager | None = None
    """Instead of the manager that all calls of the process share."""
    resilience_config: ProviderResilienceConfig | None = None
    """The provider's settings; those of its gate are taken from its first call."""
    correlation_id: str | None = None
    """The same in all events of the call; made up if it is not given."""
    when_open: WhenOpen = "refuse"
    """At an open circuit: refuse at once, or wait for the next probe."""

    def __init__(self, **given: Unpack[CallKeywords]) -> None:
        for name, value in given.items():
            if name not in _CHECKS:
                raise _unknown(name)
            if (check_value := _CHECKS[name]) is not None:
                check_value(name, value)
        vars(self).update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: options are immutable; use replace()")

    def replace(self, **given: Unpack[CallKeywords]) -> CallOptions:
        """These options, but for what is given."""
        return CallOptions(**{**vars(self), **given})


def _unknown(name: str) -> UnknownOptionError:
    close = nearest_name(name, _CHECKS)
    hint = f"did you mean {close}?" if close else f"the options are {', '.join(_CHECKS)}"
    return UnknownOptionError(f"unknown option {name[:100]!r}; {hint}")
