"""The pool's rules, with the time as an argument."""

from __future__ import annotations

import pytest

from headgate import Limit, Outcome, Signal
from headgate.core.cooldown import UNTOLD_RESET, FixedCooldown
from headgate.core.credential_pool import Pool, PoolEntry
from headgate.core.decision import LONGEST_WAIT


def pool_of(*labels: str, **more: object) -> Pool[PoolEntry]:
    """Labels may carry a group: "a@one"."""
    parts = [label.partition("@") for label in labels]
    return Pool([PoolEntry(label, group or None) for label, _, group in parts], **{"at_once": 1, **more})  # type: ignore[arg-type]


def take(pool: Pool[PoolEntry], now: float, prefer: str | None = None) -> str | None:
    """Who goes next, as a caller would ask."""
    if now >= pool.change_at:
        pool.turn(now)
    slot = pool.pick(now, prefer)
    return None if slot is None else slot.label


def back(pool: Pool[PoolEntry], label: str) -> None:
    pool.by_label[label].holders -= 1
    pool.give_back(pool.by_label[label], 0, is_answered=True)


def hear(pool: Pool[PoolEntry], label: str, outcome: Outcome, now: float, **said: object) -> list[str]:
    signal = Signal(outcome=outcome, **said)  # type: ignore[arg-type]
    changed = pool.hear(pool.by_label[label], signal, now, now)
    back(pool, label)
    return [slot.label for slot in changed]


def left(remaining: float, reset: float | None = 60.0) -> tuple[Limit, ...]:
    return (Limit(remaining=remaining, reset=reset),)


def test_the_least_recently_used_goes_first() -> None:
    pool = pool_of("a", "b", "c")
    assert [take(pool, 0) for _ in range(4)] == ["a", "b", "c", None]
    for label in "bca":
        back(pool, label)
    assert [take(pool, 0) for _ in range(3)] == ["b", "c", "a"]


def test_whoever_has_rested_comes_back_in_the_order_of_use() -> None:
    pool = pool_of("a", "b", "c")
    assert take(pool, 0) == "a"
    hear(pool, "a", Outcome.RATE_LIMITED, 0, retry_after=10.0)
    assert take(pool, 1) == "b"
    back(pool, "b")
    pool.turn(10)
    assert [take(pool, 10) for _ in range(3)] == ["c", "a", "b"]


def test_the_preferred_one_goes_first_if_it_is_free() -> None:
    pool = pool_of("a", "b")
    assert take(pool, 0, "b") == "b"
    assert take(pool, 0, "b") == "a"
    assert take(pool, 0, "b") is None


@pytest.mark.parametrize(("at_once", "holders"), [(1, 1), (3, 3), (None, 50)])
def test_so_many_may_hold_one_at_once(at_once: int | None, holders: int) -> None:
    pool = pool_of("a", at_once=at_once)
    assert [take(pool, 0) for _ in range(holders)] == ["a"] * holders
    assert take(pool, 0) == (None if at_once else "a")


