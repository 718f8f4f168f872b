"""The vendors' own clients, with Headgate and without, against `headgate mock`: `python -m bench.sdks [--write]`.

    calls      the first half long ones, for which the tokens are what is short, the second half short ones, for which
               it is the calls; every fourth is streamed
    quota      calls and tokens in a few seconds; a while after the first call the server halves both

No client is told the limits. All calls are there at once, a hundred under way. "of the quota" is the time in which
a caller that knew everything would have had the answered calls, by the server's own arithmetic, divided by the time it
took. `--write` keeps the run in `bench/SDKS.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai

import headgate
from bench.report import circumstances
from headgate.mock.api import MockPlan
from headgate.mock.llm.key_budget import KeyBudget
from headgate.mock.llm.language_api import tokens_of, write
from headgate.units import Rate, Step

RESULTS = Path(__file__).with_name("SDKS.md")
SEED, MODEL = 1, "mock-1"
CALLS, AT_ONCE = 2_000, 100
WINDOW = 2.0
RATE, TOKENS = Rate(80.0, WINDOW), Rate(4_000.0, WINDOW)
HALVED_AT = 20.0
SHORT_ANSWER = 16
LATENCY = "100ms"
SDKS = {"openai": (openai.AsyncOpenAI, openai.APIError), "anthropic": (anthropic.AsyncAnthropic, anthropic.APIError)}
WAYS = {
    "alone": "as it comes: 2 retries",
    "patient": "max_retries=10",
    "headgate": "`headgate.async_{}_client()`",
}


@dataclass(frozen=True, slots=True)
class Figures:
    sdk: str
    way: str
    calls: int
    answered: int
    refused: int
    asked: int
    seconds: float
    best: float
    """Seconds that the answered calls would have taken a caller that knew everything."""

    @property
    def lost(self) -> int:
        return self.calls - self.answered

    @property
    def share_refused(self) -> float:
        return self.refused / max(1, self.asked)

    @property
    def quota_used(self) -> float:
        return self.best / self.seconds


def question(number: int, calls: int) -> tuple[str, int | None]:
    """What call number so and so asks, and the most it may be told."""
    if number >= calls // 2:
        return f"In a word, number {number}?", SHORT_ANSWER
    return f"{'water ' * (number * 7 % 29)}and gate number {number}?", None


def tokens_for(sdk: str, number: int, calls: int) -> int:
    """What the server counts for it."""
    text, most = question(number, calls)
    if sdk == "anthropic" and most is None:
        most = 1_000
    return tokens_of(text) + write(str(SEED), MODEL, text, most).tokens


def best_time(plan: MockPlan, costs: list[int]) -> float:
    """How soon all of these can be let in, one after the other, each the moment it fits."""
    budget, now = KeyBudget(plan), 0.0
    for tokens in costs:
        while (refusal := budget.take(now, now, tokens)) is not None:
            now += max(refusal.status.retry or 0.0, 1e-6)
    return now


def as_text(rate: Rate) -> str:
    return f"{rate.amount:g}/{rate.window:g}s"


@contextmanager
def mock(sdk: str, plan: MockPlan) -> Iterator[tuple[str, str]]:
    """`headgate mock` in a process of its own: the base URL for the client, and where the truth is."""
    assert plan.tokens is not None
    step = plan.steps[0]
    command = [sys.executable, "-m", "headgate", "mock", "--provider", sdk, "--rate", as_text(plan.rate)]
    command += ["--tokens", as_text(plan.tokens), "--step", f"{step.factor:g}@{step.at:g}s"]
    command += ["--latency", LATENCY, "--seed", str(SEED), "--json", "--stop-with-stdin"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        told = json.loads(server.stdout.readline())
        yield told["providers"][sdk], f"{told['url']}/_truth"
    finally:
        server.stdin.close()
        server.wait(10)
        server.stdout.close()


def client_for(sdk: str, way: str, base_url: str) -> Any:
    options = {"api_key": "key-1", "base_url": base_url}
    if way == "headgate":
        make = headgate.async_openai_client if sdk == "openai" else headgate.async_anthropic_client
        return make(**options)
    return SDKS[sdk][0](**options, **({"max_retries": 10} if way == "patient" else {}))


async def ask(sdk: str, client: Any, number: int, calls: int) -> None:
    """One call, read to its end."""
    text, most = question(number, calls)
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
    if sdk == "anthropic" or most is not None:
        body["max_tokens"] = most or 1_000
    streams = number % 4 == 0
    endpoint = client.chat.completions if sdk == "openai" else client.messages
    answer = await endpoint.create(**body, stream=streams)
    if streams:
        async for _ in answer:
            pass


async def warm(sdk: str) -> None:
    """Load what the client loads with its first call, so that this is not taken for a slow start."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json={}))
    async with httpx2.AsyncClient(transport=transport) as http_client:
        kind = SDKS[sdk][0]
        await ask(sdk, kind(api_key="key-1", base_url="http://127.0.0.1", http_client=http_client), 1, 2)


