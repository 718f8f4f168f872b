"""Whether one lock for all keys is a bottleneck: `python -m bench.locks`.

Eight threads use eight keys of one limiter, then a limiter each. A limiter each is what perfect sharding would be: no
two threads ever wait for the same lock.
"""

from __future__ import annotations

import threading
import time

from headgate import AdaptiveRateLimiter, RateLimitConfig

THREADS = 8
CALLS = 40_000
ROUNDS = 5
WIDE_OPEN = RateLimitConfig(strategy="aimd", initial_rps=1e6, token_bucket_capacity=1e9)


def calls_per_second(limiters: list[AdaptiveRateLimiter]) -> float:
    """Whole permit cycles a second, all threads together."""

    def work(number: int) -> None:
        limiter, key = limiters[number % len(limiters)], f"key {number}"
        for _ in range(CALLS):
            limiter.acquire(key).report(status_code=200, latency=0.01)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    started_at = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return THREADS * CALLS / (time.perf_counter() - started_at)


def main() -> None:
    one = many = 0.0
    for _ in range(ROUNDS):
        one = max(one, calls_per_second([AdaptiveRateLimiter(WIDE_OPEN)]))
        many = max(many, calls_per_second([AdaptiveRateLimiter(WIDE_OPEN) for _ in range(THREADS)]))
    print(f"one lock for all keys: {one:,.0f} cycles/s; a lock each: {many:,.0f} cycles/s; ratio {one / many:.2f}")


if __name__ == "__main__":
    main()
