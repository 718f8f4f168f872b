"""Notes: what was seen arrives as it was, and a note that is none says nothing and does no harm."""

import json
import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.decision import LONGEST_WAIT, NEVER, Outcome
from headgate.core.signal import SILENT, Limit, Signal
from headgate.distributed.observation_log import ABANDONED, MOST_EVENTS, RELEASED, ObservationLog, read
from headgate.distributed.protocol import LARGEST_NOTE

TOLD = Signal(
    outcome=Outcome.RATE_LIMITED,
    retry_after=2.5,
    limits=(Limit(dimension="tokens", limit=100.0, remaining=0.0, reset=1.5, window=60.0, name="tpm"),),
    scope="model",
)


def log_of(sends=(), ends=()):
    log = ObservationLog()
    log.sends += sends
    log.ends += ends
    return log


class TestThereAndBack:
    def test_calls_and_answers_arrive_with_their_times(self):
        log = log_of([(7, 10.0), (8, 10.5)], [(7, 10.6, 0.6, SILENT[Outcome.OK], "")])
        seen, waited_at, oks = read(log.text(11.0), "m", 501.0)
        assert [(one.number, one.at, one.member) for one in seen] == [(7, 500.0, "m"), (8, 500.5, "m"), (7, 500.6, "m")]
        assert seen[2].signal is SILENT[Outcome.OK]
        assert seen[2].latency == pytest.approx(0.6)
        assert (waited_at, oks) == (NEVER, 0)

    def test_all_that_an_answer_said_arrives(self):
        (seen,), _, _ = read(log_of(ends=[(1, 5.0, 0.1, TOLD, "")]).text(5.0), "m", 9.0)
        assert seen.signal == TOLD

    @pytest.mark.parametrize("outcome", list(Outcome))
    def test_every_outcome_arrives(self, outcome):
        (seen,), _, _ = read(log_of(ends=[(1, 5.0, 0.1, SILENT[outcome], "")]).text(5.0), "m", 9.0)
        assert seen.signal.outcome is outcome

    @pytest.mark.parametrize("end", [RELEASED, ABANDONED])
    def test_ends_without_an_answer_arrive(self, end):
        (seen,), _, _ = read(log_of(ends=[(1, 5.0, 0.0, None, end)]).text(5.0), "m", 9.0)
        assert (seen.end, seen.signal) == (end, None)

    def test_waiting_and_plain_successes_arrive(self):
        log = ObservationLog()
        log.waited_at, log.oks = 4.0, 12
        assert read(log.text(5.0), "m", 100.0) == ([], 99.0, 12)

    def test_an_empty_log_has_no_text(self):
        assert ObservationLog().text(1.0) == ""

    def test_it_says_by_which_word_each_call_left(self):
        log = ObservationLog()
        log.note_word(3)
        log.sends.append((1, 1.0))
        log.note_word(4)
        log.sends.append((2, 2.0))
        own = [one.word for one in log.seen("m", 0.0)]
        others, _, _ = read(log.text(3.0), "m", 3.0)
        assert own == [one.word for one in others] == [3, 4]

    def test_what_a_leader_reads_of_its_own_is_what_others_would_read(self):
        log = log_of([(1, 1.0), (2, 1.5)], [(1, 2.0, 1.0, TOLD, ""), (2, 2.1, 0.0, None, RELEASED)])
        others, _, _ = read(log.text(3.0), "m", 103.0)
        assert log.seen("m", 100.0) == others

    def test_clearing_leaves_nothing_but_the_word(self):
        log = log_of([(1, 1.0)], [(1, 2.0, 1.0, TOLD, "")])
        log.note_word(5)
        log.oks, log.waited_at = 3, 1.0
        log.clear()
        assert log.text(9.0) == ""
        assert log.word == 5

    def test_a_full_book_still_fits_into_a_note(self):
        sends = [(10**9 + number, 1.0 + number * 1e-6) for number in range(MOST_EVENTS)]
        ends = [(10**9 + number, 2.0, 1.234567, SILENT[Outcome.OK], "") for number in range(MOST_EVENTS)]
        text = log_of(sends, ends).text(3.0)
        assert len(text) <= LARGEST_NOTE, len(text)
        assert len(read(text, "m", 3.0)[0]) == 2 * MOST_EVENTS

    def test_a_book_full_of_long_answers_tells_their_outcomes_and_the_last_ones_whole(self):
        limits = tuple(Limit(dimension=f"dimension-{number}", limit=1e6, remaining=5e5) for number in range(8))
        chatty = Signal(outcome=Outcome.OK, limits=limits)
        log = ObservationLog()
        for number in range(MOST_EVENTS):
            log.end(number, 1.0, 0.5, chatty, "")
        log.end(MOST_EVENTS, 1.0, 0.5, chatty, "")  # one too many
        text = log.text(2.0)
        seen, _, _ = read(text, "m", 2.0)
        assert len(text) <= LARGEST_NOTE
        assert len(seen) == MOST_EVENTS
        assert all(one.signal.outcome is Outcome.OK for one in seen)
        assert seen[-1].signal == chatty


