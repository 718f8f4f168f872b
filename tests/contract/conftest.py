"""One suite for every ledger: a test that takes ``ledger`` runs once for each kind."""

import asyncio
import inspect

import pytest

from headgate.batch.ledger import Change, Row, RowState
from headgate.batch.memory_ledger import MemoryLedger
from headgate.batch.sqlite_ledger import SqliteLedger


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run ``async def`` tests in a loop of their own, and close the ledger in the same loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def run():
        ledger = arguments.get("ledger")
        if ledger is not None:
            await ledger.begin({"input": "a", "target": "b"})
        try:
            await pyfuncitem.obj(**arguments)
        finally:
            if ledger is not None:
                await ledger.close()

    asyncio.run(run())
    return True


class WallClock:
    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def wall():
    return WallClock()


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path, wall):
    """Begun, and closed at the end."""
    return MemoryLedger(wall=wall) if request.param == "memory" else SqliteLedger(tmp_path / "run.ledger", wall=wall)


@pytest.fixture
def rows():
    def make(first, count, word=b"same"):
        return [
            Row(i, f"row-{i}", b"%016d" % i if word == b"same" else word.ljust(16)) for i in range(first, first + count)
        ]

    return make


@pytest.fixture
def outcome():
    def make(claim, state=RowState.DONE, **fields):
        values = {"attempts": claim.attempts + 1, "result": b"line %d\n" % claim.index if state.final else b""}
        return Change(index=claim.index, fence=claim.fence, state=state, **(values | fields))

    return make
