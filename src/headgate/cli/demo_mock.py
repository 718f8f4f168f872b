"""The API of ``headgate demo``: quotas drawn from the seed, served by ``headgate mock`` in a process of its own."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

from headgate.sim.api import MockPlan
from headgate.sim.notation import Outage, Rate, Step

from . import CommandFailed

START_WITHIN = 20.0
"""Seconds the mock API may take to come up."""
SEARCH = 3.0
"""Seconds of full quota that are set aside for finding it, and half of that for coming back after the outage."""
SIZES = (0.55, 0.3, 0.15)
"""What each key has of all there is, give or take a tenth."""
BURST = 1 / 3
"""Seconds of its quota that a key may use at once."""


def hidden_plan(seed: int, calls: int, seconds: float) -> MockPlan:
    """Quotas that together let about ``calls`` through in ``seconds``; each drops on the way, and all fail a while."""
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
    """``headgate mock`` in a process of its own; it ends with its standard input, however this process ends."""
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
            put_down(process)
            told = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
            raise CommandFailed(f"the mock API did not start: {told[-1] if told else 'it said nothing'}.") from None
        yield url
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(START_WITHIN):
                await process.communicate()
        except TimeoutError:
            put_down(process)


def put_down(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):  # it may have ended by itself
        process.kill()


async def fetch_truth(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/_truth") as response:
        truth: dict[str, Any] = await response.json()
        return truth
