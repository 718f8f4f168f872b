"""Five scenarios of the lab in real time over loopback: ``python -m bench.lab.real_time``.

    workers -> the real limiter -> HTTP ----->  headgate mock, in a process of its own, which counts by itself
    the same quota and answers in the lab, in virtual time, for as long

Goodput is what the server answered, as a share of what the lab's oracle gets done. Real time and the lab must agree
within three points. All five run at once, on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from headgate.lab.adapters import LAB_CONFIG
from headgate.lab.experiment import run
from headgate.lab.scenario import Scenario
from headgate.lab.scenario_file import named
from headgate.limiter import AdaptiveRateLimiter

PAGE = Path(__file__).parents[1] / "REALTIME.md"
CLOSE = 0.03
"""Of the oracle's goodput, and of all calls: how far real time may be from the lab."""
SETUP = 30.0
"""Seconds that a server may take to start."""
SEEDS = 3
"""Runs in the lab whose middle is compared."""
MIDDLE = SEEDS // 2


@dataclass(frozen=True, slots=True)
class Case:
    scenario: str
    seconds: float
    options: tuple[str, ...]
    """What makes ``headgate mock`` the server of the scenario."""


CASES = (
    Case("tb50", 120.0, ("--rate", "50/s", "--burst", "50", "--latency", "190ms")),
    Case("tb-burst", 300.0, ("--rate", "1/s", "--burst", "60", "--latency", "190ms")),
    Case("pen12", 300.0, ("--algorithm", "strict-log", "--rate", "12/10s", "--latency", "190ms")),
    Case("hdr-log", 300.0, ("--algorithm", "log", "--rate", "500/min", "--latency", "3040ms", "--headers", "openai")),
    Case("conc16", 120.0, ("--algorithm", "concurrency", "--at-once", "16", "--latency", "440ms")),
)


@dataclass(frozen=True, slots=True)
class Shares:
    goodput: float
    refused: float


def in_the_lab(case: Case, scale: float) -> tuple[Shares, int]:
    """The middle of a few seeds, and what the oracle gets done."""
    scenario = _of_mock(named(case.scenario), case.seconds * scale)
    oracle = run(scenario, "oracle", 0).ok
    runs = [run(scenario, "adaptive", seed) for seed in range(SEEDS)]
    goodput = sorted(one.ok / oracle for one in runs)[MIDDLE]
    return Shares(goodput, sorted(one.refused_share for one in runs)[MIDDLE]), oracle


def _of_mock(scenario: Scenario, seconds: float) -> Scenario:
    """Answers vary as the mock's do: by a quarter. On loopback there is next to no round trip."""
    return replace(
        scenario,
        horizon=seconds,
        service_time=scenario.service_time + scenario.round_trip,
        service_variation=0.15,
        round_trip=0.001,
    )


async def in_real_time(case: Case, oracle: int, scale: float) -> Shares:
    url, process = await _server(case)
    try:
        limiter = AdaptiveRateLimiter(config=replace(LAB_CONFIG, strategy="adaptive"))
        workers = named(case.scenario).workers
        connector = aiohttp.TCPConnector(limit=workers)
        async with aiohttp.ClientSession(connector=connector) as session:
            until = time.monotonic() + case.seconds * scale
            tasks = [asyncio.create_task(_work(session, limiter, f"{url}/v1/items", until)) for _ in range(workers)]
            await asyncio.sleep(until - time.monotonic())
            async with session.get(f"{url}/_truth") as response:
                truth: dict[str, Any] = await response.json()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Shares(truth["answered"] / oracle, truth["rate_limited"] / max(1, truth["asked"]))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), SETUP)


async def _work(session: aiohttp.ClientSession, limiter: AdaptiveRateLimiter, url: str, until: float) -> None:
    while time.monotonic() < until:
        async with limiter.permit("mock") as permit, session.get(url) as response:
            await response.read()
            permit.report(response)


async def _server(case: Case) -> tuple[str, asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headgate", "mock", *case.options, "--port", "0", "--seed", "1", "--json",
        "--stop-with-stdin", stdin=pipe, stdout=pipe,
    )  # fmt: skip
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), SETUP)
    return str(json.loads(line)["url"]), process


def table(lab: dict[str, Shares], real: dict[str, Shares]) -> list[str]:
    rows = ["| scenario | in the lab | in real time | apart |", "| --- | --- | --- | --- |"]
    for case in CASES:
        expected, seen = lab[case.scenario], real[case.scenario]
        apart = max(abs(seen.goodput - expected.goodput), abs(seen.refused - expected.refused))
        verdict = "met" if apart <= CLOSE else "**missed**"
        rows.append(f"| {case.scenario} | {_words(expected)} | {_words(seen)} | {apart * 100:.1f} points {verdict} |")
    return rows


def _words(shares: Shares) -> str:
    return f"{shares.goodput:.1%} / {shares.refused:.2%}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.lab.real_time", description="The lab against real time.")
    parser.add_argument("--scale", type=float, default=1.0, help="times the length of each run; 1 writes the page")
    scale: float = parser.parse_args(arguments).scale
    lab = {case.scenario: in_the_lab(case, scale) for case in CASES}
    real = asyncio.run(_all_in_real_time({name: oracle for name, (_, oracle) in lab.items()}, scale))
    told = table({name: shares for name, (shares, _) in lab.items()}, real)
    print("\n".join(told))
    if scale == 1.0:
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        PAGE.write_text(_page(told, when))


async def _all_in_real_time(oracles: dict[str, int], scale: float) -> dict[str, Shares]:
    runs = [in_real_time(case, oracles[case.scenario], scale) for case in CASES]
    return dict(zip(oracles, await asyncio.gather(*runs), strict=True))


def _page(told: list[str], when: str) -> str:
    return "\n".join(
        [
            "# The lab beside real time",
            "",
            "Five scenarios over loopback: the real limiter, HTTP, and a server in another process that counts by",
            "itself (`headgate mock`), beside the same in the lab. Goodput as a share of the oracle's / 429s.",
            "",
            *told,
            "",
            f"`python -m bench.lab.real_time`, {when}; all five at once. Within {CLOSE * 100:.0f} points is asked for.",
            "",
        ]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
