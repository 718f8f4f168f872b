"""The state of one provider: its settings, its retry budget, and its keys in the limiter.

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

from .. import fork_safety
from ..core.budget import RetryBudget
from ..limiter.arguments import WhenOpen
from ..wire.urls import host_key, pair_key
from .config import ProviderResilienceConfig, Settings, paced, resolve, unpaced, with_patience
from .context import Lease
from .kill_switch import KillSwitch

log = logging.getLogger("headgate")

MOST_PACES = 10_000
"""Credentials and groups of one provider whose keys are remembered."""
NO_CREDENTIAL = "~"
"""Stands for the credential of a call without one, where others have one; in no label's key."""


class ProviderState:
    """One provider, shared by all of its calls."""

    __slots__ = (
        "_budget",
        "_latest",
        "_lock",
        "_patient",
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
        self._patient = self._unasked, with_patience(name, self._unasked, None)
        """The settings of the last call that waits out outages, and what became of them."""
        self._budget = RetryBudget(self.settings.retry_budget)
        self._lock = fork_safety.lock()
        self._warned = False

    def settings_for(self, config: ProviderResilienceConfig | None, when_open: WhenOpen = "refuse") -> Settings:
        """What holds for a call with this config; pace and circuit are shared and stay as the first call had them."""
        if when_open == "wait":
            usual = self.settings_for(config)
            made_of, patient = self._patient
            if made_of is not usual:
                patient = with_patience(self.name, usual, config)
                self._patient = usual, patient
            return patient
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

    def pace_key(self, lease: Lease | None) -> str:
        """The key whose pace a call keeps: the provider's or, where they have their own, its credential's."""
        if lease is None:
            return self.anonymous_key if self.per_credential else self.key
        name = getattr(lease, "group", None) or lease.label  # members of a group share one pace, as they share a limit
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
