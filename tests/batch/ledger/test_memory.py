"""The ledger in memory keeps little of what is final."""

import asyncio

import pytest

from headgate.batch.ledger import Change, LedgerError, Row, RowState
from headgate.batch.ledger.memory import MemoryLedger


async def finish(ledger, first, count):
    for claim in await ledger.claim([Row(i, str(i), b"%016d" % i) for i in range(first, first + count)]):
        change = Change(index=claim.index, fence=claim.fence, state=RowState.DONE, attempts=1, result=b"x" * 1000)
        assert await ledger.record(change)


@pytest.mark.no_cover
def test_a_final_row_costs_a_few_bytes():
    async def main():
        ledger = MemoryLedger()
        await ledger.begin({})
        for first in range(0, 10_000, 100):
            await finish(ledger, first, 100)
        assert not ledger._open
        assert len(ledger._final) + len(ledger._digests) == 9 * 10_000
        assert (await ledger.counts()).states == {RowState.DONE: 10_000}

    asyncio.run(main())


def test_lines_are_kept_from_when_the_output_is_taken_to_its_checkpoint():
    async def main():
        ledger = MemoryLedger()
        await ledger.begin({})
        await finish(ledger, 0, 5)
        assert await ledger.final(0, 100) == []
        assert await ledger.output() == (5, 0)
        await finish(ledger, 5, 5)
        assert [one.number for one in await ledger.final(5, 100)] == [6, 7, 8, 9, 10]
        await ledger.checkpoint(8, 3000)
        assert [one.number for one in ledger._lines] == [9, 10]
        assert [one.number for one in await ledger.final(8, 1)] == [9]

    asyncio.run(main())


def test_a_second_run_of_the_same_goes_on_and_of_another_is_refused():
    async def main():
        ledger = MemoryLedger()
        await ledger.begin({"target": "one"})
        await finish(ledger, 0, 3)
        await ledger.claim([Row(3, "3", b"%016d" % 3)])
        await ledger.close()
        assert (await ledger.begin({"target": "one"})).states == {RowState.DONE: 3, RowState.PENDING: 1}
        assert await ledger.abandoned(10) == [3]
        with pytest.raises(LedgerError, match="another run"):
            await ledger.begin({"target": "two"})

    asyncio.run(main())
