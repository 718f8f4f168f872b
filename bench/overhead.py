"""What looking on costs: `python -m bench.overhead [permit|page|batch ...] [--write]`.

| figure | what is timed                                                                                             |
|--------|-----------------------------------------------------------------------------------------------------------|
| permit | acquire and report, beside the same code with all that tells events cut out of it (the cut is made from the |
|        | source, so it is always that of the code beside it); at most 3 % more where nobody listens                 |
| page   | a job over loopback with its page on: seconds in which somebody reads it beside seconds in which nobody     |
|        | does, in the same run; at most 2 % more                                                                    |
| batch  | a whole job over loopback, file to file, with log, metrics and the page on, one reader of its stream and a  |
|        | scrape a second, beside the same job with nobody looking; at most 5 % more                                 |

Contenders take turns. Of a permit the lowest of many rounds counts; of a job, which is too long to find the machine at
rest, the median of what each round makes of the two. The clock is the processor time of the whole process: threads of
ours count, other programs do not. `--write` keeps a run in `bench/OVERHEAD.md`.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import logging
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from headgate import AdaptiveRateLimiter
from headgate._version import __version__
from headgate.batch.job import Job
from headgate.limiter import permit as permits
from headgate.limiter import serving
from headgate.observe.hub import Hub
from headgate.observe.logs import LogListener
from headgate.observe.prometheus import Prometheus
from headgate.observe.watched import Watched
from headgate.web import serve as serve_page

from .batch import finish, job_of, make_rows, serve
from .contenders import ours
from .measure import Contender, interleave

RESULTS = Path(__file__).with_name("OVERHEAD.md")
PERMIT_MARK, PAGE_MARK, BATCH_MARK = 1.03, 1.02, 1.05
WINDOW = 2.0
"""Seconds in which somebody reads the page, and as many in which nobody does."""
STRATEGIES = ("fixed", "adaptive")
TELLING = frozenset(("before", "ended", "asked", "tell"))
"""The names by which what tells events is known in the code that ends a permit."""
PLACES = 4
"""Limiters of each kind: where in memory one happens to lie makes a difference of a few percent by itself."""
CYCLE = "acquire(key).report(status_code=200, latency=0.01)"


# ---------------------------------------------------------------------- a permit


class _Cut(ast.NodeTransformer):
    """Leaves out every statement that has to do with telling."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.If) and not _speaks_of_telling(node.test):
            return self.generic_visit(node)  # something inside may be
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.With) and _speaks_of_telling(node):
            return None
        return self.generic_visit(node)


def _speaks_of_telling(node: ast.AST) -> bool:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return bool(TELLING & (names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}))


def without_telling() -> Callable[..., None]:
    """``AdaptiveRateLimiter.end`` as it would be if there were no events."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(serving.Serving.end)))
    cut = ast.fix_missing_locations(_Cut().visit(tree))
    assert not _speaks_of_telling(cut), ast.unparse(cut)
    scope: dict[str, Any] = {}
    exec(compile(cut, "<end, without telling>", "exec"), vars(serving), scope)
    end: Callable[..., None] = scope["end"]
    return end


class _Deaf(AdaptiveRateLimiter):
    end = without_telling()


class _DeafPermit(permits.Permit):
    """One whose report does not pass on what only watchers want."""

    __slots__ = ()

    def report(
        self,
        answer: object = None,
        *,
        status_code: int | None = None,
        latency: float | None = None,
        headers: Any = None,
        body: Any = None,
        retry_after: float | None = None,
        cost: Any = None,
    ) -> Any:
        limiter = self.gate.limiter
        if status_code is None and answer is None and (cost is not None or latency is not None):
            status_code = 200
        if status_code == 200 and answer is None and headers is None and body is None and retry_after is None:
            signal = permits._OK
        else:
            signal = permits.wire.signal_of(answer, status_code, headers, body, retry_after, limiter.clock.wall())
        limiter.end(self, signal, latency, cost)
        return signal.outcome


def _limiter(kind: type[AdaptiveRateLimiter], strategy: str) -> AdaptiveRateLimiter:
    return kind(ours.limiter(ours.HUGE, ours.HUGE, strategy).config)


def _names(limiter: AdaptiveRateLimiter) -> dict[str, object]:
    return {"acquire": limiter.acquire, "limiter": limiter}


def _deaf(strategy: str) -> dict[str, object]:
    limiter = _limiter(_Deaf, strategy)
    limiter.acquire("api").report(status_code=200)
    limiter._gates["api"].ticket = _DeafPermit
    return _names(limiter)


def _nobody(strategy: str) -> dict[str, object]:
    return _names(_limiter(AdaptiveRateLimiter, strategy))


def _idle_hub(strategy: str) -> dict[str, object]:
    limiter = _limiter(AdaptiveRateLimiter, strategy)
    limiter.on_event = Hub()
    return _names(limiter)


def _counted(strategy: str) -> dict[str, object]:
    limiter = _limiter(AdaptiveRateLimiter, strategy)
    metrics = Prometheus()
    metrics.instrument(limiter)
    return _names(limiter) | {"metrics": metrics}


def permit(rounds: int) -> dict[str, float]:
    """Nanoseconds of a cycle by who looks on."""
    ways = {"cut out": _deaf, "nobody listens": _nobody, "a hub nobody listens to": _idle_hub, "metrics": _counted}
    contenders = {
        (f"{strategy}: {name}", place): Contender(name, CYCLE, lambda make=make, strategy=strategy: make(strategy))
        for place in range(PLACES)
        for strategy in STRATEGIES
        for name, make in ways.items()
    }
    lowest: dict[str, float] = {}
    for (label, _), cost in interleave(contenders, rounds, 0.02, lambda _: None).items():
        lowest[label] = min(cost, lowest.get(label, cost))
    return lowest


# ---------------------------------------------------------------------- a batch


def look_on(url: str) -> None:
    """One browser: the page's stream, and a scrape each second, until it is ended."""
    browser, base = open_browser(url)
    scrape_at = 0.0
    with browser.open(f"{base}api/stream", timeout=10) as stream:
        for number, _ in enumerate(stream):
            if time.monotonic() >= scrape_at:
                scrape_at = time.monotonic() + 1.0
                browser.open(f"{base}metrics", timeout=10).read()
            if not number:
                print("looking", flush=True)


