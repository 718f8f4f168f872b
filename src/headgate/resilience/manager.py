"""All providers of a process: their gates, their retry budgets, and what happened to them.

One limiter serves them all. Without credentials a provider is one key of it, with a pace and a
circuit. With credentials each pair has a pace of its own, and the circuit stays the provider's:

    tavily                  pace + circuit            tavily          circuit, the way back from it
                                                      tavily/key-1    pace
                                                      tavily/key-2    pace

A call then takes two permits, one after the other: a slow credential must not hold up the others in
a common line, and the circuit is asked at the moment the call leaves.
"""

from __future__ import annotations

import logging
import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..clock import Clock, SystemClock
from ..config import RateLimitConfig
from ..core.budget import RetryBudget
from ..core.decision import CircuitState
from ..errors import ConfigError
from ..events import Event, ResilienceEvent
from ..limiter import AdaptiveRateLimiter
from ..wire.urls import host_key
from .config import ProviderResilienceConfig, Settings, paced, resolve, unpaced
from .switch import switch_of

log = logging.getLogger("headgate")

MOST_PROVIDERS = 10_000
NO_CREDENTIAL = "-"
"""What stands for the credential of a call without one, where others have one."""
_UNFIT = re.compile(r"[^\w.-]")
"""What may be in a label but not in a key."""


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


class Target:
    """A provider as its calls see it."""

    __slots__ = (
        "_budget",
        "_latest",
        "_lock",
        "_unasked",
        "_warned",
        "gate_config",
        "key",
        "keyed",
        "name",
        "pair_config",
        "settings",
        "switch",
    )

    def __init__(self, name: str, config: ProviderResilienceConfig | None, keyed: bool) -> None:
        self.name = name
        self.key = host_key(name)
        self.switch = switch_of(name)
        self.keyed = keyed
        """Whether its pace is that of its credentials."""
        self.settings = resolve(name, config)
        self.gate_config = unpaced(self.settings) if keyed else paced(self.settings, circuit=True)
        self.pair_config = paced(self.settings, circuit=False)
        self._unasked = resolve(name, None)
        self._latest = config, self.settings
        self._budget = RetryBudget(self.settings.retry_budget)
        self._lock = threading.Lock()
        self._warned = False

    def settings_for(self, config: ProviderResilienceConfig | None) -> Settings:
        """What holds for a call with this config; pace and circuit are shared and stay as the first call had them."""
        if config is None:
            return self._unasked
        known, settings = self._latest
        if config is known:
            return settings
        settings = resolve(self.name, config)
        if settings.of_gate() != self.settings.of_gate() and not self._warned:
            self._warned = True
            log.warning("%s: pace and circuit stay as the first call set them; other settings were ignored", self.name)
        self._latest = config, settings
        return settings

    def pace_key(self, label: str | None) -> str:
        """The key whose pace a call keeps: its credential's, or the provider's own."""
        if label is None:
            return f"{self.key}/{NO_CREDENTIAL}" if self.keyed else self.key
        return pair_key(self.key, label)

    def sent(self, now: float) -> None:
        """A call leaves for the first time."""
        with self._lock:
            self._budget.called(now)

    def may_retry(self, now: float) -> bool:
        """Take leave to retry a failure; ``retried`` must follow once."""
        with self._lock:
            return self._budget.take(now)

    def retried(self) -> None:
        with self._lock:
            self._budget.ended()


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
        self.on_event = on_event
        self._lock = threading.Lock()
        self.reset_for_testing()

    def reset_for_testing(self) -> None:
        """Forget every provider: what was learned, which circuits are open, how often was retried."""
        self._targets: dict[str, Target] = {}
        self._by_key: dict[str, Target] = {}
        self.limiter = AdaptiveRateLimiter(
            clock=self.clock,
            rng=self.rng,
            on_event=None if self.on_event is None else self._heard,
            for_key=self._config_of,
        )
        self.limiter.warns_of_silence = False  # every permit is reported; twenty at once are no silence

    # ------------------------------------------------------------------ looking

    def get_breaker_state(self, provider: str) -> CircuitState:
        """The circuit as an onlooker sees it. Looking uses up no probe."""
        return self.get_provider_status(provider).breaker_state

    def is_provider_available(self, provider: str) -> bool:
        """Whether the circuit is closed, or open for so long that a probe may find out."""
        return self.get_breaker_state(provider) is not CircuitState.OPEN

    def get_provider_status(self, provider: str) -> ProviderStatus:
        seen = self.limiter.look(provider)
        target = self._targets.get(provider)
        state = CircuitState.CLOSED if seen is None else CircuitState(seen.state)
        return ProviderStatus(
            provider=provider,
            breaker_state=state,
            available=state is not CircuitState.OPEN,
            consecutive_failures=0 if seen is None else seen.consecutive_failures,
            rate=None if seen is None or target is None or target.keyed else seen.rate,
            in_flight=0 if seen is None else seen.in_flight,
            waiting=0 if seen is None else seen.waiters,
            reason="" if seen is None else seen.reason,
        )

    # ------------------------------------------------------------------ for the executor

    def target(self, provider: str, config: ProviderResilienceConfig | None, keyed: bool) -> Target:
        """The provider, made known by its first call."""
        target = self._targets.get(provider)
        return self._meet(provider, config, keyed) if target is None else target

    def tell(self, event_type: str, provider: str, **facts: Any) -> None:
        """Tell whoever listens; a listener that raises costs nobody a call."""
        if self.on_event is None:
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
            return target.gate_config
        owner = self._by_key.get(key.rpartition("/")[0])
        return self.limiter.config if owner is None else owner.pair_config

    def _heard(self, event: Event) -> None:
        target = self._by_key.get(event.key)
        if event.kind == "circuit_changed" and target is not None:
            self.tell("circuit_state_change", target.name, breaker_state=event.state)


def pair_key(key: str, label: str) -> str:
    """The key of a credential's own pace."""
    return f"{key}/{re.sub(_UNFIT, _quoted, label)}"


def _quoted(unfit: re.Match[str]) -> str:
    return f"%{ord(unfit[0]):x}"


_manager: ProviderResilienceManager | None = None
_making = threading.Lock()


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
