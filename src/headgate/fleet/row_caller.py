"""``RowCaller``: blocks of rows in, blocks of results out, in one worker process of an engine.

    call(rows) ── memory: remembered? ──────────────────────────────> results, in the order of the rows
                     │ mine to call
                     v
          one BatchRunner for all blocks ─> Target.fetch ─> result ─> AnswerBuffer ─> memory

Everything runs on an event loop in a thread of its own: engines call from threads, or from loops of theirs. The runner
is one long run, whose input is whatever rows are given; so several blocks at once share its limiter, connections and
credentials. A row never raises: what becomes of it is in its result.

A run that stops (by order, a cap, a key that is rejected) leaves rows undone. They end as ``stopped``, are not
remembered, and are called by the next job of the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..batch.attempt import ItemContext
from ..batch.input.rows import BrokenRowError, InputRow
from ..batch.item import Result
from ..batch.job import infrequent_gc
from ..batch.job_input import RowValidator
from ..batch.ledger import Row
from ..batch.runner import BatchRunner
from ..batch.target import RowAnswer, Target
from ..core.decision import Outcome
from ..core.row_state import FailureReason, RowState
from ..credentials import CredentialCoordinator
from ..distributed.store import StoreDown
from ..engine.supervisor import Stop, StopReason
from ..errors import ConfigError
from ..limiter import AdaptiveRateLimiter
from ..stores import open_store
from .answers import AnswerBuffer, Answers, NoAnswers, RowEnd, RowResult, Taken, open_answers
from .row_reader import NO_KEY, RowReader
from .settings import NO_STORE, RowSettings, is_redis

log = logging.getLogger("headgate.fleet")

T = TypeVar("T")
RENEW_EVERY = 3.0
"""Seconds between two signs of life to the memory."""
LOOK_AGAIN, LONGEST_LOOK = 0.1, 1.0
"""Seconds after which a row that another worker calls is looked for again, at first and at most."""
STORE_PATIENCE = 300.0
"""Seconds for which rows wait for a memory that is down, before they end as stopped."""
FLUSH_PATIENCE = 10.0
"""Seconds for which a block that is done waits for its answers to be remembered."""
CLOSE_WITHIN = 10.0
REPEATS_ALIKE = frozenset((Outcome.INVALID.value, Outcome.TOO_LARGE.value))
"""Failures that are the request's own: calling it again would end in the same way."""


