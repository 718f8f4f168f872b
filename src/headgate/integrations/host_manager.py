"""All hosts behind one ``ClientGate``, and their keys: in a limiter of the user's own, or in one made from a config.

    no credentials   the host's key has everything: pace, known limits, circuit
    credentials      each has a pace and limits of its own, under host/label; the circuit stays the host's

As clients may call any number of hosts, the first to be called is forgotten when there are too many.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..clock import Clock
from ..config import RateLimitConfig
from ..core.cooldown import SpendRests
from ..events import ResilienceEvent
from ..limiter import AdaptiveRateLimiter
from ..resilience.config import NEVER_TRIPS, ProviderResilienceConfig
from ..resilience.manager import MOST_PROVIDERS, ProviderResilienceManager, ProviderState
from ..wire.parse import vendor_of
from ..wire.token_usage import MOST_KEYS, VENDORS, TokenCounts
from ..wire.urls import host_key, pair_key

if TYPE_CHECKING:
    from ..distributed.store import Store
    from .origins import OriginCredentials


class HostManager(ProviderResilienceManager):
    """The providers of a client are the hosts that it calls."""

    def __init__(
        self,
        config: RateLimitConfig,
        limiter: AdaptiveRateLimiter | None,
        store: Store | str | None,
        *,
        clock: Clock | None,
        rng: random.Random | None,
        on_event: Callable[[ResilienceEvent], None] | None,
    ) -> None:
        self._config, self._given, self._store = config, limiter, store
        self._pace_configs: dict[int, RateLimitConfig] = {}
        self.tokens = TokenCounts()
        self.spend = SpendRests()
        """Accounts without credentials of ours that cannot spend."""
        self._limited: set[str] = set()
        """Keys of which calls were refused by a limit."""
        self._vendors: dict[str, str] = {}
        """Whose way of counting tokens each host has; empty as long as that is not known."""
        clock = limiter.clock if limiter is not None and clock is None else clock
        super().__init__(clock=clock, rng=rng, on_event=on_event)

    def _new_limiter(self) -> AdaptiveRateLimiter:
        if self._given is not None:
            return self._given
        limiter = AdaptiveRateLimiter(
            self._config, clock=self.clock, rng=self.rng, for_key=self._config_of, store=self._store
        )
        limiter.allow_unreported()
        return limiter

    def has_token_limits(self, key: str) -> bool:
        """Whether more than requests is limited there, so that it is worth knowing what a request takes."""
        limits = self._config.for_key(key).limits
        return len(limits) > ("requests" in limits)

    def is_limited(self, key: str) -> bool:
        """Whether calls were refused by a limit there."""
        return key in self._limited

    def note_limited(self, key: str) -> None:
        """A call was refused by a limit: it may be one on tokens."""
        if len(self._limited) >= MOST_KEYS:
            self._limited.clear()
        self._limited.add(key)

    def vendor_at(self, url: str) -> str:
        """Whose way of counting tokens the API at this address has; empty if that is not known."""
        host = host_key(url)
        known = self._vendors.get(host)
        if known is None:
            if len(self._vendors) >= MOST_KEYS:
                self._vendors.clear()
            known = self._vendors[host] = vendor_of(url)
        return known

    def note_vendor(self, url: str, dialect: str) -> None:
        """An answer of an address that is not known gives its vendor away."""
        if dialect in VENDORS and not self.vendor_at(url):
            self._vendors[host_key(url)] = dialect

    def share_tier(self, key: str, tier: str, keys: OriginCredentials | None) -> None:
        """Let the tier of a model spend of the model's known limits, with each of these keys."""
        model = key.removesuffix(f"/{tier}")
        if not self._config.for_key(key).limits or model == key:
            return
        self.provider_state(model, None, keys is not None)
        pairs = [(key, model)]
        if keys is not None:
            paced_by = getattr(keys.credentials, "paced_by", str)
            names = {paced_by(label) for label in getattr(keys.credentials, "labels", ())}
            pairs = [(pair_key(key, name), pair_key(model, name)) for name in names]
        for spends, owner in pairs:
            self.limiter.share_limits(spends, owner)

    def spend_wait(self, account: Hashable) -> float:
        """Seconds until a call of this account may leave; 0: it does now. One call at a time finds out."""
        with self._lock:
            return self.spend.begin(account, self.clock.now())

    def _add(self, provider: str, config: ProviderResilienceConfig | None, has_credentials: bool) -> ProviderState:
        with self._lock:
            self._forget_oldest()
        return super()._add(provider, config, has_credentials)

    def _forget_oldest(self) -> None:
        while len(self._providers) >= MOST_PROVIDERS:
            oldest = self._providers.pop(next(iter(self._providers)))
            self._by_key.pop(oldest.key, None)

    def _config_of(self, key: str) -> RateLimitConfig:
        state = self._by_key.get(key)
        if state is not None:
            return state.circuit_config if state.per_credential else self._config.for_key(key)
        owner = self._by_key.get(key.rpartition("/")[0])
        return self._config.for_key(key) if owner is None else self._pace_config(owner.key)

    def _pace_config(self, key: str) -> RateLimitConfig:
        """The config of a credential's own gate, which has no circuit. The same object each time."""
        config = self._config.for_key(key)
        paced = self._pace_configs.get(id(config))
        if paced is None:
            paced = replace(config, consecutive_fail_threshold=NEVER_TRIPS, min_samples_to_trip=NEVER_TRIPS)
            self._pace_configs[id(config)] = paced
        return paced
