"""All providers of a process: their gates, their retry budgets, and what happened to them.

One limiter serves them all; which of its keys belong to a provider is ``target.py``.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import fork_safety
from ..clock import Clock, SystemClock
from ..config import RateLimitConfig
from ..core.decision import CircuitState
from ..errors import ConfigError
from ..events import Event, ResilienceEvent, is_wanted
from ..limiter import AdaptiveRateLimiter
from ..limiter.snapshot import KeySnapshot
from ..wire.urls import host_key
from .config import ProviderResilienceConfig
from .target import Target

log = logging.getLogger("headgate")

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
        """Apart, so that whoever asks for the id of a call does not change what is drawn for others."""
        self.on_event = on_event
        """Called with each event; may be changed at any time."""
        self._lock = fork_safety.lock()
        self._reseeds = rng is None
        fork_safety.start_over_in_child(self._start_over_in_child)
        self._begin()

    reset_for_testing = _ResetForTesting()

    def _begin(self) -> None:
        """Know no provider: nothing is learned, no circuit is open, nothing was retried."""
        self._targets: dict[str, Target] = {}
        self._by_key: dict[str, Target] = {}
        self.limiter = self._new_limiter()
        self.limiter.tell.also_circuits(self._heard)

    def _start_over_in_child(self) -> None:
        """The retries in flight are the parent's; what was learned stays."""
        if self._reseeds:
            self.rng.seed()
            self._ids.seed()
        for target in self._targets.values():
            target.forget_retries()

    def _new_limiter(self) -> AdaptiveRateLimiter:
        limiter = AdaptiveRateLimiter(clock=self.clock, rng=self.rng, for_key=self._config_of)
        limiter.warns_of_silence = False  # every permit is reported; twenty at once are no silence
        return limiter

    # ------------------------------------------------------------------ looking

    def get_breaker_state(self, provider: str) -> CircuitState:
        """The circuit as an onlooker sees it. Looking uses up no probe."""
        seen = self.limiter.look(provider)
        return CircuitState.CLOSED if seen is None else CircuitState(seen.state)

    def is_provider_available(self, provider: str) -> bool:
        """Whether the circuit is closed, or open for so long that a probe may find out."""
        return self.get_breaker_state(provider) is not CircuitState.OPEN

    def get_provider_status(self, provider: str) -> ProviderStatus:
        seen = self.limiter.look(provider)
        target = self._by_key.get(host_key(provider))
        paces = {} if target is None or not target.keyed else self._paces(target)
        state = CircuitState.CLOSED if seen is None else CircuitState(seen.state)
        return ProviderStatus(
            provider=provider,
            breaker_state=state,
            available=state is not CircuitState.OPEN,
            consecutive_failures=0 if seen is None else seen.consecutive_failures,
            rate=None if seen is None or target is None or target.keyed else seen.rate,
            in_flight=0 if seen is None else seen.in_flight,
            waiting=sum(one.waiters for one in (seen, *paces.values()) if one is not None),
            reason=(seen.reason if seen is not None else "") or _reason(paces),
        )

    # ------------------------------------------------------------------ for the executor

    def target(self, provider: str, config: ProviderResilienceConfig | None, keyed: bool) -> Target:
        """The provider, made known by its first call."""
        target = self._targets.get(provider)
        if target is None:
            target = self._meet(provider, config, keyed)
        if keyed and not target.keyed:
            with self._lock:
                self.limiter.part(target.key, target.keyless, target.circuit_config)
                target.keyed = True
        return target

    def new_id(self) -> str:
        """For a call that was given none."""
        return f"{self._ids.getrandbits(64):016x}"

    def tell(self, event_type: str, provider: str, **facts: Any) -> None:
        """Tell whoever listens; a listener that raises costs nobody a call."""
        if self.on_event is None or not is_wanted(self.on_event, event_type):
            return
        from datetime import UTC, datetime  # here, because most programs do not listen

        at = datetime.fromtimestamp(self.clock.wall(), UTC)
        try:
            self.on_event(ResilienceEvent(event_type=event_type, provider=provider, timestamp=at, **facts))
        except Exception:
            log.exception("a listener failed on %s of %s", event_type, provider)

    def _meet(self, provider: str, config: ProviderResilienceConfig | None, keyed: bool) -> Target:
        if not isinstance(provider, str) or not provider:
            raise ConfigError(f"provider={type(provider).__name__} must be a name, not empty")
        with self._lock:
            if len(self._targets) >= MOST_PROVIDERS:
                raise ConfigError(f"provider: more than {MOST_PROVIDERS:,} of them; is it a name, or data?")
            target = Target(provider, config, keyed)
            target = self._targets[provider] = self._by_key.setdefault(target.key, target)
            return target

    def _config_of(self, key: str) -> RateLimitConfig:
        """The settings of a key of the limiter: a provider, or one with a credential's label behind it."""
        target = self._by_key.get(key)
        if target is not None:
            return target.circuit_config if target.keyed else target.whole_config
        owner = self._by_key.get(key.rpartition("/")[0])
        return self.limiter.config if owner is None else owner.pace_config

    def _paces(self, target: Target) -> dict[str, KeySnapshot]:
        """Where calls with credentials, and those without beside them, stand in line."""
        keys = {"without a credential": target.keyless, **target.pace_keys}
        return {name: seen for name, key in keys.items() if (seen := self.limiter.look(key)) is not None}

    def _heard(self, event: Event) -> None:
        target = self._by_key.get(event.key)
        if target is not None:
            self.tell("circuit_state_change", target.name, breaker_state=event.state)


def _reason(paces: dict[str, KeySnapshot]) -> str:
    """Why calls wait for their pace, if some do or all would: that of the longest line."""
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
