"""What is told of a crawl while it goes: counted in its report, and to whoever listens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..clock import Clock
from ..events import is_wanted
from .report import CrawlEvent, CrawlReport
from .visit import Arrived, Call, Fate, PutOff, SentOn

log = logging.getLogger("headgate")

Listener = Callable[[CrawlEvent], None]


class Telling:
    def __init__(self, report: CrawlReport, clock: Clock, listener: Callable[[], Listener | None]) -> None:
        """``listener`` says who listens at this moment."""
        self._report, self._clock, self._listener = report, clock, listener

    def tell(self, kind: str, host: str = "", **facts: Any) -> None:
        """Tell whoever listens; a listener that raises costs nobody a page."""
        listener = self._listener()
        if listener is None or not is_wanted(listener, kind):
            return
        try:
            listener(CrawlEvent(at=self._clock.now(), kind=kind, host=host, **facts))
        except Exception:
            log.exception("a listener failed on %s", kind)

    def called(self, call: Call) -> None:
        self._report.fetches += 1
        self._report.stages["extraction"].add(call.waited, call.latency)
        self.tell(
            "call",
            call.visit.host,
            url=call.visit.url,
            status=call.status,
            attempts=call.visit.attempts + 1,
            seconds=call.retry_after,
            waited={"extraction": call.waited},
            worked={"extraction": call.latency},
            credential=call.credential,
        )

    def answered(self, fate: Fate) -> None:
        if isinstance(fate, Arrived | SentOn):
            self._report.statuses[fate.fetched.status] += 1
            self._report.bytes += len(fate.fetched.body)
        elif isinstance(fate, PutOff):
            self._report.rate_limited += fate.rate_limited

    def read_sitemap(self, host: str, url: str, problem: str) -> None:
        if problem:
            self._report.note_sitemap(url, problem)
        self.tell("sitemap", host, url=url, reason=problem)

    def left_out(self, host: str, kind: str, url: str, why: str) -> None:
        """There are more of a kind than are followed: it is told once for each kind."""
        if self._report.note_capped(f"{host}{kind}", url):
            self.tell("capped", host, url=url, reason=why)
