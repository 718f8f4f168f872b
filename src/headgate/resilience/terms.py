"""The terms of one call: what its caller, its provider's settings and the kill switch have decided before it starts."""

from __future__ import annotations

from typing import TypedDict

from ..checks import check, check_time, check_whole, number
from ..clock import Clock
from ..core.decision import UNKNOWN
from ..limiter.checks import Cost, WhenOpen, check_when_open
from .config import ProviderResilienceConfig
from .context import Credentials, check_credentials
from .manager import ProviderResilienceManager, get_resilience_manager
from .switch import is_on
from .taxonomy import ClassifyError


class CallOptions(TypedDict, total=False):
    """What may be said about a call, by the names of the arguments of ``execute_with_resilience``."""

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


class Terms:
    def __init__(
        self,
        provider: str,
        time_budget: float | None = None,
        max_wait_seconds: float | None = None,
        attempt_timeout: float | None = None,
        max_attempts: int | None = None,
        cost: Cost = 1,
        credentials: Credentials | None = None,
        classify_error: ClassifyError | None = None,
        manager: ProviderResilienceManager | None = None,
        resilience_config: ProviderResilienceConfig | None = None,
        correlation_id: str | None = None,
        when_open: WhenOpen = "refuse",
    ) -> None:
        if credentials is not None:
            check_credentials(credentials)
        self.manager = manager = get_resilience_manager() if manager is None else manager
        self.target = target = manager.target(provider, resilience_config, credentials is not None)
        if when_open != "refuse":
            check_when_open(when_open)
        self.when_open = when_open
        self.settings = settings = target.settings_for(resilience_config, when_open)
        self.limiter = manager.limiter if is_on(target.switch) else None
        """None with the kill switch off: no pace, no circuit, no retry budget."""
        if time_budget is not None:
            check_time("time_budget", time_budget)
        if attempt_timeout is not None:
            check_time("attempt_timeout", attempt_timeout)
        if max_wait_seconds is not None:
            check("max_wait_seconds", max_wait_seconds, number(max_wait_seconds) >= 0, "0 or more seconds")
        if max_attempts is not None:
            check_whole("max_attempts", max_attempts)
        self.time_budget = settings.time_budget if time_budget is None else time_budget
        self.attempt_timeout = settings.attempt_timeout if attempt_timeout is None else attempt_timeout
        self.max_wait = settings.rate_limiter.max_wait_seconds if max_wait_seconds is None else max_wait_seconds
        self.max_attempts = settings.max_attempts if max_attempts is None else max_attempts
        self.cost = cost
        self.credentials = credentials
        self.is_keyed = target.keyed
        """Whether the pace is a credential's, while the circuit is the provider's."""
        self.classify_error = classify_error
        self._correlation_id = correlation_id
        self.started_at = manager.clock.now()

    @property
    def clock(self) -> Clock:
        return self.manager.clock

    @property
    def correlation_id(self) -> str:
        """Made up when first asked for: most calls are never asked."""
        if self._correlation_id is None:
            self._correlation_id = self.manager.new_id()
        return self._correlation_id

    def time_left(self) -> float:
        if self.time_budget == UNKNOWN:
            return UNKNOWN
        return max(0.0, self.started_at + self.time_budget - self.manager.clock.now())
