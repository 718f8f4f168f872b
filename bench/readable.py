"""How well a crawl finds the main text of a page: `python -m bench.readable [--cache FOLDER]` writes bench/READABLE.md.

Its text is compared with those of trafilatura's settings, on pages with a reference text. The pages are
those in the source distribution of newspaper4k, downloaded once into the cache folder, not committed.
A text scores by its words against the reference: precision, recall and F1 over the multiset of words. Scripts that
are written without spaces count by character.

Pages come from anywhere, so a second table has some that are made to be slow, each read in a process of its own under a
limit on CPU time. A crawl does not ask trafilatura about such pages; alone, it gets what ``markup_limits`` leaves.
"""

from __future__ import annotations

import argparse
import logging
import re
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median

import trafilatura

from headgate.crawl.page.extract import extract
from headgate.crawl.page.markup_limits import parseable_prefix

ROUNDS = 5
"""Timed runs of each extractor on each page, interleaved; the fastest counts."""
CPU_LIMIT = 20
"""Seconds that one slow page may take."""
RESULT = Path(__file__).with_name("READABLE.md")

_UNSPACED = r"\u0e00-\u0e7f\u1000-\u109f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Thai, Burmese, kana and Han."""
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


DECISION = """## Which one is used

trafilatura, with its `fast` setting. Until 16 November 2026 a crawl had rules of its own; this is that day's
comparison on the same pages:

| | F1 | precision | recall | ms a page |
|---|--:|--:|--:|--:|
| our own rules | 0.899 | 0.828 | 0.998 | 18.7 |
| trafilatura | 0.926 | 0.887 | 0.995 | 68.1 |
| trafilatura, fast | 0.937 | 0.909 | 0.987 | 49.6 |

By F1 trafilatura wins: nearly the same recall, and less of what stands around the text; it takes two to three times as
long. A crawl meets other pages than articles, and of eight entries one below the other it keeps one, or all, depending
on their length. So its text counts if it is at least 0.35 of the page's visible text outside of links (these articles
have 0.38 to 1.0 of it); otherwise all visible text is kept.

It is asked about pages of up to 4,000,000 characters and 50,000 tags that are not nested too deep: those made to be
slow take it two seconds at most. Of others all visible text is kept too (`crawl/page/extract.py`). `headgate[crawl]`
requires `lxml_html_clean` as well, which justext imports and does not require.
"""
SLOW_PAGES: dict[str, Callable[[], bytes]] = {
    "a million `<i>x</i>`": lambda: b"<p>one</p>" + b"<i>x</i>" * 1_000_000,
    "400,000 paragraphs": lambda: b"<p>one</p>" + b"<p>some words in a row</p>" * 400_000,
    "100,000 links": lambda: b"<p>one</p>" + b"".join(b"<a href=/%d>x</a>" % n for n in range(100_000)),
    "100,000 open `<div>`": lambda: b"<p>one</p>" + b"<div>" * 100_000,
}


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    body: bytes
    reference: Counter[str]


@dataclass(frozen=True, slots=True)
class Score:
    precision: float
    recall: float
    seconds: float

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def overlap(found: Counter[str], reference: Counter[str]) -> tuple[float, float]:
    """Precision and recall."""
    common = (found & reference).total()
    return common / max(1, found.total()), common / max(1, reference.total())


def load_samples(cache: Path) -> tuple[list[Sample], str]:
    """Every page that has a reference text of its own name, and the distribution they come from."""
    cache.mkdir(parents=True, exist_ok=True)
    if not list(cache.glob("newspaper4k-*.tar.gz")):
        download = ["pip", "download", "--no-binary", "newspaper4k", "--no-deps", "-d", str(cache), "newspaper4k"]
        subprocess.run([sys.executable, "-m", *download], check=True, stdout=subprocess.DEVNULL)
    archive = max(cache.glob("newspaper4k-*.tar.gz"))
    pages: dict[str, bytes] = {}
    texts: dict[str, bytes] = {}
    with tarfile.open(archive) as files:
        for member in files:
            path = Path(member.name)
            kind = {"tests/data/html": pages, "tests/data/txt": texts}.get("/".join(path.parts[1:-1]))
            content = files.extractfile(member) if kind is not None and member.isfile() else None
            if kind is not None and content is not None:
                kind[path.stem] = content.read()
    names = sorted(pages.keys() & texts.keys())
    samples = [Sample(name, pages[name], words(texts[name].decode("utf-8"))) for name in names]
    return samples, archive.name.removesuffix(".tar.gz")


