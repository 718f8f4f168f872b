"""The page as an ASGI app: its routes.

    GET  /                the page                 GET  /static/...      its files
    GET  /api/snapshot    all runs, or one         GET  /api/stream      the same as it changes, by server-sent events
    GET  /api/events      what happened            POST /api/act         do what an operator wants
    GET  /api/timelines   the history of keys
    GET  /metrics         for Prometheus           GET  /healthz         does every run answer? (needs no token)

``create_app`` returns one to mount into a service of your own, at any prefix; ``server.serve`` runs one by itself.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import HeadgateError
from ..formatting import redact
from ..observe.monitor import RunMonitor
from ..observe.snapshot import Action, ActionRefusedError, MonitoredRun, MonitoredRuns, to_json
from ..wire.urls import LOOPBACK
from .event_stream import EventStream, Place
from .guard import Guard, refuse
from .view_cache import SHORTEST_INTERVAL, NoAnswerError, View, ViewCache

MOST_STREAMS = 32
ACT_TIME = 6.0
"""Seconds for a run to do what is wanted; one in another process is asked by way of a file."""
OPEN_PATHS = frozenset({"/healthz"})

log = logging.getLogger("headgate.web")


class Metrics(Protocol):
    """As ``headgate.observe.exporters.prometheus.Prometheus``, which may have been counting for a while."""

    def text(self) -> bytes: ...


class BadRequestError(Exception):
    """The request is not valid; the message says why."""


class NoMetricsError(HeadgateError):
    """Metrics were asked for where their library is not installed."""


HANDLED = (BadRequestError, NoAnswerError, NoMetricsError, HTTPException, Exception)


class WebApp:
    """An ASGI app, to be mounted into a service of your own: ``Mount("/headgate", create_app(...))``."""

    def __init__(
        self,
        sources: MonitoredRuns,
        *,
        token: str | None,
        allow_hosts: Sequence[str] = LOOPBACK,
        read_only: bool = False,
        metrics: Metrics | None = None,
    ) -> None:
        """``token=None`` lets in every client that reaches it, so it must be written, and is for services that
        authenticate clients themselves. ``allow_hosts`` are the names it answers to: names, addresses, networks, or
        ``*``. ``metrics`` has been counting for Prometheus, if given; else ``/metrics`` only describes the runs. A
        ``RunMonitor`` that has not been started is started now, and closed with the page.
        """
        self._views = ViewCache(sources)
        self._sources, self._exporter = sources, metrics
        self._scraped: tuple[bytes, str] | None = None
        """The last text for Prometheus, and its type."""
        self._scrape_next_at = 0.0
        self._read_only = read_only
        self._files = page_files()
        self._streams: set[EventStream] = set()
        routes = [
            Route("/", self._page),
            Route("/static/{name:path}", self._page),
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
        """End the open streams, which a server would otherwise wait for when it shuts down, and the monitor that was
        started for the page. From any thread, any number of times."""
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
        file = self._files.get(request.path_params.get("name", "index.html"))
        if file is None:
            raise HTTPException(404)
        body, kind = file
        return Response(body, media_type=kind)

    async def _snapshot(self, request: Request) -> Response:
        asked = read_query(request.scope["query_string"], "run")
        view = await self._views.view()
        if asked.run is not None:
            _find(view, asked.run)
        return _json(view.json(whole=asked.run, read_only=self._read_only)[0])

    async def _events(self, request: Request) -> Response:
        asked = read_query(request.scope["query_string"], "run", "after", "most")
        run, source = _find(await self._views.view(), asked.run)
        lines = await self._views.ask(lambda: to_json(list(source.events(asked.after, asked.most))))
        return _json(b'{"run":%b,"events":%b}' % (to_json(run), lines))

    async def _timelines(self, request: Request) -> Response:
        asked = read_query(request.scope["query_string"], "run", "keys", "since")
        run, source = _find(await self._views.view(), asked.run)
        lines = await self._views.timelines(run, source, asked.keys, asked.since)
        return _json(b'{"run":%b,"timelines":%b}' % (to_json(run), lines.json or b"[]"))

    async def _stream(self, request: Request) -> ASGIApp:
        if request.method != "GET":
            raise HTTPException(405)
        asked = read_query(request.scope["query_string"], "run", "keys", "after", "since")
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
        """Made at most as often as a view is read."""
        if self._scraped is None or time.monotonic() >= self._scrape_next_at:
            self._scraped = await self._views.ask(self._scrape)
            self._scrape_next_at = time.monotonic() + SHORTEST_INTERVAL
        text, kind = self._scraped
        return Response(text, media_type=kind)

    def _scrape(self) -> tuple[bytes, str]:
        try:
            from ..observe.exporters.prometheus import CONTENT_TYPE, Prometheus
        except ImportError:
            raise NoMetricsError("Metrics need prometheus-client: pip install 'headgate[metrics]'.") from None
        if self._exporter is None:
            self._exporter = Prometheus(self._sources)
        return self._exporter.text(), CONTENT_TYPE

    async def _healthz(self, request: Request) -> Response:
        view = await self._views.view()
        return PlainTextResponse("ok\n") if view.all_answer else refuse(503, "A run does not respond")


create_app = WebApp
"""The name for services that mount it."""


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


# ---------------------------------------------------------------------- parameters and bodies
# Checked on arrival: known names, bounded values, each given once. An error names the rule that was broken and repeats
# nothing of what was sent.

LONGEST_NAME = 500
MOST_CHOSEN_KEYS = 20
MOST_EVENTS = 200
MOST_PARAMETERS = 32
LATEST = 1e11
"""Unix time; anything later is in other units."""
LARGEST_NUMBER = 10**15
ACTIONS = ("pause", "resume", "stop", "park", "free", "limit")
_FIELDS = {"run", "kind", "target", "value"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    run: str | None = None
    keys: tuple[str, ...] = ()
    after: int = 0
    most: int = MOST_EVENTS
    since: float = 0.0


def read_query(query: bytes, *known: str) -> Query:
    """The parameters of these names; ``keys`` may be given several times, any other name once."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=MOST_PARAMETERS,
        )
    except ValueError:
        raise BadRequestError("Malformed query string") from None
    found: dict[str, Any] = {}
    keys: list[str] = []
    for name, value in pairs:
        if name not in known:
            raise BadRequestError(f"Unknown parameter; expected one of {', '.join(known)}")
        if len(value) > LONGEST_NAME:
            raise BadRequestError(f"Parameter too long (limit {LONGEST_NAME} characters)")
        if name == "keys":
            keys.append(value)
        elif name in found:
            raise BadRequestError(f"{name} is given twice")
        else:
            found[name] = _value(name, value)
    if len(keys) > MOST_CHOSEN_KEYS:
        raise BadRequestError(f"Too many keys (limit {MOST_CHOSEN_KEYS})")
    return Query(keys=tuple(dict.fromkeys(keys)), **found)