class TestBudgets:
    def test_more_budget_goes_first(self) -> None:
        pool = pool_of("a", "b")
        take(pool, 0), take(pool, 0)
        hear(pool, "a", Outcome.OK, 0, limits=left(5))
        hear(pool, "b", Outcome.OK, 0, limits=left(90))
        assert take(pool, 0) == "b"

    def test_those_of_which_nothing_is_known_take_turns_with_the_one_that_has_most(self) -> None:
        pool, used = pool_of("a", "b", "c"), []
        for _ in range(9):
            label = take(pool, 0)
            assert label is not None
            used.append(label)
            limits = {"a": left(5), "b": left(90)}.get(label, ())
            hear(pool, label, Outcome.OK, 0, limits=limits)
        assert used == ["a", "b", "c", "b", "c", "b", "c", "b", "c"]

    def test_one_that_has_nothing_left_goes_after_all_of_which_nothing_is_known(self) -> None:
        pool = pool_of("a", "b", "c")
        pool.learn(pool.by_label["a"], left(0), 0)
        assert [take(pool, 0) for _ in range(4)] == ["b", "c", "a", None]

    def test_what_is_taken_counts_before_an_answer_says_so(self) -> None:
        pool = pool_of("a", "b", at_once=None)
        pool.learn(pool.by_label["a"], left(3), 0)
        pool.learn(pool.by_label["b"], left(2), 0)
        assert [take(pool, 0) for _ in range(4)] == ["a", "b", "a", "b"]

    def test_a_budget_is_forgotten_at_its_reset(self) -> None:
        pool = pool_of("a", "b")
        take(pool, 0), take(pool, 0)
        hear(pool, "a", Outcome.OK, 0, limits=left(1, 30))
        hear(pool, "b", Outcome.OK, 0, limits=left(90, 3600))
        assert take(pool, 29) == "b"
        back(pool, "b")
        assert take(pool, 30) == "a"

    def test_of_several_budgets_the_smallest_counts(self) -> None:
        pool = pool_of("a", "b")
        pool.learn(pool.by_label["a"], (Limit(remaining=900.0), Limit(remaining=3.0, window=86400.0)), 0)
        pool.learn(pool.by_label["b"], left(4), 0)
        assert take(pool, 0) == "b"

    def test_a_group_has_one_budget(self) -> None:
        pool = pool_of("a@one", "b@one", "c")
        pool.learn(pool.by_label["a"], left(3), 0)
        pool.learn(pool.by_label["c"], left(4), 0)
        assert [slot.budget for slot in pool.slots] == [3, 3, 4]
        assert [take(pool, 0) for _ in range(3)] == ["c", "a", "b"]
        assert [slot.budget for slot in pool.slots] == [1, 1, 3]

    def test_tokens_and_budgets_of_a_moment_do_not_count(self) -> None:
        pool = pool_of("a", "b")
        pool.learn(pool.by_label["a"], (Limit(dimension="tokens", remaining=0.0), *left(0, 0.012)), 0)
        assert take(pool, 0) == "a"


