"""Changes to a ledger outside of a run: dead rows are reopened, and a lost ledger is rebuilt from the output."""

import asyncio
import os

import pytest
from tests.batch.ledger.partial_batch import Batch

from headgate.batch.input.rows import Rows
from headgate.batch.ledger import Change, LedgerError, Row, RowState
from headgate.batch.ledger.queries import read_status
from headgate.batch.ledger.repair import has_rows, recover_ledger, reopen
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.batch.ledger.verify import LedgerVerifier
from headgate.batch.output import answer_line, error_line, row_id
from headgate.engine.output_file import OutputFile
from headgate.errors import OutputError


@pytest.fixture
def batch(tmp_path):
    return Batch(tmp_path)


def findings(ledger, output):
    with LedgerVerifier(str(ledger), str(output)) as verifier:
        verifier.check_itself()
        verifier.check_output()
        return verifier.result.findings


class TestReopen:
    def test_only_rows_that_failed_for_this_reason(self, batch):
        assert reopen(batch.ledger, "deadline") == 0
        assert reopen(batch.ledger, "invalid") == 1
        counts = read_status(batch.ledger).counts
        assert counts.states == {RowState.DONE: 3, RowState.PENDING: 2}

    def test_not_while_a_process_works_on_the_ledger(self, batch):
        async def main():
            ledger = SqliteLedger(batch.ledger)
            await ledger.begin({"input": str(batch.source)})
            with pytest.raises(LedgerError, match="is still working on"):
                reopen(batch.ledger)
            await ledger.close()

        asyncio.run(main())

    def test_the_row_is_done_once_and_the_output_is_written_again(self, batch):
        assert reopen(batch.ledger) == 1

        async def go_on():
            ledger = SqliteLedger(batch.ledger)
            await ledger.begin({"input": str(batch.source)})
            assert await ledger.output() == (0, 0)
            with Rows(str(batch.source)) as rows:
                claims = await ledger.claim([Row(row.index, row.key, row.digest) for row in rows])
            (claim,) = [claim for claim in claims if getattr(claim, "index", None) == 1]
            assert claim.attempts == 0
            done = Change(index=1, fence=claim.fence, state=RowState.DONE, attempts=1, result=b"better\n")
            assert await ledger.record(done)
            lines = await ledger.final(0, 10)
            assert [(one.number, one.index) for one in lines] == [(1, 0), (2, 2), (3, 3), (4, 1)]
            with OutputFile(str(batch.output), 0, ours=True) as file:
                for one in lines:
                    file.append(one.result)
                await ledger.checkpoint(4, file.sync())
            await ledger.close()

        asyncio.run(go_on())
        assert findings(batch.ledger, batch.output) == []


class TestRecover:
    """Three rows, of which the third was done first and the first has failed; the ledger is lost."""

    @pytest.fixture
    def lost(self, tmp_path):
        class Lost:
            source, output, ledger = tmp_path / "rows.jsonl", tmp_path / "out.jsonl", str(tmp_path / "out.jsonl.ledger")

            def __init__(self):
                self.source.write_text("".join(f'{{"custom_id": "row-{i}", "body": {{}}}}\n' for i in range(3)))
                with Rows(str(self.source)) as rows:
                    ids = [row_id(row.index, row.digest) for row in rows]
                self.lines = [
                    answer_line(ids[2], "row-2", 200, "", b'{"usage": {"total_tokens": 7}}'),
                    error_line(ids[0], "row-0", "invalid", "no model"),
                ]
                self.output.write_bytes(b"".join(self.lines))

            def recover(self):
                with Rows(str(self.source)) as rows:
                    return recover_ledger(self.ledger, str(self.output), rows, {"input": "rows.jsonl"})

        return Lost()

    def test_the_ledger_has_what_the_output_has(self, lost):
        assert not has_rows(lost.ledger)
        found = lost.recover()
        assert (found.done, found.dead, found.torn) == (1, 1, False)
        assert has_rows(lost.ledger)
        status = read_status(lost.ledger)
        assert status.counts.states == {RowState.DONE: 1, RowState.DEAD: 1}
        assert (status.counts.reasons, status.counts.tokens) == ({"invalid": 1}, 7)
        assert (status.written, status.offset) == (2, lost.output.stat().st_size)
        assert status.identity == {"input": "rows.jsonl"}
        assert findings(lost.ledger, lost.output) == []

    def test_a_torn_last_line_is_sent_again_and_the_output_replaced(self, lost):
        lost.output.write_bytes(lost.lines[0] + lost.lines[1][:-20])
        found = lost.recover()
        assert (found.done, found.dead, found.torn) == (1, 0, True)
        assert read_status(lost.ledger).is_replaced

    @pytest.mark.parametrize(
        ("added", "why"),
        [
            (b'{"id": "batch_req_of_another_input"}\n', "lines 3 match no row of this input"),
            (b"a note of the user's\n", "lines 3 match no row of this input"),
            (None, "lines 3 repeat an earlier line"),
        ],
    )
    def test_a_line_that_answers_no_row_is_named_and_nothing_is_made(self, lost, added, why):
        with lost.output.open("ab") as file:
            file.write(lost.lines[0] if added is None else added)
        with pytest.raises(OutputError, match=why):
            lost.recover()
        assert sorted(os.listdir(lost.source.parent)) == ["out.jsonl", "rows.jsonl"]

    def test_an_empty_output_has_nothing_to_recover(self, lost):
        lost.output.write_bytes(b"")
        with pytest.raises(OutputError, match="nothing to recover"):
            lost.recover()
