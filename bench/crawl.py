"""A crawl beside Scrapy with AutoThrottle, on the same loopback site in one run: `python -m bench.crawl [--write]`.

| figure   | the site                                                       | what counts                            |
|----------|----------------------------------------------------------------|----------------------------------------|
| quota    | one host that lets 20 calls a second in and answers 429 beyond | pages/s, 429s, pages lost to them      |
| told     | the same, with Retry-After: 2                                  | pages/s, 429s, calls inside of a pause |
| pace     | ten hosts, each asked ten times a second by all                | CPU for each page, memory              |
| flat out | fifty hosts without any limit                                  | pages/s, CPU for each page, memory     |

Every contender is a process of its own; the site is another, and its log says what was asked for and refused. Ours
writes every page durably before it counts; Scrapy keeps its queue in a folder (JOBDIR) and its pages in a feed.
`--scrapy PYTHON` names an interpreter that has Scrapy, `--write` keeps the page in `bench/CRAWL.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.crawl_site import ROOT, log_of, site
from bench.report import circumstances
from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.crawl.config import CrawlConfig
from headgate.crawl.crawler import Crawler

RESULTS = Path(__file__).with_name("CRAWL.md")
WORKERS = 64
PAUSE = 2.0
UNPACED = {"limits": {"strategy": "fixed", "initial_rps": 1e5, "token_bucket_capacity": 1e5}, "rate": None}
AUTOTHROTTLE = {"AUTOTHROTTLE_ENABLED": True}
PATIENT = {"RETRY_TIMES": 20}
"""As often as we send a refused call again; by default Scrapy gives a page up after two."""
EAGER = AUTOTHROTTLE | PATIENT | {"AUTOTHROTTLE_START_DELAY": 0.05, "AUTOTHROTTLE_TARGET_CONCURRENCY": 8.0}


HEADINGS = {
    "not got": "refused, not got in that time",
    "in pauses": "calls inside of a Retry-After",
    "CPU ms/page": "CPU, ms/page",
    "MB": "memory, MB",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    about: str
    site: tuple[str, ...]
    hosts: int
    seconds: float
    contenders: dict[str, dict[str, Any]]
    """By name, with the settings of each; names that begin with Scrapy are its."""


FIGURES = (
    Figure(
        name="quota",
        about="one host, 20 calls/s let in, 429 beyond",
        site=("--kind", "quota", "--quota", "20"),
        hosts=1,
        seconds=60.0,
        contenders={
            "headgate": {"rate": None},
            "Scrapy, AutoThrottle": AUTOTHROTTLE,
            "Scrapy, AutoThrottle, 20 retries": AUTOTHROTTLE | PATIENT,
            "Scrapy, AutoThrottle for 8 at once, 20 retries": EAGER,
        },
    ),
    Figure(
        name="told",
        about="the same, with Retry-After: 2",
        site=("--kind", "told", "--quota", "20"),
        hosts=1,
        seconds=60.0,
        contenders={
            "headgate": {"rate": None},
            "Scrapy, AutoThrottle": AUTOTHROTTLE,
            "Scrapy, AutoThrottle for 8 at once, 20 retries": EAGER,
        },
    ),
    Figure(
        name="pace",
        about="ten hosts, 10 calls/s each by all",
        site=("--addresses", "10"),
        hosts=10,
        seconds=30.0,
        contenders={
            "headgate": {"rate": 10.0, "limits": {"strategy": "leaky", "initial_rps": 10.0}},
            "Scrapy": {"DOWNLOAD_DELAY": 0.1, "RANDOMIZE_DOWNLOAD_DELAY": False},
        },
    ),
    Figure(
        name="flat out",
        about="fifty hosts, no limit",
        site=("--addresses", "50"),
        hosts=50,
        seconds=20.0,
        contenders={"headgate": UNPACED, "Scrapy": {}},
    ),
)


def crawl(given: dict[str, Any]) -> None:
    """Ours; ``crawl_scrapy.py`` is Scrapy's."""
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


def run(figure: Figure, name: str, settings: dict[str, Any], scrapy: str) -> dict[str, float]:
    with site(*figure.site) as port, tempfile.TemporaryDirectory() as folder:
        seeds = [f"http://127.0.0.{number}:{port}/" for number in range(1, figure.hosts + 1)]
        given = {"seeds": seeds, "folder": folder, "seconds": figure.seconds, "workers": WORKERS, "settings": settings}
        rival = name.startswith("Scrapy")
        command = [scrapy, "bench/crawl_scrapy.py"] if rival else [sys.executable, "-m", "bench.crawl", "--ours"]
        process = subprocess.Popen([*command, json.dumps(given)], cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, name
        with open(f"{folder}/pages.jsonl", "rb") as file:
            pages = sum(1 for _ in file)
        log = log_of(port)
    got = {path for _, _, path, answer in log if answer == 200}
    refused = [at for at, _, _, answer in log if answer == 429]
    inside = sum(any(at < later < at + PAUSE for at in refused) for later, _, path, _ in log if path != "/robots.txt")
    cpu = usage.ru_utime + usage.ru_stime
    return {
        "pages/s": pages / figure.seconds,
        "429s": len(refused),
        "not got": len({path for _, _, path, answer in log if answer == 429} - got),
        "in pauses": inside if figure.name == "told" else 0,
        "CPU ms/page": 1000 * cpu / max(1, pages),
        "MB": usage.ru_maxrss / 1024,
        "forbidden": sum(path.startswith("/private") for _, _, path, _ in log),
    }


def page_of(figures: list[tuple[Figure, dict[str, dict[str, float]]]], version: str) -> str:
    lines = ["# Crawls beside Scrapy", ""]
    lines += [f"{circumstances('python -m bench.crawl')} Scrapy {version}."]
    for figure, rows in figures:
        columns = {"pages/s": 1, "429s": 0, "not got": 0, "in pauses": 0, "CPU ms/page": 1, "MB": 0}
        if figure.name != "told":
            del columns["in pauses"]
        lines += ["", f"## {figure.name}: {figure.about}, {figure.seconds:.0f} s", ""]
        lines += [
            f"| | {' | '.join(HEADINGS.get(column, column) for column in columns)} |",
            "|---|" + "---:|" * len(columns),
        ]
        for name, row in rows.items():
            lines.append(
                f"| {name} | {' | '.join(f'{row[column]:.{digits}f}' for column, digits in columns.items())} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", choices=[[], *(figure.name for figure in FIGURES)], help="all by default")
    parser.add_argument("--scrapy", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--ours", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ours:
        crawl(given.ours)
        return
    version = subprocess.run(
        [given.scrapy, "-c", "import scrapy; print(scrapy.__version__)"], capture_output=True, text=True, check=True
    ).stdout.strip()
    chosen = [figure for figure in FIGURES if not given.figures or figure.name in given.figures]
    results = []
    for figure in chosen:
        rows = {}
        for name, settings in figure.contenders.items():
            rows[name] = run(figure, name, dict(settings), given.scrapy)
            assert not rows[name].pop("forbidden"), name
            print(figure.name, name, {what: round(value, 1) for what, value in rows[name].items()}, flush=True)
        results.append((figure, rows))
    text = page_of(results, version)
    print(text)
    if given.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
