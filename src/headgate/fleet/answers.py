"""The memory of a run's answers: what was called once is not called again when an engine repeats a block.

    a row ── take ──> an answer: remembered, no call
                      MINE: call it, then ``put``, or ``release`` where there is no answer to remember
                      REPEATED: the same; a worker that has died may have called it already
                      HELD: another worker calls it; take again later
                      FULL: the memory is full; it is not to be called

Only what would come out the same again is remembered: answers, and rejections of the request itself. They are written
every ``FLUSH_EVERY`` seconds or ``FLUSH_AT`` answers, so a worker that dies loses what was in flight and one flush.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

from ..distributed.store import StoreDown
from ..errors import ConfigError
from .row_reader import KEY_BYTES
from .settings import RowSettings

log = logging.getLogger("headgate.fleet")

FLUSH_EVERY = 0.1
"""Seconds after which an answer is written at the latest ..."""
FLUSH_AT = 50
"""... or as soon as there are so many."""
KEPT_FOR = 7 * 86_400
"""Seconds for which a run's answers are remembered."""
RETRY_FLUSH_AFTER = 0.5
RENEW_EVERY = 3.0
"""Seconds between two signs of life."""
OPEN_PATIENCE, LOOK_AGAIN = 10.0, 0.5
"""Seconds for which a memory that is down is waited for at first, and between two attempts."""
T = TypeVar("T")


class Taken(Enum):
    MINE = "mine"
    REPEATED = "repeated"
    HELD = "held"
    FULL = "full"


class Answers(Protocol):
    """Called from one thread at a time; may take its time. Raises ``StoreDown`` where it cannot be reached now."""

    where: str

    def open(self, identity: str) -> None:
        """Raises ``ConfigError`` where the run of this name was started with another target."""

    def take(self, keys: Sequence[bytes], group: str = "") -> list[bytes | Taken]:
        """The answer of each, packed; else who is to call it. ``group`` names what an engine repeats as a whole; where
        it is empty, that is these keys."""

    def put(self, answers: Sequence[tuple[bytes, bytes]]) -> None:
        """Remember packed answers by their keys. All of them, or it raises and may be called again."""

    def release(self, keys: Sequence[bytes]) -> None:
        """These were taken and have no answer: another worker may call them."""

    def renew(self) -> None:
        """This worker lives; called every few seconds."""

    def close(self) -> None: ...


class NoAnswers:
    """Remembers nothing: a block that is repeated is called again."""

    where = "none"

    def open(self, identity: str) -> None:
        pass

    def take(self, keys: Sequence[bytes], group: str = "") -> list[bytes | Taken]:
        return [Taken.MINE] * len(keys)

    def put(self, answers: Sequence[tuple[bytes, bytes]]) -> None:
        pass

    def release(self, keys: Sequence[bytes]) -> None:
        pass

    def renew(self) -> None:
        pass

    def close(self) -> None:
        pass


def open_answers(settings: RowSettings) -> Answers:
    """Raises ``ConfigError``."""
    if settings.answers == "none":
        return NoAnswers()
    if settings.answers == "redis":
        from .redis_answers import RedisAnswers

        return RedisAnswers(settings.store, settings.run, most_bytes=settings.answers_bytes)
    from .folder_answers import FolderAnswers

    return FolderAnswers(str(settings.answers), settings.run, settings.job)


class _Waiting(NamedTuple):
    key: bytes
    packed: bytes
    written: asyncio.Future[None]


class AnswerBuffer:
    """Answers on their way into the memory. Its task is ``run``, on the event loop that adds them."""

    def __init__(self, put: Callable[[Sequence[tuple[bytes, bytes]]], Awaitable[None]]) -> None:
        """``put`` raises ``StoreDown`` where the answers are to be kept and put again."""
        self._put = put
        self._waiting: list[_Waiting] = []
        self._added = asyncio.Event()
        self._is_due = asyncio.Event()
        self._is_closing = False
        self.failures = 0
        """Flushes in a row that failed."""

    def add(self, key: bytes, packed: bytes) -> asyncio.Future[None]:
        """Done once it is written."""
        assert len(key) == KEY_BYTES
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(key, packed, written))
        self._added.set()
        if len(self._waiting) >= FLUSH_AT:
            self._is_due.set()
        return written

    def close(self) -> None:
        """Let ``run`` end once all is written."""
        self._is_closing = True
        self._added.set()
        self._is_due.set()

    async def run(self) -> None:
        while True:
            await self._added.wait()
            if not self._waiting and self._is_closing:
                return
            try:
                async with asyncio.timeout(FLUSH_EVERY):
                    await self._is_due.wait()
            except TimeoutError:
                pass
            await self._flush()

    async def _flush(self) -> None:
        some, self._waiting = self._waiting, []
        self._added.clear()
        if not self._is_closing:
            self._is_due.clear()
        while some:
            try:
                await self._put([(one.key, one.packed) for one in some])
            except StoreDown as error:
                self.failures += 1
                if self.failures == 1:
                    log.warning("cannot save answers (%s); retrying", error)
                await asyncio.sleep(RETRY_FLUSH_AFTER)
                continue
            self.failures = 0
            for one in some:
                if not one.written.done():
                    one.written.set_result(None)
            some = []
        if self._is_closing:
            self._added.set()


class AnswerMemory:
    """``Answers`` for an event loop: asked in a thread of their own, written by a buffer, kept alive by a task."""

    def __init__(self, answers: Answers) -> None:
        self.remembers = not isinstance(answers, NoAnswers)
        self._answers = answers
        self._thread = ThreadPoolExecutor(1, "headgate-answers")
        self._buffer = AnswerBuffer(lambda some: self._ask(answers.put, some))
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None]

    async def open(self, identity: str) -> None:
        """A memory that is down is waited for, but not for long: a wrong address should show at once."""
        give_up_at = time.monotonic() + OPEN_PATIENCE
        while True:
            try:
                await self._ask(self._answers.open, identity)
                break
            except StoreDown as error:
                if time.monotonic() > give_up_at:
                    raise ConfigError(f"cannot save answers: {error}") from None
            await asyncio.sleep(LOOK_AGAIN)
        self._start(self._buffer.run())
        self._renewing = asyncio.create_task(self._renew())

    async def take(self, keys: Sequence[bytes], group: str) -> list[bytes | Taken]:
        """Raises ``StoreDown``."""
        return await self._ask(self._answers.take, keys, group)

    def put(self, key: bytes, packed: bytes) -> asyncio.Future[None]:
        """Done once it is written."""
        return self._buffer.add(key, packed)

    def release(self, keys: Sequence[bytes]) -> None:
        if self.remembers and keys:
            self._start(self._release(keys))

    async def close(self, within: float) -> None:
        """Write what is left; a memory that is down loses it."""
        self._buffer.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within)
        unfinished = (*self._tasks, self._renewing)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        with contextlib.suppress(StoreDown):
            await self._ask(self._answers.close)
        self._thread.shutdown(wait=False)

    async def _release(self, keys: Sequence[bytes]) -> None:
        with contextlib.suppress(StoreDown):  # then the claims end with this worker's lease
            await self._ask(self._answers.release, keys)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY)
            with contextlib.suppress(StoreDown):
                await self._ask(self._answers.renew)

    async def _ask(self, method: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, method, *arguments)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def other_target(run: str, before: str, now: str) -> ConfigError:
    return ConfigError(f"run {run!r} was started with another target ({before}, now {now}); choose another run name")
