"""Changes of credentials, logged and dispatched without the lock: by label and six digits, never by secret."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from ..clock import Clock
from ..events import EventDispatcher, ResilienceEvent
from ..formatting import format_seconds
from ..identity import SHOWN_DIGITS, Identities
from ..reason_text import credential_why
from .credential import Key

log = logging.getLogger("headgate")

IN_USE = (
    "%s: every key is in use, so calls wait for one. at_once= limits how many calls share a key, and get_credential() "
    "gives it to one caller; raise or drop at_once, use lease(), or add keys."
)
GROUPED = "%s: %s share one limit (%s): they are used as one group from now on"
PROPOSED = (
    "%s: %s are refused together and may share one limit%.0s; give them one group in the key file, or use "
    "groups='auto' (--groups auto)"
)


class ChangeKind(StrEnum):
    """The event types of credentials."""

    RESTED = "credential_rested"
    BACK = "credential_back"
    RETIRED = "credential_retired"
    EXHAUSTED = "credential_pool_exhausted"
    PROBED = "credential_probed"
    """Of an account that could not spend: a call leaves to find out, or can. Other processes must know; no event."""
    GROUPED = "credentials_grouped"
    PROPOSED = "credential_group_proposed"


_PREDICATES = {ChangeKind.RESTED: "rests", ChangeKind.BACK: "is available again", ChangeKind.RETIRED: "is disabled"}


class Change(NamedTuple):
    """One change of one credential, or of the pool as a whole."""

    kind: ChangeKind
    key: Key | None
    seconds: float = 0.0
    """For how long."""
    reason: str = ""
    """A code: an outcome, what an operator did, or for the pool ``held`` or ``resting``."""
    from_store: bool = False
    """Whether it was read from the store, and need not be written there."""
    others: tuple[str, ...] = ()
    """The labels of a group."""


class CredentialEvents:
    """Logs changes and dispatches them to a listener."""

    def __init__(
        self,
        name: str,
        provider: str,
        clock: Clock,
        listener: Callable[[ResilienceEvent], None] | None,
        identities: Identities,
    ) -> None:
        self._name, self._provider = name, provider
        self.listener = listener
        self._events = EventDispatcher(ResilienceEvent, clock, lambda: self.listener)
        self._identities = identities
        self._warned_in_use = False

    def shown(self, key: Key) -> str:
        """The six digits that tell it from others."""
        return self._identities.of(key.credential.secret)[:SHOWN_DIGITS]

    def dispatch(self, change: Change) -> None:
        kind, key, seconds, reason, _, others = change
        if key is None:
            self._log_exhausted(seconds, reason)
            self._send(kind, reason, None, seconds)
            return
        if others:
            is_proposed = kind is ChangeKind.PROPOSED  # there is something to decide
            level, text = (logging.WARNING, PROPOSED) if is_proposed else (logging.INFO, GROUPED)
            log.log(level, text, self._name, ", ".join(others), reason)
            self._send(kind, ", ".join(others), key.label)
            return
        level = logging.WARNING if kind is ChangeKind.RETIRED else logging.INFO
        if log.isEnabledFor(level):
            how_long = f" for {format_seconds(seconds)}" if seconds else ""
            why = f" ({credential_why(reason)})" if reason else ""
            what = _PREDICATES[kind]
            log.log(level, "%s: %s [%s] %s%s%s", self._name, key.label, self.shown(key), what, how_long, why)
        self._send(kind, reason, key.label, seconds)

    def store_failed(self, error: Exception) -> None:
        log.warning("cannot save key state; continuing without it: %s", error)
        self._send("store_failed", type(error).__name__)

    def store_back(self) -> None:
        log.info("key state is saved again")
        self._send("store_back", "")

    def _log_exhausted(self, seconds: float, reason: str) -> None:
        """A caller waits for a key. That all are in use may be so all the time: the warning comes once."""
        if reason != "held":
            log.info("%s: all keys are resting; the first is back in %s", self._name, format_seconds(seconds))
        else:
            log.log(logging.DEBUG if self._warned_in_use else logging.WARNING, IN_USE, self._name)
            self._warned_in_use = True

    def _send(self, kind: str, reason: str, label: str | None = None, seconds: float = 0.0) -> None:
        self._events.dispatch(
            str(kind),
            self._provider,
            wait_ms=round(1000 * seconds) if seconds else None,
            error_type=reason or None,
            credential=label,
        )
