"""Send numbered calls through a limiter, on several keys, until each is done exactly once; write down what happened.

    item --> the key that can start soonest --> limiter.permit --> GET with its id --> 200: done
      ^                                                                 |
      +------------------- 429, 503, broken off -----------------------+

The coordinator hands out the keys and lets one rest that was refused; the limiter has a gate for each
of them, so that every key's pace is its own. A refusal by the gate: wait as told, then again.
Workers hold one item each. What was seen is kept as plain numbers; ``score`` judges and draws them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from .. import wire
from ..credentials import Credential, CredentialCoordinator
from ..credentials.lease import Lease
from ..errors import CircuitOpenError, WaitTooLongError
from ..events import ResilienceEvent
from ..identity import Identities
from ..limiter import AdaptiveRateLimiter, Permit
from ..limiter.permit import PermitContext
from .traces.trace import TraceWriter

# -- what is written down of a trial: at one instant, and of one key

PROVIDER = "mock-api"


@dataclass(frozen=True, slots=True)
class KeySample:
    """One key at one instant."""

    learned: float = 0.0
    """Calls a second."""
    state: str = "closed"
    """The circuit: closed, open or half_open."""
    reason: str = ""
    """Why a call with this key would wait."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at one instant, in seconds since the trial began."""

    at: float
    keys: tuple[KeySample, ...]
    waiting: int
    """Workers that neither have a call on its way nor are finished."""
    done: int

    @property
    def learned(self) -> float:
        """Calls a second, of all keys together."""
        return math.fsum(key.learned for key in self.keys)

    @property
    def state(self) -> str:
        """The circuit that is not closed, if one is not."""
        return next((key.state for key in self.keys if key.state != "closed"), "closed")


@dataclass(slots=True)
class KeyLog:
    """What happened to the calls of one key."""

    label: str
    done_at: list[float] = field(default_factory=list)
    refused_at: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    rests: int = 0

    @property
    def gate(self) -> str:
        """What the limiter knows it by."""
        return f"{PROVIDER}/{self.label}"


MOST_SAMPLES = 20_000
MOST_REFUSALS_KEPT = 100_000
LONGEST_REST = 0.25
"""A worker that the gate refused asks again after this at the latest: a circuit may close sooner than foretold."""
LATE = 2.0
"""A worker stays in a line unless its wait gets so many times as long as it was foreseen."""
LONGEST_IN_LINE = 1.0
"""... and no longer than this: by then another key may be free, and the line of a slow one lasts for ever."""
CALL_TIMEOUT = 10.0
LAST_ANSWERS = 2.0
"""How long a stopped trial waits for answers to what it has already sent."""
RECORD_EVERY = 0.2
"""Seconds between two learned rates in a recording."""
NO_ANSWER = 0
"""The status that is recorded for a call that broke off."""


