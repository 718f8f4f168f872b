"""The behaviour table: what is tried, on which contenders, and what Headgate must do.

Peers are tried where the test can be put to them: a waiting call for pacing, a cost for heavy
requests, keys for the fresh key. A peer's figures are shown, not judged.

``run_in_process`` runs one test on one contender in a process of its own, under a time limit: a limiter that hangs, a
patched clock and threads that never end stay in that process. It prints its figures as one line of JSON and exits
without waiting for its threads.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from bench import pacing
from bench.contenders import limiters, ours, retries
from bench.pacing import FOREVER, Figures

# ---------------------------------------------------------------------- what one more key costs in memory

KEYS = 1000
CALLS_PER_KEY = 50
IDLE = 11.0
"""Ten seconds, and one in which to put a thousand keys away."""


def _limits(keys: Sequence[str]) -> object:
    from limits import RateLimitItemPerHour

    limiter, limit = limiters.limits_fixed_window(), RateLimitItemPerHour(limiters.NEVER_BINDS)
    for key in keys:
        limiter.hit(limit, key)
    return limiter


def _pyrate(keys: Sequence[str]) -> object:
    limiter = limiters.pyrate_per_key(1, 1)
    for key in keys:
        limiter.try_acquire(key)
    return limiter


def _steindamm(keys: Sequence[str]) -> object:
    buckets = [limiters.steindamm_sync(key, 1, 1) for key in keys]
    for bucket in buckets:
        with bucket:
            pass
    return buckets


HOLDERS: dict[str, Callable[[Sequence[str]], object]] = {
    ours.NAME: lambda keys: ours.used_keys(keys, "adaptive", CALLS_PER_KEY, idle=IDLE),
    f"{ours.NAME} aimd": lambda keys: ours.used_keys(keys, "aimd", CALLS_PER_KEY),
    f"{ours.NAME} adaptive": lambda keys: ours.used_keys(keys, "adaptive", CALLS_PER_KEY),
    "limits": _limits,
    "pyrate": _pyrate,
    "steindamm": _steindamm,
}


def bytes_per_key(contender: str, quick: bool) -> Figures:
    """Bytes held per key, the key's own string not counted."""
    hold = HOLDERS[contender]
    hold(["warm-up.example"])  # imports, caches and other costs that come once
    keys = [f"host-{number}.example" for number in range(KEYS)]
    tracemalloc.start()
    held = hold(keys)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del held
    return {"bytes": size / KEYS}


# ---------------------------------------------------------------------- what the executor adds to a call over loopback

ANSWERS_AFTER = 0.02
CALLS, QUICK_CALLS = 200, 40
WARM_UP = 10

Call = Callable[[], Awaitable[Any]]
WRAPPERS: dict[str, Callable[[Call], Call]] = {
    ours.NAME: ours.around_call,
    "stamina": retries.stamina,
    "tenacity": retries.tenacity,
}


def median_beside_bare(contender: str, quick: bool) -> Figures:
    """The P50 of a wrapped call of 20 ms beside that of the same call bare, in milliseconds; the two take turns."""
    return asyncio.run(_measure(WRAPPERS[contender], QUICK_CALLS if quick else CALLS))


async def _measure(wrap: Callable[[Call], Call], calls: int) -> Figures:
    async with _server() as call:
        wrapped = wrap(call)
        took: dict[Call, list[float]] = {call: [], wrapped: []}
        for _ in range(WARM_UP + calls):
            for each, times in took.items():
                started_at = perf_counter()
                await each()
                times.append(perf_counter() - started_at)
        bare, around = (median(times[WARM_UP:]) * 1e3 for times in took.values())
        return {"bare_ms": bare, "wrapped_ms": around, "added": around / bare - 1.0}


@asynccontextmanager
async def _server() -> AsyncIterator[Call]:
    """A server that takes its 20 ms, and a call to it that returns the response with its body read."""
    import aiohttp
    from aiohttp import web

    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(ANSWERS_AFTER)
        return web.json_response({"results": []}, headers={"x-ratelimit-limit": "1000000"})

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession() as session:

        async def call() -> aiohttp.ClientResponse:
            async with session.get(f"http://{host}:{port}/") as response:
                await response.read()
                return response

        try:
            yield call
        finally:
            await runner.cleanup()


