"""What happened to a credential, told once the lock is free: by label and six digits, never by the secret."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..clock import Clock
from ..core.words import span
from ..events import ResilienceEvent
from ..identity import SHOWN_DIGITS, Identities
from .credential import Key

log = logging.getLogger("headgate")

IN_USE = (
    "%s: every key is in use, so calls wait for one. Keys are shared unless at_once= bounds it or get_credential() "
    "lends one exclusively; raise or drop at_once, use lease(), or add keys."
)

_DOES = {"credential_rested": "rests", "credential_back": "is back", "credential_retired": "is retired"}


class Telling:
    """Logs facts, and hands them to a listener. One that raises is logged and otherwise ignored."""

    def __init__(
        self,
        name: str,
        provider: str,
        clock: Clock,
        listener: Callable[[ResilienceEvent], None] | None,
        identities: Identities | None,
    ) -> None:
        self._name, self._provider, self._clock = name, provider, clock
        self.listener = listener
        self._identities = identities
        self._warned_of_use = False

    @property
    def identities(self) -> Identities:
        if self._identities is None:  # read from its file by the first who needs it
            self._identities = Identities.of_user()
        return self._identities

    def shown(self, key: Key) -> str:
        """The six digits by which people tell it from others."""
        return self.identities.of(key.credential.secret)[:SHOWN_DIGITS]

    def tell(self, kind: str, key: Key | None, seconds: float, reason: str) -> None:
        if key is None:
            self._log_wait(seconds, reason)
            self.pass_on(kind, reason, None, seconds)
            return
        level = logging.WARNING if kind == "credential_retired" else logging.INFO
        if log.isEnabledFor(level):
            how_long = f" for {span(seconds)}" if seconds else ""
            why = f" ({reason})" if reason else ""
            log.log(level, "%s: %s [%s] %s%s%s", self._name, key.label, self.shown(key), _DOES[kind], how_long, why)
        self.pass_on(kind, reason, key.label, seconds)

    def _log_wait(self, seconds: float, reason: str) -> None:
        """A caller waits for a key. That all are in use may be so all the time: it is warned of once."""
        if reason != "held":
            log.info("%s: calls wait until a key is back, in %s", self._name, span(seconds))
        else:
            log.log(logging.DEBUG if self._warned_of_use else logging.WARNING, IN_USE, self._name)
            self._warned_of_use = True

    def pass_on(self, kind: str, reason: str, label: str | None = None, seconds: float = 0.0) -> None:
        if self.listener is None:
            return
        from datetime import UTC, datetime

        event = ResilienceEvent(
            event_type=kind,
            provider=self._provider,
            timestamp=datetime.fromtimestamp(self._clock.wall(), UTC),
            wait_ms=round(1000 * seconds) if seconds else None,
            error_type=reason or None,
            credential=label,
        )
        try:
            self.listener(event)
        except Exception:
            log.exception("a listener failed on %s of %s", kind, label or self._name)
