"""Answers that come in pieces: the permit is held until the last one, and what goes wrong in between counts.

    async with stream_with_resilience(open_stream, "anthropic") as pieces:
        async for piece in pieces:
            ...

Until the first piece has arrived a stream is a call like any other: it waits, is retried, and has a time
budget. From then on it may take its time, and nothing is retried, since the caller has
seen a part of it. An error that arrives inside of a 200 (an ``overloaded_error`` event) is the
outcome of the call: before the first piece it is retried, later it is handed on and remembered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from .. import wire
from ..clock import Clock
from ..core.decision import Outcome
from ..core.signal import SILENT, Signal
from .call import Call
from .config import CallKeywords, CallOptions
from .context import CallContext
from .execute import drive, drive_sync, with_context

T = TypeVar("T")
Opens = (
    Callable[[], AsyncIterator[T] | Awaitable[AsyncIterator[T]]]
    | Callable[[CallContext], AsyncIterator[T] | Awaitable[AsyncIterator[T]]]
)

MOST_PREAMBLE = 16
"""Pieces without content (comments, names of events, empty lines) that are held back at first."""
TAIL = 4096
"""Characters of the end of a stream that are kept, for an error that was cut in two."""
_OK = SILENT[Outcome.OK]


class ErrorScanner:
    """Finds the error that the pieces of a stream tell of, also one that was cut in two."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tail = ""

    def start(self, pieces: list[T]) -> Signal | None:
        """A new stream has begun with these pieces: what the last error among them says."""
        self._tail = ""
        found = None
        for piece in pieces:
            found = self.scan(piece) or found
        return found

    def scan(self, piece: object) -> Signal | None:
        text = piece.decode("utf-8", "replace") if isinstance(piece, bytes | bytearray) else piece
        if isinstance(text, str):
            self._tail = (self._tail + text)[-TAIL:]
        return self._read(text)

    def end(self) -> Signal | None:
        """All pieces have come; an error that was cut in two is whole only now."""
        return self._read(self._tail)

    def _read(self, text: object) -> Signal | None:
        if not isinstance(text, str | dict):
            return None
        signal = wire.read(200, None, text, wall=self._clock.wall())
        return None if signal.outcome is Outcome.OK else signal


class ResilientStream(Generic[T]):
    """A stream behind the gate: ``async with`` it, and iterate once. Leaving the block closes it.

    ``async for`` works without the block too; then a loop that is left early should be followed by ``aclose``.
    """

    def __init__(self, func: Opens[T], provider: str, options: CallOptions) -> None:
        self._func, self._provider, self._options = func, provider, options
        self._call: Call | None = None
        self._errors: ErrorScanner
        self._pieces: AsyncIterator[T] | None = None
        self._first: list[T] = []

    async def __aenter__(self) -> Self:
        if self._call is not None:
            raise RuntimeError("this stream was already entered; each block needs a new one")
        self._call = call = Call(self._provider, self._options, holds_answer=True)
        self._errors = ErrorScanner(call.clock)
        try:
            self._first = await drive(call, partial(self._begin, call, with_context(self._func, call)))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._close()
        finally:
            if self._call is not None:
                self._call.abandon(error)

    async def aclose(self) -> None:
        """Leave it, where there is no block to leave."""
        await self.__aexit__(None, None, None)

    def __aiter__(self) -> AsyncIterator[T]:
        return self._alone() if self._call is None else self

    async def __anext__(self) -> T:
        call = self._call
        if call is None or self._pieces is None:
            state = "has ended" if call is not None else "must be entered (async with) before it is read"
            raise RuntimeError(f"this stream {state}")
        if self._first:
            return self._first.pop(0)
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            call.complete(self._errors.end() or call.reported or _OK)
            raise
        except Exception as error:
            call.fail(error)
            raise
        if (found := self._errors.scan(piece)) is not None:
            call.complete(found)
        return piece

    async def _alone(self) -> AsyncIterator[T]:
        async with self:
            async for piece in self:
                yield piece

    async def _begin(self, call: Call, opens: Callable[[], Any]) -> list[T]:
        """One attempt: the first pieces, up to one with content."""
        await self._close()
        opened = opens()
        self._pieces = aiter(opened if hasattr(opened, "__aiter__") else await opened)
        first: list[T] = []
        while len(first) < MOST_PREAMBLE and all(map(_is_preamble, first)):
            try:
                first.append(await anext(self._pieces))
            except StopAsyncIteration:
                break
        call.reported = self._errors.start(first) or call.reported
        return first

    async def _close(self) -> None:
        pieces, self._pieces = self._pieces, None
        if pieces is not None and hasattr(pieces, "aclose"):
            await pieces.aclose()


def stream_with_resilience(func: Opens[T], provider: str, **options: Unpack[CallKeywords]) -> ResilientStream[T]:
    """A stream from ``func()`` or ``func(ctx)``: an async generator function, or one that returns an async iterator.

    Takes what ``execute_with_resilience`` takes; time budget and attempt timeout hold until the first piece.
    """
    return ResilientStream(func, provider, CallOptions(**options))


def stream_sync(func: Callable[..., Iterator[T]], provider: str, options: CallOptions) -> Iterator[T]:
    """The same for a generator function, in a thread: it starts when its first piece is asked for."""
    call = Call(provider, options, holds_answer=True)
    errors = ErrorScanner(call.clock)
    opens = with_context(func, call)
    pieces: Any = None

    def begin() -> list[T]:
        nonlocal pieces
        if pieces is not None:
            pieces.close()
        pieces = opens()
        first: list[T] = []
        for piece in pieces:
            first.append(piece)
            if len(first) == MOST_PREAMBLE or not _is_preamble(piece):
                break
        call.reported = errors.start(first) or call.reported
        return first

    left: BaseException | None = None
    first = drive_sync(call, begin)
    try:
        yield from first
        for piece in pieces:
            if (found := errors.scan(piece)) is not None:
                call.complete(found)
            yield piece
        call.complete(errors.end() or call.reported or _OK)
    except GeneratorExit as error:
        left = error
        raise
    except Exception as error:
        call.fail(error)
        raise
    finally:
        pieces.close()
        call.abandon(left)


def _is_preamble(piece: object) -> bool:
    """Server-sent events begin with names and comments; whether all is well is said after them."""
    if isinstance(piece, str):
        text = piece.strip()
        return not text or (text.startswith(("event:", ":")) and "data:" not in text)
    return isinstance(piece, bytes | bytearray) and _is_preamble(piece.decode("utf-8", "replace"))
