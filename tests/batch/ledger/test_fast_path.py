"""Lots of plain rows go through the ledger in one statement, and leave in it just what the long way would."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headgate.batch.ledger import Change, Claim, LedgerError, Row, RowState, sqlite
from headgate.batch.ledger.sqlite import SqliteLedger

ROWS = [Row(index, f"name-{index}", bytes([index]) * 16) for index in range(6)]


def done(claim: Claim, **facts: Any) -> Change:
    facts = {"state": RowState.DONE, "attempts": 1, "tokens": 5, "cost": 0.25, "waited": {"turn": 0.5}, **facts}
    return Change(index=claim.index, fence=claim.fence, result=b"line %d\n" % claim.index, **facts)


def everything(path: Path) -> dict[str, list[Any]]:
    with sqlite3.connect(path) as connection:
        tables = ("rows", "results", "finals", "totals")
        found = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    connection.close()
    return found


async def two_lots(path: Path) -> tuple[list[bool], list[bool]]:
    ledger = SqliteLedger(path, wall=lambda: 1000.0)
    await ledger.begin({})
    claims = await ledger.claim(ROWS)
    first = await ledger.record_all([done(claim) for claim in claims[:3]])
    second = await ledger.record_all(
        [done(claims[2]), done(claims[3]), done(claims[4], state=RowState.DEAD, reason="invalid: no"), done(claims[5])]
    )
    await ledger.close()
    return first, second


def test_the_short_way_leaves_the_same_book_as_the_long_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = asyncio.run(two_lots(tmp_path / "short"))
    monkeypatch.setattr(sqlite, "claim_new", lambda transaction, rows: None)
    monkeypatch.setattr(sqlite, "finish_all", lambda transaction, changes: None)
    long = asyncio.run(two_lots(tmp_path / "long"))
    assert short == long == ([True] * 3, [False, True, True, True])
    assert everything(tmp_path / "short") == everything(tmp_path / "long")


@pytest.mark.parametrize("odd", ["older_fence", "tried_before", "done_already", "twice"])
def test_one_odd_row_in_a_lot_is_judged_by_itself(tmp_path: Path, odd: str) -> None:
    async def scenario() -> tuple[list[bool], Any]:
        ledger = SqliteLedger(tmp_path / "run.ledger")
        await ledger.begin({})
        claims = await ledger.claim(ROWS)
        assert all(isinstance(claim, Claim) for claim in claims)
        changes = [done(claim) for claim in claims]
        if odd == "older_fence":
            changes[1].fence = 0
        elif odd == "tried_before":
            await ledger.record(done(claims[1], state=RowState.FAILED, attempts=1, reason="transient: no"))
            changes[1].attempts = 2
        elif odd == "done_already":
            await ledger.record(done(claims[1]))
        else:
            changes.append(done(claims[1]))
        kept = await ledger.record_all(changes)
        counts = await ledger.counts()
        await ledger.close()
        return kept, counts

    kept, counts = asyncio.run(scenario())
    lost = {"older_fence": [1], "tried_before": [], "done_already": [1], "twice": [6]}[odd]
    assert [place for place, is_kept in enumerate(kept) if not is_kept] == lost
    assert counts.states[RowState.DONE] == (5 if odd == "older_fence" else 6)
    assert counts.states.get(RowState.LEASED, 0) == (1 if odd == "older_fence" else 0)
    assert counts.attempts == {"older_fence": 5, "tried_before": 7}.get(odd, 6)


def test_a_block_in_which_one_row_is_known_is_claimed_row_by_row(tmp_path: Path) -> None:
    async def scenario() -> list[Any]:
        ledger = SqliteLedger(tmp_path / "run.ledger")
        await ledger.begin({})
        (claim,) = await ledger.claim(ROWS[2:3])
        await ledger.record(done(claim))
        claims = await ledger.claim(ROWS)
        await ledger.close()
        return claims

    claims = asyncio.run(scenario())
    assert claims[2] is RowState.DONE
    assert [claim.fence for claim in claims if isinstance(claim, Claim)] == [1] * 5


def test_whatever_way_they_go_each_step_is_passed_once(tmp_path: Path) -> None:
    passed: list[str] = []

    async def scenario() -> None:
        ledger = SqliteLedger(tmp_path / "run.ledger", on_step=passed.append)
        await ledger.begin({})
        first, second, third, *_ = await ledger.claim(ROWS)
        passed.clear()
        await ledger.record_all([done(first)])
        await ledger.record_all([done(second, state=RowState.FAILED, reason="transient: no")])
        await ledger.record_all([done(third), done(third)])
        await ledger.claim(ROWS)
        assert passed == [*["commit", "committed"] * 3, "claim", "committed"]
        await ledger.close()

    asyncio.run(scenario())


def test_lots_that_come_together_are_one_transaction_and_leave_the_same_book(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Row(index, f"name-{index}", bytes([index]) * 16) for index in range(60)]

    async def scenario(path: Path) -> list[Any]:
        passed: list[str] = []
        ledger = SqliteLedger(path, wall=lambda: 1000.0, on_step=passed.append)
        await ledger.begin({})
        claims = await ledger.claim(rows)
        passed.clear()
        lots = [[done(claim) for claim in claims[at : at + 20]] for at in (0, 20, 40)]
        lots[1][3].fence = 0
        kept = await asyncio.gather(*map(ledger.record_all, lots))
        assert passed == ["commit", "committed"]
        await ledger.close()
        return kept

    short = asyncio.run(scenario(tmp_path / "short"))
    monkeypatch.setattr(sqlite, "finish_all", lambda transaction, changes: None)
    assert short == asyncio.run(scenario(tmp_path / "long"))
    assert [lot.count(False) for lot in short] == [0, 1, 0]
    assert everything(tmp_path / "short") == everything(tmp_path / "long")


def test_a_file_that_cannot_be_written_is_told_once_and_to_all(tmp_path: Path) -> None:
    """Each attempt would wait for the lock; here the file is what another program holds."""

    async def scenario() -> list[Any]:
        ledger = SqliteLedger(tmp_path / "run.ledger")
        await ledger.begin({})
        first, *_ = await ledger.claim(ROWS[:3])
        assert ledger._writing is not None
        ledger._writing.execute("PRAGMA busy_timeout = 1")
        with contextlib.closing(sqlite3.connect(tmp_path / "run.ledger", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            calls = (ledger.claim(ROWS[3:]), ledger.record(done(first)), ledger.note("a", "b"))
            told = await asyncio.gather(*calls, return_exceptions=True)
            other.execute("ROLLBACK")
        assert await ledger.record(done(first))
        await ledger.close()
        return told

    told = asyncio.run(scenario())
    assert [type(one) for one in told] == [LedgerError] * 3
    assert len({str(one) for one in told}) == 1
