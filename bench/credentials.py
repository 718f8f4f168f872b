"""What a lease of a credential costs, with five keys and with a hundred in quarantine: `python -m bench.credentials`.

Exits with 1 if a bound is not kept.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable

from headgate import Limit, Outcome, Signal
from headgate.core.credential_pool import Pool, PoolEntry
from headgate.credentials import CredentialCoordinator
from headgate.lab.virtual_time import VirtualClock

CALLS = 20_000
ROUNDS = 15
IN_QUARANTINE = 100


def microseconds(call: Callable[[], object], calls: int = CALLS) -> float:
    """Of one call, in the quickest of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started_at = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - started_at)
    return 1e6 * best / calls


def one_of_five(*, budgets: bool) -> tuple[float, float, float]:
    """Picking alone, picking and giving back, and a whole lease with its report."""
    keys = CredentialCoordinator([f"secret {number}" for number in range(5)])
    answer = Signal(outcome=Outcome.OK, limits=(Limit(remaining=1e6, reset=3600.0),) if budgets else ())
    for lease in [keys.acquire() for _ in range(5)]:
        lease.report(signal=answer)

    def round_trip() -> None:
        keys.release_credential(keys.get_credential() or "")

    def lease() -> None:
        with keys.lease() as lease:
            lease.report(signal=answer)

    pool = Pool([PoolEntry(f"key-{number}") for number in range(5)])
    return microseconds(pool.pick), microseconds(round_trip), microseconds(lease)


def with_many_resting() -> tuple[float, float]:
    """Asking when a hundred rest, in the worst case (all come back at once) too; and the bytes that each takes."""
    secrets = [f"secret {number}" for number in range(IN_QUARANTINE)]
    clock = VirtualClock()
    gc.collect()
    tracemalloc.start()
    keys = CredentialCoordinator(secrets, clock=clock)
    for secret in secrets:
        keys.release_credential(secret, rate_limited=True, backoff_seconds=60)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    asking = microseconds(keys.get_credential, 2000)
    worst = 0.0
    for _ in range(50):
        clock.advance(60)
        started_at = time.perf_counter()
        keys.get_credential()
        worst = max(worst, time.perf_counter() - started_at)
        for secret in secrets:
            keys.release_credential(secret, rate_limited=True, backoff_seconds=60)
    return max(asking, 1e6 * worst), size / IN_QUARANTINE


def main() -> int:
    pick, round_trip, lease = one_of_five(budgets=False)
    _, round_trip_by_budget, _ = one_of_five(budgets=True)
    asking, size = with_many_resting()
    rows = [
        ("picking one of 5", pick, 2.0, "us"),
        ("picking one of 5 and giving it back", round_trip, 2.0, "us"),
        ("... by what is left of budgets", round_trip_by_budget, None, "us"),
        ("a lease of one of 5, with its report", lease, None, "us"),
        (f"get_credential, {IN_QUARANTINE} in quarantine, at worst", asking, 1000.0, "us"),
        ("memory for each of them", size, 1024.0, "bytes"),
    ]
    for name, value, bound, unit in rows:
        print(f"{name:<45} {value:9,.2f} {unit:<5} {'' if bound is None else f'(at most {bound:,.0f})'}")
    return int(any(bound is not None and value > bound for _, value, bound, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
