"""What a leader learns from the notes of all is what one process would have learned, and survives its leader."""

import random

import pytest

from headgate import RateLimitConfig
from headgate.core.decision import LONGEST_WAIT, CircuitState, Outcome
from headgate.core.signal import SILENT, Signal
from headgate.distributed.leader import SAVE_EVERY, QuotaLeader
from headgate.distributed.observation_log import ABANDONED, RELEASED, ObservationLog
from headgate.distributed.protocol import NO_CAP, Note

AIMD = RateLimitConfig(strategy="aimd", initial_rps=100.0, aimd_increase=0.001)
BEGIN = 1000.0


def learner(config=AIMD, now=BEGIN, fence=1, word=0):
    learning = QuotaLeader(config.gate_config(), fence, now, word)
    learning.publication(now)
    return learning


class Members:
    """Write notes and number them as a coordinator would."""

    def __init__(self):
        self.books, self.noted = {}, 0

    def log(self, member):
        return self.books.setdefault(member, ObservationLog())

    def call(self, member, number, sent_at, ended_at=None, outcome=Outcome.OK, signal=None):
        log = self.log(member)
        log.send(number, sent_at)
        if ended_at is not None:
            log.end(number, ended_at, ended_at - sent_at, signal or SILENT[outcome], "")

    def notes(self, now):
        notes = []
        for member, log in self.books.items():
            text = log.text(now)
            log.clear()
            if text:
                self.noted += 1
                notes.append(Note(number=self.noted, at=now, member=member, text=text))
        return notes


class TestLearning:
    def test_a_refusal_seen_by_anybody_lowers_the_rate(self):
        learning, members = learner(), Members()
        members.call("a", 1, 1000.1, 1000.2)
        members.call("b", 1, 1000.1, 1000.2, Outcome.RATE_LIMITED)
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        assert learning.has_news
        assert learning.publication(1000.3).rate == pytest.approx(50.0, rel=0.01)
        assert not learning.has_news

    def test_refusals_of_one_moment_cut_once_whichever_member_reports_them(self):
        learning, members = learner(), Members()
        for member in "abcdef":
            members.call(member, 1, 1000.1, 1000.2, Outcome.RATE_LIMITED)
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        assert learning.publication(1000.3).rate == pytest.approx(50.0, rel=0.01)

    def test_a_call_that_left_before_its_member_heard_of_the_cut_does_not_cut_again(self):
        learning, members = learner(), Members()
        members.log("b").note_word(learning.word)
        members.call("a", 1, 1000.1, 1000.2, Outcome.RATE_LIMITED)
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        cut = learning.publication(1000.3)
        members.call("b", 1, 1000.32, 1000.4, Outcome.RATE_LIMITED)  # it still goes by the word before
        learning.take(members.notes(1000.4), 1000.4, 0.5)
        assert learning.publication(1000.4).rate == pytest.approx(cut.rate)
        members.log("b").note_word(cut.word)
        members.call("b", 2, 1000.5, 1000.6, Outcome.RATE_LIMITED)
        learning.take(members.notes(1000.6), 1000.6, 0.5)
        assert learning.publication(1000.6).rate < 0.6 * cut.rate

    def test_the_word_grows_with_every_other_conclusion_only(self):
        learning, members = learner(), Members()
        word = learning.publication(1000.1).word
        assert learning.publication(1000.2).word == word
        members.call("a", 1, 1000.1, 1000.2, Outcome.RATE_LIMITED)
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        assert learning.publication(1000.3).word == word + 1

    def test_a_floor_is_published_for_as_long_as_it_lasts(self):
        learning, members = learner(), Members()
        told = Signal(outcome=Outcome.RATE_LIMITED, retry_after=5.0)
        members.call("a", 1, 1000.1, 1000.2, signal=told)
        learning.take(members.notes(1000.2), 1000.2, 0.0)
        assert learning.publication(1000.2).hold >= 5.0
        assert learning.publication(1001.2).hold == pytest.approx(learning.publication(1001.2).hold)
        assert 0.0 < learning.publication(1004.0).hold < 2.5

    def test_what_the_leader_saw_itself_counts_like_what_others_saw(self):
        one, other, members = learner(), learner(), Members()
        own = ObservationLog()
        for log in (own, members.log("me")):
            log.send(1, 1000.1)
            log.end(1, 1000.2, 0.1, SILENT[Outcome.RATE_LIMITED], "")
        one.take_own(own, "me", 0.0, 1000.3, 0.5)
        other.take(members.notes(1000.3), 1000.3, 0.5)
        assert one.publication(1000.3).rate == pytest.approx(other.publication(1000.3).rate)

    def test_an_answer_whose_call_was_not_heard_of_still_teaches(self):
        learning, members = learner(), Members()
        members.log("a").end(9, 1000.2, 0.1, SILENT[Outcome.RATE_LIMITED], "")
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        assert learning.publication(1000.3).rate < 60.0

    @pytest.mark.parametrize("end", [RELEASED, ABANDONED])
    def test_ends_without_an_answer_leave_nothing_in_the_air(self, end):
        learning, members = learner(), Members()
        members.call("a", 1, 1000.1)
        members.log("a").end(1, 1000.2, 0.0, None, end)
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        assert len(learning.gate.in_flight) == 0

    def test_calls_of_different_members_with_the_same_number_are_different_calls(self):
        learning, members = learner(), Members()
        members.call("a", 1, 1000.1)
        members.call("b", 1, 1000.1, 1000.2)
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        assert len(learning.gate.in_flight) == 1

    def test_a_note_that_came_faster_than_the_one_before_does_not_turn_the_order_round(self):
        learning = learner()
        first, second = ObservationLog(), ObservationLog()
        first.send(1, 10.0)
        second.end(1, 10.0005, 0.0005, SILENT[Outcome.OK], "")
        notes = [
            Note(number=1, at=1000.010, member="a", text=first.text(10.0)),
            Note(number=2, at=1000.010, member="a", text=second.text(10.003)),  # says: 2.5 ms before the other
        ]
        learning.take(notes, 1000.02, 0.5)
        assert len(learning.gate.in_flight) == 0

    def test_no_more_calls_are_remembered_than_may_be(self, monkeypatch):
        monkeypatch.setattr("headgate.distributed.leader.MOST_OUT", 50)
        learning, members = learner(), Members()
        for number in range(200):
            members.call("a", number, 1000.0)
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        assert len(learning._out) <= 50
        assert len(learning.gate.in_flight) <= 50


