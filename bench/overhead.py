"""What events, metrics, logs and the page cost: `python -m bench.overhead [permit|job ...] [--write]`.

| figure | what is timed                                                                                             |
|--------|-----------------------------------------------------------------------------------------------------------|
| permit | acquire and report, beside the same code with all that tells events cut out of it (the cut is made from the |
|        | source, so it is always that of the code beside it); at most 3 % more where nothing listens                |
| job    | a job over loopback, file to file, with its page and a reader (at most 2 % more), and with log,         |
|        | metrics, the page, its reader and a scrape a second (at most 5 % more); the log is read at INFO, which      |
|        | leaves out what every row does                                                                             |

Contenders take turns. Of a permit the lowest of many rounds counts. Of a job there are two parts: what telling costs
its own thread, found by switching it on and off ten times a second (a machine has moods that last longer than that),
and what the observers' threads take, which the system counts; how they disturb the job's thread otherwise is
not seen. The clock is the processor's time: other programs do not count, as long as they leave the job a core: what
observers do so many times a second weighs more beside a job that gets less done. Telling comes out a little too high:
of each kind the page keeps 20 events a second, and while it is on for half of the time, that half has all of them.
`--write` keeps a run in `bench/OVERHEAD.md`.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import logging
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.batch import chat_api, job_of, make_rows
from bench.contenders import ours
from bench.measure import Contender, interleave
from bench.report import circumstances
from headgate import AdaptiveRateLimiter
from headgate.batch.job import Job
from headgate.cli.ui.observe_options import metrics_of
from headgate.limiter import completion
from headgate.observe.exporters.logs import LogListener
from headgate.observe.exporters.prometheus import Prometheus
from headgate.observe.hub import Hub
from headgate.observe.monitor import RunMonitor
from headgate.web import serve as serve_page

RESULTS = Path(__file__).with_name("OVERHEAD.md")
PERMIT_MARK, PAGE_MARK, ALL_MARK = 1.03, 1.02, 1.05
WINDOW = 10.0
"""Seconds in which one and the same looks on ..."""
SETTLING = 0.3
"""... after so many in which it comes."""
MOMENT = 0.1
"""Seconds for which the job tells observers what it does, or does not."""
PAIRS = 5
"""Of such moments are compared together: what comes but once a second is in all of them."""
STRATEGIES = ("fixed", "adaptive")
TELLING = frozenset(("before", "ended", "asked", "events", "_events"))
"""The names by which what tells events is known in the code that ends a permit."""
PLACES = 4
"""Limiters of each kind: where in memory one happens to lie makes a difference of a few percent by itself."""
CYCLE = "acquire(key).report(status_code=200, latency=0.01)"


# ---------------------------------------------------------------------- a permit


class _Cut(ast.NodeTransformer):
    """Leaves out every statement that has to do with telling."""

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.If) and not _speaks_of_telling(node.test):
            kept = self.generic_visit(node)  # something inside may be
            return kept if node.body else node.orelse or None
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.With) and _speaks_of_telling(node):
            return None
        return self.generic_visit(node)


def _speaks_of_telling(node: ast.AST) -> bool:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return bool(TELLING & (names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}))


def without_telling() -> Callable[..., None]:
    """``Completion.end`` as it would be if there were no events."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(completion.Completion.end)))
    cut = ast.fix_missing_locations(_Cut().visit(tree))
    assert not _speaks_of_telling(cut), ast.unparse(cut)
    scope: dict[str, Any] = {}
    exec(compile(cut, "<end, without telling>", "exec"), vars(completion), scope)
    end: Callable[..., None] = scope["end"]
    return end


class _DeafCompletion(completion.Completion):
    end = without_telling()


def _limiter(strategy: str) -> AdaptiveRateLimiter:
    return AdaptiveRateLimiter(ours.limiter(ours.HUGE, ours.HUGE, strategy).config)


def _names(limiter: AdaptiveRateLimiter) -> dict[str, object]:
    return {"acquire": limiter.acquire, "limiter": limiter}


WITHOUT_LISTENER = ("nothing listens", "a hub without a listener")
"""What is judged by the mark; the rest is for information."""


def _deaf(strategy: str) -> dict[str, object]:
    limiter = _limiter(strategy)
    limiter._completion.__class__ = _DeafCompletion
    return _names(limiter)


def _unheard(strategy: str) -> dict[str, object]:
    return _names(_limiter(strategy))


