"""Ways to push many items through 50 workers that do nothing. Each returns once all of them are through."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.ledger.memory import MemoryLedger
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.batch.runner import BatchRunner

WORKERS = 50
ANSWER = "x" * 200
UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6)

Way = Callable[[Path, int], Awaitable[None]]
"""Where it may write, and how many items."""


async def nothing(item: int, ctx: Any) -> str:
    return ANSWER


async def bare_queue(folder: Path, items: int) -> None:
    """Keeps nothing: what is not through when it ends is lost."""
    queue: asyncio.Queue[int | None] = asyncio.Queue(1000)

    async def work() -> None:
        while (item := await queue.get()) is not None:
            await nothing(item, None)

    working = [asyncio.create_task(work()) for _ in range(WORKERS)]
    for item in [*range(items), *[None] * WORKERS]:
        await queue.put(item)
    await asyncio.gather(*working)


async def in_memory(folder: Path, items: int) -> None:
    await _through_runner(MemoryLedger(), items)


async def on_disk(folder: Path, items: int) -> None:
    """Each result is on disk (synchronous=FULL) before it counts."""
    await _through_runner(SqliteLedger(folder / "items.ledger"), items)


async def _through_runner(ledger: Any, items: int) -> None:
    runner = BatchRunner(nothing, workers=WORKERS, ledger=ledger, limiter=AdaptiveRateLimiter(UNPACED))
    report = await runner.run(range(items))
    assert report.done == items, report
    await ledger.close()


async def rival_in_memory(folder: Path, items: int) -> None:
    await _through_rival(None, items)


async def rival_on_disk(folder: Path, items: int) -> None:
    """Its store commits up to 100 results at once, here with synchronous=FULL too."""
    from async_batch_llm import SqliteArtifactStore, SqliteDurability

    store = SqliteArtifactStore(folder / "rival.sqlite", durability=SqliteDurability.FULL)
    await _through_rival(store, items)


async def _through_rival(store: Any, items: int) -> None:
    from async_batch_llm import ArtifactIdentity, CallableStrategy, CallOutcome, process_prompts

    async def invoke(prompt: str, *, attempt: int, timeout: float, state: Any) -> Any:
        return CallOutcome(output=ANSWER)

    logging.getLogger("async_batch_llm").setLevel(logging.ERROR)
    strategy = CallableStrategy(invoke, identity=ArtifactIdentity(provider="bench"))
    prompts = (str(item) for item in range(items))
    result = await process_prompts(strategy, prompts, concurrency=WORKERS, artifact_store=store)
    assert result.succeeded == items, result


WAYS: dict[str, tuple[Way, int]] = {
    "a bare queue": (bare_queue, 200_000),
    "async-batch-llm": (rival_in_memory, 5_000),
    "async-batch-llm, SQLite store": (rival_on_disk, 5_000),
    "headgate, in memory": (in_memory, 50_000),
    "headgate, durable ledger": (on_disk, 50_000),
}
"""And how many items each is given, so that it takes seconds."""
