"""``headgate run`` from end to end on three keys, drawn as docs/run.svg: `python -m bench.end_to_end` (two minutes).

Calls and tokens are limited by the minute, one quota halves, one key's day is soon spent, and there is an outage.

What the quotas allow is an upper bound: full buckets at the start, then the narrower of calls and tokens. During the
outage nothing is served, and buckets fill: that of tokens all the time, that of calls until it is full.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headgate.lab.charts.trial_chart import KeyPanel, RunPicture
from headgate.lab.traces.reader import read_trace
from headgate.lab.traces.trace import Trace

LATENCY = 0.04
BURST = 20
STEP = 0.5
"""Seconds between two points of a quota that is drawn."""


Outage = tuple[int, int]
"""When it begins, and for how many seconds."""


@dataclass(frozen=True)
class Key:
    calls: float
    """Each minute, as are tokens."""
    tokens: float
    halves_at: float = float("inf")
    per_day: int = 10**9

    @property
    def typed(self) -> str:
        more = f",0.5@{self.halves_at}s" if self.halves_at != float("inf") else ""
        more += f",per-day={self.per_day}" if self.per_day < 10**9 else ""
        return f"{self.calls:g}/min,tokens={self.tokens:g}/min{more}"

    def allows(self, seconds: float, outage: Outage, tokens_each: float) -> float:
        """Calls until then."""
        up = [(0.0, outage[0]), (outage[0] + outage[1], seconds)]
        full = sum(max(0.0, min(end, self.halves_at, seconds) - start) for start, end in up)
        half = sum(max(0.0, min(end, seconds) - max(start, self.halves_at)) for start, end in up)
        time = full + 0.5 * half
        by_tokens = (self.tokens + self.tokens / 60 * (time + outage[1])) / tokens_each
        return min(2 * BURST + self.calls / 60 * time, by_tokens, self.per_day)

    def quota(self, seconds: float, outage: Outage, tokens_each: float) -> list[tuple[float, float]]:
        """Calls a second where all is used: the calls' rate while tokens are in stock, then the tokens'."""
        stock, left, points = self.tokens, float(self.per_day), [(0.0, self.calls / 60.0)]
        for step in range(int(seconds / STEP)):
            at = step * STEP
            share = 0.5 if at >= self.halves_at else 1.0
            stock = min(self.tokens, stock + share * self.tokens / 60.0 * STEP)
            if outage[0] <= at < sum(outage):
                continue
            calls = min(share * self.calls / 60.0 * STEP, stock / tokens_each, left)
            stock, left = stock - calls * tokens_each, left - calls
            if abs(calls / STEP - points[-1][1]) > 0.1:
                points.append((at, calls / STEP))
        return points


Keys = tuple[Key, ...]

KEYS = (Key(900, 24_000), Key(900, 40_000, halves_at=25), Key(900, 40_000, per_day=150))
OUTAGE, ROWS = (40, 5), 1700


@dataclass(frozen=True)
class Played:
    rows: int
    code: int
    end: dict[str, Any]
    """The last line of the command."""
    said: str
    truth: dict[str, Any]
    """What the server counted."""
    trace: Trace
    written: Counter[str]
    seconds: float

    def used(self, keys: Keys, outage: Outage) -> float:
        """The share of what the quotas allow."""
        each = self.end["tokens"] / self.rows
        return self.rows / sum(key.allows(self.seconds, outage, each) for key in keys)

    @property
    def refused(self) -> float:
        """The share of calls that were."""
        return (self.truth["rate_limited"] + self.truth["out_of_quota"]) / self.truth["asked"]


def play(folder: Path, keys: Keys, outage: Outage, rows: int) -> Played:
    environment = {
        **os.environ,
        "MOCK_KEYS": ",".join(f"mock-key-{number}" for number in range(1, len(keys) + 1)),
        "HEADGATE_STATE": str(folder / "state"),
    }
    command = [sys.executable, "-m", "headgate", "mock", "--provider", "openai", "--json", "--stop-with-stdin"]
    command += ["--outage", f"{outage[0]}s+{outage[1]}s", "--latency", f"{LATENCY}s", "--seed", "1"]
    command += ["--burst", str(BURST), *(word for key in keys for word in ("--key", key.typed))]
    mock = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert mock.stdout is not None
        told = json.loads(mock.stdout.readline())
        with (folder / "rows.jsonl").open("w") as file:
            for number in range(rows):
                messages = [{"role": "user", "content": f"Hello number {number}, how are you?"}]
                line = {"custom_id": f"r{number}", "body": {"model": "m", "max_tokens": 60, "messages": messages}}
                file.write(json.dumps(line) + "\n")
        command = [sys.executable, "-m", "headgate", "run", "rows.jsonl", "-o", "out.jsonl"]
        command += ["--to", told["providers"]["openai"], "--keys", "env:MOCK_KEYS", "--trace", "trace.jsonl", "--json"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        with urllib.request.urlopen(f"{told['url']}/_truth", timeout=10) as answer:
            truth = json.load(answer)["providers"]["openai"]
    finally:
        mock.kill()
        mock.communicate()
    trace = read_trace(folder / "trace.jsonl")
    began_at = min(call.sent_at for call in trace.calls)
    return Played(
        rows=rows,
        code=done.returncode,
        end=json.loads(done.stdout.splitlines()[-1]),
        said=done.stderr,
        truth=truth,
        trace=trace,
        written=Counter(json.loads(line)["custom_id"] for line in (folder / "out.jsonl").read_text().splitlines()),
        seconds=max(call.sent_at + call.latency for call in trace.calls) - began_at,
    )


def picture(played: Played, keys: Keys, outage: Outage) -> RunPicture:
    each, trace = played.end["tokens"] / played.rows, played.trace
    began_at = min(call.sent_at for call in trace.calls)
    numbers = {label: number for number, label in trace.labels.items()}
    panels = []
    for number, key in enumerate(keys, 1):
        name = f"MOCK_KEYS-{number}"
        calls = [call for call in trace.calls if call.key == numbers[name]]
        done_at = [call.sent_at + call.latency - began_at for call in calls if call.status == 200]
        about = f"{key.calls:g} calls and {key.tokens:,g} tokens a minute"
        about += f", {key.per_day} calls a day" if key.per_day < 10**9 else ""
        about += f", half of it from {key.halves_at:g} s on" if key.halves_at < played.seconds else ""
        refused_at = [call.sent_at - began_at for call in calls if call.status == 429]
        panels.append(
            KeyPanel(
                name=name,
                headline=f"{about}: {len(done_at)} done, {len(refused_at)} refused",
                learned=[(told.at - began_at, told.rate) for told in trace.learned if told.key == numbers[name]],
                quota=key.quota(played.seconds, outage, each),
                done_at=done_at,
                refused_at=refused_at,
                breaker_open=(),
            )
        )
    headline = (
        f"{played.rows:,} rows done, none twice, in {played.seconds:.0f} s: {played.used(keys, outage):.1%} of what "
        f"the quotas allow, {played.refused:.2%} of the calls refused"
    )
    ends_at = float(outage[0] + outage[1])
    return RunPicture(
        title="headgate run on three keys",
        headline=headline,
        duration=played.seconds,
        outages=[(float(outage[0]), ends_at)],
        panels=panels,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        played = play(Path(folder), KEYS, OUTAGE, ROWS)
    print(f"{ROWS} rows: {played.used(KEYS, OUTAGE):.1%} of what is allowed, {played.refused:.2%} refused")
    target = Path(__file__).parent.parent / "docs" / "run.svg"
    target.write_text(picture(played, KEYS, OUTAGE).to_svg())
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
