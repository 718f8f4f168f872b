"""``headgate status`` reads a ledger while a run goes on, and says what to do next."""

import asyncio
import json
import os

import pytest

from headgate.batch.ledger import Change, Row, RowState
from headgate.batch.ledger.sqlite import SqliteLedger


def fill(ledger, states, close=True):
    """Rows in these states, and half of the final ones in the output."""

    async def main():
        await ledger.begin({"input": "rows.jsonl"})
        claims = await ledger.claim([Row(i, f"row-{i}", b"%016d" % i) for i in range(len(states))])
        for claim, state in zip(claims, states, strict=True):
            if state is not RowState.LEASED:
                change = Change(
                    index=claim.index,
                    fence=claim.fence,
                    state=state,
                    attempts=1,
                    reason="invalid: no such model" if state is RowState.DEAD else "",
                    result=b"{}\n",
                    tokens=10,
                    cost=0.5,
                    ready_at=4e9 if state is RowState.PARKED else 0.0,
                    waited={"pace": 2.0},
                )
                await ledger.record(change)
        await ledger.output()
        await ledger.checkpoint(1, 3)
        if close:
            await ledger.close()

    return main()


MIXED = [RowState.DONE, RowState.DONE, RowState.DEAD, RowState.PARKED, RowState.LEASED]


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out.jsonl"


def test_a_page_for_people(headgate, output):
    asyncio.run(fill(SqliteLedger(f"{output}.ledger"), MIXED))
    page = headgate("status", output)
    assert (page.code, page.err) == (0, "")
    assert "2 done, 1 failed, 2 open of 5 rows read so far" in page.out
    assert "1 pending, 1 waiting for the rate limit" in page.out
    assert "1 invalid" in page.out
    assert "4 attempts, 40 tokens, cost 2" in page.out
    assert "8.0 s for the rate limit of the key" in page.out
    assert "1 row, 3 bytes" in page.out
    assert page.out.splitlines()[-1] == "No process is working on it. Re-run to resume."


def test_one_line_for_programs(headgate, output):
    asyncio.run(fill(SqliteLedger(f"{output}.ledger"), MIXED))
    (line,) = headgate("status", output, "--json").out.splitlines()
    fields = json.loads(line)
    assert [fields[name] for name in ("rows", "done", "dead", "open", "parked", "pending", "leased")] == [
        5,
        2,
        1,
        2,
        1,
        1,
        0,
    ]
    assert fields["reasons"] == {"invalid": 1}
    assert (fields["written"], fields["output_bytes"], fields["processes"]) == (1, 3, [])
    assert fields["ledger"] == f"{output}.ledger"


def test_a_run_that_goes_on_is_seen_and_not_disturbed(headgate_process, output):
    async def main():
        ledger = SqliteLedger(f"{output}.ledger")
        await fill(ledger, MIXED, close=False)
        looking = headgate_process("status", output)
        said, complaint = await asyncio.to_thread(looking.communicate, timeout=30)
        assert (looking.returncode, complaint) == (0, "")
        (row,) = [line for line in said.splitlines() if "at work" in line]
        assert f"process {os.getpid()} " in row
        assert "holds 2 rows, writes the output" in row
        assert "A run is under way. The first deferred row is due in" in said.splitlines()[-1]
        await ledger.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("states", "last"),
    [
        ([RowState.DONE], "All rows are done."),
        ([RowState.DEAD], "Finished, 1 row failed; headgate retry opens them again."),
    ],
)
def test_the_last_line_says_what_to_do(headgate, output, states, last):
    asyncio.run(fill(SqliteLedger(f"{output}.ledger"), states))
    assert headgate("status", output).out.splitlines()[-1] == last


class TestFinding:
    def test_the_only_ledger_of_the_folder_is_meant(self, headgate, output, monkeypatch):
        asyncio.run(fill(SqliteLedger(f"{output}.ledger"), MIXED))
        monkeypatch.chdir(output.parent)
        assert headgate("status").out.startswith("out.jsonl.ledger: 2 done")
        assert headgate("status", "out.jsonl.ledger").code == 0

    def test_of_several_one_must_be_named(self, headgate, tmp_path, monkeypatch):
        for name in ("a.ledger", "b.ledger"):
            (tmp_path / name).touch()
        monkeypatch.chdir(tmp_path)
        said = headgate("status")
        assert said.code == 2
        assert "no run is under way on this machine; give the output of a run" in said.err
        assert "this folder has a.ledger, b.ledger" in said.err
        assert "no run is under way" not in headgate("verify").err

    def test_none_is_a_mistake_of_the_command_line(self, headgate, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert headgate("status").code == 2
        assert "there is no ledger out.jsonl.ledger" in headgate("status", "out.jsonl").err

    def test_what_is_no_ledger_is_told(self, headgate, tmp_path):
        (tmp_path / "out.jsonl").write_text("{}\n" * 1000)
        assert headgate("status", tmp_path / "out.jsonl").code == 2
        (tmp_path / "out.jsonl.ledger").write_text("{}\n" * 1000)
        said = headgate("status", tmp_path / "out.jsonl")
        assert said.code == 3
        assert "is not a ledger; choose another file" in said.err
