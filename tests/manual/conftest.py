"""A mock API on loopback, in a thread, in place of the addresses that the manual names."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Rate


@pytest.fixture(scope="module")
def mock_api() -> Iterator[str]:
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    address: list[str] = []

    async def serve() -> None:
        plan = MockPlan(rate=Rate(1000, 1.0), latency=0.0)
        async with MockServer(plan, providers=("openai", "anthropic"), seed=1) as server:
            address.append(server.url.rstrip("/"))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10)
    yield address[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()
