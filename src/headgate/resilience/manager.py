"""All providers of a process: their settings, their keys in one limiter, their retry budgets and kill switches.

Without credentials a provider is one key, with a pace and a circuit. With credentials each pair has a pace
of its own, and the circuit stays the provider's:

    tavily                  pace + circuit            tavily          circuit, the way back from it
                                                      tavily/key-1    pace
                                                      tavily/key-2    pace

A call then takes two permits, one after the other: a slow credential must not hold up the others in
a common queue, and the circuit is asked at the moment the call is sent. The pace of a provider that was called without
credentials before moves to ``tavily/~`` at the first call that has one. Credentials of one group share one limit, so
the group has the pace, and gives it its name.
"""

from __future__ import annotations

import logging
import os
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import fork_safety
from ..clock import Clock, SystemClock
from ..config import RateLimitConfig
from ..core.decision import CircuitState
from ..core.fallback import TargetStates
from ..core.retry import RetryBudget
from ..errors import ConfigError
from ..events import Event, EventDispatcher, ResilienceEvent
from ..limiter import AdaptiveRateLimiter
from ..limiter.permit import WhenOpen
from ..limiter.snapshot import KeySnapshot
from ..wire.urls import host_key, pair_key
from .config import ProviderResilienceConfig, Settings, bounds_for_outages, paced, resolve, unpaced
from .context import Lease

log = logging.getLogger("headgate")

MOST_PROVIDERS = 10_000
MOST_PACES = 10_000
"""Credentials and groups of one provider whose keys are remembered."""
NO_CREDENTIAL = "~"
"""Stands for the credential of a call without one, where others have one; in no label's key."""
SWITCH = "HEADGATE_ENHANCED_RESILIENCE"
_OFF = ("false", "0", "no", "off")
_variables: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
"""What ``os.environ`` keeps its variables in. To find there that one is not set takes 0.04 us instead of 0.7, and every
call asks for two."""
_encode = getattr(os.environ, "encodekey", str) if _variables is not os.environ else str
_ENCODED_SWITCH = _encode(SWITCH)


class KillSwitch:
    """One provider's kill switch: an operator's way back to plain retries, without a new release.

        HEADGATE_ENHANCED_RESILIENCE=false                       for all providers
        HEADGATE_ENHANCED_RESILIENCE_SEMANTIC_SCHOLAR=false      for one provider (true exempts one)

    Read before every call, so a program can also change it while it runs. With it off there is no limiter and no
    circuit: a call is sent at most ``max_attempts`` times, with backoff, within its time budget. A 429 or a refused
    credential uses up an attempt like any other failure.
    """

    __slots__ = ("_encoded", "variable")

    def __init__(self, provider: str) -> None:
        self.variable = f"{SWITCH}_{re.sub('[^A-Z0-9]', '_', provider.upper())}"
        """The provider's name upper-cased, with ``_`` for all but letters and digits."""
        self._encoded = _encode(self.variable)

    def is_enabled(self) -> bool:
        """Whether calls to the provider go through the gate. Its own variable goes before that of all providers."""
        if self._encoded not in _variables and _ENCODED_SWITCH not in _variables:
            return True
        for variable in (self.variable, SWITCH):
            value = os.environ.get(variable, "").strip().lower()
            if value:
                return value not in _OFF
        return True


