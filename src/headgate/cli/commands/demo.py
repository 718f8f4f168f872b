"""``headgate demo``: a mock API with a hidden quota for each of three keys, and the limiter that finds them.

    this process                                another process
    workers -> key -> limiter -> HTTP  ------>  headgate mock  (quotas drawn from the seed)
       |                                           |
       +-- learned rates         true quotas ------+--> the screen, the score, the picture

The API runs in its own process: the client cannot see its quotas, and neither
side's work shows up in the other's latencies.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import click

from ...config import RateLimitConfig
from ...lab.score import draw, judge
from ...lab.traces.trace import Heading, TraceWriter
from ...lab.trial import Trial
from ...limiter import AdaptiveRateLimiter
from ...mock.api import MockPlan
from ...mock.server import key_secret
from ...observe.monitor import RunMonitor
from ...observe.snapshot import ProgressLine
from ...observe.sources import RecentRate
from ...units import Outage, Rate, Step
from ..ui.observe_options import ObservedCommand, ObserveOptions, observe_options, observed
from ..ui.options import WHOLE, Number, count_option, json_option
from ..ui.session import run_async, run_to_end
from ..ui.terminal import DONE, FAILED, STOPPED, CommandFailed, complain
from .demo_display import DemoFrame, open_demo_display, show_score

SAMPLE_EVERY = 0.1
PATIENCE = 3.0
"""A run that takes this many times its planned length is stopped."""
OPEN_FOR = 1.0
"""Seconds the breaker stays open; the default of 15 s would outlast the whole outage."""
START_WITHIN = 20.0
"""Seconds the mock API may take to start."""
SEARCH = 3.0
"""Seconds of full quota set aside for finding it, and half of that for the recovery after the outage."""
SIZES = (0.55, 0.3, 0.15)
"""The share of each key, plus or minus a tenth."""
BURST = 1 / 3
"""Seconds of its quota that a key may use at once."""


@click.command(
    cls=ObservedCommand,
    examples=[
        ("headgate demo", "half a minute, 6,000 calls; writes headgate-demo.svg"),
        ("headgate demo --seed 7", "with other hidden quotas"),
        ("headgate demo --seconds 10 --calls 500 --workers 16", "shorter and smaller"),
        ("headgate demo --trace run.jsonl", "record it for what-if questions in headgate simulate"),
        ("headgate demo --web", "in a browser too"),
        ("headgate demo --json --no-picture | tail -n 1", "only the score, for a program"),
    ],
)
@count_option("--calls", "Calls to make.", 20, 1_000_000, default=6000)
@count_option("--workers", "Workers that send them.", 1, 1000, default=48)
@click.option(
    "--seconds",
    type=Number(1, 3600),
    metavar="S",
    default=28.0,
    show_default=True,
    help="About how long it takes; the hidden quotas are made to fit.",
)
@click.option(
    "--seed", type=WHOLE, default=1, show_default=True, help="Seed of the hidden quotas, their changes and the outage."
)
@click.option(
    "-o",
    "--output",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    default="headgate-demo.svg",
    show_default=True,
    help="Write the picture (SVG) here.",
)
@click.option("--no-picture", is_flag=True, help="Write no picture.")
@click.option(
    "--trace",
    "recording",
    type=click.Path(dir_okay=False, path_type=Path),
    help='Record every call into this file, for "headgate simulate --trace".',
)
@observe_options
@json_option("One JSON line a second and one at the end.")
def command(picture: Path, no_picture: bool, recording: Path | None, as_json: bool, **given: Any) -> int:
    """Find the hidden, changing quotas of three keys, live.

    Starts a mock API with three keys. Each has its own quota, which is hidden from the client and drops on the way; an
    outage interrupts them all. Many workers send calls through the limiter, always with the key that can start soonest,
    and you see what is learned for each key, when it waits, and why. Needs no key and no network. Ctrl-C stops it and
    still prints the score.
    """
    if not no_picture and picture.suffix.lower() != ".svg":
        raise click.UsageError("the picture is an SVG file; end its name with .svg.")
    for path, option in ((None if no_picture else picture, "--output"), (recording, "--trace")):
        if path is not None and not path.absolute().parent.is_dir():
            raise click.UsageError(f"{option}: no such folder: {path.absolute().parent}.")
    return run_async(demonstrate(None if no_picture else picture, recording, given, as_json=as_json))


async def demonstrate(picture: Path | None, recording: Path | None, given: dict[str, Any], *, as_json: bool) -> int:
    options = ObserveOptions.of(given)
    calls, seconds, seed = given["calls"], given["seconds"], given["seed"]
    plan = hidden_plan(seed, calls, seconds)
    limiter = AdaptiveRateLimiter(RateLimitConfig(open_state_duration=OPEN_FOR), rng=random.Random(seed))
    async with mock_process(plan, seed) as url:
        secrets = [key_secret(number) for number in range(1, len(plan.keys) + 1)]
        trial = Trial(limiter, url, calls, given["workers"], secrets)
        display = open_demo_display(trial, as_json=as_json)
        was_interrupted = False

        def sample() -> DemoFrame:
            if trial.elapsed > PATIENCE * seconds:
                trial.stop()
            return DemoFrame(trial, trial.observe(), plan, seconds)

        def stop(*, now: bool) -> None:
            nonlocal was_interrupted
            was_interrupted = True
            trial.stop()

        with (
            observed(options, lambda: monitor_of(trial, seed), quiet=as_json) as run,
            recorded(trial, recording) as recording_errors,
        ):
            task = await run_to_end(trial.run(), display, sample, stop, sample_every=SAMPLE_EVERY, show_last=True)
            task.result()
            run.was_stopped = was_interrupted
            run.headline = f"{trial.done:,} of {calls:,} calls done{' when it was stopped' if was_interrupted else ''}."
        score = judge(trial, plan, await fetch_truth(url))
    picture_error = None if picture is None else write_picture(picture, draw(trial, plan, score).to_svg())
    show_score(display, score, plan, picture if picture_error is None else None, recording)
    for error in (picture_error, *recording_errors):
        if error is not None:
            raise error
    if was_interrupted:
        return STOPPED
    if score.left:
        complain(f"stopped after {PATIENCE:g} times the planned {seconds:g} s with {score.left:,} calls not done.")
    return run.exit_code(DONE if score.is_sound and score.done == calls else FAILED)


def monitor_of(trial: Trial, seed: int) -> RunMonitor:
    recent = RecentRate()

    def progress() -> ProgressLine:
        done = trial.done
        rate = recent.rate(time.monotonic(), done)
        left = trial.calls - done
        eta = left / rate if rate else None
        return ProgressLine(total=trial.calls, done=done, open=left, in_flight=trial.in_flight, rate=rate, eta=eta)

    title = f"{trial.calls:,} calls with {len(trial.keys)} keys, seed {seed}"
    return RunMonitor(limiter=trial.limiter, credentials=trial.credentials, progress=progress, kind="demo", title=title)


@contextmanager
def recorded(trial: Trial, path: Path | None) -> Iterator[list[CommandFailed]]:
    """Record the trial while it runs, if there is a file for it; the list has what went wrong afterwards."""
    errors: list[CommandFailed] = []
    if path is None:
        yield errors
        return
    try:
        heading = Heading(calls=trial.calls, workers=trial.workers, keys=len(trial.keys), open_for=OPEN_FOR)
        trial.recording = TraceWriter(path, heading)
    except OSError as error:
        raise CommandFailed(f"cannot write {path} ({error.strerror}); choose another file with --trace.") from None
    try:
        yield errors
    finally:
        trial.recording.end(trial.elapsed)
        if trial.recording.trouble is not None:
            cause = trial.recording.trouble.strerror
            errors.append(
                CommandFailed(f"the recording {path} is incomplete ({cause}); the part that was written can be used.")
            )


def write_picture(path: Path, svg: str) -> CommandFailed | None:
    """Write it, or return why not: a run that is over must not lose its score to a full disk."""
    try:
        path.write_text(svg, encoding="utf-8")
    except OSError as error:
        return CommandFailed(f"cannot write {path} ({error.strerror}); choose another file with -o.")
    return None


# ---------------------------------------------------------------------- the mock API


def hidden_plan(seed: int, calls: int, seconds: float) -> MockPlan:
    """Quotas that together admit about ``calls`` in ``seconds``; each drops on the way, and there is one outage."""
    draws = random.Random(seed)
    outage_at, outage = seconds * draws.uniform(0.64, 0.70), seconds * 0.09
    sizes = [size * draws.uniform(0.9, 1.1) for size in SIZES]
    steps = [Step(round(draws.uniform(0.4, 0.65), 2), round(seconds * draws.uniform(0.32, 0.5), 2)) for _ in sizes]
    full_time = 0.0
    for size, step in zip(sizes, steps, strict=True):
        searching = min(SEARCH, step.at / 2)
        full_time += size * (step.at - searching + step.factor * (seconds - step.at - outage - searching / 2))
    rates = [Rate(float(f"{calls / full_time * size:.3g}")) for size in sizes]
    return MockPlan(
        outages=(Outage(round(outage_at, 2), round(outage, 2)),),
        keys=tuple(
            MockPlan(rate=rate, burst=max(1, round(BURST * rate.amount)), steps=(step,))
            for rate, step in zip(rates, steps, strict=True)
        ),
    )


def mock_options(plan: MockPlan, seed: int) -> list[str]:
    """The options with which ``headgate mock`` serves ``plan``."""
    options = ["--seed", str(seed)]
    for key in plan.keys:
        options += ["--key", ",".join(map(str, (key.rate, f"burst={key.burst}", *key.steps)))]
    for outage in plan.outages:
        options += ["--outage", str(outage)]
    return options


@asynccontextmanager
async def mock_process(plan: MockPlan, seed: int) -> AsyncIterator[str]:
    """``headgate mock`` in another process; it ends with its standard input, however this process ends."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "headgate", "mock", *mock_options(plan, seed), "--json", "--stop-with-stdin",
        stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        try:
            async with asyncio.timeout(START_WITHIN):
                first_line = await process.stdout.readline()
            url = str(json.loads(first_line)["url"])
        except (TimeoutError, ValueError):
            kill(process)
            printed = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
            why = (
                printed[-1]
                if printed
                else f"no answer within {START_WITHIN:g} s; try again when this machine is less busy"
            )
            raise CommandFailed(f"the mock API did not start: {why.rstrip('.')}.") from None
        yield url
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(START_WITHIN):
                await process.communicate()
        except TimeoutError:
            kill(process)


def kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it may have ended by itself
        process.kill()


async def fetch_truth(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/_truth") as response:
        truth: dict[str, Any] = await response.json()
        return truth
