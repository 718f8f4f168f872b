"""All providers of a process: their gates, their retry budgets, and what happened to them.

One limiter serves them all; which of its keys belong to a provider is ``provider_state.py``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from .. import fork_safety
from ..clock import Clock, SystemClock
from ..config import RateLimitConfig
from ..core.decision import CircuitState
from ..errors import ConfigError
from ..events import Event, EventDispatcher, ResilienceEvent
from ..limiter import AdaptiveRateLimiter
from ..limiter.snapshot import KeySnapshot
from ..wire.urls import host_key
from .config import ProviderResilienceConfig
from .provider_state import ProviderState

MOST_PROVIDERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStatus:
    """One provider at one moment."""

    provider: str
    breaker_state: CircuitState
    available: bool
    """Whether it is worth asking: the circuit is closed, or lets a probe through."""
    consecutive_failures: int
    rate: float | None
    """Calls a second, as learned so far; None while it is not in use, or where each credential has a pace."""
    in_flight: int
    waiting: int
    reason: str
    """Why a call would wait or be refused now, in one sentence; empty if it would not."""


class _ResetForTesting:
    """``manager.reset_for_testing()`` forgets every provider; on the class, the shared manager is replaced."""

    def __get__(self, manager: ProviderResilienceManager | None, owner: type) -> Callable[[], None]:
        return reset_resilience_manager_for_testing if manager is None else manager._begin


class ProviderResilienceManager:
    """Knows every provider of this process. Safe for threads and for asyncio at once, bound to no event loop."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        on_event: Callable[[ResilienceEvent], None] | None = None,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.rng = random.Random() if rng is None else rng
        self._ids = random.Random(self.rng.getrandbits(64))
        """Apart, so that the ids of calls change nothing of what is drawn for waits."""
        self.on_event = on_event
        """Called with each event; may be changed at any time."""
        self.emit = EventDispatcher(ResilienceEvent, self.clock, lambda: self.on_event).dispatch
        self._lock = fork_safety.lock()
        self._reseeds = rng is None
        fork_safety.reset_in_child(self._reset_in_child)
        self._begin()

    reset_for_testing = _ResetForTesting()

    def _begin(self) -> None:
        """Begin without providers: nothing is learned, no circuit is open, nothing was retried."""
        self._providers: dict[str, ProviderState] = {}
        self._by_key: dict[str, ProviderState] = {}
        self.limiter = self._new_limiter()
        self.limiter.events.also_circuits(self._on_circuit_change)

    def _reset_in_child(self) -> None:
        """The retries in flight are the parent's; what was learned stays."""
        if self._reseeds:
            self.rng.seed()
            self._ids.seed()
        for state in self._providers.values():
            state.forget_retries()

    def _new_limiter(self) -> AdaptiveRateLimiter:
        limiter = AdaptiveRateLimiter(clock=self.clock, rng=self.rng, for_key=self._config_of)
        limiter.warn_unreported = False  # every permit is reported; twenty at once are no silence
        return limiter

    # ------------------------------------------------------------------ status

    def get_breaker_state(self, provider: str) -> CircuitState:
        """The circuit as an observer sees it; observing takes no probe slot."""
        seen = self.limiter.key_status(provider)
        return CircuitState.CLOSED if seen is None else CircuitState(seen.state)

    def is_provider_available(self, provider: str) -> bool:
        """Whether the circuit is closed, or open for so long that a probe may find out."""
        return self.get_breaker_state(provider) is not CircuitState.OPEN

    def get_provider_status(self, provider: str) -> ProviderStatus:
        seen = self.limiter.key_status(provider)
        known = self._by_key.get(host_key(provider))
        paces = {} if known is None or not known.per_credential else self._paces(known)
        state = CircuitState.CLOSED if seen is None else CircuitState(seen.state)
        return ProviderStatus(
            provider=provider,
            breaker_state=state,
            available=state is not CircuitState.OPEN,
            consecutive_failures=0 if seen is None else seen.consecutive_failures,
            rate=None if seen is None or known is None or known.per_credential else seen.rate,
            in_flight=0 if seen is None else seen.in_flight,
            waiting=sum(one.waiters for one in (seen, *paces.values()) if one is not None),
            reason=(seen.reason if seen is not None else "") or _reason(paces),
        )

    # ------------------------------------------------------------------ for calls

    def provider_state(
        self, provider: str, config: ProviderResilienceConfig | None, has_credentials: bool
    ) -> ProviderState:
        """The provider, made known by its first call; the first with credentials gives each of them its own pace."""
        state = self._providers.get(provider)
        if state is None:
            state = self._add(provider, config, has_credentials)
        if has_credentials and not state.per_credential:
            with self._lock:
                self.limiter.split_pace(state.key, state.anonymous_key, state.circuit_config)
                state.per_credential = True
        return state

    def new_id(self) -> str:
        """For a call that was given none."""
        return f"{self._ids.getrandbits(64):016x}"

    def _add(self, provider: str, config: ProviderResilienceConfig | None, has_credentials: bool) -> ProviderState:
        if not isinstance(provider, str) or not provider:
            raise ConfigError(f"provider={type(provider).__name__} must be a name, not empty")
        with self._lock:
            if len(self._providers) >= MOST_PROVIDERS:
                raise ConfigError(f"provider: more than {MOST_PROVIDERS:,} of them; is it a name, or data?")
            state = ProviderState(provider, config, has_credentials)
            state = self._providers[provider] = self._by_key.setdefault(state.key, state)
            return state

    def _config_of(self, key: str) -> RateLimitConfig:
        """The settings of a key of the limiter: a provider, or one with a credential's label behind it."""
        state = self._by_key.get(key)
        if state is not None:
            return state.circuit_config if state.per_credential else state.whole_config
        owner = self._by_key.get(key.rpartition("/")[0])
        return self.limiter.config if owner is None else owner.pace_config

    def _paces(self, state: ProviderState) -> dict[str, KeySnapshot]:
        """The queues of calls with credentials, and of those without beside them."""
        keys = {"without a credential": state.anonymous_key, **state.pace_keys}
        return {name: seen for name, key in keys.items() if (seen := self.limiter.key_status(key)) is not None}

    def _on_circuit_change(self, event: Event) -> None:
        state = self._by_key.get(event.key)
        if state is not None:
            self.emit("circuit_state_change", state.name, breaker_state=event.state)


def _reason(paces: dict[str, KeySnapshot]) -> str:
    """Why calls wait for their pace, if some do or all would: the reason of the longest queue."""
    held = {name: seen for name, seen in paces.items() if seen.reason}
    longest = max(held, key=lambda name: held[name].waiters, default=None)
    if longest is None or not (held[longest].waiters or len(held) == len(paces)):
        return ""
    return f"{longest}: {held[longest].reason}"


_manager: ProviderResilienceManager | None = None
_making = fork_safety.lock()


def get_resilience_manager() -> ProviderResilienceManager:
    """The manager that all calls of this process share, unless they are given another."""
    global _manager
    if _manager is None:
        with _making:
            if _manager is None:
                _manager = ProviderResilienceManager()
    return _manager


def reset_resilience_manager_for_testing() -> None:
    """The next call gets a new manager, which knows nothing."""
    global _manager
    _manager = None
