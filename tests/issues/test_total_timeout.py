"""Once the time of an aiohttp request is up (``ClientTimeout(total=)``), it is not sent again.

That was so while its answer was awaited, but not while the body of an error was read: the request waited for its
backoff, was sent to the server once more, and only then failed.
"""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from headgate import Passing, RateLimitConfig
from headgate.integrations.aiohttp import Middleware


async def begin_error(request):
    """The rest of it never comes."""
    response = web.StreamResponse(status=503, headers={"Content-Type": "application/json", "Content-Length": "100"})
    await response.prepare(request)
    await response.write(b"{")
    await asyncio.Event().wait()


def test_time_that_ends_while_an_error_is_read_ends_the_request():
    events, sent = [], []
    config = RateLimitConfig(initial_rps=1000, retry_base_delay=0.001, retry_max_delay=0.002)
    gate = Middleware(passing=Passing(config=config, on_event=events.append))

    async def end_time(request, handler):
        """The time is up as soon as the body of the answer is waited for."""
        sent.append(request)
        response = await handler(request)
        asyncio.get_running_loop().call_soon(request._timer.timeout)
        return response

    async def main():
        app = web.Application()
        app.router.add_get("/", begin_error)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(middlewares=[gate, end_time], timeout=timeout) as session:
            with pytest.raises(TimeoutError):
                await session.get(url)
        await runner.cleanup()

    asyncio.run(main())
    assert len(sent) == 1
    assert [event.event_type for event in events] == ["request_failure"]
    (key,) = gate.passing.limiter.snapshot().keys
    assert (key.in_flight, key.waiters) == (0, 0)
