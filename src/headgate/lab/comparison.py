"""Several strategies through one scenario over several seeds: one row of medians for each.

    tasks (scenario, strategy, seed) ──measure──> figures of each run ──tabulate──> a row for each strategy

Goodput is a share of what the oracle gets done with the same seed. Runs are independent of each other, so
they can be spread over processes; the numbers are the same however many there are.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median

from ..config import RateLimitConfig
from .adapters import LAB_CONFIG
from .experiment import run, strategies_of
from .measures import Run
from .scenario import Scenario

ORACLE = "oracle"
MOST_RUNS = 100_000

Progress = Callable[[int, int], None]
"""Told after each run: how many are done, of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run to be made."""

    scenario: Scenario
    strategy: str
    seed: int
    config: RateLimitConfig = LAB_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What remains of a run when only its numbers matter."""

    ok: int
    sent: int
    refused_share: float
    errors: int
    p50: float
    p99: float
    wait_p99: float
    jain: float
    per_process: tuple[int, ...]
    convergence: Mapping[str, float]
    first_minute: tuple[int, int] = (0, 0)
    """Calls in the minute from the first refusal on, and how many of them were refused."""

    @classmethod
    def of(cls, run: Run) -> Figures:
        return cls(
            ok=run.ok,
            sent=run.sent,
            refused_share=run.refused_share,
            errors=run.errors,
            p50=run.p(0.50),
            p99=run.p(0.99),
            wait_p99=run.wait_p(0.99),
            jain=run.jain,
            per_process=tuple(run.per_process),
            convergence=run.convergence(),
            first_minute=run.first_minute,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One strategy over all seeds: medians, and the worst where it matters."""

    strategy: str
    goodput: float
    goodput_least: float
    refused_share: float
    refused_share_most: float
    p50: float
    p99: float
    """Seconds from an item's first send to its success."""
    p99_against_oracle: float
    wait_p99: float
    jain: float
    jain_least: float
    convergence: Mapping[str, float]
    """Seconds to reach 95 % after each mark; infinite if never."""
    ok: float
    sent: float

    @classmethod
    def of(cls, strategy: str, runs: Sequence[Figures], oracles: Sequence[Figures]) -> Row:
        """A row from the runs and the oracle's runs with the same seeds, in the same order."""
        pairs = list(zip(runs, oracles, strict=True))
        goodputs = [run.ok / max(1, oracle.ok) for run, oracle in pairs]
        p99_shares = [run.p99 / oracle.p99 if isfinite(run.p99) else inf for run, oracle in pairs]
        return cls(
            strategy=strategy,
            goodput=median(goodputs),
            goodput_least=min(goodputs),
            refused_share=median(run.refused_share for run in runs),
            refused_share_most=max(run.refused_share for run in runs),
            p50=median(run.p50 for run in runs),
            p99=median(run.p99 for run in runs),
            p99_against_oracle=median(p99_shares),
            wait_p99=median(run.wait_p99 for run in runs),
            jain=median(run.jain for run in runs),
            jain_least=min(run.jain for run in runs),
            convergence={mark: median(run.convergence[mark] for run in runs) for mark in runs[0].convergence},
            ok=median(run.ok for run in runs),
            sent=median(run.sent for run in runs),
        )


def tabulate(tasks: Sequence[Task], figures: Sequence[Figures], names: Iterable[str]) -> dict[str, Row]:
    """The rows of one scenario; the oracle's runs must be among the figures."""
    found = {(task.strategy, task.seed): one for task, one in zip(tasks, figures, strict=True)}
    rows = {}
    for name in names:
        seeds = [task.seed for task in tasks if task.strategy == name]
        runs, oracles = [found[name, seed] for seed in seeds], [found[ORACLE, seed] for seed in seeds]
        rows[name] = Row.of(name, runs, oracles)
    return rows


def measure(tasks: Sequence[Task], jobs: int = 1, progress: Progress | None = None) -> list[Figures]:
    """Make all runs, as ``measured`` does; figures come in the order of the tasks."""
    figures: dict[int, Figures] = {}
    for place, one in measured(tasks, jobs):
        figures[place] = one
        if progress is not None:
            progress(len(figures), len(tasks))
    return [figures[place] for place in range(len(tasks))]


def measured(tasks: Sequence[Task], jobs: int = 1) -> Iterator[tuple[int, Figures]]:
    """Make all runs, up to ``jobs`` at a time in processes of their own; each as it is done, with its place in tasks.

    An interrupt, an error or closing the iterator ends all of them at once. Programs that use several
    jobs need the usual ``if __name__ == "__main__"``, as new processes load the main module.
    """
    if len(tasks) > MOST_RUNS:
        raise ValueError(f"{len(tasks):,} runs are too many; the limit is {MOST_RUNS:,}")
    if jobs < 1:
        raise ValueError(f"jobs={jobs!r} must be 1 or more")
    for task in tasks:
        strategies_of(task.strategy)
    if jobs == 1 or len(tasks) <= 1:
        return ((place, _measure(task)) for place, task in enumerate(tasks))
    return _measured_apart(tasks, jobs)


def _measure(task: Task) -> Figures:
    return Figures.of(run(task.scenario, task.strategy, task.seed, config=task.config))


def _measured_apart(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[int, Figures]]:
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")  # the only way of starting that is the same everywhere
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), context, _leave_interrupts_to_parent)
    try:
        with _interrupts_kept_back():
            places = {pool.submit(_measure, task): place for place, task in enumerate(tasks)}
        for future in as_completed(places):
            yield places[future], future.result()
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_kept_back() -> Iterator[None]:
    """Half-started processes would complain of an interrupt; where it can be done, it comes a moment later."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
