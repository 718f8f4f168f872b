"""The pacer alone: it starts calls at a controller's rate, within bounds, and resumes gently after a pause."""

import pytest

from headgate.controllers.fixed import Fixed
from headgate.core.decision import UNKNOWN, WaitReason
from headgate.core.pacer import Pacer
from headgate.core.policy import Demand
from headgate.core.quota import CATCH_UP
from headgate.core.resume_ramp import NO_RAMP
from headgate.core.ticket import LongTicket, Ticket

NOW = 1000.0


def pacer_of(rate=10.0, burst=2.0, least=0.01, most=1e6):
    pacer = Pacer(Fixed(rate), burst, least, most)
    pacer.apply(NOW, NOW)
    return pacer


def start(pacer, now=NOW, cost=1):
    pacer.admit(Ticket(None, 1, now, 0) if cost == 1 else LongTicket(None, 1, now, 0, cost, 0.0), now)


class TestPace:
    def test_a_burst_starts_at_once_and_the_next_call_waits_for_its_token(self):
        pacer = pacer_of()
        for _ in range(2):
            assert pacer.check(NOW, Demand()) is None
            start(pacer)
        wait = pacer.check(NOW, Demand())
        assert (wait.reason, wait.until) == (WaitReason.PACE, pytest.approx(NOW + 0.1))
        assert pacer.check(wait.until, Demand()) is None

    def test_calls_ahead_in_the_queue_take_their_tokens_first(self):
        assert pacer_of().check(NOW, Demand(requests_ahead=3.0)).until == pytest.approx(NOW + 0.2)

    def test_a_cost_takes_as_many_tokens_and_one_above_the_burst_waits_for_a_full_bucket(self):
        pacer = pacer_of()
        start(pacer, cost={"requests": 5, "tokens": 900})
        assert pacer.tokens == pytest.approx(-3.0)
        assert pacer.check(NOW, Demand(cost=7)).until == pytest.approx(NOW + 0.5)

    def test_what_was_not_sent_is_given_back(self):
        pacer = pacer_of()
        start(pacer)
        pacer.cancel(Ticket(None, 1, NOW, 0), NOW)
        assert pacer.tokens == 2.0

    def test_a_guess_refuses_no_deadline_that_the_fastest_rate_would_keep(self):
        class Guess(Fixed):
            is_guess = True

        pacer = Pacer(Guess(10.0), 1.0, 0.01, 100.0)
        pacer.apply(NOW, NOW)
        start(pacer)
        wait = pacer.check(NOW, Demand())
        assert (wait.until, wait.not_before) == (pytest.approx(NOW + 0.1), pytest.approx(NOW + 0.01))
        assert pacer_of().check(NOW, Demand(requests_ahead=9.0)).known_until == UNKNOWN


class TestRate:
    @pytest.mark.parametrize(("rate", "paced"), [(5.0, 5.0), (0.001, 0.5), (1e9, 50.0)])
    def test_it_stays_within_the_configured_bounds(self, rate, paced):
        pacer = pacer_of(rate, least=0.5, most=50.0)
        assert (pacer.rate, pacer.learned_rate) == (paced, paced)

    def test_the_server_s_word_may_be_below_the_least(self):
        class Told(Fixed):
            is_told = True

        pacer = Pacer(Told(0.1), 1.0, 0.5, 50.0)
        pacer.apply(NOW, NOW)
        assert pacer.rate == 0.1

    def test_an_operator_s_limit_is_one_more_bound_until_it_is_lifted(self):
        pacer = pacer_of(10.0, most=50.0)
        pacer.set_ceiling(4.0)
        pacer.apply(NOW, NOW)
        assert (pacer.rate, pacer.is_at_ceiling) == (4.0, True)
        assert pacer.explain(pacer.check(NOW, Demand(requests_ahead=9.0)), NOW).ceiling == 4.0
        pacer.set_ceiling(None)
        pacer.apply(NOW, NOW)
        assert (pacer.rate, pacer.is_at_ceiling) == (10.0, False)


class TestPause:
    def test_what_a_hold_keeps_back_is_one_call_at_its_end_and_the_pace_goes_on_from_there(self):
        pacer = pacer_of()
        pacer.apply(NOW + 5.0, NOW)
        assert pacer.held
        assert pacer.check(NOW, Demand(requests_ahead=1.0)).until == pytest.approx(NOW + 5.1)
        pacer.apply(NOW, NOW + 5.0)
        assert not pacer.held
        assert pacer.refill(NOW + 5.0) == pytest.approx(1.0)

    def test_after_a_pause_the_pace_grows_until_the_ramp_ends(self):
        pacer = pacer_of()
        pacer.resume_after_pause(10.0, NOW)
        pacer.apply(NOW, NOW)
        assert pacer.rate == pytest.approx(5.0)
        pacer.apply(NOW, NOW + 0.5)
        assert 5.0 < pacer.rate < 10.0
        pacer.apply(NOW, NOW + 1.0)
        assert (pacer.rate, pacer.ramp) == (10.0, NO_RAMP)

    def test_a_wait_that_outlasts_the_ramp_ends_at_the_full_pace(self):
        pacer = pacer_of()
        pacer.resume_after_pause(10.0, NOW)
        pacer.apply(NOW, NOW)
        assert pacer.check(NOW, Demand(requests_ahead=6.0)).until == pytest.approx(NOW + 1.0)
        assert pacer.check(NOW, Demand(requests_ahead=41.0)).until == pytest.approx(NOW + 1.0 + 35.0 / 10.0)

    def test_after_an_outage_no_burst_is_left(self):
        pacer = pacer_of()
        pacer.resume_after_outage(20.0, NOW)
        assert pacer.tokens == 1.0
        assert pacer.ramp is not NO_RAMP


class TestQueue:
    def test_callers_that_wait_make_up_for_being_late_and_for_a_moment_after(self):
        pacer = pacer_of()
        pacer.on_queue(object(), NOW)
        assert pacer.is_late(NOW)
        pacer.on_queue(None, NOW)
        assert pacer.is_late(NOW + 0.9 * CATCH_UP)
        assert not pacer.is_late(NOW + 1.1 * CATCH_UP)

    def test_it_can_be_forgotten_once_its_bucket_is_full(self):
        pacer = pacer_of()
        assert pacer.idle_from(NOW) == NOW
        start(pacer)
        assert pacer.idle_from(NOW) == pytest.approx(NOW + 0.1)

    def test_it_goes_on_from_its_state(self):
        pacer, other = pacer_of(), pacer_of()
        start(pacer)
        pacer.resume_after_pause(10.0, NOW)
        other.load_state(pacer.to_state())
        assert (other.tokens, other.ramp, other.rate) == (pacer.tokens, pacer.ramp, pacer.rate)
