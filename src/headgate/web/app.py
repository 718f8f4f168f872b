"""The page as an ASGI app: what may be asked, and what is answered.

    GET  /                the page                 GET  /static/...      its files
    GET  /api/snapshot    all runs, or one         GET  /api/stream      the same as it changes, by server-sent events
    GET  /api/events      what happened            POST /api/act         what an operator wants done
    GET  /api/timelines   how keys have been going
    GET  /metrics         for Prometheus           GET  /healthz         is it there? (needs no token)

``create_app`` gives one to mount into a service of one's own, at any prefix; ``serving.serve`` runs one by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate.observe.source import ActionRefusedError, Source, Sources
from headgate.observe.watched import Watched
from headgate.wire.redaction import redact

from .apart import NotAnsweringError
from .asking import BadRequestError, Query, read_action, read_query
from .coming import LOOPBACK
from .encoding import encoded
from .files import page_files
from .guard import Guard
from .looking import Looking, View
from .refusing import refuse
from .scraping import Metrics, NoMetricsError, Scraping
from .stream import EventStream, Place

MOST_STREAMS = 32
ACT_TIME = 6.0
"""Seconds for a run to do what is wanted; one in another process is asked by way of a file."""
ANSWERED = (BadRequestError, NotAnsweringError, NoMetricsError, HTTPException, Exception)
OPEN_PATHS = frozenset({"/healthz"})

log = logging.getLogger("headgate.web")


class WebApp:
    """An ASGI app. ``close`` ends the streams that are open, which a server that shuts down would else wait for, and
    what was started for the page."""

    def __init__(
        self,
        sources: Sources,
        *,
        token: str | None,
        allow_hosts: Sequence[str],
        read_only: bool,
        metrics: Metrics | None,
    ) -> None:
        self._looking = Looking(sources)
        self._scraping = Scraping(sources, metrics)
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
        app = Starlette(routes=routes, exception_handlers=dict.fromkeys(ANSWERED, _failed))
        app.router.redirect_slashes = False  # a redirect would be made of what the request calls us
        self._guarded: ASGIApp = Guard(app, token=token, allow_hosts=allow_hosts, open_paths=OPEN_PATHS)
        self._started: Watched | None = None
        if isinstance(sources, Watched) and not sources.is_started:
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
        view = await self._looking.view()
        if asked.run is not None:
            _find(view, asked.run)
        return _json(view.json(whole=asked.run, read_only=self._read_only)[0])

    async def _events(self, request: Request) -> Response:
        asked = read_query(request.scope["query_string"], "run", "after", "most")
        run, source = _find(await self._looking.view(), asked.run)
        lines = await self._looking.events(source, asked.after, asked.most)
        return _json(b'{"run":%b,"events":%b}' % (encoded(run), lines))

    async def _timelines(self, request: Request) -> Response:
        asked = read_query(request.scope["query_string"], "run", "keys", "since")
        run, source = _find(await self._looking.view(), asked.run)
        lines = await self._looking.timelines(run, source, asked.keys, asked.since)
        return _json(b'{"run":%b,"timelines":%b}' % (encoded(run), lines.json or b"[]"))

    async def _stream(self, request: Request) -> ASGIApp:
        if request.method != "GET":
            raise HTTPException(405)
        asked: Query = read_query(request.scope["query_string"], "run", "keys", "after", "since")
        await self._looking.view()
        if len(self._streams) >= MOST_STREAMS:
            return refuse(503, f"{MOST_STREAMS} look already")
        place = Place(run=asked.run, event=asked.after, since=asked.since)
        place.resume(request.headers.get("last-event-id", ""))
        stream = EventStream(
            self._looking, place=place, keys=asked.keys, read_only=self._read_only, on_end=self._streams.discard
        )
        self._streams.add(stream)
        return stream

    async def _act(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return refuse(415, "the body must be application/json")
        if self._read_only:
            return refuse(403, "this page only shows")
        name, action = read_action(await request.body())
        run, source = _find(await self._looking.view(), name, only=True)
        try:
            said = await self._looking.ask(lambda: source.act(action), ACT_TIME)
        except ActionRefusedError as error:
            return refuse(409, str(error))
        log.info("an operator: %s '%s' %s in run '%s'", action.kind, redact(action.target), action.value, run)
        return _json(encoded({"said": said}))

    async def _metrics(self, request: Request) -> Response:
        text, kind = await self._scraping.scrape(self._looking)
        return Response(text, media_type=kind)

    async def _healthz(self, request: Request) -> Response:
        view = await self._looking.view()
        return PlainTextResponse("ok\n") if view.all_answer else refuse(503, "a run does not answer")


def create_app(
    sources: Sources,
    *,
    token: str | None,
    allow_hosts: Sequence[str] = LOOPBACK,
    read_only: bool = False,
    metrics: Metrics | None = None,
) -> WebApp:
    """The page, to be mounted into a service of one's own: ``Mount("/headgate", create_app(...))``.

    ``token=None`` lets in whoever reaches it, so it must be written and is for services that ask who comes
    themselves. ``allow_hosts`` are the names under which it is asked for: names, addresses, networks, or ``*``.
    ``metrics`` is what has been counting for Prometheus, if anything has; else ``/metrics`` tells how the runs are.
    A ``Watched`` that nobody has started is started now, and closed with the page.
    """
    return WebApp(sources, token=token, allow_hosts=allow_hosts, read_only=read_only, metrics=metrics)


def _find(view: View, run: str | None, *, only: bool = False) -> tuple[str, Source]:
    """The run that is meant. Without a name it is the first, or, where that may do harm, the only one."""
    name = run if run is not None else next(iter(view.runs), "")
    if run is None and only and sum(not one.snapshot.ending for one in view.runs.values()) > 1:
        raise BadRequestError("say which run")
    if name not in view.runs:
        raise HTTPException(404)
    return name, view.runs[name].source


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


async def _failed(request: Request, error: Exception) -> Response:
    """What went wrong, as far as whoever asks may know."""
    if isinstance(error, BadRequestError):
        return refuse(400, str(error))
    if isinstance(error, NotAnsweringError):
        return refuse(503, "the run does not answer")
    if isinstance(error, NoMetricsError):
        return refuse(501, str(error))
    if isinstance(error, HTTPException):
        return refuse(error.status_code, "not by this method" if error.status_code == 405 else "there is no such thing")
    log.warning("a request failed: %s", type(error).__name__)
    return refuse(500, "something went wrong here")
