"""The runner with its ledger on disk: stopped, gone on with, and shared."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from headgate import AdaptiveRateLimiter, RateLimitConfig
from headgate.batch.config import BatchConfig
from headgate.batch.ledger import RowState
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.batch.runner import BatchRunner

pytestmark = pytest.mark.no_cover

UNPACED = RateLimitConfig(strategy="fixed", initial_rps=1e6, token_bucket_capacity=1e6)


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path):
    path = str(tmp_path / "run.ledger")
    calls: Counter[int] = Counter()
    done: Counter[int] = Counter()

    async def main(stop_after):
        async def worker(item, ctx):
            calls[item] += 1
            await asyncio.sleep(0)
            return {"twice": 2 * item}

        limiter = AdaptiveRateLimiter(UNPACED)
        runner = BatchRunner(worker, workers=20, ledger=path, limiter=limiter, config=BatchConfig(window=300))
        async for result in runner.stream(range(2000)):
            done[result.index] += 1
            if len(done) >= stop_after:
                runner.stop()
        return runner.report

    first = asyncio.run(main(500))
    assert first.stopped == "stopped"
    assert first.done == len(done) < 2000
    second = asyncio.run(main(10_000))
    assert (second.skipped, second.done, second.complete) == (first.done, 2000 - first.done, True)
    assert done == calls == Counter(range(2000))


def test_what_is_on_disk_is_what_was_shown(tmp_path):
    async def main():
        async def worker(item, ctx):
            if item == 7:
                raise ValueError("seven")
            return f"line {item}"

        ledger = SqliteLedger(tmp_path / "run.ledger")
        runner = BatchRunner(worker, workers=5, ledger=ledger, limiter=AdaptiveRateLimiter(UNPACED))
        shown = {result.index: result async for result in runner.stream(range(50))}
        written = {one.index: one for one in await ledger.final(0, 100)}
        counts = await ledger.counts()
        await ledger.close()
        return shown, written, counts

    shown, written, counts = asyncio.run(main())
    assert {index: one.state for index, one in written.items()} == {index: one.state for index, one in shown.items()}
    assert written[3].result == b"line 3"
    assert b"ValueError: seven" in written[7].result
    assert counts.states == {RowState.DONE: 49, RowState.DEAD: 1}
    assert counts.reasons == {"invalid": 1}


def test_two_runs_on_one_ledger_share_the_rows(tmp_path):
    calls: Counter[int] = Counter()

    async def worker(item, ctx):
        calls[item] += 1
        await asyncio.sleep(0.001)
        return item

    async def one():
        runner = BatchRunner(
            worker,
            workers=10,
            ledger=str(tmp_path / "run.ledger"),
            limiter=AdaptiveRateLimiter(UNPACED),
            config=BatchConfig(window=200),
        )
        return await runner.run(range(1000))

    async def main():
        return await asyncio.gather(one(), one())

    first, second = asyncio.run(main())
    assert first.done + second.done == 1000
    assert calls == Counter(range(1000))
