"""A member, alone: whether it leads and what it publishes then, and what it reports."""

import pytest

from headgate import RateLimitConfig
from headgate.controllers.aimd import Aimd, AimdSettings
from headgate.controllers.fixed import Fixed
from headgate.core.circuit_breaker import Breaker, BreakerSettings
from headgate.core.decision import CircuitState, Outcome
from headgate.core.policy import LongTicket, Ticket
from headgate.core.signal import SILENT
from headgate.distributed.lease import Lease
from headgate.distributed.leased_policies import LeasedCircuit
from headgate.distributed.membership import ENOUGH_ANSWERS, Leadership, Outbox, Reporter, requests_in
from headgate.distributed.observation_log import ABANDONED, MOST_EVENTS, RELEASED, ObservationLog
from headgate.distributed.protocol import Note, QuotaTerms, SyncReply

CONFIG = RateLimitConfig(strategy="aimd", initial_rps=100.0)
THERE, HERE = 5000.0, 10.0
"""The coordinator's time and the member's, at the same moment."""


def leadership_of():
    return Leadership(CONFIG.gate_config(), ObservationLog())


def reply(fence=1, **more):
    return SyncReply(now=THERE, **{"fence": fence, "rate": 100.0, **more})


def leading(fence=1, **more):
    leadership = leadership_of()
    leadership.set_time(THERE, HERE, solo=False)
    leadership.on_reply("api", reply(fence, **more), 0.5, solo=False)
    return leadership


def refused(member="other", number=1):
    log = ObservationLog()
    log.send(1, 1.0)
    log.end(1, 1.1, 0.1, SILENT[Outcome.RATE_LIMITED], "")
    return Note(number=number, at=THERE - 0.1, member=member, text=log.text(1.2, number))


class TestLeading:
    def test_a_member_without_a_fence_does_not_lead_and_publishes_nothing(self):
        leadership = leading(fence=0)
        assert leadership.leader is None
        assert leadership.stated_rate() is None
        assert leadership.publish("api", "me", 1, HERE, 0.5) is None

    def test_one_with_a_fence_publishes_under_it(self):
        told = leading(fence=7).publish("api", "me", 1, HERE, 0.5)
        assert (told.fence, told.rate) == (7, pytest.approx(100.0))

    def test_it_learns_from_what_others_saw(self):
        told = leading(notes=(refused(),)).publish("api", "me", 1, HERE, 0.5)
        assert told.rate < 100.0
        assert told.read == 1

    def test_and_from_what_it_saw_itself(self):
        log = ObservationLog()
        leadership = Leadership(CONFIG.gate_config(), log)
        leadership.set_time(THERE, HERE, solo=False)
        leadership.on_reply("api", reply(), 0.5, solo=False)
        log.send(1, HERE + 0.1)
        log.end(1, HERE + 0.2, 0.1, SILENT[Outcome.RATE_LIMITED], "")
        assert leadership.publish("api", "me", 1, HERE + 0.3, 0.5).rate < 100.0

    def test_another_fence_is_another_leader_and_none_ends_it(self):
        leadership = leading()
        before = leadership.leader
        leadership.on_reply("api", reply(2), 0.5, solo=False)
        assert leadership.leader is not before
        leadership.on_reply("api", reply(0), 0.5, solo=False)
        assert leadership.leader is None


