"""Rows for an event loop: read by a thread of their own, for a pipe may be silent for long.

The thread hands rows over in lots, whatever has come before it would have to wait for more. It is a
daemon: one that sits in a read that never ends must not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

from .reading import InputRow, Rows

LARGEST_LOT = 512
"""Rows that are handed over at once."""
MOST_LOTS = 4
"""Lots that wait to be taken."""
LARGEST_WAIT = 16 << 20
"""Bytes of rows in a lot after which it is handed over, however few they are."""


class _Stopped(Exception):  # noqa: N818 - the reader's way out, seen by nobody
    """Nobody takes rows any more."""


async def rows_for_loop(rows: Rows) -> AsyncGenerator[InputRow]:
    """The input's rows, without ever blocking the loop. What reading raises is raised here, after the rows before it."""
    loop = asyncio.get_running_loop()
    lots: asyncio.Queue[list[InputRow] | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(MOST_LOTS)
    stopped = threading.Event()
    lot: list[InputRow] = []

    def hand_over() -> None:
        nonlocal lot
        if stopped.is_set():
            raise _Stopped
        if lot:
            room.acquire()
            if stopped.is_set():
                raise _Stopped
            full, lot = lot, []
            loop.call_soon_threadsafe(lots.put_nowait, full)

    def read() -> None:
        end: BaseException | None = None
        held = 0
        try:
            rows.before_reading = hand_over
            for row in rows:
                lot.append(row)
                held += len(row.raw)
                if len(lot) >= LARGEST_LOT or held >= LARGEST_WAIT:
                    hand_over()
                    held = 0
            hand_over()
        except _Stopped:
            return
        except BaseException as error:
            end = error
        try:
            if lot:
                hand_over()
            loop.call_soon_threadsafe(lots.put_nowait, end)
        except (_Stopped, RuntimeError):  # the loop is closed
            return

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
