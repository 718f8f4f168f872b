"""``headgate run`` against a mock with three keys, calls and tokens a minute, a quota that halves, a day that is soon
spent and an outage: everything is done, nearly as fast as the quotas allow, and hardly a call is refused.

What the quotas allow is an upper bound: full buckets at the start, then the narrower of calls and tokens. During the
outage nothing is served, and buckets fill: that of tokens all the time, that of calls until it is full.
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from dataclasses import dataclass

import pytest

from headgate.sim.trace_reading import read_trace

LATENCY = 0.04
BURST = 20


@dataclass(frozen=True)
class Key:
    calls: float
    """Each minute, as are tokens."""
    tokens: float
    halves_at: float = float("inf")
    per_day: int = 10**9

    @property
    def typed(self):
        more = f",0.5@{self.halves_at}s" if self.halves_at != float("inf") else ""
        more += f",per-day={self.per_day}" if self.per_day < 10**9 else ""
        return f"{self.calls:g}/min,tokens={self.tokens:g}/min{more}"

    def allows(self, seconds, outage, tokens_each):
        """Calls until then."""
        up = [(0.0, outage[0]), (outage[0] + outage[1], seconds)]
        full = sum(max(0.0, min(end, self.halves_at, seconds) - start) for start, end in up)
        half = sum(max(0.0, min(end, seconds) - max(start, self.halves_at)) for start, end in up)
        time = full + 0.5 * half
        by_tokens = (self.tokens + self.tokens / 60 * (time + outage[1])) / tokens_each
        return min(2 * BURST + self.calls / 60 * time, by_tokens, self.per_day)


def run(folder, keys, outage, rows):
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
    return done, json.loads(done.stdout.splitlines()[-1]), truth, read_trace(folder / "trace.jsonl")


def measured(folder, keys, outage, rows):
    done, end, truth, trace = run(folder, keys, outage, rows)
    assert (done.returncode, end["done"], end["dead"]) == (0, rows, 0), done.stderr
    names = Counter(json.loads(line)["custom_id"] for line in (folder / "out.jsonl").read_text().splitlines())
    assert names == Counter(f"r{number}" for number in range(rows))
    assert (truth["answered"], truth["ids_done_twice"]) == (rows, 0)
    assert truth["failed"] > 0, "the outage was met"
    began_at = min(call.sent_at for call in trace.calls)
    seconds = max(call.sent_at + call.latency for call in trace.calls) - began_at
    allowed = sum(key.allows(seconds, outage, end["tokens"] / rows) for key in keys)
    refused = truth["rate_limited"] + truth["out_of_quota"]
    share, refusals = rows / allowed, refused / truth["asked"]
    print(f"{rows} rows in {seconds:.1f} s: {share:.1%} of {allowed:.0f} allowed, {refused} refused ({refusals:.2%})")
    return share, refusals


def test_everything_is_done(tmp_path):
    keys = (Key(1800, 60_000), Key(1800, 60_000, halves_at=5), Key(1800, 60_000, per_day=60))
    share, refusals = measured(tmp_path, keys, (8, 1), 900)
    assert refusals < 0.01
    assert share > 0.7  # the breaker's five seconds are long beside so short a run


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_nearly_all_that_the_quotas_allow_is_used(tmp_path):
    keys = (Key(900, 24_000), Key(900, 40_000, halves_at=25), Key(900, 40_000, per_day=150))
    share, refusals = measured(tmp_path, keys, (40, 5), 1700)
    assert refusals < 0.01
    assert share >= 0.95