class TestWhatIsKnown:
    def test_a_new_leader_goes_on_from_what_was_saved(self):
        first = leading(notes=(refused(),))
        rate = first.publish("api", "me", 1, HERE, 0.5).rate
        heir = leading(fence=2, learned=first.leads.saved(), covers=1)
        assert heir.publish("api", "me", 1, HERE, 0.5).rate == pytest.approx(rate)

    @pytest.mark.parametrize(("answers", "keeps"), [(ENOUGH_ANSWERS, True), (ENOUGH_ANSWERS - 1, False)])
    def test_one_that_was_solo_keeps_what_it_has_learned_if_that_is_enough(self, answers, keeps):
        leadership = leading()
        before = leadership.leads
        before.gate.answers = answers
        leadership.on_reply("api", reply(2, learned=leading().leads.saved()), 0.5, solo=True)
        assert (leadership.leader is before) is keeps
        assert leadership.leads.fence == 2

    def test_time_that_is_corrected_moves_a_solo_leader_s_with_it(self):
        leadership = leading()
        base = leadership.leads.base
        leadership.set_time(THERE + 3.0, HERE, solo=True)
        assert leadership.leads.base == base + 3.0

    def test_what_cannot_be_used_is_learned_anew_under_the_same_fence(self, caplog):
        leadership = leading(fence=4)
        before = leadership.leads
        before.publication = None  # whatever makes it fail
        assert leadership.publish("api", "me", 1, HERE, 0.5) is None
        assert leadership.leads is not before
        assert leadership.leads.fence == 4
        assert "api: the learned state cannot be used" in caplog.text

    def test_without_a_store_it_begins_at_the_rate_that_is_known(self):
        leadership = leadership_of()
        leadership.begin_alone(CONFIG, 40.0, HERE)
        assert leadership.leads.gate.controller.rate == 40.0
        leadership.begin_alone(CONFIG, None, HERE)
        assert leadership.leads.gate.controller.rate == 100.0

    def test_the_leader_knows_how_many_failed_of_all(self):
        breaker = Breaker(BreakerSettings())
        breaker.failures = 3
        assert leading(fence=0).recent_failures(breaker, HERE) == (3, 0.0)
        assert leading().recent_failures(breaker, HERE)[0] == 0


# ---------------------------------------------------------------------- what it reports

NOW = 1000.0
TERMS = QuotaTerms(rate=10.0, burst=1.0, most=1e6)
OK, REFUSED, FAILED = SILENT[Outcome.OK], SILENT[Outcome.RATE_LIMITED], SILENT[Outcome.TRANSIENT]


class TestOutbox:
    def test_refunds_of_a_dimension_add_up_from_the_first_on(self):
        outbox = Outbox(ObservationLog(), lambda now: None)
        outbox.refund({"tokens": 5.0}, NOW)
        outbox.refund({"tokens": -2.0, "bytes": 1.0}, NOW - 1.0)
        assert outbox.refunds == {"tokens": 3.0, "bytes": 1.0}
        assert outbox.refund_age(NOW + 1.0) == 2.0
        outbox.empty()
        assert (outbox.refunds, outbox.refund_age(NOW)) == ({}, 0.0)

    def test_numbers_that_were_held_are_counted_before_calls_are_reported(self):
        outbox = Outbox(ObservationLog(), lambda now: None)
        outbox.taken = -2
        outbox.empty()
        assert outbox.taken == -2
        outbox.taken = 3
        outbox.empty()
        assert outbox.taken == 0

    def test_a_store_that_is_lost_loses_what_was_to_come_back_but_not_what_was_overspent(self):
        outbox = Outbox(ObservationLog(), lambda now: None)
        outbox.refund({"tokens": 5.0, "bytes": -7.0}, NOW)
        outbox.lose_store()
        assert (outbox.refunds, outbox.spent_alone) == ({}, {"bytes": 7.0})

    def test_a_store_that_is_found_is_told_what_was_spent_alone(self):
        """Of a short window no more than a share of its burst, and the rest for the long ones."""
        limits = (("tokens", 600.0, 60.0, 100.0), ("bytes", 1e6, 86_400.0, 1e6))
        outbox = Outbox(ObservationLog(), lambda now: None)
        outbox.spend_alone({"tokens": 80.0, "bytes": 9.0})
        outbox.find_store(QuotaTerms(rate=1.0, burst=1.0, most=1.0, limits=limits), ("tokens", "bytes"), 2, NOW)
        assert (outbox.refunds, outbox.apart) == ({"tokens": -50.0}, {"tokens": 30.0, "bytes": 9.0})
        assert outbox.spent_alone == {}

    @pytest.mark.parametrize(("cost", "numbers"), [(1, 1), (2.5, 3), ({"tokens": 9}, 1), ({"requests": 4}, 4)])
    def test_a_call_takes_as_many_numbers_as_its_cost_has_requests(self, cost, numbers):
        assert requests_in(cost) == numbers


