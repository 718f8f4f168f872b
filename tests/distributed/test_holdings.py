"""Numbers, amounts of known limits and credit, each alone."""

import pytest

from headgate.core.answer_length import TokenCost
from headgate.distributed.holdings import ESTIMATE_MOVES, MOST_OWED, CreditAccount, HeldAmounts, HeldNumbers
from headgate.distributed.protocol import SyncReply

BURST = 1.0


class TestNumbers:
    def held(self):
        numbers = HeldNumbers()
        numbers.add(17.0, 3)
        numbers.add(41.0, 2)
        return numbers

    def test_none_are_held_at_first(self):
        assert HeldNumbers().count == 0

    def test_ranges_are_counted_together(self):
        numbers = self.held()
        assert (numbers.count, numbers.next, numbers.end) == (5, 17.0, 43.0)

    def test_the_line_must_pass_the_numbers_of_others(self):
        assert [self.held().nth(ordinal) for ordinal in (0, 1, 3, 4, 5)] == [17.0, 18.0, 20.0, 42.0, 43.0]

    def test_the_next_range_says_how_many_numbers_of_others_lie_between(self):
        numbers = self.held()
        numbers.next, numbers.left = 20.0, 0
        assert numbers.next_range() == 21.0
        assert (numbers.next, numbers.left) == (41.0, 2)
        assert numbers.next_range() == 0.0

    @pytest.mark.parametrize(("most", "skipped", "following"), [(0, 0, 17.0), (2, 2, 19.0), (4, 4, 42.0), (9, 5, 43.0)])
    def test_numbers_can_go_unused_over_ranges(self, most, skipped, following):
        numbers = self.held()
        assert numbers.skip(most) == skipped
        assert (numbers.next, numbers.count) == (following, 5 - skipped)

    def test_dropping_says_how_many_were_held(self):
        numbers = self.held()
        assert (numbers.drop(), numbers.drop(), numbers.count) == (5, 0, 0)
        numbers.add(50.0, 1)
        assert (numbers.next, numbers.end) == (50.0, 51.0)


class TestAmounts:
    def test_what_is_held_covers_a_call_after_those_ahead_of_it(self):
        amounts = HeldAmounts(["tokens", "tokens"])
        assert amounts.dimensions == ("tokens",)
        amounts.add({"tokens": 30, "bytes": 5})
        assert amounts.covers({"tokens": 30}, {})
        assert not amounts.covers({"tokens": 30}, {"tokens": 1})
        amounts.take({"tokens": 10, "bytes": 1})
        assert amounts.drop() == {"tokens": 20}
        assert amounts.drop() == {}

    def test_without_limits_everything_is_covered(self):
        assert HeldAmounts([]).covers({"tokens": 1e9}, {})

    def test_an_estimate_may_have_grown_since(self):
        sets = {"of_prompt": frozenset({"tokens"}), "of_answer": frozenset({"tokens"})}
        amounts = HeldAmounts(["tokens"])
        amounts.add({"tokens": 100 * (1 - ESTIMATE_MOVES)})
        assert amounts.covers(TokenCost({"tokens": 100.0}, prompt=50.0, answer=50.0, **sets), {})
        assert not amounts.covers({"tokens": 100.0}, {})

    def test_the_coordinator_has_to_know_of_its_limits_alone(self):
        assert HeldAmounts(["tokens"]).needed({"tokens": 3, "bytes": 5}) == {"tokens": 3, "requests": 1}


class TestCredit:
    def reply(self, line, now=6.0, **more):
        return SyncReply(now=now, rate=10.0, line=line, **more)

    def test_calls_on_credit_are_paid_for_as_far_as_others_used_the_rate(self):
        credit = CreditAccount()
        credit.settle(self.reply(100.0, now=5.0), BURST)
        credit.on_credit = 4.0
        credit.settle(self.reply(105.0, now=6.0), BURST)  # half of what the rate allowed was handed out
        assert (credit.owed, credit.on_credit, credit.spare) == (2, 0.0, pytest.approx(0.5))

    def test_a_line_that_went_back_is_a_new_coordinator_s(self):
        credit = CreditAccount()
        credit.settle(self.reply(100.0, now=5.0), BURST)
        credit.on_credit = 4.0
        credit.settle(self.reply(BURST, now=6.0), BURST)  # nothing was handed out
        assert (credit.owed, credit.spare) == (0, 1.0)

    def test_numbers_go_unused_for_what_is_owed(self):
        credit, numbers = CreditAccount(), HeldNumbers()
        credit.owed = 2
        numbers.add(0.0, 1)
        credit.pay(numbers)
        assert (credit.owed, numbers.count) == (1, 0)
        numbers.add(5.0, 3)
        credit.pay(numbers)
        assert (credit.owed, numbers.count, numbers.next) == (0, 2, 6.0)

    def test_no_more_is_owed_than_a_share_of_half_a_second(self):
        credit = CreditAccount()
        credit.on_credit = 1000.0
        credit.settle(self.reply(100.0, members=2), BURST)
        assert credit.owed == MOST_OWED * 10.0 / 2 + 0.5

    def test_what_is_cleared_or_forgotten_is_not_owed(self):
        credit = CreditAccount()
        for end in (credit.clear, credit.forget):
            credit.owed, credit.on_credit = 3, 2.0
            end()
            assert (credit.owed, credit.on_credit) == (0, 0.0)
