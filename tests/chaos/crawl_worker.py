"""One process of a crawl that is killed and started again: ``crawl_worker.py URL OUTPUT WORKERS``."""

import asyncio
import sys
from functools import partial

from tests.chaos.crash_points import on_step

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.crawl import run
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler

run.Frontier = partial(run.Frontier, on_step=on_step())


async def main(url: str, output: str, workers: int) -> None:
    limiter = AdaptiveRateLimiter(RateLimitConfig(initial_rps=2000.0, token_bucket_capacity=100.0))
    config = CrawlConfig(allow_private=True, workers=workers, per_host=workers, rate=None, max_per_shape=1_000_000)
    report = await Crawler(url, output=output, config=config, limiter=limiter).run()
    assert report.complete, report


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
