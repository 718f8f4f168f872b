"""A store on a real Cluster of four processes: slots that move while they are used, and a primary that dies."""

import contextlib
import time
from contextlib import ExitStack

import pytest
import redis
from bench.redis_server import RedisServer
from tests.chaos.store_grounds import PATIENCE, wait_for

from headgate.distributed.backends.redis import KEYS as STORED
from headgate.distributed.backends.redis import RedisStore
from headgate.distributed.protocol import QuotaTerms, SyncRequest
from headgate.distributed.store import StoreDown
from headgate.identity import Identities

pytestmark = [pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(180)]

SLOTS = 16_384
TERMS = QuotaTerms(rate=1000.0, burst=10.0, most=1e6)
KEYS = [f"api|key {n}" for n in range(40)]
TIMEOUT = 0.5
"""Generous: four servers start on a machine that may be busy."""
OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no")


class Cluster:
    """Three primaries with a third of the slots each, and a replica of the first."""

    def __init__(self, stack):
        self.servers, self.clients = [], []
        for _ in range(4):
            server = stack.enter_context(RedisServer(*OPTIONS))
            self.servers.append(server)
            self.clients.append(stack.enter_context(redis.Redis(port=server.port, protocol=2)))
        for place, client in enumerate(self.clients[:3]):
            first, last = place * SLOTS // 3, (place + 1) * SLOTS // 3 - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for server in self.servers[1:]:
            self.clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
        self.ids = [client.execute_command("CLUSTER", "MYID").decode() for client in self.clients]
        wait_for("all nodes know each other", lambda: all(self.knows(client) == 4 for client in self.clients))
        self.clients[3].execute_command("CLUSTER", "REPLICATE", self.ids[0])
        wait_for("all slots are served", lambda: all(self.is_ok(client) for client in self.clients))
        wait_for("the replica follows", lambda: self.clients[3].info("replication")["master_link_status"] == "up")

    def knows(self, client):
        nodes = client.execute_command("CLUSTER NODES")
        return sum("handshake" not in node["flags"] for node in nodes.values())

    def is_ok(self, client):
        return client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"

    def stored(self, place):
        return self.clients[place].keys("headgate:1:*")

    def migrate(self, slot, source, target):
        """Begin to move a slot; its keys go one by one, as an operator's tool does it."""
        self.clients[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[source])
        self.clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[target])
        for key in self.clients[source].execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            self.clients[source].execute_command("MIGRATE", "127.0.0.1", self.servers[target].port, key, 0, 5000)

    def settle(self, slot, target):
        for client in (self.clients[target], *self.clients[:3]):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.ids[target])


@pytest.fixture(scope="module")
def cluster():
    with ExitStack() as stack:
        yield Cluster(stack)


@pytest.fixture
def store(cluster):
    store = RedisStore(f"redis+cluster://127.0.0.1:{cluster.servers[1].port}", timeout=TIMEOUT)
    yield store
    store.close()


def key_of(store, key):
    return f"{STORED}:{Identities(store._salt).of(key)}"


class Member:
    numbers = iter(range(1, 1_000_000))
    """Across tests: the keys stay."""

    def __init__(self, store):
        self.store = store

    def sync(self, *keys, **fields):
        usual = {"terms": TERMS, "asks": ((1, {}),), "elapsed": 1.0}
        requests = [(key, SyncRequest(member="one", number=next(self.numbers), **(usual | fields))) for key in keys]
        return self.store.sync(requests)


def test_keys_on_all_nodes_in_one_request(cluster, store):
    replies = Member(store).sync(*KEYS)
    assert [reply.members for reply in replies] == [1] * len(KEYS)
    assert all(cluster.stored(place) for place in range(3))
    assert sum(len(cluster.stored(place)) for place in range(3)) == len(KEYS)
    assert len(store.snapshot()) == len(KEYS)


def test_another_store_that_opens_it_meets_at_the_same_quotas(cluster, store):
    Member(store).sync(*KEYS)
    other = RedisStore(f"redis+cluster://127.0.0.1:{cluster.servers[2].port}", timeout=TIMEOUT)
    requests = [
        (key, SyncRequest(member="other", number=1, terms=TERMS, asks=((1, {}),), leaves=False)) for key in KEYS
    ]
    assert [reply.members for reply in other.sync(requests)] == [2] * len(KEYS)
    other.close()


def test_a_slot_that_moves_is_followed(cluster, store):
    one, key = Member(store), "a key that moves"
    (first,) = one.sync(key, note="seen")
    name = key_of(store, key).encode()
    source = next(place for place in range(3) if name in cluster.stored(place))
    target = (source + 1) % 3
    slot = cluster.clients[source].execute_command("CLUSTER", "KEYSLOT", name)
    cluster.migrate(slot, source, target)
    (moving,) = one.sync(key)
    assert moving.first == first.first + 1, "while it moves (ASK)"
    cluster.settle(slot, target)
    (moved,) = one.sync(key)
    assert moved.first == first.first + 2, "when it has moved (MOVED)"
    assert name in cluster.stored(target)


def test_a_primary_that_dies_is_followed_by_its_replica(cluster, store):
    """Others' keys go on meanwhile; what the replica had not got yet is one lease at most."""
    one = Member(store)
    before = dict(zip(KEYS, one.sync(*KEYS), strict=True))
    lost = [key for key in KEYS if key_of(store, key).encode() in cluster.stored(0)]
    kept = [key for key in KEYS if key not in lost]
    assert lost
    assert kept
    cluster.servers[0].stop()
    begun = time.monotonic()
    waited, served = [], 0
    while True:
        asked = time.monotonic()
        try:
            replies = one.sync(*lost)
            break
        except StoreDown:
            waited.append(time.monotonic() - asked)
            with contextlib.suppress(StoreDown):  # the other servers may be late on a busy machine, but not always
                served += len(one.sync(*kept))
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.05)
    assert waited, "it was noticed"
    assert served, "the other keys go on meanwhile"
    assert sorted(waited)[len(waited) // 2] < 3 * TIMEOUT
    for key, reply in zip(lost, replies, strict=True):
        assert reply.first >= before[key].first, "the replica had what was said before"
        assert reply.era == before[key].era
