"""Many keys, little memory: measured as what the process really holds, so these stand apart from the quick tests."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

STATM = Path("/proc/self/statm")

MANY_IDLE = """
import json
from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.lab.virtual_time import VirtualClock

clock = VirtualClock(1000.0)
limiter = AdaptiveRateLimiter(RateLimitConfig(domain_state_ttl=86400.0), clock=clock)
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
before = resident()
for lot in range(100):  # a thousand keys at a time are busy, with refusals and slow answers, and then rest
    for turn in range(12):
        clock.advance(0.5)
        for number in range(1000 * lot, 1000 * lot + 1000):
            status, latency = 429 if turn == 7 and number % 3 == 0 else 200, 0.01 + turn * (number % 7) / 1000
            limiter.acquire(f"host{number}.example.com").report(status_code=status, latency=latency)
print(json.dumps({"MB": resident() - before, "keys": len(limiter._registry), "active": len(limiter._registry.entries)}))
"""

PASSING_THROUGH = """
import json
from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.lab.virtual_time import VirtualClock

clock = VirtualClock(1000.0)
limiter = AdaptiveRateLimiter(RateLimitConfig(max_keys=100_000), clock=clock)
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
marks = []
for number in range(1_000_000):
    clock.advance(0.0002)
    limiter.acquire(f"host{number}.example.com").report(status_code=200, latency=0.05)
    if number % 100_000 == 99_999:
        marks.append(resident())
print(json.dumps({"marks": marks, "keys": len(limiter._registry), "total": limiter.snapshot(top=0).total}))
"""


def run_apart(script: str) -> dict[str, object]:
    """In a process of its own, so that nothing else counts."""
    gc.collect()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=1200, check=True)
    result: dict[str, object] = json.loads(done.stdout)
    print(result)
    return result


@pytest.mark.skipif(not STATM.exists(), reason="reads the resident size from /proc")
def test_a_hundred_thousand_mostly_idle_keys_fit_into_150_megabytes() -> None:
    result = run_apart(MANY_IDLE)
    assert result["keys"] == 100_000
    assert result["MB"] < 150  # type: ignore[operator]


@pytest.mark.skipif(not STATM.exists(), reason="reads the resident size from /proc")
def test_a_million_keys_pass_through_and_memory_stays_flat() -> None:
    result = run_apart(PASSING_THROUGH)
    marks = result["marks"]
    assert isinstance(marks, list)
    assert result["keys"] == 100_000
    assert result["total"] == 1_000_000
    assert max(marks[2:]) < 1.1 * marks[1]
