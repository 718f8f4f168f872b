"""A local server with a limit on concurrent calls, such as vLLM or Ollama: `python local_server.py 200`

    headgate mock --algorithm concurrency --at-once 8 --latency 100ms --port 8080

Such a server has no calls per second to state. It refuses, or gets slower, when too many calls run at once. The gate
finds out how many it takes; 64 tasks can wait without overloading it.
"""

import asyncio
import os
import sys

import aiohttp

from headgate import AdaptiveRateLimiter, KeySnapshot, RateLimitConfig

API = os.environ.get("API", "http://127.0.0.1:8080") + "/v1/generate"
TASKS = 64


async def main(calls: int) -> tuple[int, KeySnapshot]:
    limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=20))
    todo = iter(range(calls))
    answered = 0

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal answered
        for number in todo:
            done = False
            while not done:  # a refused call waits for its next permit
                async with limiter.permit("local") as permit, session.get(f"{API}?prompt={number}") as response:
                    permit.report(response)
                    done = response.status == 200
            answered += 1

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(work(session))
    return answered, limiter.key_status("local")


if __name__ == "__main__":
    answered, status = asyncio.run(main(int(sys.argv[1])))
    print(f"{answered} answered; {status.refused} of {status.sent} calls were refused while it found the limit")