# ---------------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One row. ``peers`` run beside ``contender``, which is Headgate in some form."""

    name: str
    title: str
    measure: Callable[[str, bool], Figures]
    peers: tuple[str, ...]
    mark: str
    holds: Callable[[Figures], bool]
    describe: Callable[[Figures], str]
    contender: str = ours.NAME

    @property
    def contenders(self) -> tuple[str, ...]:
        return (*self.peers, self.contender)


def _milliseconds(wait: float) -> str:
    return "never, in the time given" if wait == FOREVER else f"{wait * 1e3:,.0f} ms"


def _holds_within(most: float, figures: Figures) -> bool:
    return figures["bytes"] <= most


MEMORY_NOTES = (
    f"traced bytes for {KEYS:,} keys, the key's string not counted; Headgate's keys have made "
    f"{CALLS_PER_KEY} calls each, a peer's one; no peer learns anything about its keys.",
)
BEHAVIOUR_NOTES = (
    "every test on every contender ran in a process of its own, under a time limit.",
    "pyrate keeps its default buffer of 50 ms; throttled uses GCRA; botocore's burst is always one second of the "
    "rate, from empty; hyx and limits have no waiting call and are polled every millisecond.",
)

MEMORY = tuple(
    Behaviour(
        name=name,
        title=title,
        measure=bytes_per_key,
        peers=peers,
        contender=contender,
        mark=f"<= {most:,} B",
        holds=partial(_holds_within, most),
        describe=lambda figures: f"{figures['bytes']:,.0f} B",
    )
    for name, title, contender, most, peers in (
        ("memory-idle", "a key idle for 10 s", ours.NAME, 1024, ("limits", "pyrate", "steindamm")),
        ("memory-aimd", "an active key, `aimd`", f"{ours.NAME} aimd", 4096, ()),
        ("memory-adaptive", "an active key, `adaptive`", f"{ours.NAME} adaptive", 16384, ()),
    )
)