class Parts:
    """A reporter with a lease and a circuit of its own, and when it wanted an exchange."""

    def __init__(self, controller=None, state=CircuitState.CLOSED):
        self.wanted = []
        self.log = ObservationLog()
        self.outbox = Outbox(self.log, self.wanted.append)
        idle = Aimd(AimdSettings(initial=10.0)) if controller is None else controller
        breaker = Breaker(BreakerSettings())
        breaker.state = state
        self.lease = Lease(TERMS, 1.0, NOW)
        self.circuit = LeasedCircuit(breaker, self.lease, self.outbox, learns=idle.learns)
        self.reporter = Reporter(idle, self.circuit, self.lease, self.outbox)

    def answer(self, signal, seq=1):
        return self.reporter.on_answer(Ticket(None, seq, NOW, 0), signal, 0.1, NOW)


class TestReporter:
    def test_a_success_can_wait_for_the_next_request(self):
        parts = Parts()
        assert parts.answer(OK) == 0.0
        assert (len(parts.log), parts.wanted, parts.outbox.is_urgent) == (1, [], False)

    def test_anything_else_is_urgent(self):
        parts = Parts()
        parts.answer(REFUSED)
        assert (len(parts.log), parts.wanted, parts.outbox.is_urgent) == (1, [NOW], True)

    def test_so_is_a_log_that_fills_up(self):
        parts = Parts()
        for number in range(MOST_EVENTS // 2 + 1):
            parts.answer(OK, seq=1 + number)
        assert parts.wanted == [NOW]

    def test_of_a_strategy_that_does_not_learn_successes_are_counted_only(self):
        parts = Parts(Fixed(10.0))
        parts.reporter.on_send(Ticket(None, 1, NOW, 0), NOW)
        parts.answer(OK)
        assert (len(parts.log), parts.log.oks) == (0, 1)

    def test_a_call_that_was_not_made_gives_back_its_numbers_unless_their_era_is_over(self):
        parts = Parts()
        parts.outbox.void_to_seq = 1
        for seq in (1, 2):
            parts.outbox.give_back(LongTicket(None, seq, NOW, 0, 3, 0.0))
        assert parts.outbox.back == 3

    def test_of_two_pauses_the_longer_is_told(self):
        parts = Parts()
        parts.outbox.pause(5.0, NOW)
        parts.outbox.pause(2.0, NOW)
        assert (parts.outbox.rest, parts.outbox.is_urgent) == (5.0, True)

    @pytest.mark.parametrize("short_of", ["depth", "turn"])
    def test_a_call_that_ends_makes_room_others_wait_for(self, short_of):
        parts = Parts()
        parts.lease.short_of = short_of
        parts.answer(OK)
        assert parts.wanted == [NOW]


class TestProbe:
    def probing(self):
        parts = Parts(state=CircuitState.HALF_OPEN)
        parts.circuit.admit(Ticket(None, 7, NOW, 0), NOW)
        assert parts.circuit.probe() == 7
        return parts

    @pytest.mark.parametrize(("signal", "is_over"), [(OK, False), (FAILED, False), (REFUSED, True)])
    def test_its_end_is_told_at_once(self, signal, is_over):
        parts = self.probing()
        parts.answer(signal, seq=7)
        assert (parts.circuit.probe(), parts.outbox.probe_over, parts.wanted) == (None, is_over, [NOW])

    @pytest.mark.parametrize(("end", "how"), [("release", RELEASED), ("cancel", ABANDONED)])
    def test_one_without_an_answer_came_to_nothing(self, end, how):
        parts = self.probing()
        getattr(parts.circuit, end)(Ticket(None, 7, NOW, 0), NOW)
        assert parts.outbox.probe_over
        assert [one[-1] for one in parts.log.ends] == [how]

    def test_an_answer_of_no_known_call_counts_as_its_own_if_it_ends_without_one(self):
        parts = self.probing()
        parts.circuit.unmatched = OK, 0.2, NOW + 1.0
        parts.circuit.release(Ticket(None, 7, NOW, 0), NOW + 2.0)
        assert parts.log.ends == [(7, NOW + 1.0, 0.2, OK, "")]
        assert not parts.outbox.probe_over