def _idle_hub(strategy: str) -> dict[str, object]:
    limiter = _limiter(strategy)
    limiter.on_event = Hub()
    return _names(limiter)


def _counted(strategy: str) -> dict[str, object]:
    limiter = _limiter(strategy)
    metrics = Prometheus()
    metrics.instrument(limiter)
    return _names(limiter) | {"metrics": metrics}


def permit(rounds: int) -> dict[str, float]:
    """Nanoseconds of a cycle by observer."""
    nothing, idle = WITHOUT_LISTENER
    ways = {"cut out": _deaf, nothing: _unheard, idle: _idle_hub, "metrics": _counted}
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


# ---------------------------------------------------------------------- a job


def look_on(url: str, scrapes: bool) -> None:
    """One browser: the page's stream, and where it ``scrapes`` the metrics each second, until it is ended."""
    import urllib.request
    from http.cookiejar import CookieJar

    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    browser.open(url, timeout=10).read()
    base, scrape_at = url.partition("?")[0], 0.0
    with browser.open(f"{base}api/stream", timeout=10) as stream:
        for number, _ in enumerate(stream):
            if scrapes and time.monotonic() >= scrape_at:
                scrape_at = time.monotonic() + 1.0
                browser.open(f"{base}metrics", timeout=10).read()
            if not number:
                print("looking", flush=True)


Switch = Callable[[bool], None]
"""Lets the job tell observers of what it does, or not; their threads go on either way."""


def switch_variable(job: Job, metrics: Prometheus | None = None) -> Switch:
    listeners = {part: part.on_event for part in (job.runner, job.runner.limiter)}

    def switch(on: bool) -> None:
        for part, listener in listeners.items():
            part.on_event = listener if on else None
        if metrics is not None:
            job.runner.limiter.unwatch(metrics)  # else it would be told twice
            if on:
                job.runner.limiter.watch(metrics)

    return switch


@contextmanager
def page_on(job: Job, folder: Path) -> Iterator[Switch]:
    """The page as ``--web`` makes it, with one reader."""
    with (
        RunMonitor(job=job) as watched,
        serve_page(watched, metrics=metrics_of(watched)) as served,
        looker(served.url, scrapes=False),
    ):
        yield switch_variable(job)


@contextmanager
def all_on(job: Job, folder: Path) -> Iterator[Switch]:
    """The log, metrics, the page, one reader of it and one scrape a second."""
    with RunMonitor(job=job) as watched, logged(watched, folder):
        metrics = Prometheus(watched)
        metrics.instrument(job.runner)
        try:
            with serve_page(watched, metrics=metrics) as served, looker(served.url, scrapes=True):
                yield switch_variable(job, metrics)
            assert b"headgate_calls_total{" in metrics.text()
        finally:
            job.runner.limiter.unwatch(metrics)


@contextmanager
def looker(url: str, *, scrapes: bool) -> Iterator[None]:
    script = f"import bench.overhead as it; it.look_on({url!r}, {scrapes})"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"looking\n"
            yield
        finally:
            process.kill()


@contextmanager
def logged(watched: RunMonitor, folder: Path) -> Iterator[None]:
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


OBSERVERS = {"the page and a reader": page_on, "log, metrics, the page, a reader, scrapes": all_on}
MARKS = dict(zip(OBSERVERS, (PAGE_MARK, ALL_MARK), strict=True))


@dataclass(slots=True)
class Looked:
    """What was found with observers."""

    rows: list[tuple[float, float]] = field(default_factory=list)
    """Seconds of a row in the job's own thread, with telling and without, in neighbouring moments."""
    threads: float = 0.0
    """Seconds that the observers' threads took ..."""
    used: float = 0.0
    """... and the whole process."""


