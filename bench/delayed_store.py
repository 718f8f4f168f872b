"""A store at the other end of a simulated network: exchanges take their time, get lost, or meet a store that is down.

It exchanges messages in tasks of the virtual loop, in place of the thread that talks to a real store. For tests and
``bench.leases``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from headgate.clock import Clock
from headgate.core.decision import UNKNOWN
from headgate.distributed.backends.memory import MemoryStore
from headgate.distributed.grants import PERIOD
from headgate.distributed.protocol import SyncReply
from headgate.distributed.store import TIMEOUT, AdaptiveTimeout, StoreDown
from headgate.distributed.sync_loop import Due, SyncLoop


class DelayedStore(MemoryStore):
    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        *,
        delay: Callable[[random.Random], float] = lambda rng: rng.uniform(0.0005, 0.0015),
        loss: float = 0.0,
        timeout: float | None = None,
        lease: float = PERIOD,
    ) -> None:
        """``delay`` draws how long one way takes, ``loss`` is the share of messages that never arrive."""
        super().__init__(clock, lease=lease)
        self.where = "a simulated store"
        self.is_down = False
        self.loss = loss
        self.exchanges = 0
        self._rng = rng
        self._delay = delay
        self._timeout = timeout
        self._rounds: list[asyncio.Task[None]] = []

    def drive(self, sharing: SyncLoop) -> asyncio.Event:
        wake = asyncio.Event()
        self._rounds.append(asyncio.get_running_loop().create_task(self._go_round(sharing, wake)))
        return wake

    async def finish(self) -> None:
        """End all rounds."""
        for task in self._rounds:
            task.cancel()
        await asyncio.gather(*self._rounds, return_exceptions=True)

    async def _go_round(self, sharing: SyncLoop, wake: asyncio.Event) -> None:
        patience = AdaptiveTimeout(self._timeout)
        while sharing.goes_on(wake) and (limiter := sharing.limiter) is not None:
            wake.clear()
            now = self._clock.now()
            with limiter.lock:
                due = sharing.collect(now)
                next_at = sharing.next_at()
            if due:
                await self._exchange(sharing, due, now, patience)
                limiter.flush_events()
                continue
            try:
                async with asyncio.timeout(None if next_at == UNKNOWN else max(0.0, next_at - now)):
                    await wake.wait()
            except TimeoutError:
                continue

    async def _exchange(self, sharing: SyncLoop, due: Due, sent_at: float, patience: AdaptiveTimeout) -> None:
        replies = await self._answer(due, patience.seconds)
        limiter = sharing.limiter
        if limiter is None:
            return
        now = self._clock.now()
        with limiter.lock:
            if replies is None:
                sharing.fail(due, StoreDown(f"{self.where} did not answer within {patience.seconds:g} s"), now)
                patience.failed()
            else:
                patience.answered(now - sent_at)
                sharing.deliver(due, replies, sent_at, now)

    async def _answer(self, due: Due, patience: float) -> list[SyncReply] | None:
        there, back = self._delay(self._rng), self._delay(self._rng)
        if self.is_down or self._rng.random() < self.loss or there > patience:
            await self._clock.sleep_async(min(patience, TIMEOUT) if self.is_down else patience)
            return None
        await self._clock.sleep_async(there)
        self.exchanges += len(due)
        replies = self.sync([(client.key, request) for client, request in due])
        if self._rng.random() < self.loss or there + back > patience:
            await self._clock.sleep_async(patience - there)
            return None
        await self._clock.sleep_async(back)
        return replies
