"""Several processes on one quota: each calls a server as fast as it may, until it is told to stop or is killed.

``shared_worker.py STORE URL LIMIT TASKS`` makes a process for each name that it reads, and prints its number. They
are forked with everything loaded: to load it again would take the processor from those whose calls are being timed.
They begin together when it reads GO; one that is made later begins at once.
"""

import asyncio
import contextlib
import os
import signal
import sys

import aiohttp

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.stores import open_store

GO = "go"


async def main(store, url, name, limit, tasks):
    limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="fixed", limits={"requests": limit}), store=store)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)

    async def work(session):
        while not stopping.is_set():
            permit = await limiter.acquire_async("api")
            async with permit, session.get(f"{url}/{name}/{permit.sent_at:.6f}") as response:
                await response.read()
                permit.report(response)

    async with aiohttp.ClientSession() as session:
        working = [asyncio.create_task(work(session)) for _ in range(tasks)]
        await stopping.wait()
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    limiter.close()


def nursery(store, url, limit, tasks):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those who have ended are gone at once
    open_store(store).close()  # what it needs is loaded here, once
    closed, held = os.pipe()  # which all of them read to its end: they go on when this process closes it
    for name in map(str.strip, sys.stdin):
        if name == GO:
            os.close(held)
        elif (child := os.fork()) == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with contextlib.suppress(OSError):  # it is closed already
                os.close(held)
            os.read(closed, 1)
            asyncio.run(main(store, url, name, limit, tasks))
            os._exit(0)
        else:
            print(child, flush=True)


if __name__ == "__main__":
    *words, tasks = sys.argv[1:]
    nursery(*words, int(tasks))