@contextmanager
def observed(job: Job, folder: Path) -> Iterator[None]:
    """The job with everything on."""
    with ExitStack() as stack:
        watched = stack.enter_context(Watched(job=job))
        stack.enter_context(logged(watched, folder))
        metrics = Prometheus(watched)
        metrics.instrument(job.runner)
        served = stack.enter_context(serve_page(watched, metrics=metrics))
        looker = stack.enter_context(beside(f"look_on({served.url!r})"))
        assert looker.stdout is not None
        assert looker.stdout.readline() == b"looking\n"
        yield
        assert b"headgate_calls_total{" in metrics.text()


@contextmanager
def beside(call: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does this until it is not wanted any more."""
    script = f"import bench.overhead as it; it.{call}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def logged(watched: Watched, folder: Path) -> Iterator[None]:
    logger = logging.getLogger("bench.overhead")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.FileHandler(folder / "log.txt")
    logger.addHandler(handler)
    watched.hub.add(LogListener(logger))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


async def _timed(job: Job) -> tuple[float, float]:
    """Seconds of processor time, and of real time."""
    used, began = time.process_time(), time.perf_counter()
    await finish(job)
    return time.process_time() - used, time.perf_counter() - began


@contextmanager
def loopback(rows: int) -> Iterator[tuple[Path, str]]:
    """A folder with so many rows, and the address of a server for them."""
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    server = context.Process(target=serve, args=(told,), daemon=True)
    server.start()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-overhead-") as folder:
            make_rows(Path(folder) / "rows.jsonl", rows)
            yield Path(folder), f"http://127.0.0.1:{told.get(timeout=60)}/v1"
    finally:
        server.kill()


def batch(rounds: int, rows: int) -> dict[str, list[float]]:
    """Microseconds a row in each round, by who looks on."""
    times: dict[str, list[float]] = {}
    with loopback(rows) as (folder, url):
        for turn in range(rounds):
            for name in ("nobody", "all") if turn % 2 else ("all", "nobody"):
                for path in folder.glob("out.jsonl*"):
                    path.unlink()
                job = job_of(folder, url)
                with nullcontext() if name == "nobody" else observed(job, folder):
                    took = asyncio.run(_timed(job))
                for kind, seconds in zip(("processor", "real"), took, strict=True):
                    times.setdefault(f"{name}, {kind}", []).append(seconds / rows * 1e6)
    return times


# ---------------------------------------------------------------------- the page


def open_browser(url: str) -> tuple[Any, str]:
    """One that has been let in, and where the page's parts are."""
    import urllib.request
    from http.cookiejar import CookieJar

    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    browser.open(url, timeout=10).read()
    return browser, url.partition("?")[0]


def look_when_told(url: str) -> None:
    """At each line that comes, read the page's stream for a while, and say when that begins and ends."""
    browser, base = open_browser(url)
    for _ in sys.stdin:
        with browser.open(f"{base}api/stream", timeout=10) as stream:
            stream.readline()
            print("looking", flush=True)
            ends_at = time.monotonic() + WINDOW
            while time.monotonic() < ends_at and stream.readline():
                pass
            print("looked", flush=True)


def page(rounds: int) -> list[tuple[float, float]]:
    """Processor time a row, in microseconds: while somebody reads the page, and before and after that."""
    unread: list[float] = []
    read: list[float] = []
    with ExitStack() as stack:
        folder, url = stack.enter_context(loopback(int(rounds * 2 * WINDOW * 12_000)))
        job = job_of(folder, url)
        served = stack.enter_context(serve_page(stack.enter_context(Watched(job=job))))
        looker = stack.enter_context(beside(f"look_when_told({served.url!r})"))
        to, of = looker.stdin, looker.stdout
        assert to is not None
        assert of is not None

        def cost_of(wait: Callable[[], object]) -> float:
            used, calls = time.process_time(), job.runner.report.calls
            wait()
            return 1e6 * (time.process_time() - used) / (job.runner.report.calls - calls)

        def take_turns() -> None:
            time.sleep(WINDOW)
            for _ in range(rounds):
                unread.append(cost_of(lambda: time.sleep(WINDOW)))
                to.write(b"look\n")
                to.flush()
                of.readline()
                read.append(cost_of(of.readline))
            unread.append(cost_of(lambda: time.sleep(WINDOW)))
            job.stop("measured")

        turns = threading.Thread(target=take_turns, daemon=True)
        turns.start()
        asyncio.run(job.run())
        turns.join()
    return [(one, (before + after) / 2) for one, (before, after) in zip(read, pairwise(unread), strict=True)]


# ---------------------------------------------------------------------- telling it


def judged(ratio: float, mark: float) -> str:
    return f"{100 * (ratio - 1):+.1f} % ({'met' if ratio <= mark else 'MISSED'}: at most +{100 * (mark - 1):.0f} %)"


def permit_table(lowest: dict[str, float]) -> list[str]:
    lines = ["## A permit cycle: acquire, report, learn", ""]
    lines += ["| strategy | who looks on | ns | beside the cut |", "|---|---|---|---|"]
    for label, cost in lowest.items():
        strategy, _, name = label.partition(": ")
        ratio = cost / lowest[f"{strategy}: cut out"]
        said = judged(ratio, PERMIT_MARK) if "nobody" in name else f"{100 * (ratio - 1):+.1f} %"
        lines.append(f"| {strategy} | {name} | {cost:,.0f} | {said} |")
    return lines


def batch_table(times: dict[str, list[float]], rows: int) -> list[str]:
    lines = [f"## A job of {rows:,} rows over loopback", ""]
    lines += ["| who looks on | processor, us a row: lowest (median) | real |", "|---|---|---|"]
    for name, words in (("nobody", "nobody"), ("all", "log, metrics, page with a reader, scrapes")):
        processor, real = times[f"{name}, processor"], times[f"{name}, real"]
        cells = [f"{min(one):.1f} ({median(one):.1f})" for one in (processor, real)]
        lines.append(f"| {words} | {cells[0]} | {cells[1]} |")
    pairs = zip(times["all, processor"], times["nobody, processor"], strict=True)
    usual = median(looked_at / alone for looked_at, alone in pairs)
    lowest = min(times["all, processor"]) / min(times["nobody, processor"])
    rounds = len(times["all, real"])
    lines += ["", f"- processor time, median of the ratios of {rounds} pairs: {judged(usual, BATCH_MARK)}"]
    lines += [f"- lowest beside lowest: {100 * (lowest - 1):+.1f} %"]
    return lines


def page_table(pairs: list[tuple[float, float]]) -> list[str]:
    read, unread = ([pair[which] for pair in pairs] for which in (0, 1))
    ratios = sorted(one / other for one, other in pairs)
    quarter = len(ratios) // 4
    return [
        f"## {len(pairs)} times {WINDOW:g} s of a job over loopback with its page on",
        "",
        "| the page | processor, us a row: lowest (median) |",
        "|---|---|",
        f"| nobody reads it | {min(unread):.1f} ({median(unread):.1f}) |",
        f"| somebody does | {min(read):.1f} ({median(read):.1f}) |",
        "",
        f"- median of the ratios: {judged(median(ratios), PAGE_MARK)}; half of them lie between "
        f"{100 * (ratios[quarter] - 1):+.1f} and {100 * (ratios[-1 - quarter] - 1):+.1f} %",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description="Measure what looking on costs.")
    parser.add_argument("figures", nargs="*", choices=["permit", "page", "batch", []], help="some of them; all")
    parser.add_argument("--rounds", type=int, default=0, help="instead of each figure's own number")
    parser.add_argument("--rows", type=int, default=20_000, help="of the job")
    parser.add_argument("--write", action="store_true", help=f"write a run of all to {RESULTS.name}")
    arguments = parser.parse_args()
    figures = arguments.figures or ["permit", "page", "batch"]
    if arguments.write and len(figures) < 3:
        parser.error("--write is for a run of all figures")
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    where = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    text = ["# What looking on costs", "", f"Headgate {__version__}, {when} UTC, {where}; `python -m bench.overhead`."]
    if "permit" in figures:
        text += ["", *permit_table(permit(arguments.rounds or 40))]
    if "page" in figures:
        text += ["", *page_table(page(arguments.rounds or 30))]
    if "batch" in figures:
        text += ["", *batch_table(batch(arguments.rounds or 12, arguments.rows), arguments.rows)]
    print("\n".join(text))
    if arguments.write:
        RESULTS.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
