import asyncio
import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace

import pytest

from headgate.cli import execute as run
from headgate.mock import server as mock_server
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import read_rate


@pytest.fixture
def headgate(capfd):
    """Run the command line in this process: ``headgate("limits", url)`` gives code, out and err.

    Standard output is a real file, so that rows and pages can be written to it.
    """

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        said = capfd.readouterr()
        return SimpleNamespace(code=code, out=said.out, err=said.err)

    return call


@pytest.fixture
def headgate_process():
    """Start ``headgate`` as a process of its own; whatever still runs at the end of the test is killed."""
    started = []

    def start(*arguments, **options):
        settings = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, "-m", "headgate", *map(str, arguments)]
        process = subprocess.Popen(command, **(settings | options))
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def server_loop():
    """An event loop on a thread, for servers beside the command line of the test's own thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


@pytest.fixture
def mock_api(server_loop, monkeypatch):
    """``mock_api(rate="60/min", providers=("openai",))`` serves a mock API on a free port until the test ends."""
    monkeypatch.setattr(mock_server, "GRACE", 0.0)  # whatever is in flight at the end is of no interest
    stack = AsyncExitStack()

    def on_loop(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, server_loop).result(30)

    def serve(*, rate="60000/min", latency=0.001, providers=(), dialect="none", wall=time.time, **plan):
        async def start():
            plan_of_api = MockPlan(rate=read_rate(rate), latency=latency, **plan)
            server = MockServer(plan_of_api, providers=providers, dialect=dialect, wall=wall)
            return await stack.enter_async_context(server)

        async def read_truth():
            return server.truth()

        server = on_loop(start())
        return SimpleNamespace(
            url=server.url, base_url=server.base_url, services=server.services, truth=lambda: on_loop(read_truth())
        )

    yield serve
    on_loop(stack.aclose())


@pytest.fixture
def demo_in_one_process(monkeypatch):
    """The demo's API runs on the event loop of the demo: nothing to start, and no judgement of latencies here."""

    @asynccontextmanager
    async def served(plan, seed):
        async with MockServer(plan, seed=seed) as server:
            yield server.url

    monkeypatch.setattr("headgate.cli.commands.demo.mock_process", served)
