"""A proxy that had been stopped and was started again answered every request with 503."""

from __future__ import annotations

import asyncio

from tests.proxy.conftest import proxied, raw, request, status_of, upstream


def test_a_proxy_that_is_started_again_forwards():
    async def work():
        async with upstream() as api, proxied(api.url) as proxy:
            await proxy.stop()
            async with proxy:
                return status_of(await raw(proxy, request("GET", "/x")))

    assert asyncio.run(asyncio.wait_for(work(), 60)) == 200
