"""What size costs: the real limiter in virtual time, with ever more keys, workers and processes.

    python -m bench.lab.scale          the whole table; 1,000,000 keys take some minutes

Every size runs in a process of its own, so that its memory is measured alone. The quota is the same for all sizes of a
kind: only the number of keys, workers or processes grows. Time is processor time for a whole simulated call, the server
and the network included; memory is what the run added at its peak, with some 16 bytes for each call in the results of
the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.lab.experiment import run
from headgate.lab.scenario import Budget, Limit, Scenario
from headgate.lab.simulated_server import Answer, SimulatedServer
from headgate.units import Rate

TIME_LIMIT = 1200.0
CALLS = 40_000
CROWD = 64
"""Workers of all processes together."""
MOST_IN_FLIGHT = 1_000
ENOUGH_TO_SHARE = 1_000
"""Of fewer what each of them takes is not told from what the run takes."""
ROOT = Path(__file__).parents[2]


class Kind(NamedTuple):
    name: str
    about: str
    uses_quota: bool
    sizes: Sequence[int]
    quick: Sequence[int]
    scenario: Callable[[int], Scenario]


class Measured(NamedTuple):
    size: int
    calls: int
    microseconds: float
    megabytes: float
    goodput: float
    """Calls done, as a share of what the quota allowed."""
    jain: float


class OneAccount(SimulatedServer):
    """A server that does not tell keys apart, so that it needs no memory for them."""

    def answer(self, now: float, key: int, tokens: float = 0.0) -> Answer:
        return super().answer(now, 0, tokens)


def _limited(rate: float, *, keys: int = 1) -> tuple[Budget, ...]:
    return (Budget(limits=(Limit(rate=Rate(rate), burst=rate),), keys=keys, shared=True),)


def _keys(count: int) -> Scenario:
    """Each key is called once, as by a crawler, over 20 s or more: a call opens a key and puts another away."""
    workers = min(MOST_IN_FLIGHT, count // 100)
    seconds = count / (workers / 0.19)  # the service time and the round trip of a scenario that says nothing of them
    return Scenario(
        name=f"{count} keys", horizon=1.1 * seconds, workers=workers, budgets=_limited(1_000_000.0, keys=count)
    )


def _workers(count: int) -> Scenario:
    return Scenario(name=f"{count} workers", horizon=CALLS / 40.0, workers=count, budgets=_limited(40.0))


def _processes(count: int, *, together: bool) -> Scenario:
    return Scenario(
        name=f"{count} processes",
        horizon=CALLS / 200.0,
        workers=CROWD // count,
        processes=count,
        together=together,
        budgets=_limited(200.0),
    )


KINDS = (
    Kind(
        "keys",
        "called one after the other, and nothing is refused",
        False,
        (1_000, 10_000, 100_000, 1_000_000),
        (1_000, 2_000),
        _keys,
    ),
    Kind("workers", "all in one line, for a quota of 40/s", True, (10, 100, 1_000, 10_000), (10, 100), _workers),
    Kind(
        "processes",
        "with a limiter each and 64 workers in all, for one quota of 200/s",
        True,
        (1, 4, 16, 64),
        (1, 4),
        lambda count: _processes(count, together=False),
    ),
    Kind(
        "processes together",
        "the same behind one controller",
        True,
        (1, 4, 16, 64),
        (1, 4),
        lambda count: _processes(count, together=True),
    ),
)


def measure_here(kind: str, size: int) -> Measured:
    """In this process, which should have done nothing else."""
    scenario = next(one for one in KINDS if one.name == kind).scenario(size)
    server = OneAccount(scenario, 0)
    before, started_at = _peak(), time.process_time()
    results = run(scenario, "adaptive", 0, server=server)
    took = time.process_time() - started_at
    allowed = scenario.allowed_between(0.0, scenario.horizon)
    return Measured(size, results.sent, took / results.sent * 1e6, _peak() - before, results.ok / allowed, results.jain)


def measure_apart(kind: str, size: int) -> Measured:
    command = [sys.executable, "-m", "bench.lab.scale", kind, str(size)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False, cwd=ROOT)
    if ended.returncode != 0:
        raise RuntimeError(f"{size:,} {kind}: {(ended.stderr.strip() or 'no reason given').splitlines()[-1]}")
    return Measured(*json.loads(ended.stdout))


def measure_all(say: Callable[[str], None], *, quick: bool = False) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {}
    for kind in KINDS:
        for size in kind.quick if quick else kind.sizes:
            say(f"scale: {size:,} {kind.name}")
            found.setdefault(kind.name, []).append(measure_apart(kind.name, size))
    return found


def rows(found: Mapping[str, Sequence[Sequence[float]]]) -> Iterator[list[str]]:
    yield ["what grows", "size", "calls", "us a call", "MB for all", "KB for each", "quota used", "Jain"]
    yield ["---", *["--:"] * 7]
    for kind in KINDS:
        for measured in found.get(kind.name, ()):
            size, calls, microseconds, megabytes, goodput, jain = measured
            counts = [f"{size:,}", f"{calls:,}", f"{microseconds:.0f}", f"{megabytes:.1f}"]
            each = f"{1000 * megabytes / size:.1f}" if size >= ENOUGH_TO_SHARE else ""
            used = f"{goodput:.1%}" if kind.uses_quota else ""
            yield [kind.name, *counts, each, used, f"{jain:.3f}" if "processes" in kind.name and size > 1 else ""]


def _peak() -> float:
    """Megabytes this process has held at most."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1000
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1_000_000 if sys.platform == "darwin" else 1_000)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure_here(sys.argv[1], int(sys.argv[2]))))
    else:
        for row in rows(measure_all(lambda line: print(line, file=sys.stderr, flush=True))):
            print("| " + " | ".join(row) + " |")