async def measure(sdk: str, way: str, calls: int = CALLS, plan: MockPlan | None = None) -> Figures:
    plan = plan or MockPlan(rate=RATE, tokens=TOKENS, steps=(Step(factor=0.5, at=HALVED_AT),))
    answered: list[int] = []
    failures: Counter[str] = Counter()
    under_way = asyncio.Semaphore(AT_ONCE)
    await warm(sdk)
    with mock(sdk, plan) as (base_url, truth_at):
        async with client_for(sdk, way, base_url) as client, httpx2.AsyncClient() as looking:

            async def call(number: int) -> None:
                async with under_way:
                    try:
                        await ask(sdk, client, number, calls)
                        answered.append(number)
                    except SDKS[sdk][1] as error:
                        failures[type(error).__name__] += 1

            began = time.perf_counter()
            await asyncio.gather(*(call(number) for number in range(calls)))
            seconds = time.perf_counter() - began
            truth = (await looking.get(truth_at)).json()["providers"][sdk]
    if failures:
        print(f"  {sdk}, {way}: {dict(failures)}", file=sys.stderr)
    best = best_time(plan, [tokens_for(sdk, number, calls) for number in sorted(answered)])
    return Figures(sdk, way, calls, len(answered), truth["rate_limited"], truth["asked"], seconds, best)


def table(rows: list[Figures]) -> str:
    lines = ["| client | | answered | lost | 429s | of the quota | seconds |", "|---|---|--:|--:|--:|--:|--:|"]
    lines += [
        f"| {row.sdk} | {WAYS[row.way].format(row.sdk)} | {row.answered:,} | {row.lost:,} | {row.refused:,} "
        f"({row.share_refused:.1%} of what was sent) | {row.quota_used:.1%} | {row.seconds:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def page(rows: list[Figures], calls: int) -> str:
    return (
        "# The vendors' clients, with Headgate and without\n\n"
        f"{circumstances('python -m bench.sdks --write')} openai {openai.__version__}, "
        f"anthropic {anthropic.__version__}; `headgate mock` over loopback.\n\n"
        f"{calls:,} calls, {AT_ONCE} under way, every fourth streamed; {RATE.amount:g} calls and {TOKENS.amount:,.0f} "
        f"tokens in {WINDOW:g} s, half of both from second {HALVED_AT:g} on. No client is told the limits. The first "
        'half of the calls is short of tokens, the second of calls. "Of the quota" is how long a caller that knew all '
        "would have needed for the answered calls in their order, divided by how long it took; a client that mixes "
        "long and short calls can be a little faster than that.\n\n" + table(rows) + "\n\n"
        "What Headgate leaves unused is mostly a part of the full bucket that every client starts with, which it never "
        "drains: with larger buckets, or in a shorter run, its share is larger.\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="The vendors' clients, with Headgate and without.")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--only", choices=[*SDKS, *WAYS], action="append", default=[])
    parser.add_argument("--write", action="store_true", help=f"keep the run in bench/{RESULTS.name}")
    options = parser.parse_args()
    sdks = [name for name in SDKS if name in options.only] or list(SDKS)
    ways = [name for name in WAYS if name in options.only] or list(WAYS)
    rows = []
    for sdk in sdks:
        for way in ways:
            rows.append(asyncio.run(measure(sdk, way, options.calls)))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    if options.write:
        RESULTS.write_text(page(rows, options.calls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
