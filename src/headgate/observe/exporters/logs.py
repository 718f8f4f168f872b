"""Events in the standard library's log: a line for people, or an object of JSON for machines.

    hub.add(LogListener())                  headgate.events: api.example.com circuit_changed: closed to open
    hub.add(LogListener(as_json=True))      {"at": 1790000000.0, "level": "warning", "kind": "circuit_changed", ...}

What happens all the time is logged as DEBUG, what an operator should look at as WARNING, all else as INFO. Where that
level is not enabled, no sentence is made.
"""

from __future__ import annotations

import json
import logging

from ...clock import Clock, SystemClock
from ...events import EventRecord, PublicEvent, record_of
from ...formatting import redact
from ..event_buffer import ROUTINE, describe, level_of

LOGGER = "headgate.events"


class LogListener:
    """A listener for a ``Hub``, or for any one part's ``on_event``."""

    takes_records = True

    def __init__(
        self, logger: logging.Logger | None = None, *, as_json: bool = False, clock: Clock | None = None
    ) -> None:
        """``clock``: that of the parts that emit."""
        self._log = logging.getLogger(LOGGER) if logger is None else logger
        self._as_json = as_json
        self._clock: Clock = SystemClock() if clock is None else clock

    def wants(self, kind: str) -> bool:
        """Whether it may be logged; of kinds that are not routine, only the event itself shows how serious it is."""
        return self._log.isEnabledFor(logging.DEBUG if kind in ROUTINE else logging.WARNING)

    def __call__(self, event: EventRecord | PublicEvent) -> None:
        log = self._log
        record = record_of(event, self._clock)
        level = level_of(record)
        if not log.isEnabledFor(level):
            return
        line = describe(record)
        if self._as_json:
            told = {"at": round(line.at, 3), "level": logging.getLevelName(level).lower(), "kind": line.kind}
            log.log(level, "%s", json.dumps({**told, "key": line.key, "reason": line.reason, **details(record)}))
        else:
            what = f"{line.key} {line.kind}".strip()
            log.log(level, "%s: %s" if line.reason else "%s%s", what, line.reason)


def details(record: EventRecord) -> dict[str, object]:
    """The fields that the sentence may not have; empty ones and addresses are left out."""
    found: dict[str, object] = {}
    for name, value in record.fields.items():
        if name == "url" or value is None or value in ("", 0):
            continue
        if isinstance(value, str):
            found[name] = redact(value)
        elif isinstance(value, int | float):
            found[name] = value
        elif isinstance(value, dict) and value:
            found[name] = {str(one): amount for one, amount in value.items() if isinstance(amount, int | float)}
    return found
