"""The page as an ASGI app: its routes.

    GET  /                the page                 GET  /static/...      its files
    GET  /api/snapshot    all runs, or one         GET  /api/stream      the same as it changes, by server-sent events
    GET  /api/events      what happened            POST /api/act         do what an operator wants
    GET  /api/timelines   the history of keys
    GET  /metrics         for Prometheus           GET  /healthz         does every run answer? (needs no token)

``create_app`` returns one to mount into a service of your own, at any prefix; ``server.serve`` runs one by itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import HeadgateError
from ..formatting import redact
from ..observe.monitor import RunMonitor
from ..observe.snapshot import ActionRefusedError, MonitoredRun, MonitoredRuns, to_json
from ..wire.urls import LOOPBACK
from .event_stream import EventStream, Place
from .guard import Guard, refuse
from .query import BadRequestError, Query, read_action, read_query
from .view_cache import SHORTEST_INTERVAL, NoAnswerError, View, ViewCache

MOST_STREAMS = 32
ACT_TIME = 6.0
"""Seconds for a run to do what is wanted; one in another process is asked by way of a file."""
OPEN_PATHS = frozenset({"/healthz"})

log = logging.getLogger("headgate.web")


class Metrics(Protocol):
    """As ``headgate.observe.exporters.prometheus.Prometheus``, which may have been counting for a while."""

    def text(self) -> bytes: ...


class NoMetricsError(HeadgateError):
    """Metrics were asked for where their library is not installed."""


HANDLED = (BadRequestError, NoAnswerError, NoMetricsError, HTTPException, Exception)


class WebApp:
    """An ASGI app. ``close`` ends the open streams, which a server would otherwise wait for when it shuts down, and the
    monitor that was started for the page."""

    def __init__(
        self,
        sources: MonitoredRuns,
        *,
        token: str | None,
        allow_hosts: Sequence[str],
        read_only: bool,
        metrics: Metrics | None,
    ) -> None:
        self._views = ViewCache(sources)
        self._metrics_cache = MetricsCache(sources, metrics)
        self._read_only = read_only
        self._files = page_files()
        self._streams: set[EventStream] = set()
        routes = [
            Route("/", self._page),
            Route("/static/{name:path}", self._file),
            Route("/api/snapshot", self._snapshot),
            Route("/api/events", self._events),
            Route("/api/timelines", self._timelines),
            Route("/api/stream", self._stream),
            Route("/api/act", self._act, methods=["POST"]),
            Route("/metrics", self._metrics),
            Route("/healthz", self._healthz),
        ]
        app = Starlette(routes=routes, exception_handlers=dict.fromkeys(HANDLED, _failed))
        app.router.redirect_slashes = False  # a redirect would be built from the request's Host
        self._guarded: ASGIApp = Guard(app, token=token, allow_hosts=allow_hosts, open_paths=OPEN_PATHS)
        self._started: RunMonitor | None = None
        if isinstance(sources, RunMonitor) and not sources.is_started:
            self._started = sources.start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._guarded(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    def close(self) -> None:
        """From any thread, any number of times."""
        for stream in list(self._streams):
            with suppress(RuntimeError):  # its event loop has ended, and it with it
                stream.loop.call_soon_threadsafe(stream.close)
        if self._started is not None:
            self._started.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _page(self, request: Request) -> Response:
        return self._answer_file("index.html")

    async def _file(self, request: Request) -> Response:
        return self._answer_file(request.path_params["name"])

    def _answer_file(self, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise HTTPException(404)
        return Response(file.body, media_type=file.kind)

    async def _snapshot(self, request: Request) -> Response:
        asked = read_query(request.scope["query_string"], "run")
        view = await self._views.view()
        if asked.run is not None:
            _find(view, asked.run)
        return _json(view.json(whole=asked.run, read_only=self._read_only)[0])

    async def _events(self, request: Request) -> Response:
        asked = read_query(request.scope["query_string"], "run", "after", "most")
        run, source = _find(await self._views.view(), asked.run)
        lines = await self._views.events(source, asked.after, asked.most)
        return _json(b'{"run":%b,"events":%b}' % (to_json(run), lines))

    async def _timelines(self, request: Request) -> Response:
        asked = read_query(request.scope["query_string"], "run", "keys", "since")
        run, source = _find(await self._views.view(), asked.run)
        lines = await self._views.timelines(run, source, asked.keys, asked.since)
        return _json(b'{"run":%b,"timelines":%b}' % (to_json(run), lines.json or b"[]"))

    async def _stream(self, request: Request) -> ASGIApp:
        if request.method != "GET":
            raise HTTPException(405)
        asked: Query = read_query(request.scope["query_string"], "run", "keys", "after", "since")
        await self._views.view()
        if len(self._streams) >= MOST_STREAMS:
            return refuse(503, f"Too many open streams (limit {MOST_STREAMS})")
        place = Place(run=asked.run, event=asked.after, since=asked.since)
        place.resume(request.headers.get("last-event-id", ""))
        stream = EventStream(
            self._views, place=place, keys=asked.keys, read_only=self._read_only, on_end=self._streams.discard
        )
        self._streams.add(stream)
        return stream

    async def _act(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return refuse(415, "Content-Type must be application/json")
        if self._read_only:
            return refuse(403, "Read-only page")
        name, action = read_action(await request.body())
        run, source = _find(await self._views.view(), name, only=True)
        try:
            said = await self._views.ask(lambda: source.act(action), ACT_TIME)
        except ActionRefusedError as error:
            return refuse(409, str(error))
        log.info("operator: %s '%s' %s in run '%s'", action.kind, redact(action.target), action.value, run)
        return _json(to_json({"said": said}))

    async def _metrics(self, request: Request) -> Response:
        text, kind = await self._metrics_cache.scrape(self._views)
        return Response(text, media_type=kind)

    async def _healthz(self, request: Request) -> Response:
        view = await self._views.view()
        return PlainTextResponse("ok\n") if view.all_answer else refuse(503, "A run does not respond")


def create_app(
    sources: MonitoredRuns,
    *,
    token: str | None,
    allow_hosts: Sequence[str] = LOOPBACK,
    read_only: bool = False,
    metrics: Metrics | None = None,
) -> WebApp:
    """The page, to be mounted into a service of your own: ``Mount("/headgate", create_app(...))``.

    ``token=None`` lets in every client that reaches it, so it must be written, and is for services that authenticate
    clients themselves. ``allow_hosts`` are the names it answers to: names, addresses, networks, or ``*``. ``metrics``
    has been counting for Prometheus, if given; else ``/metrics`` only describes the runs. A ``RunMonitor`` that has not
    been started is started now, and closed with the page.
    """
    return WebApp(sources, token=token, allow_hosts=allow_hosts, read_only=read_only, metrics=metrics)


def _find(view: View, run: str | None, *, only: bool = False) -> tuple[str, MonitoredRun]:
    """The named run. Without a name it is the first, or, where that may do harm, the only one."""
    name = run if run is not None else next(iter(view.runs), "")
    if run is None and only and sum(not one.snapshot.ending for one in view.runs.values()) > 1:
        raise BadRequestError("Several runs are active; choose one with the parameter run")
    if name not in view.runs:
        raise HTTPException(404)
    return name, view.runs[name].source


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    """What went wrong, as far as a client may know."""
    if isinstance(error, BadRequestError):
        return refuse(400, str(error))
    if isinstance(error, NoAnswerError):
        return refuse(503, "The run does not respond")
    if isinstance(error, NoMetricsError):
        return refuse(501, str(error))
    if isinstance(error, HTTPException):
        return refuse(error.status_code, "Method not allowed" if error.status_code == 405 else "Not found")
    log.warning("a request failed: %s", type(error).__name__)
    return refuse(500, "Internal error")


# ---------------------------------------------------------------------- metrics


class MetricsCache:
    """The text for Prometheus: made at most as often as a view is read."""

    def __init__(self, sources: MonitoredRuns, metrics: Metrics | None) -> None:
        self._sources = sources
        self._metrics = metrics
        self._kept: tuple[bytes, str] | None = None
        self._next_at = 0.0

    async def scrape(self, views: ViewCache) -> tuple[bytes, str]:
        """The text and its kind; raises ``NoMetricsError``."""
        kept = self._kept
        if kept is None or time.monotonic() >= self._next_at:
            kept = self._kept = await views.ask(self._make)
            self._next_at = time.monotonic() + SHORTEST_INTERVAL
        return kept

    def _make(self) -> tuple[bytes, str]:
        try:
            from ..observe.exporters.prometheus import CONTENT_TYPE, Prometheus
        except ImportError:
            raise NoMetricsError("Metrics need prometheus-client: pip install 'headgate[metrics]'.") from None
        if self._metrics is None:
            self._metrics = Prometheus(self._sources)
        return self._metrics.text(), CONTENT_TYPE


# ---------------------------------------------------------------------- files

FOLDER = Path(__file__).parent / "static"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
MOST_FILES = 100
LARGEST_FILE = 1_000_000


@dataclass(frozen=True, slots=True)
class PageFile:
    body: bytes
    kind: str


def page_files(folder: Path = FOLDER) -> dict[str, PageFile]:
    """The page's files, read once and found by their exact names below the folder, so no path leads anywhere else."""
    found: dict[str, PageFile] = {}
    for path in sorted(folder.rglob("*"))[:MOST_FILES]:
        kind = KINDS.get(path.suffix)
        if kind is not None and path.is_file() and path.stat().st_size <= LARGEST_FILE:
            found[path.relative_to(folder).as_posix()] = PageFile(path.read_bytes(), kind)
    return found
