"""What the executor adds to a real call of 20 ms over loopback: `python -m bench.loopback`.

Bare and wrapped calls take turns, so that both see the same machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter
from typing import Any

from bench.contenders import ours, retries
from bench.pacing import Figures

ANSWERS_AFTER = 0.02
CALLS, QUICK_CALLS = 200, 40
WARM_UP = 10

Call = Callable[[], Awaitable[Any]]
WRAPPERS: dict[str, Callable[[Call], Call]] = {
    ours.NAME: ours.around_call,
    "stamina": retries.stamina,
    "tenacity": retries.tenacity,
}


def median_beside_bare(contender: str, quick: bool) -> Figures:
    """The P50 of a wrapped call beside that of the same call bare, in milliseconds."""
    return asyncio.run(_measure(WRAPPERS[contender], QUICK_CALLS if quick else CALLS))


async def _measure(wrap: Callable[[Call], Call], calls: int) -> Figures:
    async with _server() as call:
        wrapped = wrap(call)
        took: dict[Call, list[float]] = {call: [], wrapped: []}
        for _ in range(WARM_UP + calls):
            for each, times in took.items():
                started_at = perf_counter()
                await each()
                times.append(perf_counter() - started_at)
        bare, around = (median(times[WARM_UP:]) * 1e3 for times in took.values())
        return {"bare_ms": bare, "wrapped_ms": around, "added": around / bare - 1.0}


@asynccontextmanager
async def _server() -> AsyncIterator[Call]:
    """A server that takes its 20 ms, and a call to it that returns the response with its body read."""
    import aiohttp
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(ANSWERS_AFTER)
        return web.json_response({"results": []}, headers={"x-ratelimit-limit": "1000000"})

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession() as session:

        async def call() -> aiohttp.ClientResponse:
            async with session.get(f"http://{host}:{port}/") as response:
                await response.read()
                return response

        try:
            yield call
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    for name in WRAPPERS:
        it = median_beside_bare(name, quick=False)
        print(f"{name:10} P50 {it['wrapped_ms']:.3f} ms beside {it['bare_ms']:.3f} bare: {it['added']:+.2%}")
