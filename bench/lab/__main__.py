"""``python -m bench.lab``: run the lab, write its page, and fail if the limiter has become worse."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import cast

from bench.lab import scale
from bench.lab.misses import read_notes, summary, worse
from bench.lab.page import ILLUSTRATIONS, draw, page
from bench.lab.plan import FULL, LAB, QUICK, Job
from bench.lab.results import Results
from headgate.lab.comparison import Figures, measured
from headgate.lab.scenario_file import bundled, bundled_names

COMMITTED = Path(__file__).parents[1]
PAGE, FIGURES, PICTURES = "controllers.md", "controllers.json", "pictures"
UNSEEN, SCALE = "unseen", "scale"
DONE, BECAME_WORSE, INTERRUPTED = 0, 1, 130
MOST_JOBS = 64
TOLD_EVERY = 10.0
"""Seconds between two words on how far it is."""

Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _arguments(arguments)
    started_at = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started_at:6.1f} s] {line}", file=sys.stderr, flush=True)

    try:
        return _again(asked) if asked.render else _run(asked, say, started_at)
    except KeyboardInterrupt:
        say("stopped; nothing was written")
        return INTERRUPTED


def _run(asked: argparse.Namespace, say: Say, started_at: float) -> int:
    plan, notes, committed = QUICK if asked.quick else FULL if asked.full else LAB, read_notes(), _committed(asked)
    is_whole = not asked.quick and asked.only is None
    scenarios = {name: one for name, one in bundled().items() if asked.only is None or name in asked.only}
    with_unseen = asked.only is None or UNSEEN in asked.only
    results = Results(scale=committed.scale if committed else {})
    _measure(plan.jobs(list(scenarios.values()), with_unseen=with_unseen), asked.jobs, results, say)
    if SCALE in (asked.only or ()) or (asked.full and is_whole):
        measured_sizes = scale.measure_all(say, quick=asked.quick)
        results.scale = {"measured": measured_sizes, "when": _now(), "machine": _machine()}
    results.circumstances = {
        "command": " ".join(["python -m bench.lab", *sys.argv[1:]]),
        "when": _now(),
        "minutes": (time.monotonic() - started_at) / 60,
        "machine": f"{_machine()}; {asked.jobs} jobs",
        "seeds": asdict(plan),
    }
    became_worse = list(worse(committed, results)) if committed else []
    told = page(results, scenarios, notes, became_worse)
    folder = asked.output or (COMMITTED if is_whole else None)
    if folder is None:
        print(told)
    else:
        if is_whole:
            _draw(folder / PICTURES, say)
        _write(folder, told, results, say, is_bar=asked.accept or not became_worse)
    print(summary(results, scenarios, notes))
    for line in became_worse if committed else ["there is no committed table to compare with"]:
        print(f"WORSE {line}" if committed else line)
    return BECAME_WORSE if became_worse else DONE


def _again(asked: argparse.Namespace) -> int:
    """Write the page from the figures there are: the notes may have changed."""
    folder = asked.output or COMMITTED
    results, scenarios = Results.read(folder / FIGURES), bundled()
    (folder / PAGE).write_text(page(results, scenarios, read_notes()))
    print(summary(results, scenarios, read_notes()))
    return DONE


def _measure(jobs: Sequence[Job], processes: int, results: Results, say: Say) -> None:
    work, done, told_at, began_at = sum(job.cost for job in jobs), 0.0, time.monotonic(), time.monotonic()
    say(f"{len(jobs):,} runs to make, {processes} at a time")
    runs = cast("Generator[tuple[int, Figures], None, None]", measured([job.task for job in jobs], processes))
    with closing(runs):  # whatever goes wrong here ends the processes too
        for count, (place, figures) in enumerate(runs, 1):
            job = jobs[place]
            results.enter(job.task.scenario.name, job.label, job.task.seed, figures)
            done += job.cost
            now = time.monotonic()
            if now - told_at >= TOLD_EVERY or count == len(jobs):
                told_at = now
                left = (now - began_at) * (work - done) / done
                say(f"{count:,} of {len(jobs):,} runs, about {left:.0f} s to go")


def _draw(folder: Path, say: Say) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for illustration in ILLUSTRATIONS:
        say(f"drawing {illustration.scenario}")
        draw(illustration, folder)


def _write(folder: Path, told: str, results: Results, say: Say, *, is_bar: bool) -> None:
    """The page always; as the figures to compare with next time only those that are not worse."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(told)
    say(f"wrote {folder / PAGE}")
    if is_bar or folder != COMMITTED:
        results.write(folder / FIGURES)
        say(f"wrote {folder / FIGURES}")
    else:
        say(f"kept {folder / FIGURES}, as some figures became worse; --accept replaces it")


def _committed(asked: argparse.Namespace) -> Results | None:
    return Results.read(asked.against) if asked.against.exists() else None


def _now() -> str:
    return f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}"


def _machine() -> str:
    return (
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, headgate {version('headgate')}"
    )


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.lab", description="Judge the controllers in virtual time.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="everything over 20 seeds, and what size costs")
    size.add_argument("--quick", action="store_true", help="one or two seeds; writes nothing unless --output is given")
    parser.add_argument("--only", type=_names, metavar="NAME,...", help=f"scenarios; also {UNSEEN} and {SCALE}")
    parser.add_argument("--jobs", type=_jobs, default=os.cpu_count() or 1, metavar="N", help="runs at a time")
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"write there, instead of into {COMMITTED.name}/")
    parser.add_argument(
        "--against", type=Path, default=COMMITTED / FIGURES, metavar="FILE", help="the figures to compare with"
    )
    parser.add_argument("--accept", action="store_true", help="keep the new figures even where they became worse")
    parser.add_argument("--render", action="store_true", help="write the page again, after a change to the notes")
    return parser.parse_args(arguments)


def _jobs(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_JOBS}")
    return int(text)


def _names(text: str) -> list[str]:
    known = [*bundled_names(), UNSEEN, SCALE]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
