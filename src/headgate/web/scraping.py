"""The numbers for Prometheus: made at most as often as a view is taken, whoever asks for them."""

from __future__ import annotations

import time
from typing import Protocol

from headgate.errors import HeadgateError
from headgate.observe.source import Sources

from .looking import QUICKEST, Looking


class Metrics(Protocol):
    """As ``headgate.observe.prometheus.Prometheus``, which may have been counting for a while."""

    def text(self) -> bytes: ...


class NoMetricsError(HeadgateError):
    """Metrics were asked for where their library is not installed."""


class Scraping:
    def __init__(self, sources: Sources, metrics: Metrics | None) -> None:
        self._sources = sources
        self._metrics = metrics
        self._kept: tuple[bytes, str] | None = None
        self._next_at = 0.0

    async def scrape(self, looking: Looking) -> tuple[bytes, str]:
        """The text and its kind; raises ``NoMetricsError``."""
        kept = self._kept
        if kept is None or time.monotonic() >= self._next_at:
            kept = self._kept = await looking.ask(self._make)
            self._next_at = time.monotonic() + QUICKEST
        return kept

    def _make(self) -> tuple[bytes, str]:
        try:
            from headgate.observe.prometheus import CONTENT_TYPE, Prometheus
        except ImportError:
            raise NoMetricsError("metrics need prometheus-client: pip install 'headgate[metrics]'.") from None
        if self._metrics is None:
            self._metrics = Prometheus(self._sources)
        return self._metrics.text(), CONTENT_TYPE