class RowCaller:
    """One for each run in a process. ``call`` may be called from any thread, several at once."""

    def __init__(self, settings: RowSettings, *, answers: Answers | None = None) -> None:
        """Raises ``ConfigError``, also for keys that are not on this machine; nothing is sent yet."""
        self.settings = settings
        self._target = Target(settings.target_config(), prices=settings.prices(), run_id=settings.run)
        self._reader = RowReader(settings, self._target)
        self._prices = settings.prices()
        self.limiter, credentials = _shared(settings, self._target.endpoint.name)
        validator = RowValidator(
            self._target,
            prices=self._prices,
            has_cap=settings.max_cost is not None,
            counts_tokens=self._counts_tokens,
        )
        self.runner = BatchRunner(
            self._send,
            workers=settings.workers,
            limiter=self.limiter,
            credentials=credentials,
            config=settings.batch_config(),
            key=lambda row: _checked_key(validator, row),
            cost=validator.cost,
            row_of=lambda index, row: Row(index, "row", row.digest),
        )
        self.recalled = 0
        """Rows that were answered from memory."""
        self.repeated = 0
        """Rows that a worker had claimed that has died: it may have called them."""
        self._answers = open_answers(settings) if answers is None else answers
        self._asking = ThreadPoolExecutor(1, "headgate-answers")
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
        self._buffer: AnswerBuffer
        self._begun: Future[None] = Future()
        self._thread = threading.Thread(target=self._run_loop, name="headgate-rows", daemon=True)
        self._thread.start()
        self._begun.result()

    # ------------------------------------------------------------------ what engines call

    def call(self, rows: Sequence[Mapping[str, Any]]) -> list[RowResult]:
        """The results of a block, in its order. Waits in this thread."""
        return self._submit(self._block(rows)).result()

    async def call_async(self, rows: Sequence[Mapping[str, Any]]) -> list[RowResult]:
        """The same on an event loop. Where it is cancelled, calls in flight go on, and their answers are remembered."""
        return await asyncio.wrap_future(self._submit(self._block(rows)))

    def stop(self, reason: StopReason = StopReason.STOPPED, detail: str = "") -> None:
        """Finish what is in flight; all other rows end as stopped. May be called from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
            self._loop.call_soon_threadsafe(self._on_stop, Stop(reason, detail))

    def close(self) -> None:
        """Finish what is in flight, write the answers down, and give back what is shared."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin_to_close)
            self._thread.join(CLOSE_WITHIN)
        self.limiter.close()
        self._asking.shutdown(wait=False)

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError("this RowCaller is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

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
        await self._open_answers()
        self._buffer = AnswerBuffer(lambda some: self._ask(self._answers.put, some))
        flushing = asyncio.create_task(self._buffer.run())
        renewing = asyncio.create_task(self._renew())
        async with self._target:
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
        renewing.cancel()
        self._buffer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_PATIENCE):
                await flushing
        flushing.cancel()
        with contextlib.suppress(StoreDown):
            await self._ask(self._answers.close)
        await asyncio.gather(renewing, flushing, return_exceptions=True)

    async def _open_answers(self) -> None:
        """A memory that is down is waited for, but not for long: a wrong address should show at once."""
        give_up_at = self._loop.time() + FLUSH_PATIENCE
        while True:
            try:
                return await self._ask(self._answers.open, self._target.identity["target"])
            except StoreDown as error:
                if self._loop.time() > give_up_at:
                    raise ConfigError(f"answers cannot be remembered: {error}") from None
            await asyncio.sleep(LONGEST_LOOK)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY)
            with contextlib.suppress(StoreDown):
                await self._ask(self._answers.renew)

    async def _ask(self, method: Callable[..., T], *arguments: Any) -> T:
        """Of the memory, in its thread."""
        return await self._loop.run_in_executor(self._asking, method, *arguments)

    def _begin_to_close(self) -> None:
        self._is_closing = True
        self._on_stop(Stop(StopReason.STOPPED, "the worker is closed"))
        self._has_input.set()

    # ------------------------------------------------------------------ a block

    async def _block(self, values: Sequence[Mapping[str, Any]]) -> list[RowResult]:
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
            await self._take(ours)
        except BaseException as error:
            for key in ours:
                if not (waiting := self._pending[key]).done() and id(ours[key]) not in self._sent:
                    del self._pending[key]
                    waiting.set_exception(error if isinstance(error, Exception) else RuntimeError("cancelled"))
                    waiting.exception()
            raise
        return [await result for result in results]

    async def _take(self, rows: Mapping[bytes, InputRow]) -> None:
        """Find out for each row whether it is remembered, called by another worker, or ours to call."""
        waiting, look_again = list(rows), LOOK_AGAIN
        give_up_at = self._loop.time() + STORE_PATIENCE
        while waiting:
            try:
                taken = await self._ask(self._answers.take, waiting)
            except StoreDown as error:
                if self._stop is not None or self._loop.time() > give_up_at:
                    for key in waiting:
                        self._resolve(key, _stopped(f"answers cannot be remembered: {error}"))
                    return
                await asyncio.sleep(LONGEST_LOOK)
                continue
            give_up_at = self._loop.time() + STORE_PATIENCE
            held = []
            for key, found in zip(waiting, taken, strict=True):
                if isinstance(found, bytes):
                    self._recall(key, rows[key], found)
                elif found is Taken.FULL:
                    self._resolve(key, _stopped("memory_full: the memory of answers is full (answers_bytes)"))
                elif found is Taken.HELD:
                    held.append(key)
                else:
                    self.repeated += found is Taken.REPEATED
                    self._send_row(rows[key], self._pending[key])
            waiting = held
            if waiting and self._stop is not None:
                for key in waiting:
                    self._resolve(key, _stopped(self._stop))
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

    async def _send(self, row: InputRow, ctx: ItemContext) -> RowAnswer:
        return await self._target.fetch(row, ctx)

    def _on_result(self, done: Result) -> None:
        row: InputRow = done.item
        future = self._sent.pop(id(row))
        result = _result_of(done, has_prices=bool(self._prices))
        key = row.digest
        if key == NO_KEY:
            future.set_result(result)
        elif done.state is RowState.DONE or (done.attempts > 0 and done.category in REPEATS_ALIKE):
            self._remember(key, result)
        else:
            self._release(key)
            self._resolve(key, result)

    def _remember(self, key: bytes, result: RowResult) -> None:
        """Its block goes on once the answer is written, or the memory is down for long."""
        if isinstance(self._answers, NoAnswers):
            self._resolve(key, result)
            return
        written = self._buffer.add(key, result.pack())
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

    def _release(self, key: bytes) -> None:
        if not isinstance(self._answers, NoAnswers):
            self._start(self._release_all([key]))

    async def _release_all(self, keys: Sequence[bytes]) -> None:
        with contextlib.suppress(StoreDown):  # then the claims end with this worker's lease
            await self._ask(self._answers.release, keys)

    def _on_stop(self, stop: Stop) -> None:
        """Nothing starts any more. What the runner has in flight it finishes; the rest ends here."""
        if self._stop is None:
            self._stop = stop
            self.runner.stop()
            if stop.reason is not StopReason.STOPPED:
                log.warning("run %s has stopped in this worker: %s", self.settings.run, stop)
        for row in self._input:
            self._leave_undone(row, self._sent.pop(id(row)), self._stop)
        self._input.clear()
        if self.runner.status().held:  # those come as results, or when the stream has ended
            return
        for future in self._sent.values():
            if not future.done():
                future.set_result(_stopped(self._stop))
        undone = set(map(id, self._sent.values()))
        keys = [key for key, future in self._pending.items() if id(future) in undone]
        self._sent.clear()
        for key in keys:
            self._pending.pop(key)
        if keys and not self._is_closing:
            self._start(self._release_all(keys))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _leave_undone(self, row: InputRow, result: asyncio.Future[RowResult], stop: Stop) -> None:
        if not result.done():
            result.set_result(_stopped(stop))
        if row.digest != NO_KEY and self._pending.pop(row.digest, None) is not None:
            self._release(row.digest)

    def _counts_tokens(self, key: str) -> bool:
        if self.settings.max_tokens is not None or self.settings.max_cost is not None:
            return True
        return any(self.limiter.has_limits(gate_key) for gate_key in self.runner.gate_keys(key).values())


