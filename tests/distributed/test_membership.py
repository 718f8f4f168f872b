"""Whether a member leads, alone: what it goes on from, what it publishes, and what it does with what it cannot use."""

import pytest

from headgate import RateLimitConfig
from headgate.core.circuit_breaker import Breaker, BreakerSettings
from headgate.core.decision import Outcome
from headgate.core.signal import SILENT
from headgate.distributed.membership import ENOUGH_ANSWERS, Leadership
from headgate.distributed.observation_log import ObservationLog
from headgate.distributed.protocol import Note, SyncReply

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

    def test_who_leads_knows_how_many_failed_of_all(self):
        breaker = Breaker(BreakerSettings())
        breaker.failures = 3
        assert leading(fence=0).recent_failures(breaker, HERE) == (3, 0.0)
        assert leading().recent_failures(breaker, HERE)[0] == 0
