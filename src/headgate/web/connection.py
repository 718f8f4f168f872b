"""One connection to the page: it must get on with what it wants, in both directions, or it is cut off.

    connected ──head complete──> asking ──answered──> idle ──next head──> ...
        │ HEAD_TIME                 │ nothing read for WRITE_TIME   │ KEEP_ALIVE
        v                           v                               v
      cut off                    cut off                          closed

uvicorn waits for ever for a head that comes byte by byte and for a client that reads nothing. It would also log what
was asked for, the token with it; here nothing is logged at all.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from .stream import WRITE_TIME

MOST_CONNECTIONS = 100
HEAD_TIME = 5.0
KEEP_ALIVE = 5

silence = logging.Logger("headgate.web.silence", logging.CRITICAL + 1)


class Connection(H11Protocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = self.access_logger = silence
        self.access_log = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @property
    def is_busy(self) -> bool:
        """It is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MOST_CONNECTIONS:
            idle = (one for one in self.connections if isinstance(one, Connection) and not one.is_busy)
            out = next(idle, None)
            if out is not None:
                out.transport.abort()
                self.connections.discard(out)
        full = len(self.connections) >= MOST_CONNECTIONS
        super().connection_made(transport)
        if full:
            transport.abort()
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        if not self.is_busy:
            self._expect_head()
        super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self.is_busy and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_TIME, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIME, self.transport.abort)
