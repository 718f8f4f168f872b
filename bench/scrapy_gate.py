"""Scrapy with AutoThrottle and with our add-on, on one site with a hidden quota: `python -m bench.scrapy_gate`.

Each crawls the same pages in a process of its own, one after the other; the counts are those of the site's log. About
two minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from bench.crawl_site import log_of, site

CRAWL = Path(__file__).with_name("crawl_scrapy.py")
CONTENDERS: dict[str, dict[str, object]] = {
    "Scrapy alone": {},
    "AutoThrottle": {"AUTOTHROTTLE_ENABLED": True},
    "AutoThrottle, 8 at once": {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_TARGET_CONCURRENCY": 8.0},
    "Headgate": {"ADDONS": {"headgate.integrations.scrapy.Addon": 100}},
}
SITES = {"quota": "429 and not a word more", "told": "429 with Retry-After: 2"}
USUAL_PAGES = 400
QUOTA = 20.0
SECONDS = 90
"""After which a crawl is stopped."""


class Figures(NamedTuple):
    pages: int
    """That the spider got; Scrapy gives a page up after two retries."""
    refused: int
    undercut: int
    """Calls within two seconds of a refusal, which had asked for them; those under way at that moment (0.2 s) apart."""
    took: float


def measure(kind: str, settings: dict[str, object], pages: int) -> Figures:
    with site("--kind", kind, "--quota", str(QUOTA), "--pages", str(pages)) as port:
        with tempfile.TemporaryDirectory() as folder:
            seeds = [f"http://127.0.0.1:{port}/"]
            given = {"seeds": seeds, "folder": folder, "seconds": SECONDS, "workers": 16, "settings": settings}
            subprocess.run([sys.executable, str(CRAWL), json.dumps(given)], check=True, stderr=subprocess.DEVNULL)
            found = len(Path(folder, "pages.jsonl").read_text().splitlines())
        return _figures(log_of(port), found)


def _figures(log: list[tuple[float, str, str, int]], found: int) -> Figures:
    statuses = Counter(status for _, _, _, status in log)
    at = [when for when, *_ in log]
    refused_at = [when for when, _, _, status in log if status == 429]
    undercut = sum(any(0.2 < when - refusal < 1.98 for refusal in refused_at) for when in at)
    return Figures(found, statuses[429], undercut, at[-1] - at[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=USUAL_PAGES)
    pages = parser.parse_args().pages
    print(f"| the site answers | | pages of {pages} | seconds | 429s | sent before Retry-After was over |")
    print("|---|---|---:|---:|---:|---:|")
    for kind, name in SITES.items():
        for contender, settings in CONTENDERS.items():
            found, refused, undercut, took = measure(kind, settings, pages)
            early = f"{undercut:,}" if kind == "told" else "-"
            print(f"| {name} | {contender} | {found} | {took:.1f} | {refused:,} | {early} |", flush=True)
    print(f"\nA quota of {QUOTA:g}/s; `python -m bench.scrapy_gate`.")


if __name__ == "__main__":
    main()
