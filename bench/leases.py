"""How exactly a quota is kept against the length of a lease: `python -m bench.leases [--write]`.

64 processes in virtual time, each a whole limiter, with a store at the end of a network that delays and loses messages.
`--write` puts the table into docs/sharing.md.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.crowd import Crowd, CrowdResult, run_crowd

PAGE = Path(__file__).parent.parent / "docs" / "sharing.md"
BEGIN, END = "<!-- leases -->", "<!-- /leases -->"
LEASES = (0.01, 0.03, 0.1, 0.25)
NETWORKS = (
    (0.001, 0.0, "1 ms"),
    (0.001, 0.001, "1 ms, 0.1 % lost"),
    (0.01, 0.0, "10 ms"),
    (0.01, 0.01, "10 ms, 1 % lost"),
)
SEEDS = 2
CROWD = Crowd(processes=64, tasks=8, limit=4000.0, seconds=8.0)


def worst(lease: float, delay: float, loss: float) -> CrowdResult:
    """The least good of each figure over all seeds."""
    results = [run_crowd(replace(CROWD, lease=lease, delay=delay, loss=loss, seed=seed)) for seed in range(SEEDS)]
    return CrowdResult(
        used=min(one.used for one in results),
        fullest=max(one.fullest for one in results),
        fairness=min(one.fairness for one in results),
        trips=max(one.trips for one in results),
        losses=max(one.losses for one in results),
    )


def table() -> str:
    cells = [(lease, delay, loss, name) for delay, loss, name in NETWORKS for lease in LEASES]
    with ProcessPoolExecutor() as pool:
        results = list(pool.map(worst, *zip(*((lease, delay, loss) for lease, delay, loss, _ in cells), strict=True)))
    lines = [
        "| one way to the store | lease | fullest second | used | least share of the largest | exchanges per call |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (lease, _, _, name), result in zip(cells, results, strict=True):
        shown = f"{1000 * lease:.0f} ms{' (ours)' if lease == 0.03 else ''}"
        figures = f"{result.fullest:.2%} | {result.used:.1%} | {result.fairness:.2f} | {result.trips:.2f}"
        lines.append(f"| {name} | {shown} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="How exactly a quota is kept against the length of a lease.")
    parser.add_argument("--write", action="store_true", help="put the table into docs/sharing.md")
    options = parser.parse_args()
    began = time.perf_counter()
    text = (
        f"{table()}\n\n{CROWD.processes} processes with {CROWD.tasks} tasks each, a limit of {CROWD.limit:g}/s, "
        f"{CROWD.seconds:g} s of virtual time, the worst of {SEEDS} seeds; `python -m bench.leases --write`."
    )
    print(f"{text}\n{time.perf_counter() - began:.0f} s")
    if options.write:
        page = PAGE.read_text()
        head, rest = page.split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
