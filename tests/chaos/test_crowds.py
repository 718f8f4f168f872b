"""A hundred thousand tasks at once, many threads, and hundreds of forks under load: in real time, on a real machine.

Where calls are counted by the clock on the wall, a machine that stands still for a moment may bunch them; so what is
judged by time is tried three times.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate import AdaptiveRateLimiter, CredentialCoordinator, RateLimitConfig

pytestmark = [pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(600)]

TRIES = 3
PATIENCE = 30
SERVER = Path(__file__).with_name("counting_server.py")


def limiter_of(limit: str) -> AdaptiveRateLimiter:
    return AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=1e6, limits={"requests": limit}))


def fullest(starts: list[float], window: float = 1.0) -> int:
    """The most starts that any window holds."""
    starts = sorted(starts)
    return max(bisect_left(starts, at + window) - place for place, at in enumerate(starts))


def least_of(count: Callable[[], int], most: float) -> int:
    """The least that was counted, of as many tries as are needed."""
    counted = []
    for _ in range(TRIES):
        counted.append(count())
        if counted[-1] <= most:
            break
    return min(counted)


async def let_in(
    tasks: int, limit: str, seconds: float, send: Callable[[float], object], also: tuple[str, ...]
) -> None:
    """So many tasks line up in one go; after so many seconds those that still wait are cancelled."""
    limiter = limiter_of(limit)

    async def call() -> None:
        permit = await limiter.acquire_async("api", also=also)
        sent = send(time.monotonic())
        if sent is not None:
            await sent  # type: ignore[misc]
        permit.report(status_code=200)

    waiting = [asyncio.create_task(call()) for _ in range(tasks)]
    await asyncio.sleep(0)  # until all of them stand in line
    await asyncio.sleep(seconds)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize(
    ("tasks", "limit", "amount", "also"),
    [
        (10_000, "100/s", 100, ()),
        (60_000, "100/s", 100, ()),
        (100_000, "500/s", 500, ()),
        (20_000, "500/s", 500, ("org", "model")),
    ],
)
def test_tasks_at_once_hold_a_known_limit(tasks: int, limit: str, amount: int, also: tuple[str, ...]) -> None:
    def count() -> int:
        starts: list[float] = []
        asyncio.run(let_in(tasks, limit, 4.0, starts.append, also))
        assert len(starts) > 2 * amount
        return fullest(starts)

    assert least_of(count, 1.01 * amount) <= 1.01 * amount


@pytest.mark.parametrize(("tasks", "limit", "amount"), [(10_000, "100/s", 100), (60_000, "100/s", 100)])
def test_a_server_on_loopback_sees_no_more_than_a_known_limit(
    tmp_path: Path, tasks: int, limit: str, amount: int
) -> None:
    async def main(port: int) -> None:
        lanes = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        free = asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
        for lane in lanes:
            free.put_nowait(lane)

        async def send(at: float) -> None:
            reader, writer = lane = await free.get()
            writer.write(f"GET /crowd/{at:.6f} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await reader.readuntil(b"ok")
            free.put_nowait(lane)

        await let_in(tasks, limit, 4.0, send, ())
        for _, writer in lanes:
            writer.close()

    def count() -> int:
        log = tmp_path / "calls"
        server = subprocess.Popen(
            [sys.executable, str(SERVER), str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            asyncio.run(main(int(server.stdout.readline())))
        finally:
            server.communicate(timeout=PATIENCE)
        came = [float(line.split()[0]) for line in log.read_text().splitlines()]
        assert len(came) > 2 * amount
        return fullest(came)

    assert least_of(count, 1.02 * amount) <= 1.02 * amount


def test_threads_hold_a_known_limit() -> None:
    def count() -> int:
        limiter, starts, ends_at = limiter_of("200/s"), [], time.monotonic() + 4.0

        def work() -> None:
            while time.monotonic() < ends_at:
                permit = limiter.acquire("api")
                starts.append(time.monotonic())
                permit.report(status_code=200)

        threads = [threading.Thread(target=work) for _ in range(60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(starts) > 600
        return fullest(starts)

    assert least_of(count, 202) <= 202


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_two_hundred_forks_under_load_all_get_their_permits() -> None:
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=2000, token_bucket_capacity=4))
    keys = CredentialCoordinator(["first", "second"], at_once=2)
    ends = threading.Event()

    def call() -> None:
        with keys.lease(timeout=PATIENCE):
            limiter.acquire("api", max_wait=PATIENCE).report(status_code=200)

    def work() -> None:
        while not ends.is_set():
            call()

    async def tasks() -> None:
        async def caller() -> None:
            while not ends.is_set():
                (await limiter.acquire_async("api")).report(status_code=200)

        await asyncio.gather(*(caller() for _ in range(50)))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    threads.append(threading.Thread(target=lambda: asyncio.run(tasks()), daemon=True))
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(200):
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE)  # a child that hangs is ended by it
            code = 1
            try:
                for _ in range(5):
                    call()
                code = 0
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    ends.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert codes == [0] * 200
    assert not any(thread.is_alive() for thread in threads)
