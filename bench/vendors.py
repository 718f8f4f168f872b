"""Six vendors' mocks with a hidden tier each: `python -m bench.vendors [--peers PYTHON] [CONTENDER ...]`.

    headgate run      ──┐        ┌── openai          no client is told a limit: what it learns, it learns from
    litellm's router  ──┼──> ────┼── azure-openai    headers and refusals
    async-batch-llm   ──┘        └── groq, gemini, mistral, anthropic

Of the last two minutes of each run: what was used of the limit that binds, by the vendor's own way of counting, and
how many calls were refused. The six mocks run side by side, contenders one after the other; the peers in an
environment of their own. What a run has found is kept in `bench/vendors.json`, and all of it is in `bench/vendors.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Section, circumstances, markdown, show
from headgate.mock.api import MockPlan
from headgate.mock.server import MockServer
from headgate.units import Rate

RESULTS = Path(__file__).with_name("vendors.md")
FIGURES = Path(__file__).with_name("vendors.json")
PEERS_FILE = Path(__file__).with_name("contenders") / "vendor_peers.py"
WARM, SECONDS = 90.0, 210.0
"""Seconds from the first call that are not judged, in which what the buckets held is used up, and a run's end."""
LATENCY = 0.3
START = 90.0
"""Seconds that a contender may take to begin."""
ROWS = 20_000
PROMPT = 50
"""Tokens of every prompt."""
CONTENT = "x" * (4 * PROMPT - 7)
VERSION = "2024-10-21"
MINUTE = 60.0
CONTENDERS = ("headgate", "litellm", "async-batch-llm")

Truth = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """What a vendor's mock allows, and what its clients send."""

    plan: MockPlan
    max_tokens: int
    path: str = ""
    """From the mock's base URL to what the clients take for it."""
    run: tuple[str, ...] = ()
    """What `headgate run` needs beside the URL, and where Azure's deployment is."""
    binds: str
    limit: float
    """By the minute, of what binds ..."""
    taken: Callable[[Truth], float]
    """... and what calls have taken of it."""


def _plan(rate: float, per_day: int | None = None, **tokens: float) -> MockPlan:
    limits = {name: Rate(amount, MINUTE) for name, amount in tokens.items()}
    return MockPlan(rate=Rate(rate, MINUTE), latency=LATENCY, per_day=per_day, **limits)


TIERS = {
    "openai": Tier(
        plan=_plan(1_000, tokens=120_000),
        max_tokens=200,
        binds="tokens: max_tokens of each call",
        limit=120_000,
        taken=lambda truth: truth["answered"] * 200,
    ),
    "azure-openai": Tier(
        plan=_plan(900, tokens=150_000),
        max_tokens=200,
        run=("--dialect", "azure", "--query", f"api-version={VERSION}"),
        binds="tokens: prompt and max_tokens",
        limit=150_000,
        taken=lambda truth: truth["tokens_in"] + truth["answered"] * 200,
    ),
    "groq": Tier(
        plan=_plan(1_000, per_day=100_000, tokens=150_000),
        max_tokens=200,
        binds="tokens: prompt and max_tokens",
        limit=150_000,
        taken=lambda truth: truth["tokens_in"] + truth["answered"] * 200,
    ),
    "gemini": Tier(
        plan=_plan(600, input_tokens=60_000),
        max_tokens=200,
        path="/v1beta/openai",
        binds="calls; no header tells them",
        limit=600,
        taken=lambda truth: truth["answered"],
    ),
    "mistral": Tier(
        plan=_plan(600, tokens=500_000),
        max_tokens=200,
        binds="calls, judged over a second too",
        limit=600,
        taken=lambda truth: truth["answered"],
    ),
    "anthropic": Tier(
        plan=_plan(1_000, input_tokens=60_000, output_tokens=30_000),
        max_tokens=1_000,
        run=("--dialect", "anthropic"),
        binds="output tokens, as they are written",
        limit=30_000,
        taken=lambda truth: truth["tokens_out"],
    ),
}

# ---------------------------------------------------------------------- the servers


def serve(told: Any) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            urls = {}
            for name, tier in TIERS.items():
                server = MockServer(tier.plan, providers=(name,), seed=1)
                await stack.enter_async_context(server)
                urls[name] = (server.url, server.base_url(name) + tier.path)
            told.put(urls)
            await asyncio.Event().wait()

    asyncio.run(main())


