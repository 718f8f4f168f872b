"""A batch that stopped half way, as files: for tests that verify or repair its ledger."""

import asyncio
import sqlite3

from headgate.batch.input.rows import Rows
from headgate.batch.ledger import Change, Row, RowState
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.engine.output_file import OutputFile

ROWS = 6


class Batch:
    """An input of six rows, of which five were read: three are done, one is dead, one is open; three are written."""

    def __init__(self, folder, name="out.jsonl"):
        self.source, self.output = folder / "rows.jsonl", folder / name
        self.ledger = f"{self.output}.ledger"
        self.source.write_text("".join(f'{{"custom_id": "row-{i}", "body": {{}}}}\n' for i in range(ROWS)))
        asyncio.run(self.fill())

    async def fill(self):
        ledger = SqliteLedger(self.ledger)
        await ledger.begin({"input": str(self.source)})
        with Rows(str(self.source)) as rows:
            claims = await ledger.claim([Row(row.index, row.key, row.digest) for row in rows][: ROWS - 1])
        for claim in claims[:4]:
            change = Change(
                index=claim.index,
                fence=claim.fence,
                state=RowState.DEAD if claim.index == 1 else RowState.DONE,
                attempts=1,
                reason="invalid" if claim.index == 1 else "",
                result=b'{"custom_id": "row-%d"}\n' % claim.index,
                cost=0.1,
            )
            await ledger.record(change)
        await ledger.output()
        with OutputFile(str(self.output)) as file:
            for one in await ledger.final(0, 3):
                file.append(one.result)
                await ledger.checkpoint(one.number, file.sync())
        await ledger.close()

    def change(self, *statements):
        connection = sqlite3.connect(self.ledger, isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()
