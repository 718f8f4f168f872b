"""What a store on a Redis promises beside what the coordinator does: names, lifetimes, round trips, threads."""

import os
import re
import threading

import pytest
import redis

from headgate.distributed.backends.memory import MemoryStore
from headgate.distributed.backends.redis import SYNC
from headgate.distributed.coordinator import MOST_NOTES
from headgate.distributed.protocol import Publication
from headgate.distributed.store import StoreDown

pytestmark = pytest.mark.usefixtures("patient")

DAY = 86_400


@pytest.fixture
def client(redis_server):
    with redis.Redis(port=redis_server.port, protocol=2) as client:
        yield client


@pytest.fixture
def store(redis_server, open_redis):
    return open_redis(redis_server.url)


def all_keys(client):
    return sorted(key.decode() for key in client.keys("*"))


def fill(member):
    """A request that leaves something in every place."""
    fence = member.sync(note="seen").fence
    member.sync(note="seen", publication=Publication(fence=fence, rate=10.0, learned="much"))


class TestNames:
    def test_a_quota_is_one_key_and_so_in_one_slot(self, client, store, member):
        fill(member(store))
        coordinator, salt = all_keys(client)
        assert salt == "headgate:salt"
        assert re.fullmatch(r"headgate:1:[0-9a-f]{32}", coordinator)

    def test_no_name_and_no_value_holds_what_the_user_wrote(self, client, store, member):
        fill(member(store, key="api|sk-live-SECRET"))
        coordinator, salt = all_keys(client)
        assert b"SECRET" not in b"".join([coordinator.encode(), *client.hvals(coordinator), client.get(salt)])

    def test_two_that_open_the_store_meet_at_the_same_quota(self, redis_server, open_redis, member):
        first = member(open_redis(redis_server.url), "a")
        second = member(open_redis(redis_server.url), "b")
        assert first.sync().members == 1
        assert second.sync().members == 2

    def test_another_key_is_another_quota(self, store, member):
        member(store, "a", key="one").sync()
        assert member(store, "b", key="other").sync().members == 1

    def test_the_salt_is_random_and_stays(self, redis_server, client, open_redis, member):
        member(open_redis(redis_server.url)).sync()
        salt = client.get("headgate:salt")
        member(open_redis(redis_server.url)).sync()
        assert client.get("headgate:salt") == salt
        assert re.fullmatch(rb"[0-9a-f]{64}", salt)
        client.flushall()
        member(open_redis(redis_server.url)).sync()
        assert client.get("headgate:salt") != salt

    @pytest.mark.parametrize("salt", ["", "not what we would choose"])
    def test_any_salt_will_do(self, client, redis_server, open_redis, member, salt):
        client.set("headgate:salt", salt)
        one, other = (member(open_redis(redis_server.url), name) for name in ("one", "other"))
        one.sync()
        assert other.sync().members == 2

    def test_odd_keys_are_kept_too(self, store, member):
        for key in ("", "\ud800", "ä" * 10_000, "{x}:y"):
            assert member(store, key=key).sync().granted == 5


class TestLifetimes:
    def test_a_quota_is_forgotten_31_days_after_its_last_request(self, client, store, member):
        one = member(store)
        fill(one)
        coordinator, _ = all_keys(client)
        assert 30 * DAY < client.ttl(coordinator) <= 31 * DAY
        client.expire(coordinator, 100)
        one.sync()
        assert 30 * DAY < client.ttl(coordinator) <= 31 * DAY

    def test_the_salt_stays(self, client, store, member):
        member(store).sync()
        assert client.ttl("headgate:salt") == -1

    def test_notes_that_are_not_needed_are_removed(self, client, store, member):
        leader, other = member(store, "leader"), member(store, "other")
        fence = leader.sync().fence
        seen = [(other.key, other.says(note="seen", asks=())) for _ in range(3)]
        store.sync([(leader.key, leader.says()), *seen])  # at once: a leader that a machine holds up is replaced
        read = leader.sync().notes[-1].number
        leader.sync(publication=Publication(fence=fence, rate=10.0, learned="much", covers=read - 1))
        coordinator, _ = all_keys(client)
        assert sorted(client.hkeys(coordinator)) == [b"3", b"desk", b"learned"]

    @pytest.mark.no_cover
    def test_there_are_never_more_notes_than_the_bound(self, client, store, member):
        one = member(store, "one")
        for _ in range(6):
            store.sync([(one.key, one.says(note="seen", asks=())) for _ in range(100)])
        one.sync(leaves=True)
        coordinator, _ = all_keys(client)
        assert client.hlen(coordinator) == MOST_NOTES + 1
        assert [note.number for note in member(store, "next").sync().notes] == list(range(601 - MOST_NOTES, 601))


