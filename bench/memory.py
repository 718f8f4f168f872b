"""What one more key costs in memory: everything allocated for a thousand of them, divided by a thousand."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence

from bench.contenders import limiters, ours
from bench.pacing import Figures

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
