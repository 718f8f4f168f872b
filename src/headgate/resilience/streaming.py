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
from ..core.decision import Outcome
from ..core.signal import SILENT, Signal
from .call import Call
from .context import CallContext
from .executor import drive, drive_sync
from .story import tell_failure, tell_left, tell_success
from .taxonomy import judge
from .terms import CallOptions

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


class StreamCall(Call):
    """A call whose outcome is known only when its last piece has come."""

    _tail = ""
    _first_after: float | None = None
    """How long the first piece took: how long a stream lasts says nothing about its server."""

    def answered(self, result: object) -> float | None:
        """The first pieces are here; if they are fine, everything stays held."""
        self._tail = ""
        for piece in result if isinstance(result, list) else ():
            self.reported = self._error_in(piece) or self.reported
        if self.reported is not None and self.reported.outcome is not Outcome.OK:
            return super().answered(result)
        self._first_after = self.manager.clock.now() - self.sent_at
        return None

    def goes_on(self, piece: object) -> None:
        """Another piece has come."""
        signal = self._error_in(piece)
        if signal is not None:
            self._end(signal, None)

    def is_over(self) -> None:
        """All pieces have come; an error that was cut in two is whole only now."""
        self._end(self._error_in(self._tail) or self.reported or _OK, None)

    def breaks(self, error: Exception) -> None:
        """The stream was cut off. That it began well is no longer the point."""
        self._end(None, error)

    def is_left(self, error: BaseException | None) -> None:
        """The caller goes, before the end or after it: what is still held goes back, and the last word is said once."""
        left = self._left
        self.close()
        self._left = False
        if left:
            tell_left(self, error)

    def _end(self, signal: Signal | None, error: Exception | None) -> None:
        """Report how it ended, unless that was done before."""
        if not self._left:
            return
        if signal is not None and signal.outcome is Outcome.OK:
            self._report(signal, self._first_after)
            tell_success(self)
            return
        self.verdict = judge(signal, self.response, error, self.classify_error, self.manager.clock.wall())
        self._report(self.verdict.signal, self._first_after)
        tell_failure(self, error)

    def _error_in(self, piece: object) -> Signal | None:
        text = piece.decode("utf-8", "replace") if isinstance(piece, bytes | bytearray) else piece
        if isinstance(text, str) and piece is not self._tail:
            self._tail = (self._tail + text)[-TAIL:]
        if not isinstance(text, str | dict):
            return None
        signal = wire.read(200, None, text, wall=self.manager.clock.wall())
        return None if signal.outcome is Outcome.OK else signal


class ResilientStream(Generic[T]):
    """A stream behind the gate: ``async with`` it, and iterate once. Leaving the block closes it and gives all back.

    ``async for`` works without the block too; then a loop that is left early should be followed by ``aclose``.
    """

    def __init__(self, func: Opens[T], provider: str, options: CallOptions) -> None:
        self._func, self._provider, self._options = func, provider, options
        self._call: StreamCall | None = None
        self._pieces: AsyncIterator[T] | None = None
        self._first: list[T] = []

    async def __aenter__(self) -> Self:
        if self._call is not None:
            raise RuntimeError("this stream was entered before; each block needs a stream of its own")
        self._call = call = StreamCall(self._provider, **self._options)
        try:
            self._first = await drive(call, partial(self._begin, call.bind(self._func)))
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
                self._call.is_left(error)

    async def aclose(self) -> None:
        """Leave it, where there is no block to leave."""
        await self.__aexit__(None, None, None)

    def __aiter__(self) -> AsyncIterator[T]:
        return self._alone() if self._call is None else self

    async def __anext__(self) -> T:
        call = self._call
        if call is None or self._pieces is None:
            state = "is over" if call is not None else "is entered (async with) before it is read"
            raise RuntimeError(f"this stream {state}")
        if self._first:
            return self._first.pop(0)
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            call.is_over()
            raise
        except Exception as error:
            call.breaks(error)
            raise
        call.goes_on(piece)
        return piece

    async def _alone(self) -> AsyncIterator[T]:
        async with self:
            async for piece in self:
                yield piece

    async def _begin(self, opens: Callable[[], Any]) -> list[T]:
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
        return first

    async def _close(self) -> None:
        pieces, self._pieces = self._pieces, None
        if pieces is not None and hasattr(pieces, "aclose"):
            await pieces.aclose()


def stream_with_resilience(func: Opens[T], provider: str, **options: Unpack[CallOptions]) -> ResilientStream[T]:
    """A stream from ``func()`` or ``func(ctx)``: an async generator function, or one that returns an async iterator.

    Takes what ``execute_with_resilience`` takes; time budget and attempt timeout hold until the first piece.
    """
    return ResilientStream(func, provider, options)


def stream_sync(func: Callable[..., Iterator[T]], provider: str, options: CallOptions) -> Iterator[T]:
    """The same for a generator function, in a thread: it starts when its first piece is asked for."""
    call = StreamCall(provider, **options)
    opens = call.bind(func)
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
        return first

    left: BaseException | None = None
    first = drive_sync(call, begin)
    try:
        yield from first
        for piece in pieces:
            call.goes_on(piece)
            yield piece
        call.is_over()
    except GeneratorExit as error:
        left = error
        raise
    except Exception as error:
        call.breaks(error)
        raise
    finally:
        pieces.close()
        call.is_left(left)


def _is_preamble(piece: object) -> bool:
    """Server-sent events begin with names and comments; whether all is well is said after them."""
    if isinstance(piece, str):
        text = piece.strip()
        return not text or (text.startswith(("event:", ":")) and "data:" not in text)
    return isinstance(piece, bytes | bytearray) and _is_preamble(piece.decode("utf-8", "replace"))