def truth_of(server: str, name: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{server}/_truth", timeout=30) as response:
        found: dict[str, float] = json.load(response)["providers"][name]
    return found


# ---------------------------------------------------------------------- the contenders


def command(contender: str, name: str, url: str, folder: Path, peers: str) -> list[str]:
    tier = TIERS[name]
    if contender != "headgate":
        asked = json.dumps({"content": CONTENT, "max_tokens": tier.max_tokens})
        return [peers, str(PEERS_FILE), contender, name, url, asked, str(SECONDS + 5.0)]
    rows, path = folder / f"{name}.jsonl", "/v1/messages" if name == "anthropic" else "/v1/chat/completions"
    with rows.open("w") as file:
        for number in range(ROWS):
            said = [{"role": "user", "content": f"{number:06} {CONTENT}"}]
            body = {"model": "m", "max_tokens": tier.max_tokens, "messages": said}
            file.write(json.dumps({"custom_id": str(number), "url": path, "body": body}) + "\n")
    to = url + ("/openai/deployments/m" if name == "azure-openai" else "")
    out = str(folder / f"{name}.out.jsonl")
    run = [sys.executable, "-m", "headgate", "run", str(rows), "-o", out, "--to", to, "--keys", "env:BENCH_KEY", "-q"]
    return [*run, *tier.run]


def measure(contender: str, peers: str) -> dict[str, dict[str, float]]:
    """By vendor: the share of the limit that was used, calls refused and answered, and rows given up."""
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    server = context.Process(target=serve, args=(told,), daemon=True)
    server.start()
    urls = told.get(timeout=2 * START)
    with tempfile.TemporaryDirectory() as place:
        running = {
            name: subprocess.Popen(
                command(contender, name, base, Path(place), peers),
                env={**os.environ, "BENCH_KEY": "bench-key-000001"},
                stdout=(Path(place) / f"{name}.log").open("w"),
                stderr=subprocess.STDOUT,
            )
            for name, (_, base) in urls.items()
        }
        try:
            found = watch({name: root for name, (root, _) in urls.items()})
            for name, process in running.items():
                if contender == "headgate":
                    process.terminate()
                process.wait(2 * START)
                found[name]["failed"] = given_up(contender, Path(place), name)
        finally:
            for process in running.values():
                process.kill()
            server.kill()
    return found


def watch(servers: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Look at each server when its warm-up is over, and at the end; each counts from its own first call."""
    began: dict[str, float] = {}
    first: dict[str, dict[str, float]] = {}
    last: dict[str, dict[str, float]] = {}
    spans: dict[str, float] = {}
    until = time.monotonic() + START + SECONDS
    while len(last) < len(servers) and time.monotonic() < until:
        for name, server in servers.items():
            truth, now = truth_of(server, name), time.monotonic()
            if truth["asked"]:
                began.setdefault(name, now)
            since = now - began.get(name, now)
            if since >= WARM and name not in first:
                first[name], spans[name] = truth, now
            if since >= SECONDS and name not in last:
                last[name], spans[name] = truth, now - spans[name]
        time.sleep(0.2)
    return {name: judged(TIERS[name], first[name], last[name], spans[name]) for name in servers}


def judged(tier: Tier, first: Truth, last: Truth, span: float) -> dict[str, float]:
    delta = {
        what: last[what] - first[what] for what in ("asked", "answered", "rate_limited", "tokens_in", "tokens_out")
    }
    used = tier.taken(delta) / (tier.limit * span / MINUTE)
    return {"used": used, "asked": delta["asked"], "refused": delta["rate_limited"], "answered": delta["answered"]}


def given_up(contender: str, place: Path, name: str) -> float:
    if contender == "headgate":
        lines = (place / f"{name}.out.jsonl").read_text().splitlines()
        return sum(json.loads(line).get("error") is not None for line in lines if line.startswith("{"))
    said = (place / f"{name}.log").read_text().strip().splitlines()
    try:
        return float(json.loads(said[-1]).get("failed", 0))
    except (IndexError, ValueError):
        print(f"{contender}, {name}: {said[-3:]}", file=sys.stderr)
        return -1.0


# ---------------------------------------------------------------------- the report


@dataclass(slots=True)
class VendorReport:
    figures: dict[str, dict[str, dict[str, float]]]
    commands: dict[str, str]

    @property
    def title(self) -> str:
        return "Six vendors, a hidden tier each"

    def circumstances(self) -> list[str]:
        return list(self.commands.values())

    def sections(self) -> list[Section]:
        shown = [name for name in CONTENDERS if name in self.figures]
        head = ("vendor", "what binds", *(f"{name}: {what}" for name in shown for what in ("used", "429s")))
        rows = [
            (name, f"{tier.limit:,.0f} {tier.binds}", *(cell for one in shown for cell in self._cells(one, name)))
            for name, tier in TIERS.items()
        ]
        notes = [
            f"Of the {SECONDS - WARM:g} s after the first {WARM:g}: the share of the limit that was used, and how many "
            "of the calls were refused. What a bucket still held at their beginning may give a little more than 100 %.",
            "`headgate run` is told nothing. Peers have 20 calls at once and no limits configured, litellm's router 5 "
            "retries; what a peer gave up in the whole run is after the stroke.",
            "async-batch-llm's own pause after a refusal is 300 s, in which it would send nothing: here it is 5 s, "
            "or what the server asks for if that is longer.",
        ]
        return [Section("Quota used, calls refused", head, rows, notes)]

    def _cells(self, contender: str, name: str) -> tuple[str, str]:
        found = self.figures[contender][name]
        refused = f"{found['refused']:,.0f} of {found['asked']:,.0f}"
        return f"{found['used']:.1%}", refused + (f" / {found['failed']:,.0f} rows lost" if found["failed"] > 0 else "")

    def summary(self) -> str:
        lowest = min(found["used"] for found in self.figures["headgate"].values()) if "headgate" in self.figures else 0
        return f"headgate uses at least {lowest:.1%} of each."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contenders", nargs="*", choices=[*CONTENDERS, []], help="all of them, if none is named")
    parser.add_argument("--peers", default=sys.executable, help="the Python that has litellm and async-batch-llm")
    arguments = parser.parse_args()
    kept = json.loads(FIGURES.read_text()) if FIGURES.exists() else {"figures": {}, "commands": {}}
    for contender in arguments.contenders or CONTENDERS:
        kept["figures"][contender] = measure(contender, arguments.peers)
        kept["commands"][contender] = circumstances(f"python -m bench.vendors {contender}") + beside(
            contender, arguments.peers
        )
    FIGURES.write_text(json.dumps(kept, indent=2) + "\n")
    report = VendorReport(**kept)
    RESULTS.write_text(markdown(report))
    show(report)


def beside(contender: str, peers: str) -> str:
    if contender == "headgate":
        return ""
    asked = f"from importlib.metadata import version; print(version({contender!r}))"
    said = subprocess.run([peers, "-c", asked], capture_output=True, text=True, check=True)
    return f" {contender} {said.stdout.strip()}."


if __name__ == "__main__":
    main()
