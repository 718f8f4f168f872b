"""``headgate demo``: a mock API with a hidden quota for each of three keys, and the limiter that finds them.

    this process                                another process
    workers -> key -> limiter -> HTTP  ------>  headgate mock  (quotas drawn from the seed)
       |                                           |
       +-- what was learned            truth ------+--> the screen, the score, the picture

The API runs in a process of its own: the client cannot see its quotas, and neither
side's work shows up in the other's latencies.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from headgate.config import RateLimitConfig
from headgate.limiter import AdaptiveRateLimiter
from headgate.observe.snapshot import ProgressLine
from headgate.observe.subject import Lately
from headgate.observe.watched import Watched
from headgate.sim.score import draw, judge
from headgate.sim.server import key_secret
from headgate.sim.trace import Heading, TraceWriter
from headgate.sim.trial import Trial

from . import DONE, FAILED, STOPPED, CommandFailed, complain
from .demo_mock import fetch_truth, hidden_plan, mock_process
from .demo_report import Reporter, reporter_for
from .notation import WHOLE, Number, WholeNumber
from .running import run_async
from .seeing import SeenCommand, Wishes, seeing_options, seen

SAMPLE_EVERY = 0.1
PATIENCE = 3.0
"""A run that takes so many times its planned length is given up."""
OPEN_FOR = 1.0
"""How long the breaker stays open; the default of 15 s would outlast the whole outage."""


@click.command(
    cls=SeenCommand,
    examples=[
        ("headgate demo", "half a minute, 6,000 calls; writes headgate-demo.svg"),
        ("headgate demo --seed 7", "other hidden quotas"),
        ("headgate demo --seconds 10 --calls 500 --workers 16", "shorter and smaller"),
        ("headgate demo --trace run.jsonl", "record it, to ask what-if questions of it with headgate simulate"),
        ("headgate demo --web", "in a browser too"),
        ("headgate demo --json --no-picture | tail -n 1", "only the score, for a program"),
    ],
)
@click.option(
    "--calls",
    type=WholeNumber(20, 1_000_000),
    metavar="N",
    default=6000,
    show_default=True,
    help="Calls to get done.",
)
@click.option(
    "--workers",
    type=WholeNumber(1, 1000),
    metavar="N",
    default=48,
    show_default=True,
    help="Workers that send them.",
)
@click.option(
    "--seconds",
    type=Number(1, 3600),
    metavar="S",
    default=28.0,
    show_default=True,
    help="About how long it takes; the hidden quotas are made to fit.",
)
@click.option(
    "--seed", type=WHOLE, default=1, show_default=True, help="Draws the hidden quotas, their changes and the outage."
)
@click.option(
    "-o",
    "--output",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default="headgate-demo.svg",
    show_default=True,
    help="Where the picture goes (SVG).",
)
@click.option("--no-picture", is_flag=True, help="Write no picture.")
@click.option(
    "--trace",
    "recording",
    type=click.Path(dir_okay=False, path_type=Path),
    help='Record every call into this file, for "headgate simulate --trace".',
)
@seeing_options
@click.option("--json", "as_json", is_flag=True, help="One JSON line a second and one at the end.")
def command(
    calls: int,
    workers: int,
    seconds: float,
    seed: int,
    picture: Path,
    no_picture: bool,
    recording: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Find the hidden, changing quotas of three keys, live.

    Starts a mock API with three keys. Each has a quota of its own, which is hidden from the client and drops on the
    way; an outage interrupts them all. Many workers send calls through the limiter, always with the key that can
    start soonest, and you see what is learned of each key, when it waits, and why. Needs no key of yours and
    no network. Ctrl-C stops it and still prints the score.
    """
    if not no_picture and picture.suffix.lower() != ".svg":
        raise click.UsageError("the picture is an SVG; end the name with .svg.")
    for path, what in ((None if no_picture else picture, "picture"), (recording, "recording")):
        if path is not None and not path.absolute().parent.is_dir():
            raise click.UsageError(f"there is no directory {path.absolute().parent} to write the {what} into.")
    chosen = None if no_picture else picture
    return run_async(demonstrate(calls, workers, seconds, seed, chosen, recording, Wishes.of(given), as_json=as_json))


