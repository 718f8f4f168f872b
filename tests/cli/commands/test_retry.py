"""``headgate retry`` reopens failed rows, and the next run brings each into the output once."""

import asyncio
import json
from collections import Counter

import pytest

from headgate.batch.ledger import Change, Row, RowState
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.mock.providers.provider_api import Fault

REASONS = ("transient: hung up", "transient: did not answer", "invalid: no such model", "")


@pytest.fixture
def output(tmp_path):
    """A run of four rows, of which three are dead."""
    path = tmp_path / "out.jsonl"

    async def fill():
        ledger = SqliteLedger(f"{path}.ledger")
        await ledger.begin({"input": "rows.jsonl"})
        await ledger.note("command", "headgate run rows.jsonl -o out.jsonl --to openai")
        for claim, reason in zip(
            await ledger.claim([Row(i, f"row-{i}", b"%016d" % i) for i in range(4)]), REASONS, strict=True
        ):
            state = RowState.DEAD if reason else RowState.DONE
            change = Change(
                index=claim.index, fence=claim.fence, state=state, attempts=3, reason=reason, result=b"{}\n"
            )
            assert await ledger.record(change)
        await ledger.close()

    asyncio.run(fill())
    return path


def counts(headgate, output):
    told = json.loads(headgate("status", output, "--json").out)
    return told["done"], told["dead"], told["open"]


def test_all_dead_rows_are_open_again(headgate, output):
    said = headgate("retry", output)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Reopened 3 failed rows (2 transient, 1 invalid) of ")
    assert said.out.splitlines()[-1] == "Now run: headgate run rows.jsonl -o out.jsonl --to openai"
    assert counts(headgate, output) == (1, 0, 3)


def test_only_those_of_one_reason(headgate, output):
    assert headgate("retry", output, "--only", "transient").out.startswith("Reopened 2 failed rows (transient) of ")
    assert counts(headgate, output) == (1, 1, 2)


def test_a_reason_that_no_row_has(headgate, output):
    said = headgate("retry", f"{output}.ledger", "--only", "deadline")
    assert said.code == 0
    assert "the reasons are 2 transient, 1 invalid" in said.out
    assert said.out.splitlines()[-1] == "Nothing was changed."
    assert counts(headgate, output) == (1, 3, 0)


def test_nothing_is_dead(headgate, output):
    headgate("retry", output)
    assert "has no failed rows" in headgate("retry", output).out


def test_one_line_for_programs(headgate, output):
    told = json.loads(headgate("retry", output, "--json").out)
    assert (told["reopened"], told["dead"], told["open"]) == (3, 0, 3)


def test_not_while_a_run_is_under_way(headgate, output):
    async def main():
        ledger = SqliteLedger(f"{output}.ledger")
        await ledger.begin({"input": "rows.jsonl"})
        try:
            return await asyncio.to_thread(headgate, "retry", output)
        finally:
            await ledger.close()

    said = asyncio.run(main())
    assert said.code == 3
    assert "stop it with Ctrl-C" in said.err
    assert counts(headgate, output) == (1, 3, 0)


def test_the_next_run_sends_them_and_writes_each_row_once(headgate, mock_api, tmp_path, monkeypatch):
    monkeypatch.setenv("MOCK_KEY", "any-key")
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    rows.write_text("".join(json.dumps({"custom_id": f"r{n}", "body": body}) + "\n" for n in range(20)))
    api = mock_api(providers=("openai",))
    api.services["openai"].faults.add(Fault(trouble="invalid"), 4)
    run = ("run", rows, "-o", out, "--to", api.base_url("openai"), "--keys", "env:MOCK_KEY")
    assert headgate(*run).code == 3
    assert headgate("retry", out, "--only", "invalid").out.startswith("Reopened 4 failed rows")
    again = headgate(*run)
    assert again.code == 0
    assert "16 of them in earlier runs; 4 calls" in again.out
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert Counter(line["custom_id"] for line in lines) == Counter(f"r{n}" for n in range(20))
    assert {line["response"]["status_code"] for line in lines} == {200}
    assert headgate("verify", out).code == 0