def looked_on(rounds: int) -> dict[str, Looked]:
    found = {name: Looked() for name in OBSERVERS}
    with tempfile.TemporaryDirectory(prefix="bench-overhead-") as name, chat_api() as url:
        folder = Path(name)
        make_rows(folder / "rows.jsonl", int((rounds + 1) * len(OBSERVERS) * (WINDOW + 2) * 10_000))
        job = job_of(folder, url)
        own = time.pthread_getcpuclockid(threading.get_ident())

        def row() -> float:
            """What one costs the job's own thread for a moment."""
            used, calls, done = time.clock_gettime(own), job.runner.report.calls, 0
            while not done:  # a disk may make all of them wait
                time.sleep(MOMENT)
                done = job.runner.report.calls - calls
            return (time.clock_gettime(own) - used) / done

        def look(one: Looked, switch: Switch) -> None:
            threads, used, ends_at = time_of_onlookers(), time.process_time(), time.monotonic() + WINDOW
            while time.monotonic() < ends_at:
                pair = {}
                for on in (True, False) if len(one.rows) % 2 else (False, True):
                    switch(on)
                    pair[on] = row()
                one.rows.append((pair[True], pair[False]))
            switch(True)
            one.threads += time_of_onlookers() - threads
            one.used += time.process_time() - used

        def take_turns() -> None:
            try:
                for turn in range(-1, rounds):
                    for name in OBSERVERS:
                        with OBSERVERS[name](job, folder) as switch:
                            time.sleep(SETTLING)
                            look(found[name] if turn >= 0 else Looked(), switch)  # the first round is for warming up
            finally:
                job.stop()

        with ThreadPoolExecutor(1) as beside:
            turns = beside.submit(take_turns)
            asyncio.run(job.run())
            turns.result()
    return found


def time_of_onlookers() -> float:
    """Seconds of processor time that no thread of the job took; some observers live but a moment."""
    used = time.process_time()
    for thread in threading.enumerate():
        if thread.ident is not None and not thread.name.startswith(("headgate-observe", "headgate-web")):
            with suppress(OSError):  # it has just ended
                used -= time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return used


# ---------------------------------------------------------------------- telling it


def judged(ratio: float, mark: float) -> str:
    return f"{100 * (ratio - 1):+.1f} % ({'met' if ratio <= mark else 'MISSED'}: at most +{100 * (mark - 1):.0f} %)"


def permit_table(lowest: dict[str, float]) -> list[str]:
    lines = ["## A permit cycle: acquire, report, learn", ""]
    lines += ["| strategy | observers | ns | beside the cut |", "|---|---|---|---|"]
    for label, cost in lowest.items():
        strategy, _, name = label.partition(": ")
        ratio = cost / lowest[f"{strategy}: cut out"]
        said = judged(ratio, PERMIT_MARK) if name in WITHOUT_LISTENER else f"{100 * (ratio - 1):+.1f} %"
        lines.append(f"| {strategy} | {name} | {cost:,.0f} | {said} |")
    return lines


def job_table(found: dict[str, Looked]) -> list[str]:
    lines = ["## A job over loopback: what a row costs more, and what the observers' threads take", ""]
    lines += [
        "| observers | a row, us | telling | give or take | threads | together |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        seconds = zip(*[iter(one.rows)] * PAIRS, strict=False)
        ratios = sorted(sum(told) / sum(untold) for told, untold in (zip(*pairs, strict=True) for pairs in seconds))
        telling, quarter = median(ratios) - 1, len(ratios) // 4
        unsure = 1.25 * (ratios[-1 - quarter] - ratios[quarter]) / 1.35 / len(ratios) ** 0.5
        threads = one.threads / (one.used - one.threads)
        cells = [name, f"{1e6 * median(untold for _, untold in one.rows):.1f}", f"{100 * telling:+.2f} %"]
        cells += [f"{100 * unsure:.2f}", f"{100 * threads:+.2f} %", judged(1 + telling + threads, MARKS[name])]
        lines.append("| " + " | ".join(cells) + " |")
    seconds = min(len(one.rows) for one in found.values()) // PAIRS
    return [*lines, "", f"The middle of {seconds:,} times {PAIRS} pairs of moments of {MOMENT:g} s each."]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description="Measure what looking on costs.")
    parser.add_argument("figures", nargs="*", choices=["permit", "job", []], help="some of them; all")
    parser.add_argument("--rounds", type=int, default=0, help="instead of each figure's own number")
    parser.add_argument("--write", action="store_true", help=f"write a run of all to {RESULTS.name}")
    arguments = parser.parse_args()
    figures = arguments.figures or ["permit", "job"]
    if arguments.write and len(figures) < 2:
        parser.error("--write is for a run of all figures")
    text = ["# What looking on costs", "", circumstances("python -m bench.overhead")]
    if "permit" in figures:
        text += ["", *permit_table(permit(arguments.rounds or 40))]
    if "job" in figures:
        text += ["", *job_table(looked_on(arguments.rounds or 20))]
    print("\n".join(text))
    if arguments.write:
        RESULTS.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
