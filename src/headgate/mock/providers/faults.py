"""What is to go wrong, and for which APIs: a script that the next calls of an API act out.

    Fault(trouble="rate_limited")              in the API's own words
    Fault(status=502, body="<html>...")        in any API's
    Fault(status=302, headers={"Location": ...})
    Fault(delay=2.0)                           the usual answer, late
    Fault(drop="before"), Fault(drop="midway") hangs up instead of answering, or half way through

A fault with a ``key`` waits for a call that carries that key.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..api import Reply
from .provider_api import TROUBLES

MOST_FAULTS = 10_000
"""How many may wait to be acted out."""
LONGEST_DELAY = 3600.0
DROPS = ("", "before", "midway")


class Speaker(Protocol):
    """An API that knows words for its troubles."""

    name: str

    def refuse(self, trouble: str, why: str = "", retry_after: int = 1) -> Reply: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    trouble: str = ""
    status: int | None = None
    body: Any = None
    """An object for JSON, or text or bytes as they are."""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drop: str = ""
    key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.drop not in DROPS:
            raise ValueError(f"drop={self.drop!r} must be one of {DROPS}")
        if not 0 <= self.delay <= LONGEST_DELAY:
            raise ValueError(f"delay={self.delay!r} must be within 0 and {LONGEST_DELAY:g} s")
        if self.status is not None and not 200 <= self.status <= 599:
            raise ValueError(f"status={self.status!r} must be within 200 and 599")

    def reply(self, api: Speaker, usual: Reply) -> Reply:
        """What is sent instead of, or as, the usual answer."""
        if self.trouble:
            told = api.refuse(self.trouble)
            headers = {name: value for name, value in told.headers.items() if name not in self.headers}
            return Reply(self.status or told.status, told.body, headers | self.headers)
        if self.status is None and self.body is None:
            return Reply(usual.status, usual.body, usual.headers | self.headers)
        return Reply(self.status or 200, {} if self.body is None else self.body, self.headers)


class FaultScript:
    """The faults that wait, first come, first served."""

    def __init__(self, api: Speaker) -> None:
        self._api = api
        self._waiting: deque[Fault] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, fault: Fault, times: int = 1) -> None:
        if not 1 <= times <= MOST_FAULTS - len(self._waiting):
            raise ValueError(f"times={times!r} must be 1 or more, and at most {MOST_FAULTS:,} faults may wait")
        if fault.trouble:
            try:
                self._api.refuse(fault.trouble)
            except KeyError:
                known = ", ".join(TROUBLES)
                raise ValueError(f"{self._api.name} has no trouble {fault.trouble!r}; all know {known}") from None
        self._waiting.extend([fault] * times)

    def clear(self) -> None:
        self._waiting.clear()

    def take(self, key: str) -> Fault | None:
        """The first fault meant for a call with this key."""
        found = next((fault for fault in self._waiting if fault.key in (None, key)), None)
        if found is not None:
            self._waiting.remove(found)
        return found