def _checked_key(validator: RowValidator, row: InputRow) -> str:
    validator.check(row)
    return validator.key(row)


def _shared(settings: RowSettings, provider: str) -> tuple[AdaptiveRateLimiter, CredentialCoordinator | None]:
    """The limiter and the keys, shared with all workers that use the same store."""
    from ..credentials import FileStore
    from ..credentials.redis_store import RedisCredentialStore
    from ..resilience.credential_scope import PairedStore

    keys, store = settings.credentials(), settings.store
    quotas: Any = None
    records: Any = None
    if is_redis(store):
        quotas = records = RedisCredentialStore(store)
    elif store != NO_STORE:
        quotas = open_store(store)
    if not keys:
        return AdaptiveRateLimiter(settings.limit_config(), store=quotas), None
    credentials = CredentialCoordinator(keys, provider=provider, store=records or FileStore())
    paired = None if quotas is None else PairedStore(quotas, lambda _: credentials)
    return AdaptiveRateLimiter(settings.limit_config(), store=paired), credentials


def _result_of(done: Result, *, has_prices: bool) -> RowResult:
    answer = done.value if isinstance(done.value, RowAnswer) and done.error is None else None
    usage = None if answer is None else answer.usage
    error = None
    if done.state is not RowState.DONE:
        error = done.reason
        if isinstance(done.error, BrokenRowError):
            error = str(FailureReason(Outcome.INVALID.value, done.error.what))
    return RowResult(
        response=None if answer is None else answer.body.decode("utf-8", "replace"),
        error=error,
        attempts=done.attempts,
        tokens_in=None if usage is None else usage.input,
        tokens_out=None if usage is None else usage.output,
        cost=done.cost if has_prices else None,
        state=RowEnd.DONE if done.state is RowState.DONE else RowEnd.FAILED,
    )


def _stopped(why: Stop | str) -> RowResult:
    return RowResult(error=str(why), state=RowEnd.STOPPED)