class TestResting:
    def test_not_at_59_9_but_at_60(self) -> None:
        pool = pool_of("a")
        take(pool, 0)
        assert hear(pool, "a", Outcome.RATE_LIMITED, 0, retry_after=60.0) == ["a"]
        assert take(pool, 59.9) is None
        assert take(pool, 60.0) == "a"

    def test_a_second_shorter_refusal_shortens_nothing(self) -> None:
        pool = pool_of("a", at_once=None)
        take(pool, 0), take(pool, 0)
        hear(pool, "a", Outcome.RATE_LIMITED, 0, retry_after=60.0)
        assert hear(pool, "a", Outcome.RATE_LIMITED, 1, retry_after=5.0) == []
        assert (take(pool, 59.9), take(pool, 60.0)) == (None, "a")

    def test_a_longer_one_lengthens_it(self) -> None:
        pool = pool_of("a", at_once=None)
        take(pool, 0), take(pool, 0)
        hear(pool, "a", Outcome.RATE_LIMITED, 0, retry_after=5.0)
        assert hear(pool, "a", Outcome.RATE_LIMITED, 1, retry_after=60.0) == ["a"]
        assert (take(pool, 60.9), take(pool, 61.0)) == (None, "a")

    def test_giving_back_shortens_nothing(self) -> None:
        pool = pool_of("a@one", "b@one")
        take(pool, 0), take(pool, 0)
        hear(pool, "a", Outcome.RATE_LIMITED, 0, retry_after=60.0)
        back(pool, "b")
        assert take(pool, 59.9) is None

    def test_a_rate_limit_rests_the_group(self) -> None:
        pool = pool_of("a@one", "b@one", "c@two", "d")
        take(pool, 0)
        assert hear(pool, "a", Outcome.RATE_LIMITED, 0, retry_after=60.0) == ["a", "b"]
        assert [take(pool, 1) for _ in range(3)] == ["c", "d", None]

    def test_a_used_up_quota_rests_the_credential_alone_until_its_reset(self) -> None:
        pool = pool_of("a@one", "b@one")
        take(pool, 0)
        assert hear(pool, "a", Outcome.QUOTA_EXHAUSTED, 0, retry_after=7200.0) == ["a"]
        assert take(pool, 7199) == "b"
        assert take(pool, 7200) == "a"

    def test_a_quota_without_a_reset_is_tried_again_after_an_hour(self) -> None:
        pool = pool_of("a")
        take(pool, 0)
        hear(pool, "a", Outcome.QUOTA_EXHAUSTED, 0)
        assert (take(pool, UNTOLD_RESET - 1), take(pool, UNTOLD_RESET)) == (None, "a")

    def test_nothing_rests_for_more_than_31_days(self) -> None:
        pool = pool_of("a")
        pool.rest(pool.slots, float("inf"), 0, "parked")
        assert (take(pool, LONGEST_WAIT - 1), take(pool, LONGEST_WAIT)) == (None, "a")

    @pytest.mark.parametrize("outcome", [Outcome.OVERLOADED, Outcome.TRANSIENT, Outcome.INVALID, Outcome.TOO_LARGE])
    def test_what_is_no_fault_of_the_credential_leaves_it_free(self, outcome: Outcome) -> None:
        pool = pool_of("a")
        take(pool, 0)
        assert hear(pool, "a", outcome, 0, retry_after=60.0) == []
        assert take(pool, 0) == "a"

    def test_the_soonest_is_known_also_after_its_rest_has_grown(self) -> None:
        pool = pool_of("a", "b")
        a, b = pool.slots
        pool.rest((a,), 5, 0, "parked")
        pool.rest((b,), 50, 0, "parked")
        assert pool.back_at == 5
        pool.rest((a,), 60, 0, "parked")
        assert pool.back_at == 50
        pool.retire(b, "dead")
        assert pool.back_at == 60


class TestSilentRefusals:
    def test_each_in_a_row_rests_longer_and_a_success_starts_over(self) -> None:
        pool, now, rests = pool_of("a"), 0.0, []
        for outcome in [Outcome.RATE_LIMITED] * 4 + [Outcome.OK, Outcome.RATE_LIMITED]:
            assert take(pool, now) == "a"
            hear(pool, "a", outcome, now)
            rests.append(max(0.0, pool.by_label["a"].until - now))
            now += rests[-1]
        assert rests == pytest.approx([0.25, 0.5, 1.0, 2.0, 0.0, 0.25])

    def test_those_of_one_burst_are_one_event(self) -> None:
        pool = pool_of("a", at_once=None, silent_rest=FixedCooldown(1.0))
        slot = pool.by_label["a"]
        pool.limit(slot, None, sent_at=0.0, now=0.5)
        assert [pool.limit(slot, None, sent_at=0.0, now=0.5 + 0.15 * late) for late in range(9)] == [[]] * 9
        assert (slot.until, slot.limit_group.refusals) == (1.5, 1)

    def test_told_to_wait_for_no_time_is_no_rest(self) -> None:
        pool = pool_of("a")
        take(pool, 0)
        assert hear(pool, "a", Outcome.RATE_LIMITED, 0, retry_after=0.0) == []
        assert take(pool, 0) == "a"