class TestLooking:
    def test_what_is_there(self, client, store, member):
        leader, other = member(store, "leader"), member(store, "other")
        fence = leader.sync(flying=3).fence
        news = Publication(fence=fence, rate=70.0, hold=9.0, cap=6.0, learned="much")
        said = leader.says(publication=news, flying=3), other.says(asks=((9, {}),))
        store.sync([(one.key, message) for one, message in zip((leader, other), said, strict=True)])
        (view,) = store.snapshot()
        assert view.name == all_keys(client)[0].rpartition(":")[2][:6]
        assert (view.rate, view.cap, view.circuit_open, view.leader) == (70.0, 6.0, False, "leader")
        assert 8.0 < view.hold <= 9.0
        assert [(one.name, one.leads, one.hungry) for one in view.members] == [
            ("leader", True, False),
            ("other", False, True),
        ]
        assert all(0.0 <= one.seen_ago < 5.0 for one in view.members)
        assert 0.0 <= view.learned_ago < 5.0

    def test_it_is_what_the_other_stores_show(self, store, member):
        """Field by field, on a coordinator that was just visited by the same member."""
        memory = MemoryStore()
        for place in (store, memory):
            one = member(place)
            fence = one.sync().fence
            one.sync(publication=Publication(fence=fence, rate=70.0, circuit_open=True, open_for=60.0))
        (ours,), (theirs,) = store.snapshot(), memory.snapshot()
        for field in ("rate", "issued", "cap", "circuit_open", "leader", "learned_ago"):
            assert getattr(ours, field) == getattr(theirs, field)
        assert type(ours.era) is type(theirs.era)
        assert abs(ours.open_for - theirs.open_for) < 5.0

    def test_more_quotas_than_are_asked_for_at_once(self, store, member):
        members = [member(store, key=f"key {n}") for n in range(230)]
        store.sync([(one.key, one.says()) for one in members])
        assert len({view.name for view in store.snapshot()}) > 200

    def test_nothing_there(self, store):
        assert store.snapshot() == []

    def test_a_server_that_is_down(self, open_redis):
        with pytest.raises(StoreDown):
            open_redis("redis://127.0.0.1:1").snapshot()


class TestAsking:
    def test_requests_about_several_keys_are_one_round_trip(self, store, member, monkeypatch):
        members = [member(store, key=f"key {n}") for n in range(10)]
        store.sync([(one.key, one.says()) for one in members])
        asked = []
        server = store._connected()
        ask = server.ask
        monkeypatch.setattr(
            server, "ask", lambda requests, patience: asked.append(len(requests)) or ask(requests, patience)
        )
        replies = store.sync([(one.key, one.says()) for one in members])
        assert len(replies) == 10
        assert asked == [11], "the salt travels with them"

    def test_replies_come_in_the_order_of_the_requests(self, store, member):
        one = member(store)
        requests = [one.says(asks=((count, {}),)) for count in (1, 2, 3)]
        assert [reply.granted for reply in store.sync([(one.key, request) for request in requests])] == [1, 2, 3]

    def test_nothing_is_asked_for_no_requests(self, open_redis):
        assert open_redis("redis://127.0.0.1:1").sync([]) == []

    def test_a_script_that_the_server_forgot_is_sent_again(self, client, store, member):
        one = member(store)
        one.sync()
        client.script_flush()
        assert one.sync().granted == 5
        assert client.script_exists(SYNC.name) == [True]

    def test_the_same_request_again_grants_nothing_more(self, store, member):
        one = member(store)
        request = one.says()
        (first,), (again,) = (store.sync([(one.key, request)]) for _ in range(2))
        assert (again.granted, again.first) == (first.granted, first.first)
        assert one.sync().first == first.first + first.granted

    def test_long_notes_and_lessons_come_back_whole(self, store, member):
        leader, other = member(store, "leader"), member(store, "other")
        text = "ü\n\x00 {}" * 10_000
        fence = leader.sync().fence
        leader.sync(publication=Publication(fence=fence, rate=10.0, learned=text))
        other.sync(note=text, asks=())
        assert [note.text for note in leader.sync().notes] == [text]
        leader.sync(leaves=True)
        reply = other.sync()
        assert reply.learned == text
        assert [note.text for note in reply.notes] == [text]

    def test_time_is_the_servers(self, client, store, member):
        seconds, microseconds = client.time()
        now = member(store).sync().now
        assert 0.0 <= now - (seconds + microseconds / 1e6) < 5.0

    def test_threads_may_share_a_store(self, store, member):
        numbers = []

        def work(name):
            one = member(store, name)
            for _ in range(50):
                reply = one.sync(asks=((1, {}),))
                numbers.extend(reply.first + n for n in range(reply.granted))

        threads = [threading.Thread(target=work, args=(f"member {n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(numbers) > 8
        assert len(set(numbers)) == len(numbers), "a number was handed out twice"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads, which is the point
    def test_a_child_process_uses_connections_of_its_own(self, client, store, member):
        one = member(store, "parent")
        one.sync()
        with store._lock:  # as another thread might, at that very moment
            child = os.fork()
            if not child:
                ended = 0
                try:
                    ended = member(store, "child").sync().members
                    store.close()
                finally:
                    os._exit(ended)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 2
        assert one.sync().members == 2

    def test_a_closed_store_opens_again_when_it_is_asked_about(self, store, member):
        one = member(store)
        one.sync()
        store.close()
        store.close()
        assert one.sync().granted == 5


def test_databases_are_kept_apart(redis_server, open_redis, member):
    member(open_redis(redis_server.url), "a").sync()
    assert member(open_redis(redis_server.url + "/5"), "b").sync().members == 1


def test_a_database_that_is_not_there_is_a_store_that_is_down(redis_server, open_redis, member):
    with pytest.raises(StoreDown):
        member(open_redis(redis_server.url + "/9999")).sync()
