"""A small run to be killed: ``ledger_worker.py FOLDER ROWS WORKERS`` claims, calls, records and writes until done.

What others could see of it goes into files that survive it: each call at the server (``calls``), and each
result whose record has returned (``acknowledged``).
"""

import asyncio
import os
import sys
from hashlib import blake2b
from pathlib import Path

from tests.chaos.crash_points import on_step

from headgate.batch.ledger import Change, Claim, Row, RowState
from headgate.batch.ledger.sqlite import SqliteLedger

BLOCK = 20


def row(index):
    return Row(index, f"row-{index}", blake2b(b"%d" % index, digest_size=16).digest())


class Run:
    def __init__(self, folder, rows, workers):
        self.step = on_step()
        self.ledger = SqliteLedger(folder / "run.ledger", on_step=self.step)
        self.rows, self.workers = rows, workers
        self.output = folder / "output"
        self.server = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.seen = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.ready = asyncio.Queue(BLOCK)

    async def run(self):
        await self.ledger.begin({"input": "rows"})
        tasks = [asyncio.create_task(self.work()) for _ in range(self.workers)]
        writing = asyncio.create_task(self.write())
        for start in range(0, self.rows, BLOCK):
            await self.claim(range(start, min(self.rows, start + BLOCK)))
        while (await self.ledger.counts()).open:
            await self.claim(await self.ledger.abandoned(BLOCK))
            await asyncio.sleep(0.005)
        await writing
        for task in tasks:
            task.cancel()
        await self.ledger.close()

    async def claim(self, indexes):
        for claim in await self.ledger.claim([row(index) for index in indexes]):
            if isinstance(claim, Claim):
                await self.ready.put(claim)

    async def work(self):
        while True:
            claim = await self.ready.get()
            self.step("send")
            os.write(self.server, b"%d\n" % claim.index)
            await asyncio.sleep(0.001)
            self.step("receive")
            done = Change(
                index=claim.index, fence=claim.fence, state=RowState.DONE, attempts=1, result=b"%d\n" % claim.index
            )
            if await self.ledger.record(done):
                os.write(self.seen, b"%d\n" % claim.index)

    async def write(self):
        while (place := await self.ledger.output()) is None:
            if (await self.ledger.counts()).states.get(RowState.DONE, 0) == self.rows:
                return
            await asyncio.sleep(0.01)
        number, offset = place
        with self.output.open("ab") as file:
            file.truncate(offset)
            while number < self.rows:
                lines = await self.ledger.final(number, 100)
                if not lines:
                    await asyncio.sleep(0.005)
                    continue
                file.writelines(one.result for one in lines)
                file.flush()
                os.fsync(file.fileno())
                self.step("write")
                number = lines[-1].number
                assert await self.ledger.checkpoint(number, file.tell())


if __name__ == "__main__":
    asyncio.run(Run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])).run())