class TestRetiring:
    @pytest.mark.parametrize("outcome", [Outcome.AUTH, Outcome.KEY_DEAD])
    def test_what_is_not_accepted_is_retired(self, outcome: Outcome) -> None:
        pool = pool_of("a@one", "b@one")
        take(pool, 0)
        assert hear(pool, "a", outcome, 0) == ["a"]
        assert pool.by_label["a"].state(0) == "retired"
        assert [take(pool, 1e9) for _ in range(2)] == ["b", None]

    def test_no_rest_brings_it_back(self) -> None:
        pool = pool_of("a")
        pool.rest(pool.slots, 5, 0, "parked")
        pool.retire(pool.by_label["a"], "dead")
        assert pool.rest(pool.slots, 1, 0, "parked") == []
        assert take(pool, 100) is None
        assert pool.is_spent()

    def test_an_operator_does(self) -> None:
        pool = pool_of("a", "b")
        a, b = pool.slots
        pool.retire(a, "dead")
        pool.rest((b,), 100, 0, "parked")
        assert (pool.bring_back(a), pool.bring_back(b), pool.bring_back(b)) == ([a], [b], [])
        assert [take(pool, 0), take(pool, 0)] == ["a", "b"]

    def test_an_operator_cannot_take_it_from_who_holds_it(self) -> None:
        pool = pool_of("a")
        take(pool, 0)
        pool.bring_back(pool.by_label["a"])
        assert take(pool, 0) is None


class TestLateAnswers:
    """What is heard of a call that was let out before an operator's word is void."""

    def late(self, pool: Pool[PoolEntry], label: str, outcome: Outcome, use: int) -> list[str]:
        slot = pool.by_label[label]
        return [one.label for one in pool.hear(slot, Signal(outcome=outcome, retry_after=60.0), 0, 2, use)]

    @pytest.mark.parametrize("outcome", [Outcome.AUTH, Outcome.RATE_LIMITED, Outcome.QUOTA_EXHAUSTED])
    def test_they_do_not_take_it_away_again(self, outcome: Outcome) -> None:
        pool = pool_of("a", at_once=None)
        (a,) = pool.slots
        take(pool, 0)
        first = a.used
        pool.retire(a, "auth")
        pool.bring_back(a)
        take(pool, 1)
        assert self.late(pool, "a", outcome, first) == []
        assert self.late(pool, "a", outcome, a.used) == ["a"]

    def test_a_word_about_one_of_a_group_is_about_that_one(self) -> None:
        pool = pool_of("a@one", "b@one", at_once=None)
        a, b = pool.slots
        take(pool, 0, "a")
        pool.rest((b,), 10, 0, "parked")
        pool.bring_back(b)
        assert self.late(pool, "a", Outcome.RATE_LIMITED, a.used) == ["a"]

    def test_a_word_about_one_that_was_not_away_changes_nothing(self) -> None:
        pool = pool_of("a")
        take(pool, 0)
        pool.bring_back(pool.slots[0])
        assert self.late(pool, "a", Outcome.AUTH, pool.slots[0].used) == ["a"]


class TestKnowledgeOfOthers:
    def test_within_an_era_the_longer_rest_wins(self) -> None:
        pool = pool_of("a")
        (a,) = pool.slots
        pool.rest((a,), 10, 0, "rate_limited")
        assert pool.restore(a, 0, 60, False, "parked", 0) == [a]
        assert pool.restore(a, 0, 5, False, "parked", 0) == []
        assert a.until == 60

    def test_a_newer_era_is_taken_as_it_is_and_an_older_one_is_not(self) -> None:
        pool = pool_of("a")
        (a,) = pool.slots
        pool.retire(a, "dead")
        assert pool.restore(a, 1, 0, False, "", 0) == []
        assert (a.state(0), a.era) == ("free", 1)
        assert pool.restore(a, 0, 60, True, "dead", 0) == []
        assert a.state(0) == "free"


def test_everybody_is_filed_anew_after_an_interruption() -> None:
    pool = pool_of("a", "b", "c", "d")
    a, b, c, _ = pool.slots
    assert pool.pick(0) is a
    pool.rest((b,), 10, 0, "parked")
    pool.retire(c, "dead")
    pool.free.clear()
    pool.resting.clear()
    pool.mend()
    assert [take(pool, 0) for _ in range(2)] == ["d", None]
    back(pool, "a")
    assert sorted(str(take(pool, 10)) for _ in range(2)) == ["a", "b"]