BEHAVIOURS = (
    Behaviour(
        name="threads",
        title="8 threads, 200/s asked, burst 1",
        measure=pacing.eight_threads,
        peers=("botocore", "pyrate", "steindamm", "throttled"),
        mark="99 to 101 %, Jain >= 0.99, at most 26 in any 100 ms",
        holds=lambda it: 0.99 <= it["share"] <= 1.01 and it["jain"] >= 0.99 and it["densest"] <= 26,
        describe=lambda it: f"{it['share']:.1%}, Jain {it['jain']:.3f}, at most {it['densest']:.0f} in 100 ms",
    ),
    Behaviour(
        name="waiters",
        title="1,000 asyncio waiters at 500/s",
        measure=pacing.thousand_waiters,
        peers=("aiolimiter", "hyx", "steindamm", "throttled"),
        mark="<= 200 us of CPU a grant, none displaced",
        holds=lambda it: it["granted"] == 1000 and it["cpu_us"] <= 200 and it["displaced"] == 0,
        describe=lambda it: (
            f"{it['cpu_us']:,.0f} us a grant, worst displaced by {it['displaced']:.0f}"
            + ("" if it["granted"] == 1000 else f", only {it['granted']:.0f} granted in 3 s")
        ),
    ),
    Behaviour(
        name="accuracy",
        title="1000/s asked, burst 1, one task",
        measure=pacing.accuracy,
        peers=("aiolimiter", "hyx", "pyrate", "steindamm", "throttled"),
        mark="within 0.5 %",
        holds=lambda it: abs(it["error"]) <= 0.005,
        describe=lambda it: f"{it['error']:+.2%}",
    ),
    Behaviour(
        name="stall",
        title="the loop hangs for 300 ms at 1000/s",
        measure=pacing.stalled_loop,
        peers=("aiolimiter", "hyx", "steindamm"),
        mark="at most 31 grants ahead of the pace (30 ms of the rate, and 1)",
        holds=lambda it: it["ahead"] <= 31,
        describe=lambda it: f"{it['ahead']:.0f} ahead",
    ),
    Behaviour(
        name="cancel",
        title="200 waiters cancelled at 100/s, then one more",
        measure=pacing.cancelled_waiters,
        peers=("aiolimiter", "pyrate", "steindamm", "throttled"),
        mark="waits < 20 ms (10 is the pace)",
        holds=lambda it: it["waited"] < 0.02,
        describe=lambda it: _milliseconds(it["waited"]),
    ),
    Behaviour(
        name="heavy",
        title="a request of 10 among 20 callers of 1, at 100/s, burst 10",
        measure=pacing.heavy_among_light,
        peers=("aiolimiter", "pyrate", "steindamm", "throttled"),
        mark="in its turn: overtaken by none, within 50 ms of the ideal",
        holds=lambda it: it["overtakers"] == 0 and it["waited"] <= it["ideal"] + 0.05,
        describe=lambda it: f"{_milliseconds(it['waited'])}, overtaken by {it['overtakers']:.0f}",
    ),
    Behaviour(
        name="half-open",
        title="100 callers at half-open",
        measure=pacing.crowd_at_half_open,
        peers=("aiobreaker", "hyx", "purgatory"),
        mark="1 call",
        holds=lambda it: it["calls"] == 1,
        describe=lambda it: f"{it['calls']:.0f} calls" if it["calls"] != 1 else "1 call",
    ),
    Behaviour(
        name="breaker-threads",
        title="8 threads through a breaker, 50 ms a call",
        measure=pacing.eight_threads_through,
        peers=("aiobreaker", "purgatory", "pybreaker"),
        mark="< 100 ms together: no lock held over user code",
        holds=lambda it: it["took"] < 0.1,
        describe=lambda it: _milliseconds(it["took"]),
    ),
    Behaviour(
        name="fresh-key",
        title="unused key B while key A waits 2 s",
        measure=pacing.fresh_key,
        peers=("pyrate", "steindamm", "throttled"),
        mark="0 (< 10 ms)",
        holds=lambda it: it["waited"] < 0.01,
        describe=lambda it: _milliseconds(it["waited"]),
    ),
    Behaviour(
        name="clock",
        title="wall clock back 1 h at 100/s",
        measure=pacing.clock_set_back,
        peers=("botocore", "limits", "pyrate", "throttled"),
        mark="no effect: 97 to 103 % of the rate after it",
        holds=lambda it: 0.97 <= it["after"] <= 1.03,
        describe=lambda it: f"{it['before']:.0%} before, {it['after']:.0%} after",
    ),
    Behaviour(
        name="cost",
        title="cost 4000 of 1 M/min beside cost 1",
        measure=pacing.heavy_cost,
        peers=("limits", "pyrate", "throttled"),
        mark="O(1): at most 1.5 times the time of cost 1, < 1 KB a call",
        holds=lambda it: it["heavy_us"] <= 1.5 * it["light_us"] and it["bytes"] < 1024,
        describe=lambda it: f"{it['heavy_us']:,.1f} us beside {it['light_us']:,.1f}, {it['bytes']:,.0f} B a call",
    ),
    Behaviour(
        name="polled",
        title="breaker called every 50 ms while open for 0.3 s",
        measure=pacing.polled_while_open,
        peers=("aiobreaker", "purgatory", "pybreaker"),
        mark="recovers within 0.3 to 0.4 s",
        holds=lambda it: 0.3 <= it["recovered"] <= 0.4,
        describe=lambda it: _milliseconds(it["recovered"]),
    ),
    Behaviour(
        name="loopback",
        title="the executor around a call of 20 ms over loopback, P50",
        measure=median_beside_bare,
        peers=("stamina", "tenacity"),
        mark="adds less than 5 %",
        holds=lambda it: it["added"] < 0.05,
        describe=lambda it: f"{it['wrapped_ms']:.2f} ms beside {it['bare_ms']:.2f}, {it['added']:+.1%}",
    ),
)


# -- one test in a process of its own

TIME_LIMIT = 20.0
"""Seconds a test may take, start of the interpreter included; the longest needs about seven."""


class NoFiguresError(Exception):
    """The test did not end in time, or failed; the message says which."""


def run_in_process(behaviour: Behaviour, contender: str, *, quick: bool) -> Figures:
    command = [sys.executable, "-m", __spec__.name, behaviour.name, contender, "quick" if quick else "full"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise NoFiguresError(f"no end within {TIME_LIMIT:.0f} s") from None
    if ended.returncode != 0:
        raise NoFiguresError(f"failed: {(ended.stderr.strip() or 'no reason given').splitlines()[-1]}")
    return json.loads(ended.stdout.splitlines()[-1])


if __name__ == "__main__":
    name, contender, length = sys.argv[1:]
    behaviour = next(one for one in (*MEMORY, *BEHAVIOURS) if one.name == name)
    print(json.dumps(behaviour.measure(contender, length == "quick")), flush=True)
    os._exit(0)
