"""A process whose rows all belong to another says so, instead of showing nothing for as long as the other works."""

import asyncio

from headgate.batch.input import Rows
from headgate.batch.job import Job
from headgate.batch.target import TargetConfig
from headgate.cli.commands.run_display import ProgressSampler
from headgate.observe.monitor import RunMonitor


def test_it_names_the_process_that_has_the_rows(batch, server):
    """Two jobs of one output are two processes to the ledger."""
    batch.write(5)
    asked, go_on = asyncio.Event(), asyncio.Event()

    def holding(send):
        async def held(row, ctx):
            asked.set()
            await go_on.wait()
            return await send(row, ctx)

        return held

    def job(rows, around=None):
        return Job(rows, TargetConfig(to=server.url), output=str(batch.out), workers=5, around=around)

    async def main():
        with Rows(str(batch.rows)) as first, Rows(str(batch.rows)) as second:
            one, two = job(first, holding), job(second)
            working = asyncio.create_task(one.run())
            await asked.wait()
            waiting = asyncio.create_task(two.run())
            while not two.holders:
                await asyncio.sleep(0.02)
            progress = ProgressSampler(two).sample()
            lines = [line for line in RunMonitor(job=two).snapshot().waits if line.scope == "processes"]
            go_on.set()
            return progress, lines, await working, await waiting

    progress, lines, first, second = asyncio.run(main())
    assert [holder.rows for holder in progress.waits_for] == [5]
    assert progress.fields()[0]["waits_for"][0]["pid"] == progress.waits_for[0].pid
    assert [line.behind for line in lines] == [5]
    assert (first.done, second.done, len(server.calls)) == (5, 5, 5)
