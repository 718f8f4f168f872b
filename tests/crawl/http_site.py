"""A web site on loopback, for crawls to visit."""

from contextlib import asynccontextmanager

from aiohttp import web
from bench.ports import free_port


@asynccontextmanager
async def http_site(answer, addresses=("127.0.0.1",)):
    """``await answer(request)`` makes each response, at all of these addresses. Yields the port they share."""
    app = web.Application()
    app.router.add_route("*", "/{path:(?s:.*)}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port(*addresses)
    for address in addresses:
        await web.TCPSite(runner, address, port).start()
    try:
        yield port
    finally:
        await runner.cleanup()
