"""What is told of a batch while it goes, to whoever listens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..clock import Clock
from ..events import is_wanted, tell_missed
from .item import Item
from .report import BatchEvent

log = logging.getLogger("headgate")

Listener = Callable[[BatchEvent], None]


class Telling:
    """Rows end in lots. Who does not want to hear of one is not asked of the others, but told how many there were."""

    def __init__(self, clock: Clock, listener: Callable[[], Listener | None]) -> None:
        """``listener`` says who listens at this moment."""
        self._clock, self._listener = clock, listener
        self._deaf: Listener | None = None
        """Who did not want to hear of ..."""
        self._unheard: dict[str, int] = {}
        """... these kinds, and how many there have been since."""

    def tell(self, kind: str, key: str = "", item: Item | None = None, **facts: Any) -> bool:
        """Tell whoever listens; False says that he did not want to hear of it. One that raises costs nobody a row."""
        listener = self._listener()
        if listener is None:
            return True
        self.end_lot()  # they came first
        if not is_wanted(listener, kind):
            return False
        if item is not None:
            tokens, money, waited = item.totals()
            facts |= {"attempts": item.attempts, "rate_limited": item.rate_limited, "tokens": round(tokens)}
            facts |= {"cost": money, "waited": dict(waited), "index": item.index}
        try:
            listener(BatchEvent(at=self._clock.now(), kind=kind, key=key, **facts))
        except Exception:
            log.exception("a listener failed on %s", kind)
        return True

    def tell_end(self, kind: str, item: Item, reason: str) -> None:
        """One row of a lot has ended."""
        listener = self._listener()
        if kind in self._unheard and listener is self._deaf:
            self._unheard[kind] += 1
        elif not self.tell(kind, item.key, item, reason=reason):
            self._deaf, self._unheard[kind] = listener, 0

    def end_lot(self) -> None:
        """Of the next lot they may want to hear."""
        if self._unheard:
            unheard, self._unheard = self._unheard, {}
            for kind, count in unheard.items():
                if count:
                    tell_missed(self._deaf, kind, count)
