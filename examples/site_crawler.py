"""A crawl from Python: `python site_crawler.py https://docs.example.org/ pages.jsonl`

robots.txt is obeyed, each host is fetched at the rate it accepts, and running it again resumes. For a site on this
machine set ALLOW_PRIVATE=1.
"""

import asyncio
import os
import sys
from collections import Counter

from headgate import CrawlConfig, Crawler, CrawlReport


async def main(start: str, output: str) -> tuple[Counter[str], CrawlReport]:
    crawler = Crawler(
        start,
        output=output,
        config=CrawlConfig(max_depth=3, max_pages=500, allow_private=os.environ.get("ALLOW_PRIVATE") == "1"),
        follow=lambda page, link: "?" not in link.url,  # no search forms, no calendars
        extract=lambda page, fetched: {"words": len(page.text.split())},  # goes into the page's metadata
    )
    languages: Counter[str] = Counter()
    async for page in crawler:
        languages[page.metadata.get("language") or "unknown"] += 1
        print(f"{page.metadata['words']:6} words  {page.url}")
    return languages, crawler.report()


if __name__ == "__main__":
    languages, report = asyncio.run(main(sys.argv[1], sys.argv[2]))
    print(dict(languages))
