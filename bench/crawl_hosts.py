"""Whether slow and failing hosts slow the healthy ones down: `python -m bench.crawl_hosts [--healthy 950 --sick 50]`.

All hosts are on one loopback port (`crawl_site`). Healthy ones are crawled at a fixed pace each, once alone and once
beside the sick ones: a fifth each is failing, throttling and lying, and two fifths are slow. What counts is how many
calls the healthy ones had, by the server's own log, in a whole number of their periods, and that half of the CPU was
idle.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from aiohttp.abc import AbstractResolver

from bench.crawl_site import log_of, site
from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler

SICK = ("slow", "fail", "throttle", "lie", "slow")
SICK_PAGES = 60
"""Addresses that are known of each sick host from the start, so that there is always something to ask it."""


class Here(AbstractResolver):
    """Every name is this machine."""

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[Any]:
        here = {"hostname": host, "host": "127.0.0.1", "port": port}
        return [here | {"family": socket.AF_INET, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    healthy_calls: int
    """In the periods that count."""
    sick_calls: int
    forbidden_calls: int
    cpu: float
    """Of one core, used by the crawler."""
    report: Any


def measure(healthy: int, sick: int, *, rate: float, warm_up: float, periods: int) -> Figures:
    lasts = warm_up + periods / rate
    with site() as port, tempfile.TemporaryDirectory() as folder:
        seeds = [f"http://ok-{number}.test:{port}/" for number in range(healthy)]
        kinds = [SICK[number % len(SICK)] + f"-{number}" for number in range(sick)]
        seeds += [f"http://{kind}.test:{port}/p/{page}" for kind in kinds for page in range(SICK_PAGES)]
        limiter = AdaptiveRateLimiter(RateLimitConfig(strategy="leaky", initial_rps=rate, max_keys=200_000))
        config = CrawlConfig(allow_private=True, deadline=lasts + 0.5)
        crawler = Crawler(seeds, output=f"{folder}/p.jsonl", config=config, limiter=limiter, resolver=Here())
        cpu, began_at = time.process_time(), time.time()
        report = asyncio.run(crawler.run())
        cpu = time.process_time() - cpu
        log = log_of(port)
    counted = [(host, path) for at, host, path, _ in log if began_at + warm_up <= at < began_at + lasts]
    ours = [host for host, _ in counted if host.startswith("ok-")]
    return Figures(
        healthy_calls=len(ours),
        sick_calls=len(counted) - len(ours),
        forbidden_calls=sum(path.startswith("/private") for _, _, path, _ in log),
        cpu=cpu / report.elapsed,
        report=report,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=950)
    parser.add_argument("--sick", type=int, default=50)
    parser.add_argument("--rate", type=float, default=0.25, help="calls a second to each healthy host")
    parser.add_argument("--periods", type=int, default=8)
    given = parser.parse_args()
    settings = {"rate": given.rate, "warm_up": 3.0 / given.rate, "periods": given.periods}
    alone = measure(given.healthy, 0, **settings)
    beside = measure(given.healthy, given.sick, **settings)
    for name, figures in (("alone", alone), (f"beside {given.sick} sick hosts", beside)):
        rate = figures.healthy_calls * given.rate / given.periods
        print(f"{given.healthy} healthy hosts {name}: {rate:.1f} calls/s, {figures.cpu:.2f} of a core", end="")
        print(f", {figures.sick_calls} calls to sick ones, {figures.forbidden_calls} forbidden")
    print(f"kept: {beside.healthy_calls / alone.healthy_calls:.2%}")


if __name__ == "__main__":
    main()