class ProviderState:
    """One provider, shared by all of its calls."""

    __slots__ = (
        "_budget",
        "_for_outages",
        "_latest",
        "_lock",
        "_unasked",
        "_warned",
        "anonymous_key",
        "circuit_config",
        "failures_in_a_row",
        "has_answered",
        "key",
        "name",
        "pace_config",
        "pace_keys",
        "per_credential",
        "settings",
        "switch",
        "whole_config",
    )

    def __init__(self, name: str, config: ProviderResilienceConfig | None, per_credential: bool) -> None:
        self.name = name
        self.key = host_key(name)
        self.anonymous_key = f"{self.key}/{NO_CREDENTIAL}"
        """The key of the pace of calls without a credential, once others have one."""
        self.switch = KillSwitch(name)
        self.per_credential = per_credential
        """Whether each of its credentials has a pace of its own."""
        self.pace_keys: dict[str, str] = {}
        """The keys of those paces, by the names of credentials and groups."""
        self.has_answered = False
        """Whether a call has ever succeeded: what never answered is not in an outage, but may not be there at all."""
        self.failures_in_a_row = 0
        """Of its calls, whatever their credential, since the last success."""
        self.settings = resolve(name, config)
        self.whole_config = paced(self.settings, circuit=True)
        self.circuit_config = unpaced(self.settings)
        self.pace_config = paced(self.settings, circuit=False)
        self._unasked = resolve(name, None)
        self._latest = config, self.settings
        self._for_outages = self._unasked, bounds_for_outages(name, self._unasked, None)
        """The settings of the last call that waits out outages, and what became of them."""
        self._budget = RetryBudget(self.settings.retry_budget)
        self._lock = fork_safety.lock()
        self._warned = False

    def settings_for(self, config: ProviderResilienceConfig | None, when_open: WhenOpen = "refuse") -> Settings:
        """What holds for a call with this config; pace and circuit are shared and stay as the first call had them."""
        if when_open == "wait":
            usual = self.settings_for(config)
            made_of, patient = self._for_outages
            if made_of is not usual:
                patient = bounds_for_outages(self.name, usual, config)
                self._for_outages = usual, patient
            return patient
        if config is None:
            return self._unasked
        known, settings = self._latest
        if config is known:
            return settings
        settings = resolve(self.name, config)
        if settings.of_gate() != self.settings.of_gate() and not self._warned:
            self._warned = True
            log.warning("%s: the first call set the rate and the circuit; other settings are ignored", self.name)
        self._latest = config, settings
        return settings

    def pace_key(self, lease: Lease | None) -> str:
        """The key whose pace a call keeps: the provider's or, where they have their own, its credential's."""
        if lease is None:
            return self.anonymous_key if self.per_credential else self.key
        # members of a group share one pace, as they share a limit
        name = getattr(lease, "paced_by", None) or getattr(lease, "group", None) or lease.label
        key = self.pace_keys.get(name)
        if key is None:
            if len(self.pace_keys) >= MOST_PACES:
                self.pace_keys.clear()
            key = self.pace_keys[name] = pair_key(self.key, name)
        return key

    def note_first_send(self, now: float) -> None:
        """A call is sent for the first time."""
        with self._lock:
            self._budget.called(now)

    def note_success(self) -> None:
        self.failures_in_a_row, self.has_answered = 0, True

    def is_in_outage(self, failures: int, is_closed: bool) -> bool:
        """Whether the failures of one call are its target's outage.

        It has answered before; since the call first failed no other has succeeded, or the circuit is not closed: the
        last failure has tripped it, came while it was open, or ended its probe.
        """
        return self.has_answered and (not is_closed or self.failures_in_a_row >= failures)

    def may_retry(self, now: float) -> bool:
        """Take a share of the retry budget, if there is one; ``end_retry`` must follow once."""
        with self._lock:
            return self._budget.take(now)

    def end_retry(self) -> None:
        with self._lock:
            self._budget.ended()

    def forget_retries(self) -> None:
        """For a forked child: the retries in flight are the parent's."""
        self._budget.in_flight = 0


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
    """The state of every provider in this process. Safe for threads and for asyncio at once, bound to no event loop."""

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
        self.fallback_states = TargetStates()
        """What is known of the targets of calls with fallbacks."""
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
        limiter.allow_unreported()  # every permit is reported; twenty at once are no silence
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
            raise ConfigError(f"provider={type(provider).__name__} must be a non-empty name")
        with self._lock:
            if len(self._providers) >= MOST_PROVIDERS:
                raise ConfigError(f"more than {MOST_PROVIDERS:,} providers; check that provider is a name, not data")
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
    """The next call gets a new, empty manager."""
    global _manager
    _manager = None
