"""Limits that processes share through a Redis or Valkey. Each is made for one server and gives one call to await."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

RATE = 1_000_000
"""Calls a second that each is set to: more than any can do, so that no call ever waits for the limit itself."""

Acquire = Callable[[], Awaitable[Any]]
Make = Callable[[str], Awaitable[Acquire]]


async def empty_script(url: str) -> Acquire:
    """What one round trip costs, whatever it is for."""
    from redis.asyncio import Redis

    client = Redis.from_url(url)
    script = await client.script_load("return 1")
    return lambda: client.evalsha(script, 0)


async def limits(url: str) -> Acquire:
    from limits import RateLimitItemPerSecond
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import FixedWindowRateLimiter

    limiter = FixedWindowRateLimiter(RedisStorage(f"async+{url}", implementation="redispy"))
    limit = RateLimitItemPerSecond(RATE)
    return lambda: limiter.hit(limit, "api")


async def pyrate(url: str) -> Acquire:
    from pyrate_limiter import Limiter, Rate, RedisBucket
    from redis.asyncio import Redis

    bucket = await RedisBucket.init([Rate(RATE, 1000)], Redis.from_url(url), "api")
    limiter = Limiter(bucket)
    return lambda: limiter.try_acquire_async("api")


async def throttled(url: str) -> Acquire:
    from throttled import per_sec
    from throttled.asyncio import RedisStore, Throttled

    limiter = Throttled(using="gcra", quota=per_sec(RATE, RATE), store=RedisStore(server=url), key="api", timeout=5)
    return lambda: limiter.limit()


async def ours(where: str) -> Acquire:
    """Acquire and report: the permit's whole life."""
    from headgate import AdaptiveRateLimiter, RateLimitConfig

    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", initial_rps=RATE), store=where)

    async def call() -> None:
        permit = await limiter.acquire_async("api")
        permit.report(status_code=200)

    return call


WAYS: dict[str, Make] = {
    "headgate": ours,
    "limits": limits,
    "throttled-py": throttled,
    "pyrate-limiter": pyrate,
    "an empty script": empty_script,
}
