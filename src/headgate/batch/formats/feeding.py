"""Rows for an event loop: read by a thread of their own, for a pipe may be silent for long.

The thread hands rows over in lots, whatever has come before it would have to wait for more. It is a
daemon: one that sits in a read that never ends must not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import suppress

from .reading import InputRow, Rows

LARGEST_LOT = 512
"""Rows that are handed over at once."""
MOST_LOTS = 4
"""Lots that wait to be taken."""
MOST_BYTES = 4 << 20
"""Bytes of rows in a lot after which it is handed over, however few they are."""


class _Stopped(Exception):  # noqa: N818 - the reader's way out, seen by nobody
    """Nobody takes rows any more."""


class _Again:
    """An input that may be read several times."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __aiter__(self) -> AsyncGenerator[InputRow]:
        return _read_by_thread(self._rows)


def rows_for_loop(rows: Rows) -> AsyncIterable[InputRow]:
    """The input's rows, without ever blocking the loop. What reading raises is raised here, after the rows before it.

    A file gives them each time it is asked, standard input once.
    """
    return _Again(rows) if rows.can_be_read_again else _read_by_thread(rows)


async def _read_by_thread(rows: Rows) -> AsyncGenerator[InputRow]:
    loop = asyncio.get_running_loop()
    lots: asyncio.Queue[list[InputRow] | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(MOST_LOTS)
    stopped = threading.Event()
    lot: list[InputRow] = []

    def hand_over() -> None:
        nonlocal lot
        if lot:
            room.acquire()
        if stopped.is_set():
            raise _Stopped
        if lot:
            full, lot = lot, []
            loop.call_soon_threadsafe(lots.put_nowait, full)

    def read() -> None:
        end: BaseException | None = None
        held = 0
        try:
            for row in rows.read(hand_over):
                lot.append(row)
                held += len(row.raw)
                if len(lot) >= LARGEST_LOT or held >= MOST_BYTES:
                    hand_over()
                    held = 0
        except _Stopped:
            return
        except BaseException as error:
            end = error
        with suppress(_Stopped, RuntimeError):  # the loop may be closed
            hand_over()
            loop.call_soon_threadsafe(lots.put_nowait, end)

    threading.Thread(target=read, name="headgate-input", daemon=True).start()
    try:
        while True:
            taken = await lots.get()
            if taken is None:
                return
            if isinstance(taken, BaseException):
                raise taken
            room.release()
            for row in taken:
                yield row
    finally:
        stopped.set()
        room.release()