@dataclass(slots=True)
class Trial:
    limiter: AdaptiveRateLimiter
    url: str
    calls: int
    workers: int
    secrets: Sequence[str] = ("mock-key-1",)
    clock: Callable[[], float] = time.monotonic
    recording: TraceWriter | None = None
    began_at: float = math.nan
    ended_at: float = math.nan
    keys: list[KeyLog] = field(init=False)
    credentials: CredentialCoordinator = field(init=False)
    """Hands out the keys."""
    samples: list[Sample] = field(default_factory=list)
    times_done: Counter[int] = field(default_factory=Counter)
    broken_off: int = 0
    latencies: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    stopped: bool = False
    _logs: dict[str | None, KeyLog] = field(init=False)
    _in_flight: set[asyncio.Task[None]] = field(default_factory=set)
    _workers: list[asyncio.Task[None]] = field(default_factory=list)
    _next_item: int = 0
    _record_at: float = 0.0

    def __post_init__(self) -> None:
        keys = [Credential(f"key-{number}", secret) for number, secret in enumerate(self.secrets, 1)]
        self.keys = [KeyLog(key.label) for key in keys]
        self._logs = {log.label: log for log in self.keys}
        self.credentials = CredentialCoordinator(
            keys,
            provider=PROVIDER,
            on_event=self._hear,
            identities=Identities(b"a trial's keys are no secrets"),
        )

    @property
    def elapsed(self) -> float:
        end = self.clock() if math.isnan(self.ended_at) else self.ended_at
        return 0.0 if math.isnan(self.began_at) else end - self.began_at

    @property
    def done(self) -> int:
        return sum(len(log.done_at) for log in self.keys)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def statuses(self) -> Counter[int]:
        """How calls were answered, of all keys together."""
        return sum((log.statuses for log in self.keys), Counter())

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
        """Take a sample of what the limiter says of its keys."""
        seen = [self.limiter.key_status(log.gate) for log in self.keys]
        looks = tuple(KeySample() if one is None else KeySample(one.rate, one.state, one.reason) for one in seen)
        waiting = sum(not worker.done() for worker in self._workers) - len(self._in_flight)
        sample = Sample(self.elapsed, looks, waiting, self.done)
        if len(self.samples) < MOST_SAMPLES:
            self.samples.append(sample)
        if self.recording is not None and sample.at >= self._record_at:
            self._record_at = sample.at + RECORD_EVERY
            for log, look in zip(self.keys, looks, strict=True):
                self.recording.learned(log.gate, sample.at, look.learned)
        return sample

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while self._next_item < self.calls and not self.stopped:
            item = self._next_item
            self._next_item += 1
            waited = 0.0
            while not self.stopped:
                asked_at = self.clock()
                try:
                    async with (
                        await self._lease() as lease,
                        self._permit(self._logs[lease.label]) as permit,
                    ):
                        waited += self.clock() - asked_at
                        if await self._send(session, item, lease, permit):
                            self.waits.append(waited)
                            break
                except (CircuitOpenError, WaitTooLongError) as refusal:
                    await asyncio.sleep(min(refusal.retry_after or LONGEST_REST, LONGEST_REST))
                    waited += self.clock() - asked_at
                except (aiohttp.ClientError, TimeoutError):
                    self.broken_off += 1

    async def _lease(self) -> Lease:
        """The key that can start soonest. While it rests it is waited for: even so the other lines are longer."""
        while True:
            soonest = self._soonest()
            rest = self.credentials.back_in(soonest)
            if not rest:
                return await self.credentials.acquire_async(prefer=soonest)
            await asyncio.sleep(min(rest, LONGEST_REST))

    def _permit(self, log: KeyLog) -> PermitContext:
        """A permit for this key; a worker that would wait much longer than foreseen chooses again."""
        foreseen = LONGEST_REST + LATE * max(0.0, self._starts_in(log))
        return self.limiter.permit(log.gate, max_wait=min(foreseen, LONGEST_IN_LINE))

    def _soonest(self) -> str:
        """The key with which one more call would start first."""
        return min(self.keys, key=self._starts_in).label

    def _starts_in(self, log: KeyLog) -> float:
        """Seconds until a call that lines up now would start with this key, as far as can be foreseen."""
        rest = self.credentials.back_in(log.label)
        seen = self.limiter.key_status(log.gate)
        if seen is None or rest is None:
            return math.inf if rest is None else rest
        if seen.state == "open" or (seen.state == "half_open" and seen.in_flight):
            return self.limiter.config.open_state_duration  # at most: rather come back then than join an endless line
        return max(rest, seen.not_before_ms / 1000, (seen.waiters + 1 - seen.tokens) / seen.rate)

    async def _send(self, session: aiohttp.ClientSession, item: int, lease: Lease, permit: Permit) -> bool:
        """Make the call, report its answer to gate and coordinator, and say whether the item is done."""
        worker = asyncio.current_task()
        assert worker is not None
        self._in_flight.add(worker)
        log, sent_at = self._logs[lease.label], self.clock()
        try:
            headers = {"Idempotency-Key": str(item), "Authorization": f"Bearer {lease.secret}"}
            async with session.get(f"{self.url}/v1/items/{item}", headers=headers) as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError):
            self._record(log, NO_ANSWER, sent_at, permit.waited)
            raise
        finally:
            self._in_flight.discard(worker)
        permit.report(response)
        lease.report(response)
        self._note(log, item, response.status, sent_at)
        self._record(log, response.status, sent_at, permit.waited, response)
        return response.status == 200

    def _hear(self, event: ResilienceEvent) -> None:
        self._logs[event.credential].rests += event.event_type == "credential_rested"

    def _record(
        self,
        log: KeyLog,
        status: int,
        sent_at: float,
        waited: float,
        response: aiohttp.ClientResponse | None = None,
    ) -> None:
        if self.recording is None:
            return
        retry_after = None
        if response is not None and status != 200:
            retry_after = wire.read(status, response.headers, wall=time.time()).retry_after
        latency = self.clock() - sent_at
        self.recording.call(log.gate, sent_at - self.began_at, latency, status, waited, retry_after, log.label)

    def _note(self, log: KeyLog, item: int, status: int, sent_at: float) -> None:
        now = self.clock()
        log.statuses[status] += 1
        if status == 200:
            log.done_at.append(now - self.began_at)
            self.times_done[item] += 1
            self.latencies.append(now - sent_at)
        elif status == 429 and len(log.refused_at) < MOST_REFUSALS_KEPT:
            log.refused_at.append(now - self.began_at)
