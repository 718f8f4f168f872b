"""``RowCaller``: blocks of rows in, blocks of results out, in one worker process of an engine.

    call(rows) ── memory: remembered? ──────────────────────────────> results, in the order of the rows
                     │ mine to call
                     v
          one BatchRunner for all blocks ─> Target.fetch ─> result ─> AnswerBuffer ─> memory

Everything runs on an event loop in a thread of its own: engines call from threads, or from loops of theirs. The runner
is one long run, whose input is whatever rows are given; so several blocks at once share its limiter, connections and
credentials. A row never raises: what becomes of it is in its result.

A run that stops (by an operator, a cap, a key that is rejected) leaves rows undone. They end as ``stopped``, are not
remembered, and are called by the next job of the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from ..batch.input.rows import InputRow
from ..batch.item import Result
from ..batch.ledger import Row
from ..batch.row_targets import RowTargets
from ..batch.runner import BatchRunner
from ..distributed.store import StoreDown
from ..engine.infrequent_gc import infrequent_gc
from ..engine.supervisor import Stop, StopReason
from ..limiter.key_lines import KeySource
from .answers import AnswerMemory, Answers, Taken, open_answers
from .member import MOST_KEYS, FleetMember, MemberReport, Orders, with_rows_behind
from .protocol import Caps
from .row_reader import NO_KEY, RowReader, checked_key
from .row_result import RowEnd, RowResult, is_final, result_of, stopped
from .settings import RowSettings, is_fleet_store, open_shared
from .state_store import open_run_state

log = logging.getLogger("headgate.fleet")

LOOK_AGAIN, LONGEST_LOOK = 0.1, 1.0
"""Seconds after which a row that another worker calls is looked for again, at first and at most."""
STORE_PATIENCE = 300.0
"""Seconds for which rows wait for a memory that is down, before they end as stopped."""
FLUSH_PATIENCE = 10.0
"""Seconds for which a block that is done waits for its answers to be remembered."""
CLOSE_WITHIN = 10.0
STOPS_ALL = frozenset((StopReason.FAIL_FAST, StopReason.HOPELESS, StopReason.NO_CREDENTIAL))
"""What stops the whole run, and not this worker alone."""


class RowCaller:
    """One for each run in a process. ``call`` may be called from any thread, several at once."""

    def __init__(self, settings: RowSettings, *, answers: Answers | None = None) -> None:
        """Raises ``ConfigError``, also for keys that are not on this machine; nothing is sent yet."""
        self.settings = settings
        shared = open_shared(settings, lambda *asked: self._targets.credentials_of(*asked))
        self.limiter = shared.limiter
        self._targets = RowTargets(
            settings.target_config(),
            settings.fallbacks,
            prices=settings.prices(),
            has_cap=settings.max_cost is not None,
            counts_tokens=self._counts_tokens,
            credentials=shared.of_fallbacks,
            run_id=settings.run,
        )
        validator, self._reader = self._targets.validator, RowReader(settings, self._targets.primary)
        self._prices = settings.prices()
        self._keys = KeySource(self.limiter, MOST_KEYS)
        self._state = open_run_state(settings.store) if is_fleet_store(settings.store) else None
        self.member: FleetMember | None = None
        if self._state is not None:
            self.member = FleetMember(
                self._state,
                settings.run,
                caps=Caps(max_tokens=settings.max_tokens, max_cost=settings.max_cost),
                report=self._report,
                job=settings.job,
                on_orders=self._on_orders,
            )
        self.runner = BatchRunner(
            self._targets.fetch,
            targets=self._targets,
            budget=None if self.member is None else self.member.budget,
            workers=settings.workers,
            limiter=self.limiter,
            credentials=shared.credentials,
            config=settings.batch_config(),
            key=lambda row: checked_key(validator, row),
            cost=validator.cost,
            row_of=lambda index, row: Row(index, "row", row.digest),
        )
        self.done = self.failed = 0
        self.recalled = 0
        """Rows that were answered from memory."""
        self.repeated = 0
        """Rows that a worker had claimed that has died: it may have called them."""
        self._memory = AnswerMemory(open_answers(settings) if answers is None else answers)
        self._input: deque[InputRow] = deque()
        self._has_input = asyncio.Event()
        self._pending: dict[bytes, asyncio.Future[RowResult]] = {}
        """Rows that are called here or waited for, until their answers are remembered."""
        self._sent: dict[int, asyncio.Future[RowResult]] = {}
        """What is in the runner, by the identity of its row."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop: Stop | None = None
        self._is_closing = False
        self._loop = asyncio.new_event_loop()
        self._begun: Future[None] = Future()
        self._thread = threading.Thread(target=self._run_loop, name="headgate-rows", daemon=True)
        self._thread.start()
        self._begun.result()
        if self.member is not None:
            self.member.start()

    # ------------------------------------------------------------------ what engines call

    def call(self, rows: Sequence[Mapping[str, Any]]) -> list[RowResult]:
        """The results of a block, in its order. Waits in this thread."""
        return self.submit(rows).result()

    def submit(self, rows: Sequence[Mapping[str, Any]], group: str = "") -> Future[list[RowResult]]:
        """The same, to be waited for later. ``group``: what the engine repeats as a whole, if not this block."""
        if not self._thread.is_alive():
            raise RuntimeError("this RowCaller is closed")
        return asyncio.run_coroutine_threadsafe(self._block(rows, group), self._loop)

    async def call_async(self, rows: Sequence[Mapping[str, Any]]) -> list[RowResult]:
        """The same on an event loop. Where it is cancelled, calls in flight go on, and their answers are remembered."""
        return await asyncio.wrap_future(self.submit(rows))

    def stop(self, reason: StopReason = StopReason.STOPPED, detail: str = "") -> None:
        """Finish what is in flight; all other rows end as stopped. May be called from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            self._loop.call_soon_threadsafe(self._on_stop, Stop(reason, detail))

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self._sent

    def close(self) -> None:
        """Finish what is in flight, write the answers down, and give back what is shared."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin_to_close)
            self._thread.join(CLOSE_WITHIN)
        if self.member is not None:
            self.member.close()
        self.limiter.close()

    # ------------------------------------------------------------------ the loop

    def _run_loop(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if self._begun.done():
                log.exception("the worker of run %s has failed", self.settings.run)
            else:
                self._begun.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        await self._memory.open(self._targets.primary.identity["target"])
        async with self._targets:
            self._begun.set_result(None)
            with infrequent_gc():
                try:
                    async for result in self.runner.stream(self._rows()):
                        self._on_result(result)
                    self._on_stop(self.runner.report.stop or Stop(StopReason.STOPPED))
                except Exception as error:
                    log.exception("the worker of run %s has failed", self.settings.run)
                    self._on_stop(Stop(StopReason.FAILED, type(error).__name__))
                while not self._is_closing:
                    self._has_input.clear()
                    await self._has_input.wait()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._memory.close(FLUSH_PATIENCE)

    def _begin_to_close(self) -> None:
        self._is_closing = True
        self._on_stop(Stop(StopReason.STOPPED, "the worker is closed"))
        self._has_input.set()

    # ------------------------------------------------------------------ a block

    async def _block(self, values: Sequence[Mapping[str, Any]], group: str) -> list[RowResult]:
        ours: dict[bytes, InputRow] = {}
        results: list[asyncio.Future[RowResult]] = []
        for one in values:
            row = self._reader.row(one)
            key = row.digest
            result = None if key == NO_KEY else self._pending.get(key)
            if result is None:
                result = self._loop.create_future()
                if key == NO_KEY:
                    self._send_row(row, result)
                else:
                    self._pending[key] = result
                    ours[key] = row
            results.append(result)
        try:
            await self._take(ours, group)
        except BaseException as error:
            unsent = [key for key, row in ours.items() if key in self._pending and id(row) not in self._sent]
            for key in unsent:
                if not (waiting := self._pending.pop(key)).done():
                    waiting.set_exception(error if isinstance(error, Exception) else RuntimeError("cancelled"))
                    waiting.exception()
            self._memory.release(unsent)
            raise
        return [await result for result in results]

    async def _take(self, rows: Mapping[bytes, InputRow], group: str) -> None:
        """Find out for each row whether it is remembered, called by another worker, or ours to call."""
        waiting, look_again = list(rows), LOOK_AGAIN
        give_up_at = self._loop.time() + STORE_PATIENCE
        while waiting:
            try:
                taken = await self._memory.take(waiting, group)
            except StoreDown as error:
                if self._stop is not None or self._loop.time() > give_up_at:
                    for key in waiting:
                        self._resolve(key, stopped(f"cannot save answers: {error}"))
                    return
                await asyncio.sleep(LONGEST_LOOK)
                continue
            give_up_at = self._loop.time() + STORE_PATIENCE
            held = []
            for key, found in zip(waiting, taken, strict=True):
                if isinstance(found, bytes):
                    self._recall(key, rows[key], found)
                elif found is Taken.FULL:
                    self._resolve(key, stopped("memory_full: the saved answers have reached answers_bytes"))
                elif found is Taken.HELD:
                    held.append(key)
                else:
                    self.repeated += found is Taken.REPEATED
                    self._send_row(rows[key], self._pending[key])
            waiting = held
            if waiting and self._stop is not None:
                for key in waiting:
                    self._resolve(key, stopped(self._stop))
                return
            if waiting:
                await asyncio.sleep(look_again)
                look_again = min(LONGEST_LOOK, 2 * look_again)

    def _recall(self, key: bytes, row: InputRow, packed: bytes) -> None:
        try:
            result = RowResult.unpack(packed)
        except (ValueError, TypeError):  # of another version: it is called again, and then written over
            self._send_row(row, self._pending[key])
            return
        self.recalled += 1
        self._count(result)
        self._resolve(key, result)

    def _send_row(self, row: InputRow, result: asyncio.Future[RowResult]) -> None:
        if self._stop is not None:
            self._leave_undone(row, result, self._stop)
            return
        self._sent[id(row)] = result
        self._input.append(row)
        self._has_input.set()

    async def _rows(self) -> AsyncIterator[InputRow]:
        while True:
            while self._input:
                yield self._input.popleft()
            self._has_input.clear()
            await self._has_input.wait()

    # ------------------------------------------------------------------ what becomes of rows

    def _on_result(self, done: Result) -> None:
        row: InputRow = done.item
        future = self._sent.pop(id(row))
        result = result_of(done, has_prices=bool(self._prices), targets=self._targets.labels)
        self._count(result)
        key = row.digest
        if key == NO_KEY:
            future.set_result(result)
        elif is_final(done):
            self._remember(key, result)
        else:
            self._memory.release([key])
            self._resolve(key, result)

    def _remember(self, key: bytes, result: RowResult) -> None:
        """Its block goes on once the answer is written, or the memory is down for long."""
        if not self._memory.remembers:
            self._resolve(key, result)
            return
        written = self._memory.put(key, result.pack())
        late = self._loop.call_later(FLUSH_PATIENCE, self._give_out, key, result)

        def on_written(_: object) -> None:
            late.cancel()
            self._resolve(key, result)

        written.add_done_callback(on_written)

    def _give_out(self, key: bytes, result: RowResult) -> None:
        """Without waiting any longer; it stays here, for other blocks with the same row, until it is written."""
        if (future := self._pending.get(key)) is not None and not future.done():
            future.set_result(result)

    def _resolve(self, key: bytes, result: RowResult) -> None:
        future = self._pending.pop(key, None)
        if future is not None and not future.done():
            future.set_result(result)

    def _on_stop(self, stop: Stop) -> None:
        """Nothing starts any more. What the runner has in flight it finishes; the rest ends here."""
        if self._stop is None:
            self._stop = stop
            self.runner.stop()
            if stop.reason is not StopReason.STOPPED:
                log.warning("run %s has stopped in this worker: %s", self.settings.run, stop)
            if stop.reason in STOPS_ALL and self._state is not None:
                self._start(self._stop_all())
        for row in self._input:
            self._leave_undone(row, self._sent.pop(id(row)), self._stop)
        self._input.clear()
        if self.runner.status().held:  # those come as results, or when the stream has ended
            return
        for future in self._sent.values():
            if not future.done():
                future.set_result(stopped(self._stop))
        undone = set(map(id, self._sent.values()))
        keys = [key for key, future in self._pending.items() if id(future) in undone]
        self._sent.clear()
        for key in keys:
            self._pending.pop(key)
        if keys and not self._is_closing:
            self._memory.release(keys)

    async def _stop_all(self) -> None:
        """What is wrong here is wrong with all workers; one that returns its blocks undone would get most of them."""
        assert self._state is not None
        with contextlib.suppress(StoreDown):
            await asyncio.to_thread(self._state.order, self.settings.run, "stop")

    def _on_orders(self, orders: Orders) -> None:
        """In the member's thread."""
        if orders.stop is not None:
            self.stop(orders.stop, "by an operator or another worker")
        (self.runner.pause if orders.paused else self.runner.resume)()

    def _count(self, result: RowResult) -> None:
        self.done += result.state is RowEnd.DONE
        self.failed += result.state is RowEnd.FAILED

    def _report(self) -> MemberReport:
        """In the member's thread."""
        report, status, keys = self.runner.report, self.runner.status(), self._keys.refresh()
        return MemberReport(
            done=self.done,
            failed=self.failed,
            recalled=self.recalled,
            repeated=self.repeated,
            calls=report.calls,
            tokens=report.tokens,
            cost=report.cost,
            rate_limited=sum(one.refused for one in keys),
            in_flight=status.in_flight,
            waits=with_rows_behind(self._keys.waits, max(0, len(self._sent) - status.in_flight)),
            keys=tuple(keys),
        )

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _leave_undone(self, row: InputRow, result: asyncio.Future[RowResult], stop: Stop) -> None:
        if not result.done():
            result.set_result(stopped(stop))
        if row.digest != NO_KEY and self._pending.pop(row.digest, None) is not None:
            self._memory.release([row.digest])

    def _counts_tokens(self, key: str) -> bool:
        has_cap = self.settings.max_tokens is not None or self.settings.max_cost is not None
        return has_cap or self.runner.has_limits(key)
