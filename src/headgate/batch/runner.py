"""``BatchRunner``: push any number of rows through an API, as fast as it takes them, losing none and doing none twice.

    async def ask(item, ctx):
        return await client.post(URL, json=item, headers={"Authorization": f"Bearer {ctx.credential}"})

    runner = BatchRunner(ask, workers=50, credentials=["sk-...", "sk-..."])
    async for result in runner.stream(rows):
        ...

Here is what callers call. One run is ``run.py``; who may start when is ``lanes.py``; who pauses is ``pauses.py``;
what becomes of a row is ``fates.py``.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from ..clock import Clock, SystemClock
from ..core.decision import UNKNOWN
from ..credentials import Credential, CredentialCoordinator
from ..errors import ConfigError
from ..limiter import AdaptiveRateLimiter
from ..limiter.checks import Cost
from ..limiter.watching import About, around
from ..resilience.target import pair_key
from ..resilience.taxonomy import ClassifyError
from .attempt import Attempt, ItemContext
from .config import BatchConfig
from .intake import Items
from .item import Encode, Result, RowOf, as_line, row_of
from .ledger import Ledger
from .report import BatchEvent, BatchReport
from .run import Run
from .standing import LaneStanding, RunStanding, lanes_of, standing_of
from .steps import chosen_end

AUTO_WORKERS = 1000
"""Calls at once that nobody has bounded: the limiter finds out how many the other side takes."""
AUTO_THREADS = 64
MOST_WORKERS = 100_000

Worker = Callable[[Any, ItemContext], Any]


class BatchRunner:
    """Runs a worker over rows. It may be used for several runs, one after the other."""

    def __init__(
        self,
        worker: Worker,
        *,
        workers: int | str = 50,
        ledger: Ledger | str | None = None,
        limiter: AdaptiveRateLimiter | None = None,
        credentials: CredentialCoordinator | Iterable[str | Credential] | None = None,
        config: BatchConfig | None = None,
        key: str | Callable[[Any], str] = "batch",
        cost: Cost | Callable[[Any], Cost] = 1,
        priority: Callable[[Any], float] | None = None,
        row_of: RowOf = row_of,
        encode: Encode | None = None,
        identity: Mapping[str, str] | None = None,
        classify_error: ClassifyError | None = None,
        on_event: Callable[[BatchEvent], None] | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """``worker(item, ctx)`` is a coroutine function, or a plain one, which then runs in threads.

        ``workers``: how many calls may be under way at once; "auto" leaves that to the limiter. ``ledger``: a ledger,
        the path of one, or None for a run that need not survive its process. ``key`` names what has its own limits,
        ``cost`` what a row takes of them, and a higher ``priority`` goes first. ``row_of`` names rows for the ledger,
        ``encode`` makes a result one line for it, ``identity`` says what the ledger's rows belong to.
        """
        self.config = BatchConfig() if config is None else config
        self.clock: Clock = clock or (limiter.clock if limiter is not None else SystemClock())
        self.rng = random.Random() if rng is None else rng
        self._is_async = inspect.iscoroutinefunction(worker) or inspect.iscoroutinefunction(
            getattr(worker, "__call__", None)  # noqa: B004 - an object whose call is a coroutine function
        )
        self.workers = self._checked(workers)
        self.limiter = AdaptiveRateLimiter(clock=self.clock, rng=self.rng) if limiter is None else limiter
        self.limiter.warns_of_silence = False  # every permit is reported; a thousand at once are no silence
        if credentials is not None and not isinstance(credentials, CredentialCoordinator):
            credentials = CredentialCoordinator(credentials, clock=self.clock)
        self.credentials = credentials
        self._given, self._ledger = ledger, ledger if not isinstance(ledger, str) else None
        self.encode = as_line if encode is None and ledger is not None else encode
        self.key_of: Callable[[Any], str] = key if callable(key) else lambda _: key
        self.cost_of: Callable[[Any], Cost] = cost if callable(cost) else lambda _: cost
        self.has_priorities = priority is not None
        self.priority_of: Callable[[Any], float] = priority if priority is not None else lambda _: 0
        self.row_of = row_of
        self.identity = {} if identity is None else dict(identity)
        self.classify_error = classify_error
        self.on_event = on_event
        self._worker = worker
        self._threads: ThreadPoolExecutor | None = None
        self._passing = chosen_end()
        self._run: Run | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last = BatchReport()
        self.is_paused = False
        """Whether an operator lets no row start."""

    # ------------------------------------------------------------------ running

    async def run(self, items: Items) -> BatchReport:
        """Work through the items and say how it went. Cancelling it stops at once; nothing is lost."""
        run = await self._begin(items, streaming=False, in_order=False)
        try:
            await run.go()
        finally:
            await self._end(run)
        return run.report

    async def stream(self, items: Items, *, in_order: bool = False) -> AsyncIterator[Result]:
        """Results as they finish, or in the order of the items, each once it is written down.

        Rows that an earlier run of the same ledger has finished are not given again; ``runner.report`` counts them.
        """
        run = await self._begin(items, streaming=True, in_order=in_order)
        assert run.delivery is not None
        going = asyncio.ensure_future(run.go())
        try:
            async for result in run.delivery.results():
                yield result
            await going
        finally:
            if not going.done():
                run.stop("cancelled", now=True)
            await asyncio.wait([going])
            await self._end(run)
            if not going.cancelled():
                going.exception()  # raised above, unless the consumer has left

    def run_sync(self, items: Items) -> BatchReport:
        """The same as ``run`` for a program without an event loop."""
        return asyncio.run(self.run(items))

    def stop(self, *, now: bool = False) -> None:
        """Start nothing any more and finish what is under way, or give that back too (``now``). Rows stay open.

        May be called from any thread, and from a signal handler.
        """
        run, loop = self._run, self._loop
        if run is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(partial(run.stop, "stopped", now=now))

    def pause(self) -> None:
        """Start no row until ``resume``; what is under way is finished. May be called from any thread."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on after ``pause``. May be called from any thread."""
        self.is_paused = False
        run, loop = self._run, self._loop
        if run is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(run.resume)

    # ------------------------------------------------------------------ looking

    @property
    def report(self) -> BatchReport:
        """The present run so far, or the last one."""
        run = self._run  # whoever asks may live in another thread
        if run is not None:
            run.report.elapsed = self.clock.now() - run.timekeeper.began_at
            return run.report
        return self._last

    def lanes(self, most: int = 100) -> list[LaneStanding]:
        """How each lane stands at this moment, and why it waits."""
        run = self._run
        return [] if run is None else lanes_of(run, most)

    def standing(self) -> RunStanding:
        """How the whole run stands at this moment."""
        return RunStanding() if (run := self._run) is None else standing_of(run)

    # ------------------------------------------------------------------ inside

    @property
    def ledger(self) -> Ledger:
        assert self._ledger is not None
        return self._ledger

    def gate_keys(self, key: str) -> dict[str | None, str]:
        """What this key's lanes ask the limiter for, by the label of their credential."""
        keys = self.credentials
        return {None: key} if keys is None else {label: pair_key(key, keys.paced_by(label)) for label in keys.labels}

    def has_limits(self, key: str) -> bool:
        """Whether limits are known for any lane of this key."""
        return any(self.limiter.has_limits(gate_key) for gate_key in self.gate_keys(key).values())

    def call(self, attempt: Attempt, context: ItemContext) -> Awaitable[Any]:
        """One call of the worker, within its time."""
        is_bounded = self.config.attempt_timeout is not None or attempt.item.deadline_at != UNKNOWN
        if self.limiter.tell.around:
            return self._watched(attempt, context, is_bounded)
        if is_bounded or self._passing is not None:
            return self._call(attempt, context, is_bounded)
        if self._is_async:
            work: Awaitable[Any] = self._worker(attempt.item.value, context)
            return work
        return self._in_thread(attempt, context)

    async def _watched(self, attempt: Attempt, context: ItemContext, is_bounded: bool) -> Any:
        """The same, with those around it who watch every call."""
        about = About(attempt.attempt, credential=context.credential_label or "")
        with around(self.limiter.tell.around, attempt.permit, about):
            return await self._call(attempt, context, is_bounded)

    async def _call(self, attempt: Attempt, context: ItemContext, is_bounded: bool) -> Any:
        if self._passing is not None:
            self._passing("send")
        work = self._worker(attempt.item.value, context) if self._is_async else self._in_thread(attempt, context)
        if not is_bounded:
            value = await work
        else:
            async with asyncio.timeout(min(attempt.attempt_timeout, attempt.time_left())):
                value = await work
        if self._passing is not None:
            self._passing("receive")
        return value

    def _in_thread(self, attempt: Attempt, context: ItemContext) -> asyncio.Future[Any]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.workers, "headgate-batch")
        loop = asyncio.get_running_loop()
        if self.limiter.tell.around:  # what they put around the call is to be seen in the thread too
            return loop.run_in_executor(self._threads, copy_context().run, self._worker, attempt.item.value, context)
        return loop.run_in_executor(self._threads, self._worker, attempt.item.value, context)

    async def _begin(self, items: Items, *, streaming: bool, in_order: bool) -> Run:
        if self._run is not None:
            raise RuntimeError("this runner is running already; use one runner for each batch at a time")
        if self._given is None:
            from .memory_ledger import MemoryLedger

            self._ledger = MemoryLedger(wall=self.clock.wall)
        elif isinstance(self._given, str):
            from .sqlite_ledger import SqliteLedger

            self._ledger = SqliteLedger(self._given, durability=self.config.durability, wall=self.clock.wall)
        self._loop = asyncio.get_running_loop()
        self._run = Run(self, items, streaming=streaming, in_order=in_order)
        return self._run

    async def _end(self, run: Run) -> None:
        """Let go of what was made for this run."""
        self._run, self._last = None, run.report
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        if self._given is None or isinstance(self._given, str):
            await self.ledger.close()

    def _checked(self, workers: int | str) -> int:
        if workers == "auto":
            return AUTO_WORKERS if self._is_async else AUTO_THREADS
        if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MOST_WORKERS:
            raise ConfigError(f"workers={workers!r} must be a whole number from 1 to {MOST_WORKERS:,}, or 'auto'")
        return workers
