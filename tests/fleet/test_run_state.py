"""The rules of a fleet run, over the pure state in virtual time and over the script on a real server."""

import pytest

from headgate.fleet.protocol import NO_CAP, Amount, Caps, Counts, MemberRequest, Past
from headgate.fleet.run_state import FOLD_AFTER, KEPT_FOR, LOST_AFTER, REJOIN_FOR, RunState
from headgate.fleet.state_store import MOST_RUNS, MemoryRunState
from headgate.lab.virtual_time import VirtualClock

THOUSAND = Caps(max_tokens=1000.0).as_amount()


def tokens(amount):
    return Amount(float(amount), 0.0)


class TestCounts:
    def test_members_add_up_and_a_repeated_request_changes_nothing(self, ground, worker):
        one, other = worker("one"), worker("other")
        one.says(counts=Counts(done=3, tokens=30.0))
        other.says(counts=Counts(done=4, failed=1, tokens=50.5))
        other.number -= 1
        other.says(counts=Counts(done=400))
        view = ground.store.view("nightly")
        assert view.counts == Counts(done=7, failed=1, tokens=80.5)
        assert [member.name for member in view.members] == ["one", "other"]

    def test_a_member_that_leaves_stays_in_the_totals(self, ground, worker):
        one = worker("one")
        one.says(counts=Counts(done=3))
        one.says(counts=Counts(done=5, cost=0.25), leaves=True)
        view = ground.store.view("nightly")
        assert view.counts == Counts(done=5, cost=0.25)
        assert view.members == ()

    def test_a_member_that_is_silent_is_lost_and_counts_all_the_same(self, ground, worker):
        one, other = worker("one"), worker("other")
        one.says(counts=Counts(done=3))
        ground.passes(ground.lost_after + 0.1)
        assert other.says().members in (1, 2)
        view = ground.store.view("nightly")
        assert [member.is_lost for member in view.members] == [True, False]
        assert view.counts.done == 3

    def test_a_store_that_lost_its_data_has_all_of_it_after_one_report_of_each(self, ground, worker):
        one, other, third = worker("one"), worker("other"), worker("third")
        third.says(counts=Counts(done=100), leaves=True)
        past = one.says(counts=Counts(done=3)).past
        other.says(counts=Counts(done=4))
        assert past.counts.done == 100
        ground.forget()
        assert one.says(counts=Counts(done=5), past=past).is_new
        other.says(counts=Counts(done=6))
        assert ground.store.view("nightly").counts.done == 111

    def test_details_stay_until_there_are_others(self, ground, worker):
        one = worker("one")
        one.says(detail='{"pid":1}')
        one.says()
        assert ground.store.view("nightly").members[0].detail == '{"pid":1}'


class TestOrders:
    def test_an_order_for_a_run_that_does_not_exist(self, ground):
        assert ground.store.order("nightly", "stop") is False
        assert ground.store.view("nightly") is None

    def test_stop_holds_for_all_members_of_the_job_and_not_for_the_next_job(self, ground, worker):
        one, other = worker("one", job="j1"), worker("other", job="j1")
        one.says()
        assert ground.store.order("nightly", "stop")
        assert one.says().stopped
        assert other.says().stopped, "a worker that the engine starts again obeys too"
        assert not worker("third", job="j2").says().stopped

    def test_without_jobs_stop_holds_until_no_member_is_left(self, ground, worker):
        one, other = worker("one"), worker("other")
        one.says()
        other.says()
        ground.store.order("nightly", "stop")
        assert worker("third").says().stopped
        for name in (one, other, worker("third")):
            name.number = 5
            assert name.says(leaves=True).stopped
        assert not worker("fourth").says().stopped

    def test_pause_and_resume(self, ground, worker):
        one = worker("one")
        one.says()
        ground.store.order("nightly", "pause")
        assert one.says().paused
        assert worker("other").says().paused
        assert ground.store.view("nightly").paused
        ground.store.order("nightly", "resume")
        assert not one.says().paused

    def test_orders_outlive_the_data_of_the_store(self, ground, worker):
        one, other = worker("one", job="j1"), worker("other", job="j1")
        one.says()
        ground.forget()
        assert one.says(paused=True, stopped=True).stopped
        reply = other.says()
        assert (reply.stopped, reply.paused) == (True, True)


