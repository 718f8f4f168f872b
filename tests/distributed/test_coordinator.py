"""What the coordinator replies: numbers once and in order, holds, the circuit, caps, limits, leaders and notes."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.distributed import coordinator as coordinator_module
from headgate.distributed.coordinator import CLOCK_JUMP, LEADER_SILENT, MOST_NOTES, QuotaCoordinator
from headgate.distributed.grants import KEPT, LIVE, PERIOD, TERM
from headgate.distributed.protocol import Publication, QuotaTerms, SyncRequest

TERMS = QuotaTerms(rate=100.0, burst=4.0, most=1e9)
WALL = 1_700_000_000.0


class Counter:
    """A coordinator and its members; each is at its next request."""

    def __init__(self, terms=TERMS, now=1000.0):
        self.terms, self.now = terms, now
        self.coordinator = QuotaCoordinator(terms, now)
        self.numbers, self.seen_at, self.eras = {}, {}, {}
        self.shift = 0.0
        self.kept, self.actions = [], None

    def sync(self, member, calls=0, *, cost=None, again=False, at=None, **more):
        self.now = self.now if at is None else at
        number = self.numbers.get(member, 0) + (not again)
        request = SyncRequest(
            member=member,
            number=number,
            elapsed=self.now - self.seen_at.get(member, self.now),
            terms=more.pop("terms", self.terms),
            asks=((calls, cost or {}),) if calls else (),
            era=more.pop("era", self.eras.get(member, 0)),
            **more,
        )
        reply, self.actions = self.coordinator.sync(request, self.now + self.shift, WALL + self.now)
        self.numbers[member], self.seen_at[member], self.eras[member] = number, self.now, reply.era
        self.kept = [note for note in self.kept if note.number > self.actions.forget_to]
        if self.actions.keep and self.actions.keep.number > self.actions.forget_to:
            self.kept.append(self.actions.keep)
        return reply

    def lead(self, member, **news):
        """Lead, if need be, and publish."""
        fence = self.sync(member, 1).fence
        assert fence
        return self.sync(member, publication=Publication(fence=fence, **{"rate": 100.0, **news}))


@pytest.fixture
def counter():
    return Counter()


class TestNumbers:
    def test_they_are_handed_out_in_the_order_of_asking(self, counter):
        replies = [counter.sync(member, 1) for member in ("a", "b", "a")]
        assert [(reply.granted, reply.first) for reply in replies] == [(1, 0.0), (1, 1.0), (1, 2.0)]

    def test_a_lease_is_some_milliseconds_of_the_rate_for_all_that_ask(self):
        counter = Counter(replace(TERMS, rate=10_000.0))
        assert counter.sync("a", 1000).granted == 300
        assert counter.sync("b", 1000).granted == 150

    def test_where_one_has_a_long_way_all_lease_for_longer(self):
        counter = Counter(replace(TERMS, rate=10_000.0))
        assert counter.sync("far", 1000, span=0.1).granted == 1000
        assert counter.sync("near", 1000).granted == 500

    def test_a_member_whose_lease_has_not_begun_gets_no_further_one(self, counter):
        counter.sync("a", 9)
        counter.sync("b", 9)
        third = counter.sync("b", 9)
        assert (third.granted, third.first) == (2, 5.0)
        refused = counter.sync("b", 9)
        assert (refused.granted, refused.short_of, refused.wait) == (0, "pace", pytest.approx(0.01))
        assert counter.sync("b", 9, at=counter.now + 0.011).granted == 2

    def test_the_line_grows_by_the_rate_and_saves_up_no_more_than_the_burst(self, counter):
        assert counter.sync("a", 1).line == 4.0
        assert counter.sync("a", 1, at=1000.005).line == pytest.approx(4.5)
        assert counter.sync("a", 1, at=1050.0).line == 6.0

    @pytest.mark.parametrize("limits", [(), (("tokens", 100.0, 60.0, 10.0),)])
    def test_a_rate_of_nothing_lets_nothing_start_and_breaks_nothing(self, limits):
        counter = Counter(QuotaTerms(rate=0.0, burst=1.0, most=0.0, limits=limits))
        counter.lead("a", rate=0.0)
        first = counter.sync("b", 5, cost={"tokens": 1.0}, at=1001.0)
        again = counter.sync("b", 5, cost={"tokens": 1.0}, at=1002.0)
        assert 0.0 < again.rate < 1e-6
        assert first.line == pytest.approx(again.line, abs=1e-6)

    def test_a_request_that_is_sent_again_is_granted_once(self, counter):
        first = counter.sync("a", 3)
        again = counter.sync("a", 3, again=True)
        assert (again.granted, again.first) == (first.granted, first.first)
        assert counter.sync("b", 1).first == 3.0

    def test_one_that_arrives_after_a_later_one_gets_nothing(self, counter):
        counter.sync("a", 3)
        counter.sync("a", 3)
        counter.numbers["a"] = 1
        assert counter.sync("a", 3, again=True).granted == 0

    def test_what_comes_back_lets_others_start_sooner(self, counter):
        counter.sync("a", 3)
        counter.sync("b", 3)
        counter.sync("b", 3)
        before = counter.sync("c").line
        assert counter.sync("a", back=2).line == before + 2

    def test_what_comes_back_long_after_its_time_was_not_saved(self):
        counter = Counter(replace(TERMS, rate=10_000.0))
        counter.sync("idle", 100)
        for step in range(50):
            counter.sync(f"busy{step % 4}", 1000, at=1000.0 + 0.01 * step)
        before = counter.sync("busy0").line
        assert counter.sync("idle", back=100).line == before

    def test_after_giving_all_back_one_may_ask_at_once(self, counter):
        for member in ("a", "b", "c", "a"):
            counter.sync(member, 3)
        assert counter.sync("a", 3).short_of == "pace"
        assert counter.sync("a", 3, back=2).granted

    def test_a_new_coordinator_begins_with_an_era_that_was_not(self, counter):
        era = counter.sync("a", 1).era
        assert Counter(now=1000.1).sync("a", 1).era > era


class TestMembers:
    def test_they_are_counted_while_they_live(self, counter):
        counter.sync("a")
        assert counter.sync("b").members == 2
        assert counter.sync("b", at=counter.now + LIVE + 0.01).members == 1

    def test_a_member_that_leaves_is_not_counted_and_holds_nothing(self, counter):
        counter.sync("a", 1, flying=7)
        counter.sync("a", leaves=True, flying=7)
        assert counter.sync("b").members == 1
        assert counter.coordinator.members["a"].flying == 0

    def test_a_leave_that_is_sent_again_is_heard_once(self, counter):
        counter.sync("a", leaves=True, note="last words")
        counter.sync("a", leaves=True, note="last words", again=True)
        assert [note.text for note in counter.kept] == ["last words"]

    def test_a_request_that_is_sent_again_after_an_outage_is_heard_once(self, counter):
        counter.sync("a", note="news")
        counter.sync("b", at=counter.now + KEPT - 1)
        counter.sync("a", note="news", again=True)
        assert [note.text for note in counter.kept] == ["news"]

    def test_of_too_many_the_one_not_seen_for_longest_goes(self, counter, monkeypatch):
        monkeypatch.setattr(coordinator_module, "MOST_MEMBERS", 3)
        for step, member in enumerate("abcabcd"):
            counter.sync(member, at=1000.0 + step / 100)
        assert sorted(counter.coordinator.members) == ["b", "c", "d"]


class TestHolds:
    def test_nothing_starts_during_one_and_what_was_out_is_void(self, counter):
        before = counter.sync("a", 2)
        held = counter.sync("b", 1, rest=5.0)
        assert held.hold == 5.0
        assert held.era == before.era + 1
        assert held.first >= held.line  # what is handed out now comes due after the hold
        assert counter.sync("a", at=counter.now + 4.9).line == held.line
        assert counter.sync("a", at=counter.now + 0.12).line == pytest.approx(held.line + 0.02 * 100)

    def test_a_void_grant_is_not_given_to_a_member_that_asks_for_it_again(self, counter):
        counter.sync("a", 2)
        counter.sync("b", rest=1.0)
        assert counter.sync("a", 2, again=True).granted == 0

    def test_one_that_gets_longer_is_still_the_same(self, counter):
        era = counter.sync("a", rest=1.0).era
        longer = counter.sync("b", rest=2.0, at=counter.now + 0.5)
        assert (longer.era, longer.hold) == (era, 2.0)
        assert counter.sync("c", rest=0.5).hold == 2.0

    def test_permits_of_an_era_before_do_not_come_back(self, counter):
        era = counter.sync("a", 2).era
        line = counter.sync("b", rest=1.0).line
        assert counter.sync("a", back=2, era=era).line == line


class TestCircuit:
    @pytest.fixture
    def opened(self):
        counter = Counter(replace(TERMS, probes=2))
        counter.lead("leader", circuit_open=True, open_for=5.0)
        return counter

    def test_an_open_one_lets_nothing_through_and_voids_what_is_out(self, opened):
        reply = opened.sync("a", 3)
        assert (reply.granted, reply.short_of, reply.wait) == (0, "circuit", 5.0)
        assert reply.circuit_open
        assert reply.open_for == 5.0

    def half_opened(self, opened):
        opened.sync("leader", at=opened.now + 5.0, publication=self.news(opened))
        return opened

    @staticmethod
    def news(counter, **more):
        return Publication(fence=counter.coordinator.fence, rate=100.0, circuit_open=True, **more)

    def test_half_open_it_lets_through_so_many_probes_at_a_time(self, opened):
        counter = self.half_opened(opened)
        got = [counter.sync(member, 3) for member in "abc"]
        assert [(reply.granted, reply.probe) for reply in got] == [(1, True), (1, True), (0, False)]
        counter.sync("leader", publication=self.news(counter), at=counter.now + 0.04)
        assert counter.sync("c", 3).granted == 0

    def test_a_probe_that_tells_nothing_gives_its_slot_back(self, opened):
        counter = self.half_opened(opened)
        for member in "ab":
            counter.sync(member, 1)
        counter.sync("a", probe_over=True)
        assert [counter.sync(member, 1).granted for member in "cd"] == [1, 0]

    def test_a_probe_of_the_dead_is_free_after_its_term(self, opened):
        counter = self.half_opened(opened)
        for member in "ab":
            counter.sync(member, 1)
        counter.sync("b", at=counter.now + TERM)
        assert [counter.sync(member, 1, at=counter.now + 0.01).granted for member in "cd"] == [1, 0]

    def test_a_probe_that_is_not_heard_of_loses_its_slot(self, opened):
        counter = self.half_opened(opened)
        for member in "ab":
            counter.sync(member, 1)
        for _ in range(40):
            granted = [counter.sync(member, at=counter.now + 0.2) for member in "ab"]
        assert counter.now - 1005 > counter.terms.probe_for
        assert granted
        assert counter.sync("c", 1).granted == 1

    def test_it_opens_anew_for_all(self, opened):
        counter = self.half_opened(opened)
        counter.sync("a", 1)
        era = counter.sync("leader", publication=self.news(counter, open_for=5.0)).era
        assert counter.sync("a").era == era
        assert counter.sync("b", 1).wait == 5.0
        assert [counter.sync(member, 1, at=1010.1).granted for member in "abc"] == [1, 1, 0]

    def test_what_the_leader_says_a_little_late_neither_opens_it_anew_nor_frees_a_slot(self, opened):
        counter = self.half_opened(opened)
        for member in "ab":
            counter.sync(member, 1)
        counter.sync("leader", publication=self.news(counter, open_for=0.02))
        assert counter.sync("c", 1).short_of == "circuit"

    def test_once_closed_all_are_served(self, opened):
        counter = self.half_opened(opened)
        counter.sync("a", 1)
        counter.sync("leader", publication=Publication(fence=counter.coordinator.fence, rate=100.0))
        assert [counter.sync(member, 1).granted for member in "bcd"] == [1, 1, 1]


class TestCaps:
    def test_no_more_are_in_flight_than_it_allows(self, counter):
        counter.lead("leader", cap=5.0)
        counter.sync("leader", at=counter.now + 1)
        assert counter.sync("a", 3, flying=0).granted == 3
        assert counter.sync("b", 3).granted == 2
        assert counter.sync("c", 3).short_of == "depth"

    def test_they_are_served_in_the_order_in_which_they_became_hungry(self, counter):
        counter.lead("leader", cap=1.0)
        counter.sync("leader", at=counter.now + 1)
        assert counter.sync("a", 1).granted == 1
        for member in ("b", "c", "d"):
            assert counter.sync(member, 1, at=counter.now + 0.001).granted == 0
        counter.sync("a", at=counter.now + 0.001)
        waits = [counter.sync(member, 1) for member in ("d", "c")]
        assert [(reply.short_of, reply.wait) for reply in waits] == [("turn", 0.03), ("turn", 0.02)]
        assert counter.sync("b", 1).granted == 1

    def test_a_member_that_does_not_come_back_loses_its_turn(self, counter):
        counter.lead("leader", cap=1.0)
        counter.sync("leader", at=counter.now + 1)
        counter.sync("a", 1)
        counter.sync("b", 1)
        counter.sync("a", at=counter.now + 0.2)
        assert counter.sync("c", 1).granted == 1

    def test_calls_of_the_dead_do_not_count_after_their_term(self, counter):
        counter.lead("leader", cap=2.0)
        counter.sync("leader", at=counter.now + 1)
        counter.sync("a", 2)
        assert counter.sync("b", 2, at=counter.now + TERM).granted == 0
        assert counter.sync("b", 2, at=counter.now + 0.05).granted == 2


class TestKnownLimits:
    LIMITED = QuotaTerms(rate=1000.0, burst=4.0, most=1e9, limits=(("tokens", 1000.0, 60.0, 1000.0),))

    def test_a_call_that_does_not_fit_waits_for_the_window(self):
        counter = Counter(self.LIMITED)
        assert counter.sync("a", 2, cost={"tokens": 400.0}).granted == 2
        short = counter.sync("b", 1, cost={"tokens": 400.0}, at=1001.0)
        assert (short.granted, short.short_of) == (0, "tokens")
        assert short.wait == pytest.approx(59.0, abs=0.01)

    def test_what_was_not_used_can_be_had_by_others(self):
        counter = Counter(self.LIMITED)
        counter.sync("a", 2, cost={"tokens": 500.0})
        counter.sync("a", refund={"tokens": 600.0}, refund_ago=1.0, at=1001.0)
        assert counter.sync("b", 1, cost={"tokens": 600.0}).granted == 1

    def test_other_terms_of_a_new_leader_do_not_make_a_new_window(self):
        counter = Counter(self.LIMITED)
        counter.sync("a", 2, cost={"tokens": 500.0})
        other = replace(self.LIMITED, limits=(("tokens", 1100.0, 60.0, 1100.0),))
        assert counter.sync("b", 1, cost={"tokens": 200.0}, terms=other, at=1001.0).fence
        assert counter.coordinator.terms == other
        assert counter.sync("b", 1, cost={"tokens": 200.0}, terms=other).granted == 0
        assert counter.sync("b", 1, cost={"tokens": 100.0}, terms=other).granted == 1


class TestLeaders:
    def test_the_first_with_something_to_do_leads_alone(self, counter):
        assert counter.sync("a", 1).fence
        assert counter.sync("b", 1).fence == 0

    def test_one_that_is_silent_while_others_work_is_replaced_and_fenced_off(self, counter):
        first = counter.sync("a", 1).fence
        second = counter.sync("b", 1, at=counter.now + LEADER_SILENT + 0.01).fence
        assert second == first + 1
        late = counter.sync("a", publication=Publication(fence=first, rate=7.0, learned="old"))
        assert (late.fence, late.rate) == (0, 100.0)
        assert not counter.actions.save

    def test_one_that_has_left_is_replaced_at_once_and_its_last_word_counts(self, counter):
        fence = counter.sync("a", 1).fence
        counter.sync("a", leaves=True, publication=Publication(fence=fence, rate=50.0, learned="all"))
        assert counter.actions.save == "all"
        new = counter.sync("b", 1)
        assert (new.fence, new.rate) == (fence + 1, 50.0)
        assert counter.actions.give_learned

    def test_a_fence_of_a_coordinator_that_was_wiped_is_worth_nothing(self, counter):
        fence = counter.sync("a", 1).fence
        anew = Counter(now=1000.5)
        anew.sync("b", 1)
        assert anew.sync("a", publication=Publication(fence=fence, rate=7.0)).rate == 100.0

    def test_what_was_learned_by_a_run_long_over_is_not_given(self, counter):
        counter.lead("a", rate=7.0, learned="all")
        counter.coordinator.saved_wall -= coordinator_module.REMEMBERED
        late = counter.sync("b", 1, at=counter.now + 3600)
        assert (late.rate, late.learned_ago) == (100.0, 0.0)
        assert not counter.actions.give_learned


class TestNotes:
    def test_a_leader_gets_those_of_others_that_it_has_not_read(self, counter):
        fence = counter.sync("a", 1).fence
        counter.sync("b", note="one")
        counter.sync("b", note="two")
        counter.sync("a", note="own", publication=Publication(fence=fence, rate=100.0, read=1))
        assert (counter.actions.give_after, counter.actions.but_not_of) == (1, "a")

    def test_a_new_leader_gets_all_that_is_not_in_what_was_learned(self, counter):
        fence = counter.sync("a", 1).fence
        for text in ("one", "two", "three"):
            counter.sync("b", note=text)
        counter.sync("a", publication=Publication(fence=fence, rate=100.0, read=2, learned="x", covers=2))
        counter.sync("c", 1, at=counter.now + LEADER_SILENT + 0.01)
        assert (counter.actions.give_after, counter.actions.but_not_of, counter.actions.give_learned) == (2, "", True)
        assert [note.text for note in counter.kept] == ["three"]

    def test_the_newest_are_kept(self, counter):
        for number in range(MOST_NOTES + 10):
            counter.sync("b", note=str(number))
        assert [note.text for note in counter.kept] == [str(number) for number in range(10, MOST_NOTES + 10)]

    def test_each_is_kept_once_however_often_it_is_sent(self, counter):
        for number in range(50):
            counter.sync("b", note=str(number))
            for _ in range(number % 3):
                counter.sync("b", note=str(number), again=True)
        assert [note.text for note in counter.kept] == [str(number) for number in range(50)]


class TestTime:
    @pytest.mark.parametrize("hours", [1, -1])
    def test_a_clock_that_jumps_changes_nothing(self, counter, hours):
        counter.sync("a", 1)
        counter.sync("b", 1)
        counter.sync("a", rest=5.0)
        counter.shift = 3600.0 * hours
        reply = counter.sync("a", at=counter.now + 1.0)
        assert reply.hold == pytest.approx(4.0 if hours > 0 else 5.0)
        assert reply.members == 2
        later = counter.sync("b", at=counter.now + 1.0)
        assert later.hold == pytest.approx(reply.hold - 1.0)
        assert later.now == pytest.approx(reply.now + 1.0)

    def test_a_member_that_was_cut_off_for_long_is_no_jump(self, counter):
        counter.sync("a", rest=5.0)
        assert counter.sync("a", at=counter.now + 10 * CLOCK_JUMP).hold == 0.0

    def test_after_a_restart_of_the_machine_it_goes_on_from_where_it_was(self, counter):
        counter.sync("a", rest=5.0)
        counter.shift = -900.0
        assert counter.sync("b").hold == 5.0


@pytest.mark.no_cover
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_put_away_and_taken_out_again_it_is_the_same(data):
    """After any requests; so a store may do it at every one of them."""
    counter = Counter(replace(TERMS, limits=(("tokens", 100.0, 1.0, 20.0),)))
    for _ in range(data.draw(st.integers(1, 15))):
        fence = counter.coordinator.fence
        counter.sync(
            data.draw(st.sampled_from("abc")),
            data.draw(st.integers(0, 5)),
            cost={"tokens": data.draw(st.floats(0.0, 30.0))},
            again=data.draw(st.booleans()),
            at=counter.now + data.draw(st.floats(0.0, 0.2)),
            rest=data.draw(st.sampled_from([0.0, 0.0, 0.1])),
            note=data.draw(st.sampled_from(["", "n"])),
            publication=data.draw(st.sampled_from([None, Publication(fence=fence, rate=50.0, cap=3.0)])),
        )
        state = json.loads(json.dumps(counter.coordinator.to_state()))
        assert QuotaCoordinator.from_state(state).to_state() == counter.coordinator.to_state()
        counter.coordinator = QuotaCoordinator.from_state(state)


@pytest.mark.no_cover
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_number_is_ever_given_to_two(data):
    """Whatever is repeated, lost, held or given back."""
    counter, taken = Counter(), {}
    for _ in range(data.draw(st.integers(5, 40))):
        member = data.draw(st.sampled_from("abcd"))
        reply = counter.sync(
            member,
            data.draw(st.integers(0, 8)),
            again=data.draw(st.booleans()) and member in counter.numbers,
            at=counter.now + data.draw(st.sampled_from([0.0, 0.001, PERIOD, 0.5, 40.0])),
            rest=data.draw(st.sampled_from([0.0, 0.0, 0.0, 0.3])),
            back=data.draw(st.sampled_from([0, 0, 1, 3])),
            leaves=data.draw(st.integers(0, 9)) == 0,
        )
        for offset in range(reply.granted):
            holder = taken.setdefault(reply.first + offset, (member, counter.numbers[member]))
            assert holder == (member, counter.numbers[member])