def _value(name: str, value: str) -> object:
    if name == "run":
        return value or None
    most = {"after": LARGEST_NUMBER, "most": MOST_EVENTS, "since": LATEST}[name]
    try:
        number = float(value) if name == "since" else int(value)
    except ValueError:
        number = -1
    if not (value.isascii() and 0 <= number <= most):
        raise BadRequestError(f"{name} must be a number from 0 to {most:g}")
    return number


def read_action(body: bytes) -> tuple[str | None, Action]:
    """The name of the run (None: the only one), and what to do."""
    try:
        asked = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise BadRequestError("Body must be JSON") from None
    if not isinstance(asked, dict) or not asked.keys() <= _FIELDS:
        raise BadRequestError(f"Body must be an object with {', '.join(sorted(_FIELDS))}")
    if not (isinstance(kind := asked.get("kind"), str) and kind in ACTIONS):
        raise BadRequestError(f"kind must be one of {', '.join(ACTIONS)}")
    run, target, value = asked.get("run"), asked.get("target", ""), asked.get("value")
    if not (run is None or _is_name(run)) or not _is_name(target):
        raise BadRequestError(f"run and target must be strings of up to {LONGEST_NAME} characters")
    if not (value is None or _is_number(value)):
        raise BadRequestError("value must be a number, 0 or more, or null")
    return run, Action(kind=kind, target=target, value=None if value is None else float(value))


def _no_number(_: str) -> NoReturn:
    raise ValueError


def _is_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= LARGEST_NUMBER and math.isfinite(value)


# ---------------------------------------------------------------------- files

FOLDER = Path(__file__).parent / "static"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


def page_files() -> dict[str, tuple[bytes, str]]:
    """The page's files and their types, read once and found by their exact names, so no path leads anywhere else."""
    files = [path for path in FOLDER.rglob("*") if path.suffix in KINDS]
    return {path.relative_to(FOLDER).as_posix(): (path.read_bytes(), KINDS[path.suffix]) for path in files}
