"""A provider as its calls see it: its settings, its retry budget, and its keys in the limiter.

Without credentials a provider is one key, with a pace and a circuit. With credentials each pair has a pace
of its own, and the circuit stays the provider's:

    tavily                  pace + circuit            tavily          circuit, the way back from it
                                                      tavily/key-1    pace
                                                      tavily/key-2    pace

A call then takes two permits, one after the other: a slow credential must not hold up the others in
a common line, and the circuit is asked at the moment the call leaves. A provider that was called without
credentials before parts with its pace at the first call that has one: it goes on as ``tavily/~``. Credentials of
one group share one limit, so the group has the pace, and gives it its name.
"""

from __future__ import annotations

import logging
import re

from .. import fork_safety
from ..core.budget import RetryBudget
from ..limiter.checks import WhenOpen
from ..wire.urls import host_key
from .config import ProviderResilienceConfig, Settings, paced, resolve, unpaced, with_patience
from .switch import switch_of

log = logging.getLogger("headgate")

MOST_PACES = 10_000
"""Credentials and groups of one provider whose keys are remembered."""
NO_CREDENTIAL = "~"
"""What stands for the credential of a call without one, where others have one; in no label's key."""
_UNFIT = re.compile(r"[^\w.-]")
"""What may be in a label but not in a key."""


class Target:
    """A provider as its calls see it."""

    __slots__ = (
        "_budget",
        "_latest",
        "_lock",
        "_patient",
        "_unasked",
        "_warned",
        "circuit_config",
        "failures_in_a_row",
        "has_answered",
        "key",
        "keyed",
        "keyless",
        "name",
        "pace_config",
        "pace_keys",
        "settings",
        "switch",
        "whole_config",
    )

    def __init__(self, name: str, config: ProviderResilienceConfig | None, keyed: bool) -> None:
        self.name = name
        self.key = host_key(name)
        self.keyless = f"{self.key}/{NO_CREDENTIAL}"
        """The key of the pace of calls without a credential, once others have one."""
        self.switch = switch_of(name)
        self.keyed = keyed
        """Whether its pace is that of its credentials."""
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
        """The settings that were last asked for by a call that waits out outages, and what it got."""
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

    def pace_key(self, name: str) -> str:
        """The key whose pace a call with a credential keeps, by its group or its label."""
        key = self.pace_keys.get(name)
        if key is None:
            if len(self.pace_keys) >= MOST_PACES:
                self.pace_keys.clear()
            key = self.pace_keys[name] = pair_key(self.key, name)
        return key

    def sent(self, now: float) -> None:
        """A call leaves for the first time."""
        with self._lock:
            self._budget.called(now)

    def answered(self) -> None:
        """A call has succeeded."""
        self.failures_in_a_row, self.has_answered = 0, True

    def may_retry(self, now: float) -> bool:
        """Take leave to retry a failure; ``retried`` must follow once."""
        with self._lock:
            return self._budget.take(now)

    def retried(self) -> None:
        with self._lock:
            self._budget.ended()

    def forget_retries(self) -> None:
        """In the child of a process that was forked no retry is in flight."""
        self._budget.in_flight = 0


def pair_key(key: str, label: str) -> str:
    """The key of a credential's own pace."""
    return f"{key}/{re.sub(_UNFIT, _quoted, label)}"


def _quoted(unfit: re.Match[str]) -> str:
    return f"%{ord(unfit[0]):x}"
