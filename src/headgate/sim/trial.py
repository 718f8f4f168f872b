"""Send numbered calls through a limiter until each is done exactly once, and write down what happened.

    item --> limiter.permit --> GET with its id --> 200: done
      ^                              |
      +---- 429, 503, broken off ----+      a refusal by the gate: wait as told, then again

Workers hold one item each. What was seen is kept as plain numbers; ``score`` judges
them and ``picture`` draws them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

from headgate import wire
from headgate.errors import CircuitOpenError
from headgate.limiter import AdaptiveRateLimiter, Permit

from .trace import TraceWriter

MOST_SAMPLES = 20_000
MOST_REFUSALS_KEPT = 100_000
LONGEST_REST = 0.25
"""A worker whom the gate refused asks again after this at the latest: a circuit may close sooner than foretold."""
CALL_TIMEOUT = 10.0
LAST_ANSWERS = 2.0
"""How long a stopped trial waits for answers to what it has already sent."""
RECORD_EVERY = 0.2
"""Seconds between two learned rates in a recording."""
NO_ANSWER = 0
"""The status that is recorded for a call that broke off."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What an onlooker saw at one instant, in seconds since the trial began."""

    at: float
    learned: float
    state: str
    reason: str
    waiting: int
    """Workers that neither have a call on its way nor are finished."""
    done: int


@dataclass(slots=True)
class Trial:
    limiter: AdaptiveRateLimiter
    url: str
    calls: int
    workers: int
    key: str = "mock-api"
    clock: Callable[[], float] = time.monotonic
    recording: TraceWriter | None = None
    began_at: float = math.nan
    ended_at: float = math.nan
    samples: list[Sample] = field(default_factory=list)
    done_at: list[float] = field(default_factory=list)
    times_done: Counter[int] = field(default_factory=Counter)
    refused_at: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    broken_off: int = 0
    latencies: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    stopped: bool = False
    _in_flight: set[asyncio.Task[None]] = field(default_factory=set)
    _workers: list[asyncio.Task[None]] = field(default_factory=list)
    _next_item: int = 0
    _record_at: float = 0.0

    @property
    def elapsed(self) -> float:
        end = self.clock() if math.isnan(self.ended_at) else self.ended_at
        return 0.0 if math.isnan(self.began_at) else end - self.began_at

    @property
    def done(self) -> int:
        return len(self.done_at)

    async def run(self) -> None:
        """Return when every item is done, or when ``stop`` was called and the last answers are in."""
        self.began_at = self.clock()
        connections = aiohttp.TCPConnector(limit=self.workers)
        timeout = aiohttp.ClientTimeout(total=CALL_TIMEOUT)
        async with aiohttp.ClientSession(connector=connections, timeout=timeout) as session:
            self._workers = [asyncio.create_task(self._work(session)) for _ in range(self.workers)]
            try:
                results = await asyncio.gather(*self._workers, return_exceptions=True)
            finally:
                for worker in self._workers:
                    worker.cancel()
                self.ended_at = self.clock()
        for result in results:
            if isinstance(result, Exception):
                raise result

    def stop(self) -> None:
        """Start nothing more: workers that wait are released, answers on their way are still taken."""
        self.stopped = True
        loop = asyncio.get_running_loop()
        for worker in self._workers:
            if worker in self._in_flight:
                loop.call_later(LAST_ANSWERS, worker.cancel)
            else:
                worker.cancel()

    def observe(self) -> Sample:
        """Take a sample of what the limiter says of itself."""
        entry = next(iter(self.limiter.snapshot(top=1).keys), None)
        waiting = sum(not worker.done() for worker in self._workers) - len(self._in_flight)
        if entry is None:
            sample = Sample(self.elapsed, 0.0, "closed", "", waiting, self.done)
        else:
            sample = Sample(self.elapsed, entry.rate, entry.state, entry.reason, waiting, self.done)
        if len(self.samples) < MOST_SAMPLES:
            self.samples.append(sample)
        if self.recording is not None and entry is not None and sample.at >= self._record_at:
            self._record_at = sample.at + RECORD_EVERY
            self.recording.learned(self.key, sample.at, sample.learned)
        return sample

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while self._next_item < self.calls and not self.stopped:
            item = self._next_item
            self._next_item += 1
            waited = 0.0
            while not self.stopped:
                try:
                    async with self.limiter.permit(self.key) as permit:
                        waited += permit.waited
                        if await self._send(session, item, permit):
                            self.waits.append(waited)
                            break
                except CircuitOpenError as refusal:
                    rest = min(refusal.retry_after or LONGEST_REST, LONGEST_REST)
                    waited += rest
                    await asyncio.sleep(rest)
                except (aiohttp.ClientError, TimeoutError):
                    self.broken_off += 1

    async def _send(self, session: aiohttp.ClientSession, item: int, permit: Permit) -> bool:
        """Make the call, report its answer, and say whether the item is done."""
        worker = asyncio.current_task()
        assert worker is not None
        self._in_flight.add(worker)
        sent_at = self.clock()
        try:
            headers = {"Idempotency-Key": str(item)}
            async with session.get(f"{self.url}/v1/items/{item}", headers=headers) as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError):
            self._record(NO_ANSWER, sent_at, permit.waited)
            raise
        finally:
            self._in_flight.discard(worker)
        permit.report(response)
        self._note(item, response.status, sent_at)
        self._record(response.status, sent_at, permit.waited, response)
        return response.status == 200

    def _record(
        self, status: int, sent_at: float, waited: float, response: aiohttp.ClientResponse | None = None
    ) -> None:
        if self.recording is None:
            return
        retry_after = None
        if response is not None and status != 200:
            retry_after = wire.read(status, response.headers, wall=time.time()).retry_after
        latency = self.clock() - sent_at
        self.recording.call(self.key, sent_at - self.began_at, latency, status, waited, retry_after)

    def _note(self, item: int, status: int, sent_at: float) -> None:
        now = self.clock()
        self.statuses[status] += 1
        if status == 200:
            self.done_at.append(now - self.began_at)
            self.times_done[item] += 1
            self.latencies.append(now - sent_at)
        elif status == 429 and len(self.refused_at) < MOST_REFUSALS_KEPT:
            self.refused_at.append(now - self.began_at)
