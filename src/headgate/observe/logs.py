"""Events in the standard library's log: a line for people, or an object of JSON for machines.

    hub.add(LogListener())                  headgate.events: api.example.com circuit_changed: closed to open
    hub.add(LogListener(as_json=True))      {"at": 1790000000.0, "level": "warning", "kind": "circuit_changed", ...}

What happens all the time is logged as DEBUG, what somebody should look at as WARNING, all else as INFO. Where
nobody reads that level, an event costs a look at it and no more.
"""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from typing import TYPE_CHECKING

from ..clock import Clock, SystemClock
from ..wire.redaction import redact
from .wording import ROUTINE, in_words, kind_of

if TYPE_CHECKING:
    from .hub import AnyEvent

LOGGER = "headgate.events"
_SAID_ALREADY = ("at", "timestamp", "kind", "event_type", "key", "host", "provider", "reason", "url")


class LogListener:
    """A listener for a ``Hub``, or for any one part's ``on_event``."""

    def __init__(
        self, logger: logging.Logger | None = None, *, as_json: bool = False, clock: Clock | None = None
    ) -> None:
        """``clock``: that of the parts that are listened to."""
        self._log = logging.getLogger(LOGGER) if logger is None else logger
        self._as_json = as_json
        self._clock: Clock = SystemClock() if clock is None else clock

    def wants(self, kind: str) -> bool:
        """Whether anybody would read of it; whether it is grave enough shows in its words alone."""
        return self._log.isEnabledFor(logging.DEBUG if kind in ROUTINE else logging.WARNING)

    def __call__(self, event: AnyEvent) -> None:
        log = self._log
        if not self.wants(kind_of(event)):
            return
        said = in_words(event, self._clock)
        if not log.isEnabledFor(said.level):
            return
        if self._as_json:
            told = {"at": round(said.at, 3), "level": logging.getLevelName(said.level).lower(), "kind": said.kind}
            log.log(said.level, "%s", json.dumps({**told, "key": said.key, "reason": said.reason, **details(event)}))
        else:
            what = f"{said.key} {said.kind}".strip()
            log.log(said.level, "%s: %s" if said.reason else "%s%s", what, said.reason)


def details(event: AnyEvent) -> dict[str, object]:
    """The numbers and words that the sentence may not have; what is empty is left out."""
    found: dict[str, object] = {}
    for one in fields(event):
        value = getattr(event, one.name)
        if one.name in _SAID_ALREADY or value is None or value in ("", 0):
            continue
        if isinstance(value, str):
            found[one.name] = redact(value)
        elif isinstance(value, int | float):
            found[one.name] = value
        elif isinstance(value, dict) and value:
            found[one.name] = {str(name): amount for name, amount in value.items() if isinstance(amount, int | float)}
    return found