async def demonstrate(
    calls: int,
    workers: int,
    seconds: float,
    seed: int,
    picture: Path | None,
    recording: Path | None,
    wishes: Wishes,
    *,
    as_json: bool,
) -> int:
    plan = hidden_plan(seed, calls, seconds)
    limiter = AdaptiveRateLimiter(RateLimitConfig(open_state_duration=OPEN_FOR), rng=random.Random(seed))
    async with mock_process(plan, seed) as url:
        secrets = [key_secret(number) for number in range(1, len(plan.keys) + 1)]
        trial = Trial(limiter, url, calls, workers, secrets)
        with (
            seen(wishes, lambda: watched(trial, seed), quiet=as_json) as told,
            recorded(trial, recording) as lost,
            reporter_for(trial, plan, seconds, as_json=as_json) as reporter,
        ):
            interrupted = await run_and_watch(trial, reporter, PATIENCE * seconds)
            told.was_stopped = interrupted
            told.ending = f"{trial.done:,} of {calls:,} calls done{' when it was stopped' if interrupted else ''}."
        score = judge(trial, plan, await fetch_truth(url))
    undrawn = None if picture is None else write_picture(picture, draw(trial, plan, score).to_svg())
    reporter.conclude(score, plan, picture if undrawn is None else None, recording)
    for trouble in (undrawn, *lost):
        if trouble is not None:
            raise trouble
    if interrupted:
        return STOPPED
    if score.left:
        complain(f"given up after {PATIENCE:g} times the planned {seconds:g} s with {score.left:,} calls left.")
    return told.code(DONE if score.is_sound and score.done == calls else FAILED)


def watched(trial: Trial, seed: int) -> Watched:
    lately = Lately()

    def progress() -> ProgressLine:
        done = trial.done
        rate = lately.rate(time.monotonic(), done)
        left = trial.calls - done
        eta = left / rate if rate else None
        return ProgressLine(total=trial.calls, done=done, open=left, in_flight=trial.in_flight, rate=rate, eta=eta)

    title = f"{trial.calls:,} calls with {len(trial.keys)} keys, seed {seed}"
    return Watched(limiter=trial.limiter, credentials=trial.credentials, progress=progress, kind="demo", title=title)


@contextmanager
def recorded(trial: Trial, path: Path | None) -> Iterator[list[CommandFailed]]:
    """Record the trial while it runs, if there is a file for it; what was lost of it is in the list afterwards."""
    lost: list[CommandFailed] = []
    if path is None:
        yield lost
        return
    try:
        heading = Heading(calls=trial.calls, workers=trial.workers, keys=len(trial.keys), open_for=OPEN_FOR)
        trial.recording = TraceWriter(path, heading)
    except OSError as error:
        raise CommandFailed(f"cannot write {path} ({error.strerror}); choose another file with --trace.") from None
    try:
        yield lost
    finally:
        trial.recording.end(trial.elapsed)
        if trial.recording.trouble is not None:
            told = trial.recording.trouble.strerror
            lost.append(CommandFailed(f"the recording {path} breaks off ({told}); what is in it can be used."))


def write_picture(path: Path, svg: str) -> CommandFailed | None:
    """Write it, or return why not: a run that is over must not lose its score to a full disk."""
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        return CommandFailed(f"cannot write {path} ({error.strerror}); choose another file with -o.")
    return None


async def run_and_watch(trial: Trial, reporter: Reporter, longest: float) -> bool:
    """Run the trial with an onlooker; True if a Ctrl-C stopped it."""
    work = asyncio.create_task(trial.run())
    interrupted = False
    while not work.done():
        if trial.elapsed > longest:
            trial.stop()
        try:
            await asyncio.wait([work], timeout=SAMPLE_EVERY)
        except asyncio.CancelledError:
            interrupted = True
            trial.stop()
        reporter.show(trial, trial.observe())
    await work
    return interrupted
