"""What a client is sent while the page is open, as server-sent events.

    snapshot    the chosen run as it is and the heads of the others; at most twice a second, and only if it changed
    events      what happened since in the chosen run
    timelines   what is new in the charts of the chosen keys, at most once a second
    heartbeat   nothing, if there was nothing else for a while
    closing     the server ends, after a last snapshot; by what: its run has ended, or only the viewer

A slow client delays no other: each gets the newest view when it is ready for it and not what it missed, and one that
does not read for a while is disconnected. Ids say how far it got, so a browser that reconnects goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote

from starlette.types import Receive, Scope, Send

from ..observe.snapshot import to_json
from .view_cache import SHORTEST_INTERVAL, TIMELINES_EVERY, NoAnswerError, RunView, View, ViewCache

HEARTBEAT = 5.0
RETRY = b"retry: 1000\n\n"
WRITE_TIME = 5.0
"""Seconds that a client may take to read what it was sent."""
LAST_LOOK = 0.3
"""Seconds for a run to say how it ended."""
_PLACE = re.compile(r"(\d{1,15})~(\d{1,11}(?:\.\d{1,9})?)~([\x21-\x7e]{0,600})")


@dataclass(slots=True, kw_only=True)
class Place:
    """How far a client got: events up to a number, timelines up to an instant, of one run."""

    run: str | None
    event: int = 0
    since: float = 0.0

    def __str__(self) -> str:
        return f"{self.event}~{self.since!r}~{quote(self.run or '', safe='')}"

    def resume(self, last_event_id: str) -> None:
        """Go on from what a browser says it has; anything that we have not sent is ignored."""
        found = _PLACE.fullmatch(last_event_id)
        if found is not None and self.run is not None and found[3] == quote(self.run, safe=""):
            self.event, self.since = int(found[1]), float(found[2])


class EventStream:
    """An ASGI response that lasts until its client or the server ends it."""

    def __init__(
        self,
        views: ViewCache,
        *,
        place: Place,
        keys: tuple[str, ...],
        read_only: bool,
        on_end: Callable[[EventStream], None],
    ) -> None:
        self._views = views
        self._place = place
        self._keys = keys
        self._read_only = read_only
        self._on_end = on_end
        self._wake = asyncio.Event()
        self._is_disconnected = False
        self._is_closing = False
        self._timelines_next_at = 0.0
        self._sent_runs: bytes | None = None
        self._run: RunView | None = None
        self.loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Say so and end. From its own event loop only."""
        self._is_closing = True
        self._wake.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listening = asyncio.create_task(self._until_disconnected(receive))
        try:
            headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send_news(send)
        finally:
            listening.cancel()
            self._on_end(self)

    async def _until_disconnected(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_disconnected = True
        self._wake.set()

    async def _send_news(self, send: Send) -> None:
        said_at = time.monotonic()
        message = [RETRY]
        while not self._is_disconnected:
            now = time.monotonic()
            next_at = now + SHORTEST_INTERVAL
            closing = self._is_closing
            with suppress(NoAnswerError, TimeoutError):
                async with asyncio.timeout(LAST_LOOK if closing else None):
                    view = await (self._views.last() if closing else self._views.view())
                next_at = view.next_at
                message += self._news(view)
                message += [] if closing else await self._timelines(now)
            if closing:
                message.append(_message("closing", to_json({"by": self._closer()})))
            elif not message and now - said_at >= HEARTBEAT:
                message.append(_message("heartbeat", b"{}"))
            if message:
                began = time.thread_time()
                async with asyncio.timeout(WRITE_TIME):
                    body = b"".join(message)
                    await send({"type": "http.response.body", "body": body, "more_body": not closing})
                self._views.add_cost(time.thread_time() - began)
                said_at = now
                message.clear()
            if closing:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(max(next_at - time.monotonic(), 0.0)):
                    await self._wake.wait()

    def _closer(self) -> str:
        """``run`` if the run has ended and this page is its own, else ``viewer``."""
        run = None if self._run is None else self._run.snapshot
        return "run" if run is not None and run.ending and run.pid == os.getpid() else "viewer"

    def _news(self, view: View) -> Iterator[bytes]:
        place = self._place
        if place.run is None:
            place.run = next(iter(view.runs), None)
        snapshot, runs = view.json(whole=place.run or "", read_only=self._read_only)
        if runs != self._sent_runs:
            self._sent_runs = runs
            yield _message("snapshot", snapshot)
        self._run = view.runs.get(place.run) if place.run is not None else None
        if self._run is None:
            return
        new = [one for one in self._run.events if one.number > place.event]
        if new:
            place.event = new[-1].number
            body = b'{"run":%b,"events":[%b]}' % (to_json(place.run), b",".join(one.json for one in new))
            yield _message("events", body, place)

    async def _timelines(self, now: float) -> list[bytes]:
        run, place = self._run, self._place
        if run is None or place.run is None or not self._keys or now < self._timelines_next_at:
            return []
        self._timelines_next_at = now + TIMELINES_EVERY
        try:
            lines = await self._views.timelines(place.run, run.source, self._keys, place.since)
        except Exception:  # charts stand still; what is wrong with the run is seen by its view
            return []
        if not lines.json:
            return []
        place.since = lines.newest_at
        return [_message("timelines", b'{"run":%b,"timelines":%b}' % (to_json(place.run), lines.json), place)]


def _message(kind: str, data: bytes, place: Place | None = None) -> bytes:
    head = f"event: {kind}" if place is None else f"id: {place}\nevent: {kind}"
    return b"%b\ndata: %b\n\n" % (head.encode("ascii"), data)