class TestCaps:
    def test_without_caps_nothing_is_leased(self, worker):
        reply = worker().says(need=tokens(5), want=tokens(50))
        assert reply.held == tokens(0)
        assert reply.pool == (NO_CAP, NO_CAP)

    def test_a_member_gets_what_it_wants_but_at_most_half_of_what_is_left(self, worker):
        one = worker(caps=THOUSAND)
        assert one.says(need=tokens(10), want=tokens(100)).held == tokens(100)
        reply = one.says(held=tokens(100), want=tokens(5000))
        assert reply.held == tokens(100 + 450)
        assert reply.pool == (450.0, NO_CAP)

    def test_what_the_next_row_needs_is_granted_whole_or_not_at_all(self, worker):
        one, other = worker("one", caps=THOUSAND), worker("other", caps=THOUSAND)
        assert one.says(need=tokens(900), want=tokens(900)).held == tokens(900)
        reply = other.says(need=tokens(101), want=tokens(500))
        assert reply.held == tokens(0)
        assert reply.pool.tokens == 100.0
        assert reply.others.tokens == 900.0
        assert other.says(need=tokens(100), want=tokens(500)).held == tokens(100)

    def test_both_caps_must_have_room(self, worker):
        one = worker(caps=Amount(1000.0, 1.0))
        assert one.says(need=Amount(10.0, 2.0), want=Amount(10.0, 2.0)).held == (0.0, 0.0)
        assert one.says(need=Amount(10.0, 0.5), want=Amount(10.0, 0.5)).held == (10.0, 0.5)

    def test_what_is_given_back_goes_to_others(self, worker):
        one, other = worker("one", caps=THOUSAND), worker("other", caps=THOUSAND)
        one.says(need=tokens(1000), want=tokens(1000))
        one.says(held=tokens(300), spent=tokens(300))
        assert other.says(need=tokens(700), want=tokens(700)).held == tokens(700)

    def test_a_member_that_leaves_gives_back_what_it_did_not_spend(self, worker):
        one, other = worker("one", caps=THOUSAND), worker("other", caps=THOUSAND)
        one.says(need=tokens(1000), want=tokens(1000))
        one.says(held=tokens(1000), spent=tokens(400), leaves=True)
        assert other.says(need=tokens(601), want=tokens(601)).held == tokens(0)
        assert other.says(need=tokens(600), want=tokens(600)).held == tokens(600)

    def test_the_lease_of_a_lost_member_counts_as_spent(self, ground, worker):
        one, other = worker("one", caps=THOUSAND), worker("other", caps=THOUSAND)
        one.says(need=tokens(400), want=tokens(400))
        ground.passes(max(ground.lost_after, 1.0) + 0.1)
        reply = other.says(need=tokens(601), want=tokens(601))
        assert (reply.held, reply.others.tokens) == (tokens(0), 0.0), "nothing of it will come back"
        assert reply.past.charged.tokens == 400.0

    def test_a_row_that_cost_more_than_was_leased_counts_whole(self, ground, worker):
        one = worker(caps=THOUSAND)
        one.says(need=tokens(10), want=tokens(10))
        reply = one.says(held=tokens(10), spent=tokens(990))
        assert reply.pool.tokens == 10.0
        assert ground.store.view("nightly").charged.tokens == 990.0

    def test_the_caps_of_the_member_that_joined_last_count(self, worker):
        worker("one", caps=THOUSAND).says()
        assert worker("other", caps=Amount(5000.0, NO_CAP)).says().pool.tokens == 5000.0

    def test_after_a_loss_nothing_is_leased_until_all_have_said_what_they_hold(self, ground, worker):
        one, other = worker("one", caps=THOUSAND), worker("other", caps=THOUSAND)
        one.says(need=tokens(500), want=tokens(500))
        other.says(need=tokens(500), want=tokens(500))
        past = Past(counts=Counts(), charged=tokens(50))
        ground.forget()
        assert one.says(held=tokens(500), need=tokens(10), want=tokens(500), past=past).held == tokens(500)
        reply = other.says(held=tokens(500), need=tokens(10), want=tokens(500))
        assert reply.held == tokens(500)
        assert reply.pool.tokens == 0.0, "and what is past counts too"
        assert reply.past.charged.tokens == 50.0


