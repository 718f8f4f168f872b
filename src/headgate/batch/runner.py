"""``BatchRunner``: push any number of rows through an API, as fast as it takes them, losing none and doing none twice.

    async def ask(item, ctx):
        return await client.post(URL, json=item, headers={"Authorization": f"Bearer {ctx.credential}"})

    runner = BatchRunner(ask, workers=50, credentials=["sk-...", "sk-..."])
    async for result in runner.stream(rows):
        ...

Here is what callers call; one run is ``run.py``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..clock import Clock, SystemClock
from ..engine.supervisor import PauseSwitch, StopReason
from ..errors import ConfigError
from ..events import BatchEvent
from ..limiter import AdaptiveRateLimiter
from ..limiter.permit import Cost
from ..resilience.classify import ClassifyError
from ..wire.urls import pair_key
from .attempt import Worker, WorkerFunction, is_async
from .config import BatchConfig
from .intake import Items, RowFunctions
from .item import Encode, Result, RowOf, as_line, row_of
from .lanes import LaneStanding, RunStatus
from .ledger import Ledger
from .pricing import Budget
from .report import BatchReport
from .run import Run, RunSettings

if TYPE_CHECKING:
    from ..credentials import Credential, CredentialCoordinator
    from .row_targets import RowTargets

AUTO_WORKERS = 1000
"""Concurrent calls where the caller sets no limit: the limiter finds out how many the server accepts."""
AUTO_THREADS = 64
MOST_WORKERS = 100_000


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
        budget: Budget | None = None,
        targets: RowTargets | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """``worker(item, ctx)`` is a coroutine function, or a plain one, which then runs in threads.

        ``workers``: how many calls may be under way at once; "auto" leaves that to the limiter. ``ledger``: a ledger,
        the path of one, or None for a run that need not survive its process. ``key`` names what has its own limits,
        ``cost`` what a row takes of them, and a higher ``priority`` goes first. ``row_of`` names rows for the ledger,
        ``encode`` makes a result one line for it, ``identity`` says what the ledger's rows belong to.
        ``budget``: what rows may spend, in place of ``max_tokens`` and ``max_cost`` of the config; several runs may
        share one. ``targets``: where rows go, with their fallbacks; the worker finds its target in ``ctx.target``.
        """
        self.config = BatchConfig() if config is None else config
        self.clock: Clock = clock or (limiter.clock if limiter is not None else SystemClock())
        self.rng = random.Random() if rng is None else rng
        self.workers = _checked(workers, is_async(worker))
        self.limiter = AdaptiveRateLimiter(clock=self.clock, rng=self.rng) if limiter is None else limiter
        self.limiter.allow_unreported()  # every permit is reported; a thousand at once are no leak
        self.credentials = None if credentials is None else _coordinator_of(credentials, self.clock)
        self.on_event = on_event
        self._worker, self._given_ledger, self._targets = worker, ledger, targets
        self._pause = PauseSwitch()
        self._settings = RunSettings(
            config=self.config,
            clock=self.clock,
            rng=self.rng,
            workers=self.workers,
            limiter=self.limiter,
            credentials_of=self.credentials_of,
            account_of=(lambda _: "") if targets is None else targets.account_of,
            gate_keys=self.gate_keys,
            functions=RowFunctions(
                row_of=row_of,
                key=key if callable(key) else lambda _: key,
                cost=cost if callable(cost) else lambda _: cost,
                priority=priority,
            ),
            encode=as_line if encode is None and ledger is not None else encode,
            identity={} if identity is None else dict(identity),
            classify_error=classify_error,
            listener=lambda: self.on_event,
            pause=self._pause,
            budget=budget,
            fallbacks=targets if targets is not None and targets.has_fallbacks else None,
        )
        self._run: Run | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last = BatchReport()

    # ------------------------------------------------------------------ running

    async def run(self, items: Items) -> BatchReport:
        """Work through the items and say how it went. Cancelling it stops at once; nothing is lost."""
        async with self._one_run(items, streaming=False, in_order=False) as run:
            await run.go()
        return run.report

    async def stream(self, items: Items, *, in_order: bool = False) -> AsyncIterator[Result]:
        """Results as they finish, or in the order of the items, each once it is on disk.

        Rows that an earlier run of the same ledger has finished are not given again; ``runner.report`` counts them.
        """
        async with self._one_run(items, streaming=True, in_order=in_order) as run:
            assert run.delivery is not None
            going = asyncio.ensure_future(run.go())
            try:
                async for result in run.delivery.results():
                    yield result
                await going
            finally:
                if not going.done():
                    run.supervisor.stop(StopReason.CANCELLED, now=True)
                await asyncio.wait([going])
                if not going.cancelled():
                    going.exception()  # raised above, unless the consumer has left

    def run_sync(self, items: Items) -> BatchReport:
        """The same as ``run`` for a program without an event loop."""
        return asyncio.run(self.run(items))

    def stop(self, *, now: bool = False) -> None:
        """Start nothing any more and finish what is under way, or give that back too (``now``). Rows stay open.

        May be called from any thread, and from a signal handler.
        """
        if (run := self._run) is not None:
            self._call_soon(partial(run.supervisor.stop, StopReason.STOPPED, now=now))

    def pause(self) -> None:
        """Start no row until ``resume``; what is under way is finished. May be called from any thread."""
        self._pause.is_on = True

    def resume(self) -> None:
        """Go on after ``pause``. May be called from any thread."""
        self._pause.is_on = False
        if (run := self._run) is not None:
            self._call_soon(run.resume)

    def _call_soon(self, action: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(action)

    # ------------------------------------------------------------------ status

    @property
    def is_paused(self) -> bool:
        """Whether an operator lets no row start."""
        return self._pause.is_on

    @property
    def report(self) -> BatchReport:
        """The present run so far, or the last one. Safe for threads."""
        run = self._run
        if run is None:
            return self._last
        run.note_elapsed()
        return run.report

    def lanes(self, most: int = 100) -> list[LaneStanding]:
        """The state of each lane at this moment, and why it waits. Safe for threads."""
        run = self._run
        return [] if run is None else run.lanes(most)

    def status(self) -> RunStatus:
        """The state of the whole run at this moment. Safe for threads."""
        run = self._run
        return RunStatus() if run is None else run.status()

    # ------------------------------------------------------------------ inside

    @property
    def coordinators(self) -> dict[str, CredentialCoordinator]:
        """All credentials, by what they are for: empty for the primary target's, else a fallback's name."""
        others = {} if self._targets is None else self._targets.own_credentials
        return others if self.credentials is None else {"": self.credentials, **others}

    def credentials_of(self, key: str) -> CredentialCoordinator | None:
        """The credentials that rows of this key are sent with."""
        return self.credentials if self._targets is None else self._targets.credentials_of(key, self.credentials)

    def gate_keys(self, key: str) -> dict[str | None, str]:
        """The limiter's keys for this key, by the label of their credential."""
        owner = key if self._targets is None else self._targets.limits_of(key)
        found, owners = (self._gate_keys(one) for one in (key, owner))
        for label in found if owner != key else ():
            self.limiter.share_limits(found[label], owners[label])
        return found

    def has_limits(self, key: str) -> bool:
        """Whether limits are known for this key, by any of its credentials."""
        return any(self.limiter.has_limits(gate_key) for gate_key in self.gate_keys(key).values())

    def _gate_keys(self, key: str) -> dict[str | None, str]:
        keys = self.credentials_of(key)
        return {None: key} if keys is None else {label: pair_key(key, keys.paced_by(label)) for label in keys.labels}

    @asynccontextmanager
    async def _one_run(self, items: Items, *, streaming: bool, in_order: bool) -> AsyncIterator[Run]:
        """A run, with all that is made for it alone."""
        if self._run is not None:
            raise RuntimeError("this runner is already running; use one runner per batch at a time")
        ledger = self._ledger()
        worker = WorkerFunction(
            self._worker, self.limiter, threads=self.workers, attempt_timeout=self.config.attempt_timeout
        )
        self._loop = asyncio.get_running_loop()
        self._run = run = Run(self._settings, items, worker, ledger, streaming=streaming, in_order=in_order)
        try:
            yield run
        finally:
            self._run, self._last = None, run.report
            worker.close()
            if ledger is not self._given_ledger:
                await ledger.close()

    def _ledger(self) -> Ledger:
        given = self._given_ledger
        if given is None:
            from .ledger.memory import MemoryLedger

            return MemoryLedger(wall=self.clock.wall)
        if isinstance(given, str):
            from .ledger.sqlite import SqliteLedger

            return SqliteLedger(given, durability=self.config.durability, wall=self.clock.wall)
        return given


def _coordinator_of(given: CredentialCoordinator | Iterable[str | Credential], clock: Clock) -> CredentialCoordinator:
    from ..credentials import CredentialCoordinator

    return given if isinstance(given, CredentialCoordinator) else CredentialCoordinator(given, clock=clock)


def _checked(workers: int | str, is_async: bool) -> int:
    if workers == "auto":
        return AUTO_WORKERS if is_async else AUTO_THREADS
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MOST_WORKERS:
        raise ConfigError(f"workers={workers!r} must be a whole number from 1 to {MOST_WORKERS:,}, or 'auto'")
    return workers
