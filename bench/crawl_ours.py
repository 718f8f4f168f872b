"""Headgate's crawl of `bench.crawl`, in its own process: `python -m bench.crawl_ours '{"seeds": [...], ...}'`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler


def main(given: dict[str, Any]) -> None:
    limits = given["settings"].pop("limits", None)
    config = CrawlConfig(
        allow_private=True,
        deadline=given["seconds"],
        workers=given["workers"],
        max_per_shape=1_000_000,
        **given["settings"],
    )
    limiter = None if limits is None else AdaptiveRateLimiter(RateLimitConfig(**limits))
    crawler = Crawler(given["seeds"], output=f"{given['folder']}/pages.jsonl", config=config, limiter=limiter)
    asyncio.run(crawler.run())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