class TestMany:
    def test_runs_are_listed_the_last_reported_first(self, ground, worker):
        assert list(ground.store.views()) == []
        for name in ("first", "zweiter lauf", "dritter"):
            worker(run=name).says(counts=Counts(done=len(name)))
            ground.passes(0.01)
        assert [view.run for view in ground.store.views()] == ["dritter", "zweiter lauf", "first"]

    def test_the_list_is_bounded(self, ground, worker):
        for number in range(MOST_RUNS + 5):
            worker(run=f"run-{number}").says()
        assert len(ground.store.views()) == MOST_RUNS

    def test_a_hundred_members_share_a_cap_and_never_exceed_it(self, ground, worker):
        members = [worker(f"m{number}", caps=THOUSAND) for number in range(100)]
        held = [member.says(need=tokens(7), want=tokens(300)).held.tokens for member in members]
        for _ in range(3):
            for place, member in enumerate(members):
                held[place] = member.says(held=tokens(held[place]), need=tokens(7), want=tokens(300)).held.tokens
        assert sum(held) <= 1000.0 + 1e-6
        assert sum(held) > 990.0


class TestPure:
    def test_a_lost_member_becomes_a_part_of_the_past(self):
        state = RunState(0.0)
        state.exchange(MemberRequest(member="one", number=1, counts=Counts(done=3)), 0.0)
        state.exchange(MemberRequest(member="other", number=1), FOLD_AFTER + 1.0)
        assert list(state.members) == ["other"]
        assert state.view("nightly", FOLD_AFTER + 1.0).counts.done == 3

    def test_a_clock_that_is_set_back_makes_no_member_young(self):
        state = RunState(100.0)
        state.exchange(MemberRequest(member="one", number=1), 100.0)
        state.exchange(MemberRequest(member="other", number=1), 50.0)
        view = state.view("nightly", 40.0)
        assert [member.seen_ago for member in view.members] == [0.0, 0.0]

    def test_leases_begin_again_after_the_rejoin(self):
        state = RunState(0.0)
        wish = {"caps": THOUSAND, "need": tokens(10), "want": tokens(10)}
        assert state.exchange(MemberRequest(member="one", number=7, **wish), 0.0).held == tokens(0)
        assert state.exchange(MemberRequest(member="one", number=8, **wish), REJOIN_FOR).held == tokens(10)

    def test_runs_are_forgotten_after_a_week(self):
        clock = VirtualClock()
        store = MemoryRunState(clock)
        store.exchange("old", MemberRequest(member="one", number=1))
        clock.advance(KEPT_FOR)
        store.exchange("new", MemberRequest(member="one", number=1))
        clock.advance(1.0)
        assert [view.run for view in store.views()] == ["new"]
        assert store.view("old") is None
        assert not store.order("old", "stop")

    @pytest.mark.parametrize("silent", [LOST_AFTER - 0.1, LOST_AFTER + 0.1])
    def test_lost_is_told_by_the_time_since_its_last_report(self, silent):
        state = RunState(0.0)
        state.exchange(MemberRequest(member="one", number=1), 0.0)
        assert state.view("nightly", silent).members[0].is_lost is (silent > LOST_AFTER)