class TestCircuit:
    CONFIG = RateLimitConfig(strategy="fixed", initial_rps=100.0, open_state_duration=5.0)

    def broken(self):
        learning, members = learner(self.CONFIG), Members()
        for number in range(5):
            members.call("ab"[number % 2], number, 1000.1, 1000.2, Outcome.TRANSIENT)
        learning.take(members.notes(1000.2), 1000.2, 0.5)
        return learning, members

    def test_failures_of_all_together_open_it(self):
        learning, _ = self.broken()
        told = learning.publication(1000.2)
        assert told.circuit_open
        assert told.open_for == pytest.approx(5.0)

    def test_a_probe_of_anybody_closes_it(self):
        learning, members = self.broken()
        learning.publication(1000.2)
        members.call("c", 1, 1005.5, 1005.6)
        learning.take(members.notes(1005.7), 1005.7, 0.5)
        assert not learning.publication(1005.7).circuit_open

    def test_a_probe_that_fails_opens_it_anew(self):
        learning, members = self.broken()
        learning.publication(1000.2)
        members.call("c", 1, 1005.5, 1005.6, Outcome.TRANSIENT)
        learning.take(members.notes(1005.7), 1005.7, 0.5)
        told = learning.publication(1005.7)
        assert told.circuit_open
        assert told.open_for == pytest.approx(4.9, abs=0.11)

    def test_a_late_answer_to_a_call_from_before_does_not_close_it(self):
        learning, members = learner(self.CONFIG), Members()
        members.call("slow", 1, 1000.0)
        for number in range(5):
            members.call("a", number, 1000.1, 1000.2, Outcome.TRANSIENT)
        learning.take(members.notes(1000.2), 1000.2, 0.5)
        members.log("slow").end(1, 1001.0, 1.0, SILENT[Outcome.OK], "")
        learning.take(members.notes(1001.0), 1001.0, 0.5)
        assert learning.gate.breaker.state is CircuitState.OPEN

    def test_plain_successes_count_against_failures(self):
        learning, members = learner(self.CONFIG), Members()
        for number in range(4):
            members.call("a", number, 1000.1, 1000.2, Outcome.TRANSIENT)
        learning.take(members.notes(1000.2), 1000.2, 0.5)
        members.log("b").oks = 3
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        members.call("a", 9, 1000.3, 1000.4, Outcome.TRANSIENT)
        learning.take(members.notes(1000.4), 1000.4, 0.5)
        assert not learning.publication(1000.4).circuit_open


