"""One suite for every ledger and one for every store: a test that takes either runs once for each kind."""

import asyncio
import contextlib
import inspect
import time

import pytest

from headgate.batch.ledger import Change, Row, RowState
from headgate.batch.ledger.memory import MemoryLedger
from headgate.batch.ledger.sqlite import SqliteLedger
from headgate.clock import SystemClock
from headgate.distributed.backends.memory import MemoryStore
from headgate.distributed.backends.sqlite import SqliteStore
from headgate.distributed.protocol import QuotaTerms, SyncRequest


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


class SteppedClock(SystemClock):
    """One that is put forward and stands still else, however busy the machine is."""

    def __init__(self):
        self.ahead = 0.0
        self._began, self._began_wall = time.monotonic(), time.time()

    def now(self):
        return self._began + self.ahead

    def wall(self):
        return self._began_wall + self.ahead


class Place:
    """A store of one kind, opened as often as a test likes: each is another process as far as the store can tell."""

    def __init__(self, kind, path, server):
        self.kind, self.path, self.server = kind, path, server
        self.clock = SystemClock() if kind in ("redis", "ray") else SteppedClock()
        self.opened = []

    def open(self):
        if self.kind == "memory" and self.opened:
            return self.opened[0]
        if self.kind == "memory":
            store = MemoryStore(self.clock)
        elif self.kind == "sqlite":
            store = SqliteStore(self.path, clock=self.clock, timeout=5.0)
        elif self.kind == "ray":
            from headgate.distributed.backends.ray_actor import RayStore

            store = RayStore()
        else:
            from headgate.distributed.backends.redis import RedisStore

            store = RedisStore(self.server.url, timeout=5.0)
        self.opened.append(store)
        return store

    def pass_time(self, seconds):
        """A server has a clock of its own: there it must really pass."""
        if self.kind in ("redis", "ray"):
            time.sleep(seconds)
        else:
            self.clock.ahead += seconds


class StoreMember:
    """One member at one store, about one key."""

    def __init__(self, place, name, key, terms):
        self.place, self.name, self.key, self.terms = place, name, key, terms
        self.store = place.open()
        self.number, self.era, self.answered_at = 0, 0, None

    def says(self, calls=0, *, cost=None, again=False, **more):
        self.number += not again
        now = self.place.clock.now()
        elapsed = 0.0 if self.answered_at is None else now - self.answered_at
        self.answered_at = now
        asks = ((calls, cost or {}),) if calls else ()
        more = {"era": self.era, "terms": self.terms, **more}
        return self.key, SyncRequest(member=self.name, number=self.number, elapsed=elapsed, asks=asks, **more)

    def sync(self, calls=0, *, under=None, **more):
        """``under``: a leader that lives, and comes in the same round trip: one that a machine holds up is replaced."""
        *_, reply = self.store.sync([*([] if under is None else [under.says()]), self.says(calls, **more)])
        self.era = reply.era
        return reply


@pytest.fixture(scope="session")
def ray_cluster():
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture
def empty_ray(ray_cluster):
    """Without the actor of an earlier test."""
    from headgate.distributed.backends.ray_actor import NAMESPACE, STORE

    with contextlib.suppress(ValueError):
        ray_cluster.kill(ray_cluster.get_actor(STORE, namespace=NAMESPACE))


@pytest.fixture(params=["memory", "sqlite", "redis", pytest.param("ray", marks=pytest.mark.chaos)])
def place(request, tmp_path):
    """Redis: a real, empty server, from ``redis_server`` in tests/conftest.py."""
    server = request.getfixturevalue("redis_server") if request.param == "redis" else None
    if request.param == "ray":
        request.getfixturevalue("empty_ray")
    place = Place(request.param, tmp_path / "shared.db", server)
    yield place
    for store in place.opened:
        store.close()


@pytest.fixture
def member_of(place):
    def make(name="a", key="api", **terms):
        return StoreMember(place, name, key, QuotaTerms(**{"rate": 1000.0, "burst": 4.0, "most": 1e6, **terms}))

    return make
