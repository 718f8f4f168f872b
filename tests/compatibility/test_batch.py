"""A batch that an earlier version began, and that died under way, is finished by this one.

The files in ``batch/`` were written by version 909c914 (the ledger is its dump): of 16 rows ten done, one dead, one to
be tried again, one parked after 429s, and three held by a process that died.
"""

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headgate.batch.config import BatchConfig
from headgate.batch.input import Rows
from headgate.batch.job import Job
from headgate.batch.ledger import RowState
from headgate.batch.ledger.queries import failures_of, read_status
from headgate.batch.ledger.repair import reopen
from headgate.batch.ledger.verify import LedgerVerifier
from headgate.batch.target import RowAnswer, TargetConfig
from headgate.exchange import Answer

FILES = Path(__file__).with_name("batch")
OPEN = [7, 12, 13, 14, 15]


@pytest.fixture
def folder(tmp_path):
    for name in ("rows.jsonl", "out.jsonl"):
        shutil.copy(FILES / name, tmp_path / name)
    with closing(sqlite3.connect(tmp_path / "out.jsonl.ledger")) as connection:
        connection.executescript((FILES / "ledger.sql").read_text("utf-8"))
    return tmp_path


def run_on(folder):
    """Finish the batch with an API that answers everything; the rows it was asked for, and the report."""
    asked = []

    def around(send):
        async def answer(row, ctx):
            asked.append(row.index)
            ctx.report(Answer(200, {}, b"{}"))
            return RowAnswer(200, "", b"{}", None)

        return answer

    async def main():
        with Rows(str(folder / "rows.jsonl")) as rows:
            job = Job(
                rows,
                TargetConfig(to="openai"),
                output=str(folder / "out.jsonl"),
                credentials=["sk-a", "sk-b"],
                config=BatchConfig(base_delay=0.01, max_delay=0.01),
                around=around,
            )
            return await job.run()

    return asked, asyncio.run(main())


def names_in(output):
    return sorted(json.loads(line)["custom_id"] for line in output.read_text("utf-8").splitlines())


def test_its_ledger_says_what_it_said(folder):
    status = read_status(str(folder / "out.jsonl.ledger"))
    assert {state: count for state, count in status.counts.states.items() if count} == {
        RowState.DONE: 10,
        RowState.DEAD: 1,
        RowState.FAILED: 1,
        RowState.PARKED: 1,
        RowState.LEASED: 3,
    }
    assert (status.written, status.offset, status.counts.tokens) == (11, 2481, 86)
    assert not any(one.alive for one in status.holders)
    failures = failures_of(str(folder / "out.jsonl.ledger"))
    assert [(one.category, one.said, one.count, one.status) for one in failures.dead] == [
        ("invalid", "400 no such model", 1, 400)
    ]
    assert {one.category for one in failures.waiting} == {"transient", "rate_limited"}


def test_it_is_finished_without_sending_a_row_twice(folder):
    asked, report = run_on(folder)
    assert sorted(asked) == OPEN
    assert (report.complete, report.done, report.dead, report.before, report.written) == (True, 15, 1, 11, 16)
    assert names_in(folder / "out.jsonl") == sorted(f"r{number}" for number in range(16))
    assert (folder / "out.jsonl").read_bytes().startswith((FILES / "out.jsonl").read_bytes())
    with LedgerVerifier(str(folder / "out.jsonl.ledger"), str(folder / "out.jsonl")) as verifier:
        verifier.check_itself()
        verifier.check_output()
    assert verifier.result.holds


def test_its_dead_row_may_be_tried_again(folder):
    assert reopen(str(folder / "out.jsonl.ledger"), "invalid") == 1
    asked, report = run_on(folder)
    assert sorted(asked) == sorted([3, *OPEN])
    assert (report.complete, report.done, report.dead) == (True, 16, 0)
    assert names_in(folder / "out.jsonl") == sorted(f"r{number}" for number in range(16))
