"""Scrapy's crawl of `bench.crawl`, in its own process: `python bench/crawl_scrapy.py '{"seeds": [...], ...}'`.

Scrapy reads the same of a page as we do: title, text, description and links; robots.txt is obeyed, pages go to JSON
lines, and the requests to a folder from which it could go on (``JOBDIR``). Imports nothing of ours.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor


class Pages(scrapy.Spider):
    name = "pages"
    links = LinkExtractor()

    def __init__(self, seeds: list[str], **more: Any) -> None:
        super().__init__(**more)
        self.seeds = seeds

    async def start(self) -> Any:
        for seed in self.seeds:
            yield scrapy.Request(seed)

    def parse(self, response: Any) -> Any:
        links = [link.url for link in self.links.extract_links(response)]
        yield {
            "url": response.url,
            "status": response.status,
            "title": response.css("title::text").get(""),
            "description": response.css("meta[name=description]::attr(content)").get(""),
            "text": " ".join(response.css("main *::text").getall()),
            "links": links,
        }
        for link in links:
            yield scrapy.Request(link)


def main(given: dict[str, Any]) -> None:
    settings = {
        "ROBOTSTXT_OBEY": True,
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "COOKIES_ENABLED": False,
        "JOBDIR": f"{given['folder']}/job",
        "FEEDS": {f"{given['folder']}/pages.jsonl": {"format": "jsonlines"}},
        "CLOSESPIDER_TIMEOUT": given["seconds"],
        "CONCURRENT_REQUESTS": given["workers"],
        **given["settings"],
    }
    process = CrawlerProcess(settings)
    process.crawl(Pages, seeds=given["seeds"])
    process.start()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
