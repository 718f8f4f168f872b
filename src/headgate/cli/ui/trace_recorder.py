"""``--trace``: record every call of a run or a crawl for the simulator, and the rates learned meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ...clock import SystemClock
from ...lab.traces.trace import Heading, TraceWriter
from ...wire import read
from ...wire.urls import pair_key
from .terminal import complain

if TYPE_CHECKING:
    from ...batch.attempt import ItemContext
    from ...batch.input import InputRow, Rows
    from ...batch.job import Send
    from ...batch.lanes import LaneStanding
    from ...core.decision import Outcome
    from ...events import CrawlEvent
    from ...exchange import Answer

RATES_EVERY = 0.5
"""Seconds between two records of the learned rates."""


class TraceRecorder:
    def __init__(self, path: str, *, workers: int, calls: int = 1, keys: int = 1) -> None:
        """``calls`` and ``keys`` are 1 where they are not known before the end."""
        try:
            self._writer = TraceWriter(Path(path), Heading(calls=max(1, calls), workers=workers, keys=max(1, keys)))
        except OSError as error:
            raise click.UsageError(f"--trace: cannot write {path} ({error.strerror}).") from None
        self._path = path
        self._clock = SystemClock()
        self._began_at = self._clock.now()
        self._rates_at = 0.0

    def record_sends(self, send: Send) -> Send:
        """The same ``send``, recorded."""

        async def recorded(row: InputRow, ctx: ItemContext) -> bytes:
            sent_at = self._clock.now() - self._began_at
            observed = _ObservedContext(ctx)
            try:
                return await send(row, cast("ItemContext", observed))
            finally:
                latency = self._clock.now() - self._began_at - sent_at
                waited = 0.0 if ctx.permit is None else ctx.permit.waited
                label = ctx.credential_label
                key = ctx.key if label is None else pair_key(ctx.key, label)
                self._writer.call(key, sent_at, latency, observed.status, waited, observed.retry_after, label)

        return recorded

    def record_rates(self, lanes: Sequence[LaneStanding]) -> None:
        now = self._clock.now() - self._began_at
        if now < self._rates_at:
            return
        self._rates_at = now + RATES_EVERY
        for lane in lanes:
            if lane.rate is not None:
                key = lane.key if lane.credential is None else pair_key(lane.key, lane.credential)
                self._writer.learned(key, now, lane.rate)

    def on_crawl_event(self, event: CrawlEvent) -> None:
        """A listener of a crawl."""
        if event.kind == "call":
            latency, waited = event.worked["extraction"], event.waited["extraction"]
            sent_at = max(0.0, event.at - self._began_at - latency)
            label = event.credential or None
            self._writer.call(event.host, sent_at, latency, event.status or 0, waited, event.seconds, label)

    def close(self) -> None:
        self._writer.end(self._clock.now() - self._began_at)
        if self._writer.trouble is not None:
            complain(f"the trace {self._path} is incomplete ({self._writer.trouble.strerror}).")


def count_rows(rows: Rows) -> int:
    """How many rows a file has; 1 for a pipe, which cannot be read twice."""
    return sum(1 for _ in rows) if rows.can_be_read_again else 1


class _ObservedContext:
    """A row's context that notes the answer."""

    def __init__(self, ctx: ItemContext) -> None:
        self._ctx = ctx
        self.status = 0
        self.retry_after: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def report(self, answer: Answer, *, cost: float | Mapping[str, float] | None = None) -> Outcome:
        self.status = answer.status_code
        if self.status >= 400:
            signal = read(self.status, answer.headers, answer.content, wall=SystemClock().wall())
            self.retry_after = signal.retry_after
        return self._ctx.report(answer, cost=cost)
