"""The numbers for Prometheus, where they are kept: made at most as often as a view is taken."""

from __future__ import annotations

import time
from functools import partial

from headgate.observe.source import Sources

from .looking import QUICKEST, Looking


class Scraping:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._kept: tuple[bytes, str] | None = None
        self._next_at = 0.0

    async def scrape(self, looking: Looking) -> tuple[bytes, str]:
        """The text and its kind. Raises what says which extra is missing."""
        kept = self._kept
        if kept is None or time.monotonic() >= self._next_at:
            from headgate.observe.prometheus import exposition

            kept = await looking.ask(partial(exposition, self._sources))
            self._kept = kept
            self._next_at = time.monotonic() + QUICKEST
        return kept