def measure(sample: Sample) -> dict[str, Score]:
    fastest = dict.fromkeys(EXTRACTORS, float("inf"))
    texts: dict[str, str] = {}
    for _ in range(ROUNDS):
        for name, run in EXTRACTORS.items():
            began_at = time.perf_counter()
            texts[name] = run(sample.body)
            fastest[name] = min(fastest[name], time.perf_counter() - began_at)
    return {name: Score(*overlap(words(text), sample.reference), seconds=fastest[name]) for name, text in texts.items()}


EXTRACTORS: dict[str, Callable[[bytes], str]] = {
    "a crawl": lambda body: extract(body, "text/html", None, "https://example.org/").text,
    "trafilatura": lambda body: trafilatura.extract(body) or "",
    "trafilatura, fast": lambda body: trafilatura.extract(body, fast=True) or "",
}


def read_slow_page(page: str, extractor: str) -> None:
    """Print the CPU seconds for one page; the kernel ends the process at ``CPU_LIMIT``."""
    run = EXTRACTORS[extractor]
    body, _ = parseable_prefix(SLOW_PAGES[page]())
    spent = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + CPU_LIMIT, int(spent) + CPU_LIMIT))
    run(body)
    print(f"{time.process_time() - spent:.2f}")


def slow_table() -> str:
    extractors = list(EXTRACTORS)
    lines = ["| page | " + " | ".join(f"{name}, CPU s" for name in extractors) + " |"]
    lines += ["|---|" + "--:|" * len(extractors)]
    for page in SLOW_PAGES:
        cells = []
        for name in extractors:
            command = [sys.executable, "-m", "bench.readable", "--slow-page", page, name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            cells.append(done.stdout.strip() if done.returncode == 0 else f"over {CPU_LIMIT}")
        lines.append(f"| {page} | {' | '.join(cells)} |")
    return "\n".join(lines)


def table(scores: dict[str, dict[str, Score]]) -> str:
    """``scores`` by page and extractor."""
    extractors = list(next(iter(scores.values())))
    lines = ["| page | " + " | ".join(f"{name}: F1 | ms" for name in extractors) + " |"]
    lines += ["|---|" + "--:|--:|" * len(extractors)]
    for page, by_extractor in scores.items():
        cells = (f"{score.f1:.3f} | {1e3 * score.seconds:.1f}" for score in by_extractor.values())
        lines.append(f"| {page} | {' | '.join(cells)} |")
    columns = [[by_extractor[name] for by_extractor in scores.values()] for name in extractors]
    means = (f"**{fmean(s.f1 for s in c):.3f}** | {1e3 * fmean(s.seconds for s in c):.1f}" for c in columns)
    medians = (f"{median(s.f1 for s in c):.3f} | {1e3 * median(s.seconds for s in c):.1f}" for c in columns)
    lines += [f"| **mean** | {' | '.join(means)} |", f"| median | {' | '.join(medians)} |"]
    for what in ("precision", "recall"):
        cells = (f"{fmean(getattr(score, what) for score in column):.3f} | " for column in columns)
        lines.append(f"| mean {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "headgate-readable")
    parser.add_argument("--slow-page", nargs=2, metavar=("PAGE", "EXTRACTOR"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.slow_page:
        return read_slow_page(*arguments.slow_page)
    samples, source = load_samples(arguments.cache)
    logging.disable()  # trafilatura warns of pages without a text
    scores = {sample.name: measure(sample) for sample in samples}
    text = report(scores, source, version("trafilatura"))
    RESULT.write_text(text, encoding="utf-8")
    print(text)
    return None


def report(scores: dict[str, dict[str, Score]], source: str, installed: str) -> str:
    return f"""# The main text of a page

Written by `python -m bench.readable`: {len(scores)} pages of {source} with their reference texts, trafilatura
{installed}. F1 by words against the reference; milliseconds are the fastest of {ROUNDS} interleaved runs. A crawl's are
for all that is read of a page (charset, links, metadata and text), trafilatura's for the text alone. The references are
news articles as newspaper4k wants them.

{table(scores)}

Pages made to be slow, CPU seconds each (stopped at {CPU_LIMIT}):

{slow_table()}

{DECISION}"""


if __name__ == "__main__":
    main()
