"""A client of httpx2 or httpx behind the gate, in virtual time, in front of a scripted server."""

from __future__ import annotations

import asyncio
import importlib
import random
from types import ModuleType
from typing import Any

import pytest

from headgate.config import RateLimitConfig
from headgate.integrations.client_gate import Passing
from headgate.lab.virtual_time import LoopClock, VirtualClock, VirtualLoop

SEED = 7
UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6)
LIBRARIES = ("httpx2", "httpx")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> ModuleType:
    return _library(request.param)


def _library(name: str) -> ModuleType:
    if name == "httpx":
        return pytest.importorskip("httpx", reason="httpx 0.28 is the older of the two and not always installed")
    return importlib.import_module(name)


class Stream:
    """A body that comes in pieces, and may break."""

    def __init__(self, pieces: list[Any]) -> None:
        self.pieces, self.closed = pieces, False

    def __iter__(self) -> Any:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def __aiter__(self) -> Any:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


class Lab:
    """``lab.ask(...)`` sends a request through the gate, with the sync or the async client, to a scripted server."""

    def __init__(self, library: ModuleType, is_async: bool) -> None:
        self.library, self.is_async = library, is_async
        self.integration = importlib.import_module(f"headgate.integrations.{library.__name__}")
        self.clock: VirtualClock = LoopClock() if is_async else VirtualClock()
        self.answers: list[Any] = []
        self.sent: list[Any] = []
        self.bodies: list[bytes] = []
        self.sent_at: list[float] = []
        self.events: list[Any] = []
        self.passing: Passing | None = None

    def gate(self, **settings: Any) -> Passing:
        settings.setdefault("config", UNPACED)
        self.passing = Passing(clock=self.clock, rng=random.Random(SEED), on_event=self.events.append, **settings)
        return self.passing

    def stream(self, pieces: list[Any], status: int = 200, headers: dict[str, str] | None = None) -> Any:
        kind = self.library.AsyncByteStream if self.is_async else self.library.SyncByteStream
        body = type("Body", (Stream, kind), {})(pieces)
        return self.library.Response(status, headers=headers, stream=body)

    def answer(self, request: Any) -> Any:
        """The next answer of the script, the last one for ever; a function is asked."""
        self.sent.append(request)
        self.sent_at.append(self.clock.now())
        answer = self.answers[min(len(self.sent), len(self.answers)) - 1]
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, int):
            return self.library.Response(answer, json={})
        return answer

    def _transport(self) -> Any:
        lab = self

        class Scripted(self.library.BaseTransport, self.library.AsyncBaseTransport):
            def handle_request(self, request: Any) -> Any:
                lab.bodies.append(b"".join(request.stream))
                return lab.answer(request)

            async def handle_async_request(self, request: Any) -> Any:
                lab.bodies.append(b"".join([piece async for piece in request.stream]))
                return lab.answer(request)

        return Scripted()

    def client(self, **options: Any) -> Any:
        passing = self.passing or self.gate()
        if self.is_async:
            gated = self.integration.AsyncGatedTransport(self._transport(), passing=passing)
            return self.library.AsyncClient(transport=gated, **options)
        gated = self.integration.GatedTransport(self._transport(), passing=passing)
        return self.library.Client(transport=gated, **options)

    def do(self, work: Any, **options: Any) -> Any:
        """``work(client)``, a coroutine function in the async lab, with a client that is closed afterwards."""
        if not self.is_async:
            with self.client(**options) as client:
                return work(client)

        async def main() -> Any:
            async with self.client(**options) as client:
                return await work(client)

        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock)) as runner:
            return runner.run(main())

    def ask(self, method: str = "GET", url: str = "https://api.example.com/v1/x", **about: Any) -> Any:
        options = about.pop("options", {})
        return self.do(lambda client: client.request(method, url, **about), **options)

    @property
    def waits(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.sent_at, self.sent_at[1:], strict=False)]

    @property
    def kinds(self) -> list[str]:
        return [event.event_type for event in self.events]


@pytest.fixture(params=["sync", "async"])
def lab(library: ModuleType, request: pytest.FixtureRequest) -> Lab:
    return Lab(library, request.param == "async")
