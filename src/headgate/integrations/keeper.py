"""All hosts behind one ``Passing``, and their gates: in a limiter of the user's own, or in one made from a config.

    no credentials   the host's key has everything: pace, known limits, circuit
    credentials      each has a pace and limits of its own, under host/label; the circuit stays the host's

As clients may ask any number of hosts, the one that was met first is forgotten when there are too many.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import fork_safety
from ..clock import Clock
from ..config import RateLimitConfig
from ..events import ResilienceEvent
from ..limiter import AdaptiveRateLimiter
from ..resilience.config import NEVER_TRIPS, ProviderResilienceConfig
from ..resilience.manager import MOST_PROVIDERS, ProviderResilienceManager
from ..resilience.target import Target
from .token_pace import TokenPace

if TYPE_CHECKING:
    from ..stores.contract import Store

MOST_TOKEN_PACES = 10_000


class Keeper(ProviderResilienceManager):
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
        self._token_paces: dict[str, TokenPace] = {}
        self._token_lock = fork_safety.lock()
        clock = limiter.clock if limiter is not None and clock is None else clock
        super().__init__(clock=clock, rng=rng, on_event=on_event)

    def _new_limiter(self) -> AdaptiveRateLimiter:
        if self._given is not None:
            return self._given
        limiter = AdaptiveRateLimiter(
            self._config, clock=self.clock, rng=self.rng, for_key=self._config_of, store=self._store
        )
        limiter.warns_of_silence = False
        return limiter

    def counts(self, key: str) -> bool:
        """Whether more than requests is limited there, so that it is worth knowing what a request takes."""
        limits = self._config.for_key(key).limits
        return len(limits) > ("requests" in limits)

    def token_pace(self, key: str) -> TokenPace:
        """What is known of the tokens that the calls under a key take."""
        pace = self._token_paces.get(key)
        if pace is None:
            with self._token_lock:
                if len(self._token_paces) >= MOST_TOKEN_PACES:
                    self._token_paces.clear()
                pace = self._token_paces.setdefault(key, TokenPace())
        return pace

    def _meet(self, provider: str, config: ProviderResilienceConfig | None, keyed: bool) -> Target:
        with self._lock:
            while len(self._targets) >= MOST_PROVIDERS:
                oldest = self._targets.pop(next(iter(self._targets)))
                self._by_key.pop(oldest.key, None)
        return super()._meet(provider, config, keyed)

    def _config_of(self, key: str) -> RateLimitConfig:
        target = self._by_key.get(key)
        if target is not None:
            return target.circuit_config if target.keyed else self._config.for_key(key)
        owner = self._by_key.get(key.rpartition("/")[0])
        return self._config.for_key(key) if owner is None else self._pace_config(owner.key)

    def _pace_config(self, key: str) -> RateLimitConfig:
        """Of a credential's own gate: everything but the circuit. The same object each time."""
        config = self._config.for_key(key)
        paced = self._pace_configs.get(id(config))
        if paced is None:
            paced = replace(config, consecutive_fail_threshold=NEVER_TRIPS, min_samples_to_trip=NEVER_TRIPS)
            self._pace_configs[id(config)] = paced
        return paced