class TestNoSuchNote:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "null",
            "[]",
            "7",
            "{",
            '{"s":[],"a":[]}',
            '{"s":[1],"a":[],"v":[0,0,0]}',
            '{"s":[Infinity,0],"a":[],"v":[0,0,0]}',
            '{"s":[NaN,0],"a":[],"v":[0,0,0]}',
            '{"s":{},"a":[[]],"v":[0,0,0]}',
            '{"s":[],"a":[[1,0,0,"no such outcome"]],"v":[0,0,0]}',
            '{"s":[],"a":[[1,0,0,["ok"]]],"v":[0,0,0]}',
            '{"s":[],"a":[[1,0,0,"ok",1,2]],"v":[0,0,0]}',
            '{"s":[],"a":[[1,0,0,"ok",null,[["t",{},1,1,1,""]],null]],"v":[0,0,0]}',
            '{"s":[],"a":[[1,0,0,"ok",null,[["t",NaN,1,1,1,""]],null]],"v":[0,0,0]}',
            '{"s":[],"a":[[1,0,0,"ok",null,[["t",1e999,1,1,1,""]],null]],"v":[0,0,0]}',
            '{"s":[],"a":[],"v":[0,0]}',
            '{"s":[],"a":[],"v":[0,0,0],"o":Infinity}',
            '{"s":[],"a":[],"v":[0,0,0],"o":' + "9" * 5000 + "}",
            "[" * 60_000,
            " " * (LARGEST_NOTE + 1),
        ],
    )
    def test_it_says_nothing(self, text):
        assert read(text, "m", 100.0) == ([], NEVER, 0)

    def test_times_and_counts_are_bounded(self):
        text = '{"s":[1,-5,2,1e300],"a":[[3,-1,1e300,"ok"]],"v":[0,0,0],"w":-3,"o":1e300}'
        seen, waited_at, oks = read(text, "m", 100.0)
        assert [one.at for one in seen] == [100.0, 100.0 - LONGEST_WAIT, 100.0]
        assert seen[2].latency == LONGEST_WAIT
        assert waited_at == 100.0
        assert oks == 1_000_000

    @pytest.mark.parametrize("seed", range(5))
    def test_a_note_with_a_few_letters_changed_never_raises(self, seed):
        rng = random.Random(seed)
        log = log_of(
            [(number, 1.0 + number) for number in range(5)],
            [(1, 2.0, 1.0, TOLD, ""), (2, 2.1, 0.0, None, RELEASED), (3, 2.0, 0.1, SILENT[Outcome.OK], "")],
        )
        text = log.text(3.0)
        for _ in range(400):
            letters = list(text)
            for _ in range(rng.randrange(1, 4)):
                letters[rng.randrange(len(letters))] = rng.choice(string.printable)
            check(*read("".join(letters), "m", 1000.0))

    @pytest.mark.no_cover
    @settings(max_examples=30)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("savwo"), inner),
        )
    )
    def test_no_json_at_all_makes_it_raise(self, content):
        check(*read(json.dumps(content), "m", 1000.0))


def check(seen, waited_at, oks):
    """Whatever came of it is something that can be learned from."""
    assert len(seen) <= 2 * MOST_EVENTS
    assert 0 <= oks <= 1_000_000
    assert waited_at == NEVER or 1000.0 - LONGEST_WAIT <= waited_at <= 1000.0
    for one in seen:
        assert 1000.0 - LONGEST_WAIT <= one.at <= 1000.0
        assert 0.0 <= one.latency <= LONGEST_WAIT
        for limit in () if one.signal is None else one.signal.limits:
            assert isinstance(limit.dimension, str)
            assert all(value is None or abs(value) < float("inf") for value in (limit.limit, limit.remaining))
