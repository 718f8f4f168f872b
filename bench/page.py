"""What the web page costs the process that serves it: `python -m bench.page`.

A limiter with so many keys answers a thousand calls a second, spread over all of them, with so many browsers open.
Counted is the processor time of the page's threads; two minutes in all. The table is in docs/page.md.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.overhead import look_on, time_of_onlookers
from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.observe.monitor import RunMonitor
from headgate.web import serve

KEYS, CLIENTS = (10, 1_000), (0, 1, 20)
CALLS_A_SECOND = 1_000
SETTLING, SECONDS = 4.0, 15.0


@contextmanager
def calls(limiter: AdaptiveRateLimiter, keys: int) -> Iterator[None]:
    """In a thread of their own."""
    names, rng, ended = [f"https://api-{key}.example.com" for key in range(keys)], random.Random(1), threading.Event()

    def make() -> None:
        while not ended.wait(0.005):
            for key in rng.choices(names, k=CALLS_A_SECOND * 5 // 1_000):
                limiter.acquire(key).report(status_code=200, latency=0.1)

    thread = threading.Thread(target=make, name="calls")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def look_on_together(url: str, clients: int) -> None:
    for _ in range(clients):
        threading.Thread(target=look_on, args=(url, False), daemon=True).start()
    sys.stdin.read()


@contextmanager
def browsers(url: str, clients: int) -> Iterator[None]:
    """In a process of their own."""
    script = f"import bench.page as it; it.look_on_together({url!r}, {clients})"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def cost(keys: int, clients: int) -> float:
    """Milliseconds of each second."""
    limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=100_000.0))
    with (
        RunMonitor(limiter=limiter) as watched,
        serve(watched) as served,
        calls(limiter, keys),
        browsers(served.url, clients),
    ):
        time.sleep(SETTLING)
        used, began = time_of_onlookers(), time.monotonic()
        time.sleep(SECONDS)
        return 1_000 * (time_of_onlookers() - used) / (time.monotonic() - began)


def main() -> None:
    print("| keys | clients | ms a second |\n|---|---|---|")
    for keys in KEYS:
        for clients in CLIENTS:
            print(f"| {keys:,} | {clients} | {cost(keys, clients):.0f} |", flush=True)


if __name__ == "__main__":
    main()
