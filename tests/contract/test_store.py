"""What every store promises, whatever it is made of."""

import threading

import pytest

from headgate.distributed.coordinator import LEADER_SILENT, MOST_NOTES
from headgate.distributed.grants import LIVE, TERM
from headgate.distributed.protocol import Publication

pytestmark = pytest.mark.usefixtures("patient")

SECRET = "sk-live-4242424242424242"


def published(fence, rate=1000.0, **more):
    return Publication(fence=fence, rate=rate, **more)


class TestPermits:
    def test_each_number_is_given_once(self, member_of):
        numbers = []
        for name in ("a", "b", "c"):
            reply = member_of(name).sync(5)
            assert reply.granted
            numbers += [reply.first + offset for offset in range(reply.granted)]
        assert numbers == [float(number) for number in range(len(numbers))]

    def test_a_request_that_is_sent_again_is_granted_once(self, member_of):
        a, b = member_of("a"), member_of("b")
        first = a.sync(5)
        again = a.sync(5, again=True)
        assert (again.granted, again.first) == (first.granted, first.first)
        assert b.sync(1).first == first.first + first.granted

    def test_each_key_has_a_quota_of_its_own(self, member_of):
        assert member_of("a", key="one").sync(1).first == 0.0
        assert member_of("a", key="two").sync(1).first == 0.0

    def test_many_keys_are_asked_about_at_once_and_answered_in_order(self, member_of):
        one, two = member_of("a", key="one", rate=10.0), member_of("a", key="two", rate=20.0)
        two.sync(1)
        replies = one.store.sync([two.says(1), one.says(1), two.says(1)])
        assert [reply.rate for reply in replies] == [20.0, 10.0, 20.0]
        assert [reply.first for reply in replies] == [1.0, 0.0, 2.0]

    def test_no_requests_are_no_replies(self, place):
        assert place.open().sync([]) == []

    def test_numbers_stay_unique_with_many_threads(self, place, member_of):
        taken, faults = [], []

        def work(name):
            try:
                member = member_of(name, rate=1e5)
                for _ in range(25):
                    reply = member.sync(3)
                    taken.extend(reply.first + offset for offset in range(reply.granted))
            except Exception as error:
                faults.append(error)

        threads = [threading.Thread(target=work, args=(f"m{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not faults
        assert len(taken) == len(set(taken)) > 0

    def test_a_cost_may_have_any_name_and_size(self, member_of):
        limits = (("größe 'x'", 2.5, 60.0, 2.5), ("tokens", 1000.0, 60.0, 1000.0))
        member = member_of(limits=limits)
        assert member.sync(2, cost={"tokens": 1e-9, "größe 'x'": 1.25}).granted == 2
        short = member.sync(1, cost={"größe 'x'": 0.1})
        assert (short.granted, short.short_of) == (0, "größe 'x'")
        assert 59.0 < short.wait <= 60.5

    def test_what_was_not_used_of_a_known_limit_comes_back(self, member_of):
        a, b = (member_of(name, limits=(("tokens", 100.0, 60.0, 100.0),)) for name in "ab")
        a.sync(1, cost={"tokens": 90.0})
        assert b.sync(1, cost={"tokens": 50.0}).short_of == "tokens"
        a.sync(refund={"tokens": 80.0}, refund_ago=0.0)
        assert b.sync(1, cost={"tokens": 50.0}).granted == 1


class TestTogether:
    def test_a_rest_of_one_holds_all(self, member_of):
        a, b = member_of("a"), member_of("b")
        era = b.sync(1).era
        a.sync(rest=5.0)
        held = b.sync()
        assert 4.0 < held.hold <= 5.0
        assert held.era == era + 1

    def test_the_line_grows_with_the_stores_time(self, place, member_of):
        """Up to what was asked for and a burst, which is well ahead of it here."""
        members = [member_of(name, rate=10.0, burst=1.0) for name in "abcdefgh"]
        before = [member.sync(1) for member in members][-1]
        place.pass_time(0.2)
        later = members[-1].sync()
        assert later.now - before.now >= 0.19
        assert later.line - before.line == pytest.approx(
            min(10.0 * (later.now - before.now), 9.0 - before.line), abs=0.001
        )

    def test_a_cap_is_for_all(self, member_of):
        a, b = member_of("a"), member_of("b")
        fence = a.sync(1).fence
        a.sync(publication=published(fence, cap=2.0))
        assert b.sync(5).granted == 2
        assert a.sync(5).short_of == "depth"

    def test_an_open_circuit_is_open_for_all_and_lets_one_probe_through(self, member_of):
        a, b = member_of("a"), member_of("b")
        fence = a.sync(1).fence
        a.sync(publication=published(fence, circuit_open=True, open_for=30.0))
        shut = b.sync(1)
        assert (shut.granted, shut.short_of) == (0, "circuit")
        assert shut.circuit_open
        assert 29.0 < shut.open_for <= 30.0

    def test_a_half_open_one_lets_one_probe_through_at_a_time(self, member_of):
        a, b, c = (member_of(name) for name in "abc")
        fence = a.sync(1).fence
        a.sync(publication=published(fence, circuit_open=True))
        assert [(reply.granted, reply.probe) for reply in (b.sync(3), c.sync(3))] == [(1, True), (0, False)]
        b.sync(probe_over=True)
        assert c.sync(3).probe

    def test_who_dies_holds_nothing_after_its_term_and_is_gone_a_little_later(self, place, member_of):
        a, b, dead = (member_of(name) for name in ("a", "b", "dead"))
        fence = a.sync(1).fence
        a.sync(publication=published(fence, cap=2.0))
        assert dead.sync(2).granted == 2
        assert b.sync(1).short_of == "depth"
        place.pass_time(TERM + 0.05)
        a.sync()
        assert b.sync(1).granted == 1
        place.pass_time(LIVE - TERM)
        a.sync()
        assert b.sync().members == 2

    def test_who_leaves_is_gone_at_once(self, member_of):
        a, b = member_of("a"), member_of("b")
        a.sync(1)
        assert b.sync(1).members == 2
        a.sync(leaves=True)
        assert b.sync().members == 1


class TestLeaders:
    def test_there_is_one_and_it_hears_what_the_others_saw(self, member_of):
        a, b = member_of("a"), member_of("b")
        fence = a.sync(1).fence
        assert fence
        assert b.sync(1, under=a, note='"quotes", \n lines, ünïcödé and \x00').fence == 0
        heard = a.sync(note="own", publication=published(fence))
        assert [(note.member, note.text) for note in heard.notes] == [("b", '"quotes", \n lines, ünïcödé and \x00')]
        assert heard.notes[0].at <= heard.now
        assert a.sync(publication=published(fence, read=heard.notes[0].number)).notes == ()

    def test_notes_come_again_until_they_are_read(self, member_of):
        a, b = member_of("a"), member_of("b")
        fence = a.sync(1).fence
        b.sync(under=a, note="one")
        b.sync(under=a, note="two")
        first = a.sync(publication=published(fence))
        again = a.sync(publication=published(fence), again=True)
        assert [note.text for note in first.notes] == [note.text for note in again.notes] == ["one", "two"]

    def test_the_next_one_goes_on_from_what_was_saved_and_the_notes_since(self, place, member_of):
        a, b, c = (member_of(name) for name in "abc")
        fence = a.sync(1).fence
        b.sync(under=a, note="one")
        heard = a.sync(publication=published(fence))
        learned = "learned: \x00 ünïcödé " + "x" * 100_000
        a.sync(publication=published(fence, 500.0, read=heard.notes[-1].number, learned=learned, covers=1))
        a.sync(note="own", publication=published(fence, 500.0, read=1))
        b.sync(under=a, note="two")
        place.pass_time(LEADER_SILENT + 0.1)
        new = c.sync(1, note="three")
        assert new.fence == fence + 1
        assert new.rate == 500.0
        assert new.learned == learned
        assert [note.text for note in new.notes] == ["own", "two", "three"]
        late = a.sync(publication=published(fence, 1.0, learned="stale"))
        assert (late.fence, late.rate) == (0, 500.0)
        place.pass_time(LEADER_SILENT + 0.1)
        assert b.sync(1).learned == learned

    def test_of_too_many_notes_the_newest_are_kept(self, member_of):
        a, b = member_of("a"), member_of("b")
        fence = a.sync(1).fence
        for first in range(0, MOST_NOTES + 5, 16):
            notes = [b.says(note=str(number)) for number in range(first, min(first + 16, MOST_NOTES + 5))]
            said, *_ = b.store.sync([a.says(), *notes])
            assert said.fence == fence  # so many notes take a while; it goes on leading
        heard = a.sync(publication=published(fence))
        assert [note.text for note in heard.notes] == [str(number) for number in range(5, MOST_NOTES + 5)]


class TestKeeping:
    def test_what_was_learned_outlives_those_who_learned_it(self, place, member_of):
        a = member_of("a")
        fence = a.sync(1).fence
        a.sync(publication=published(fence, 321.0, learned="all of it"))
        a.sync(leaves=True)
        a.store.close()
        new = member_of("b").sync(1)
        assert (new.rate, new.learned) == (321.0, "all of it")
        assert 0.0 <= new.learned_ago < 60.0

    def test_a_store_that_was_closed_opens_again(self, member_of):
        a = member_of("a")
        a.sync(1)
        a.store.close()
        assert a.sync(1).first == 1.0


class TestLooking:
    def test_an_empty_store_shows_nothing(self, place):
        assert place.open().snapshot() == []

    def test_it_shows_each_quota_and_its_members(self, place, member_of):
        a, b = member_of("a", key=SECRET), member_of("b", key=SECRET)
        fence = a.sync(3).fence
        a.sync(flying=3, publication=published(fence, 250.0, cap=3.0, learned="x"))
        b.store.sync([a.says(flying=3), b.says(1), b.says(rest=9.0)])
        (coordinator,) = place.open().snapshot()
        assert (coordinator.rate, coordinator.cap, coordinator.circuit_open, coordinator.leader) == (
            250.0,
            3.0,
            False,
            "a",
        )
        assert [(one.name, one.flying, one.hungry, one.leads) for one in coordinator.members] == [
            ("a", 3, False, True),
            ("b", 0, False, False),
        ]
        assert 8.0 < coordinator.hold <= 9.0
        assert coordinator.issued >= 3.0
        assert coordinator.learned_ago < 60.0

    def test_nothing_that_is_shown_tells_the_key(self, place, member_of):
        member = member_of("a", key=SECRET)
        member.sync(1)
        (coordinator,) = member.store.snapshot()
        assert len(coordinator.name) == 6
        assert SECRET not in f"{coordinator}{member.store!r}{member.store.where}"
