"""A crawl in a process of its own: `python scrapy_crawl.py '{"requests": [...], "settings": {...}}'`.

Says in one line of JSON what came back: the answers, the failures, and Scrapy's statistics.
"""

from __future__ import annotations

import json
import sys

import scrapy
from scrapy.crawler import AsyncCrawlerProcess


class Given(scrapy.Spider):
    name = "given"
    answers: list = []  # noqa: RUF012 - one spider, one process
    failures: list = []  # noqa: RUF012

    async def start(self):
        for request in self.requests:
            request.setdefault("dont_filter", True)
            yield scrapy.Request(**request, callback=self.parse, errback=self.failed)

    def parse(self, response):
        self.answers.append((response.url, response.status))

    def failed(self, failure):
        response = getattr(failure.value, "response", None)
        status = None if response is None else response.status
        self.failures.append((failure.request.url, type(failure.value).__name__, status))


def main(given):
    if given.get("hold"):
        from headgate import RateLimitConfig

        given["settings"]["HEADGATE_CONFIG"] = RateLimitConfig(**given["hold"])
    settings = {
        "ADDONS": {"headgate.integrations.scrapy.Addon": 100},
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        "CLOSESPIDER_TIMEOUT": 60,
        **given["settings"],
    }
    process = AsyncCrawlerProcess(settings)
    crawler = process.create_crawler(Given)
    process.crawl(crawler, requests=given["requests"])
    process.start()
    stats = {name: value for name, value in crawler.stats.get_stats().items() if isinstance(value, str | int | float)}
    print(json.dumps({"answers": Given.answers, "failures": Given.failures, "stats": stats}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
