"""Record a crawl for the simulator: every call as it ended."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.clock import SystemClock
from headgate.crawl.report import CrawlEvent
from headgate.sim.trace import Heading, TraceWriter

from . import complain


class CallRecorder:
    """How many calls there will be is not known before the end, so the heading says one."""

    def __init__(self, path: str, workers: int) -> None:
        try:
            self._writer = TraceWriter(Path(path), Heading(calls=1, workers=workers))
        except OSError as error:
            raise click.UsageError(f"--trace: {path} cannot be written ({error.strerror}).") from None
        self._path = path
        self._clock = SystemClock()
        self._began_at = self._clock.now()

    def hear(self, event: CrawlEvent) -> None:
        if event.kind == "call":
            latency, waited = event.worked["extraction"], event.waited["extraction"]
            sent_at = max(0.0, event.at - self._began_at - latency)
            label = event.credential or None
            self._writer.call(event.host, sent_at, latency, event.status or 0, waited, event.seconds, label)

    def end(self) -> None:
        self._writer.end(self._clock.now() - self._began_at)
        if self._writer.trouble is not None:
            complain(f"the recording {self._path} is not whole ({self._writer.trouble.strerror}).")