def grown(strategy, seed=0, calls=300):
    """A leader that has seen something."""
    rng, members = random.Random(seed), Members()
    config = RateLimitConfig(strategy=strategy, initial_rps=20.0)
    learning, now = learner(config), BEGIN
    for number in range(calls):
        now += 0.05
        outcome = Outcome.OK if rng.random() < 0.93 else rng.choice([Outcome.RATE_LIMITED, Outcome.TRANSIENT])
        members.call(rng.choice("abc"), number, now - 0.04, now, outcome)
        learning.take(members.notes(now), now, rng.random())
        learning.publication(now)
    return config, learning, now


class TestHandingOver:
    @pytest.mark.parametrize("strategy", ["fixed", "aimd", "gradient", "adaptive"])
    def test_the_next_leader_goes_on_from_what_was_saved(self, strategy):
        config, learning, now = grown(strategy)
        heir = QuotaLeader(config.gate_config(), 2, now, learning.word)
        heir.go_on(learning.saved(), 7)
        before, after = learning.publication(now), heir.publication(now)
        assert after.rate == pytest.approx(before.rate)
        assert after.hold == pytest.approx(before.hold)
        assert after.circuit_open == before.circuit_open
        assert heir.read == 7
        assert after.fence == 2

    def test_notes_that_were_not_saved_yet_are_read_again(self):
        config, learning, now = grown("aimd")
        saved, members = learning.saved(), Members()
        members.log("a").note_word(learning.word)
        members.call("a", 1, now + 0.1, now + 0.2, Outcome.RATE_LIMITED)
        notes = members.notes(now + 0.3)
        learning.take(notes, now + 0.3, 0.5)
        heir = QuotaLeader(config.gate_config(), 2, now, learning.word)
        heir.go_on(saved, 0)
        heir.take(notes, now + 0.3, 0.5)
        before, after = learning.publication(now).rate, heir.publication(now + 0.3).rate
        assert after == pytest.approx(learning.publication(now + 0.3).rate)
        assert after == pytest.approx(before)

    def test_the_next_leader_does_not_cut_again_for_calls_that_left_before_a_cut_was_heard_of(self):
        learning, members = learner(), Members()
        members.log("b").note_word(learning.word)
        members.call("a", 1, 1000.1, 1000.2, Outcome.RATE_LIMITED)
        learning.take(members.notes(1000.3), 1000.3, 0.5)
        cut = learning.publication(1000.3)
        heir = QuotaLeader(AIMD.gate_config(), 2, 1000.4, cut.word)
        heir.go_on(learning.saved(), 1)
        members.call("b", 1, 1000.32, 1000.4, Outcome.RATE_LIMITED)  # it still goes by the word before
        heir.take(members.notes(1000.5), 1000.5, 0.5)
        assert heir.publication(1000.5).rate == pytest.approx(cut.rate)

    def test_a_pause_that_is_over_is_not_begun_anew_by_the_next_leader(self):
        learning, members = learner(), Members()
        saved = learning.saved()
        asked_to_wait = Signal(outcome=Outcome.RATE_LIMITED, retry_after=3.0)
        members.call("b", 1, 1000.1, 1000.2, signal=asked_to_wait)
        notes = members.notes(1000.2)
        heir = QuotaLeader(AIMD.gate_config(), 2, notes[0].at, learning.word)
        heir.go_on(saved, 0)
        heir.take(notes, 1001.2, 0.5)
        assert heir.publication(1001.2).hold == pytest.approx(2.0, abs=0.5)  # and a ramp that begins gently
        assert heir.publication(1003.9).hold == 0.0

    def test_what_the_last_leader_saw_itself_is_not_learned_twice(self):
        learning, log = learner(), ObservationLog()
        log.send(1, 1000.1)
        log.end(1, 1000.2, 0.1, SILENT[Outcome.RATE_LIMITED], "")
        learning.take_own(log, "a", 0.0, 1000.3, 0.5)
        cut = learning.publication(1000.3 + SAVE_EVERY, "a", number=8)
        own = Note(number=1, at=1000.6, member="a", text=log.text(1000.6, number=8))
        heir = QuotaLeader(AIMD.gate_config(), 2, own.at, cut.word)
        heir.go_on(cut.learned, cut.covers)
        heir.take([own], 1000.7, 0.5)
        assert heir.publication(1000.7).rate == pytest.approx(cut.rate)

    def test_it_saves_now_and_then_with_the_newest_note_it_knows(self):
        learning, members = learner(), Members()
        members.call("a", 1, 1000.1, 1000.2)
        learning.take(members.notes(1000.2), 1000.2, 0.5)
        assert learning.publication(1000.2).learned == ""
        told = learning.publication(1000.2 + SAVE_EVERY)
        assert told.learned
        assert told.covers == told.read == 1

    def test_what_another_strategy_learned_is_learned_anew(self):
        _, learning, now = grown("adaptive")
        heir = QuotaLeader(AIMD.gate_config(), 2, now, 1)
        heir.go_on(learning.saved(), 3)
        assert heir.publication(now).rate == pytest.approx(100.0)

    def test_a_strategy_that_cannot_be_put_away_saves_nothing(self):
        class Odd(type(RateLimitConfig(strategy="fixed").gate_config().controller())):
            def to_state(self):
                return None

        learning = learner(RateLimitConfig(strategy=Odd(5.0)))
        assert learning.publication(1010.0).learned == ""

    @pytest.mark.parametrize("text", ["", "null", "[]", "{}", "7", "[" * 100_000, "x" * 100, '"\\ud800"', "00000000[]"])
    def test_no_such_text_is_learned_anew(self, text):
        learning = learner()
        learning.go_on(text, 0)
        assert learning.publication(1000.5).rate == pytest.approx(100.0)

    @pytest.mark.no_cover
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("strategy", ["fixed", "aimd", "gradient", "adaptive"])
    def test_a_text_with_a_few_letters_changed_is_learned_anew(self, strategy, seed):
        config, learning, now = grown(strategy, calls=60)
        saved, rng = learning.saved(), random.Random(seed)
        fresh = QuotaLeader(config.gate_config(), 2, now, 1).publication(now).rate
        for _ in range(50):
            letters = list(saved)
            for _ in range(rng.randrange(1, 5)):
                letters[rng.randrange(len(letters))] = rng.choice('0123456789[],."-eE{}NaInfity')
            if rng.random() < 0.2:
                del letters[rng.randrange(len(letters)) :]
            text = "".join(letters)
            if text == saved:
                continue
            heir = QuotaLeader(config.gate_config(), 2, now, 1)
            heir.go_on(text, 0)
            assert heir.publication(now).rate == fresh

    def test_nothing_is_published_that_is_no_number(self):
        learning = learner()
        learning.gate.controller.rate = float("nan")
        assert 0.0 < learning.publication(1000.5).rate < float("inf")
        learning.gate.pacer.least = float("nan")
        with pytest.raises(ValueError, match="rate=nan"):
            learning.publication(1000.6)

    def test_no_hold_is_longer_than_any_wait_may_be(self):
        learning = learner()
        learning.gate.pause(float("inf"), 1000.0)
        assert learning.publication(1000.1).hold == LONGEST_WAIT

    def test_without_a_cap_it_says_so(self):
        assert learner().publication(1000.1).cap == NO_CAP
