"""Record a run for the simulator: every call as it ended, and what was learned meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import click

from headgate.batch.attempt import ItemContext
from headgate.batch.formats import InputRow, Rows
from headgate.batch.job import Send
from headgate.batch.standing import LaneStanding
from headgate.clock import SystemClock
from headgate.core.decision import Outcome
from headgate.exchange import Answer
from headgate.resilience.target import pair_key
from headgate.sim.trace import Heading, TraceWriter
from headgate.wire import read

from . import complain

LEARNED_EVERY = 0.5


class _Ear:
    """A row's context that also hears what was answered; it has what sending a row asks for."""

    def __init__(self, ctx: ItemContext) -> None:
        self._ctx = ctx
        self.status = 0
        self.retry_after: float | None = None
        self.charge = ctx.charge

    @property
    def credential(self) -> str | None:
        return self._ctx.credential

    @property
    def remaining(self) -> float | None:
        return self._ctx.remaining

    def report(self, answer: Answer, *, cost: float | Mapping[str, float] | None = None) -> Outcome:
        self.status = answer.status_code
        if self.status >= 400:
            told = read(self.status, answer.headers, answer.content, wall=SystemClock().wall())
            self.retry_after = told.retry_after
        return self._ctx.report(answer, cost=cost)


class Recorder:
    def __init__(self, path: str, rows: Rows, workers: int, keys: int) -> None:
        """The heading says how many rows there are, so a file is read through once; a pipe's are not known."""
        count = sum(1 for _ in rows) if rows.can_be_read_again else 1
        heading = Heading(calls=max(1, count), workers=workers, keys=max(1, keys))
        try:
            self._writer = TraceWriter(Path(path), heading)
        except OSError as error:
            raise click.UsageError(f"--trace: {path} cannot be written ({error.strerror}).") from None
        self._path = path
        self._clock = SystemClock()
        self._began_at = self._clock.now()
        self._look_at = 0.0

    def around(self, send: Send) -> Send:
        async def recorded(row: InputRow, ctx: ItemContext) -> bytes:
            sent_at = self._clock.now() - self._began_at
            ear = _Ear(ctx)
            try:
                return await send(row, cast(ItemContext, ear))
            finally:
                latency = self._clock.now() - self._began_at - sent_at
                status, retry_after, label = ear.status, ear.retry_after, ctx.credential_label
                key = ctx.key if label is None else pair_key(ctx.key, label)
                waited = 0.0 if ctx.permit is None else ctx.permit.waited
                self._writer.call(key, sent_at, latency, status, waited, retry_after, label)

        return recorded

    def look(self, lanes: Sequence[LaneStanding]) -> None:
        now = self._clock.now() - self._began_at
        if now < self._look_at:
            return
        self._look_at = now + LEARNED_EVERY
        for lane in lanes:
            if lane.rate is not None:
                key = lane.key if lane.credential is None else pair_key(lane.key, lane.credential)
                self._writer.learned(key, now, lane.rate)

    def end(self) -> None:
        self._writer.end(self._clock.now() - self._began_at)
        if self._writer.trouble is not None:
            complain(f"the recording {self._path} is not whole ({self._writer.trouble.strerror}).")
