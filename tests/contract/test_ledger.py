"""What every ledger promises."""

import asyncio
import math
import random

import pytest

from headgate.batch.ledger import Claim, LedgerError, RowState
from headgate.core.decision import LONGEST_WAIT

DONE, DEAD, PARKED, FAILED, LEASED, PENDING = (
    *(RowState.DONE, RowState.DEAD, RowState.PARKED, RowState.FAILED, RowState.LEASED, RowState.PENDING),
)


class TestManyAtOnce:
    async def test_each_change_counts_or_not_by_itself(self, ledger, rows, outcome):
        one, two, three = await ledger.claim(rows(0, 3))
        await ledger.record(outcome(two, PENDING, attempts=0))
        (again,) = await ledger.claim(rows(1, 1))
        changes = [outcome(one), outcome(two), outcome(three, DEAD, reason="invalid: no"), outcome(again, PARKED)]
        assert await ledger.record_all(changes) == [True, False, True, True]
        assert (await ledger.counts()).states == {DONE: 1, DEAD: 1, PARKED: 1}

    async def test_none_are_none(self, ledger):
        assert await ledger.record_all([]) == []

    async def test_they_are_final_in_the_order_they_were_given(self, ledger, rows, outcome):
        await ledger.output()
        claims = await ledger.claim(rows(0, 600))
        order = random.Random(5).sample(claims, 600)
        assert await ledger.record_all([outcome(claim) for claim in order]) == [True] * 600
        assert [one.index for one in await ledger.final(0, 1000)] == [claim.index for claim in order]


class TestClaims:
    async def test_a_new_row_is_claimed(self, ledger, rows):
        assert await ledger.claim(rows(0, 2)) == [Claim(0, 1), Claim(1, 1)]

    async def test_no_rows_are_no_claims(self, ledger):
        assert await ledger.claim([]) == []

    async def test_a_claimed_row_is_not_claimed_again(self, ledger, rows):
        await ledger.claim(rows(0, 1))
        assert await ledger.claim(rows(0, 2)) == [LEASED, Claim(1, 1)]

    async def test_a_final_row_says_how_it_ended(self, ledger, rows, outcome):
        one, two = await ledger.claim(rows(0, 2))
        await ledger.record(outcome(one))
        await ledger.record(outcome(two, DEAD, reason="invalid: no such model"))
        assert await ledger.claim(rows(0, 2)) == [DONE, DEAD]

    async def test_rows_come_in_any_order_and_with_gaps(self, ledger, rows):
        assert await ledger.claim([*rows(7, 1), *rows(2, 1)]) == [Claim(7, 1), Claim(2, 1)]
        assert (await ledger.counts()).seen == 2

    async def test_a_row_that_was_put_aside_is_claimed_under_a_new_fence_with_its_history(
        self, ledger, rows, outcome, wall
    ):
        (claim,) = await ledger.claim(rows(0, 1))
        ready_at = wall.now + 30
        await ledger.record(outcome(claim, PARKED, attempts=2, rate_limited=1, ready_at=ready_at))
        assert await ledger.claim(rows(0, 1)) == [
            Claim(0, claim.fence + 1, attempts=2, rate_limited=1, ready_at=pytest.approx(ready_at, abs=1e-3))
        ]

    async def test_a_row_that_was_given_back_is_free(self, ledger, rows, outcome):
        (claim,) = await ledger.claim(rows(0, 1))
        await ledger.record(outcome(claim, PENDING, attempts=0))
        (again,) = await ledger.claim(rows(0, 1))
        assert again.fence > claim.fence

    async def test_a_row_that_has_changed_is_named_by_its_number_and_nothing_is_taken(self, ledger, rows):
        await ledger.claim(rows(4, 1))
        with pytest.raises(LedgerError, match="row 5 of the input"):
            await ledger.claim([*rows(3, 1), *rows(4, 1, b"other")])
        assert (await ledger.counts()).seen == 1

    async def test_a_final_row_that_has_changed_is_noticed_too(self, ledger, rows, outcome):
        (claim,) = await ledger.claim(rows(0, 1))
        await ledger.record(outcome(claim))
        with pytest.raises(LedgerError, match="row 1 of the input"):
            await ledger.claim(rows(0, 1, b"other"))
        with pytest.raises(LedgerError, match="row 1 of the input"):
            await ledger.unfinished(0, [row.digest for row in rows(0, 1, b"other")])


class TestClocks:
    @pytest.mark.parametrize("moved", [-3600.0, -86400.0 * 365])
    async def test_a_clock_that_went_back_lengthens_no_wait(self, ledger, rows, outcome, wall, moved):
        (claim,) = await ledger.claim(rows(0, 1))
        await ledger.record(outcome(claim, PARKED, ready_at=wall.now + 30))
        wall.now += moved
        (again,) = await ledger.claim(rows(0, 1))
        assert again.ready_at - wall.now == pytest.approx(30, abs=1e-3)

    async def test_a_wait_that_is_over_is_none(self, ledger, rows, outcome, wall):
        (claim,) = await ledger.claim(rows(0, 1))
        await ledger.record(outcome(claim, FAILED, ready_at=wall.now + 30))
        wall.now += 31
        (again,) = await ledger.claim(rows(0, 1))
        assert again.ready_at == 0

    async def test_no_wait_is_longer_than_the_longest(self, ledger, rows, outcome, wall):
        (claim,) = await ledger.claim(rows(0, 1))
        await ledger.record(outcome(claim, PARKED, ready_at=wall.now + 1e12))
        (again,) = await ledger.claim(rows(0, 1))
        assert again.ready_at - wall.now == pytest.approx(LONGEST_WAIT)


class TestFences:
    async def test_a_change_under_an_old_fence_changes_nothing(self, ledger, rows, outcome):
        (old,) = await ledger.claim(rows(0, 1))
        await ledger.record(outcome(old, PENDING))
        (new,) = await ledger.claim(rows(0, 1))
        before = await ledger.counts()
        assert await ledger.record(outcome(old)) is False
        assert await ledger.counts() == before
        assert await ledger.record(outcome(new)) is True

    async def test_who_gave_a_row_back_has_no_more_say(self, ledger, rows, outcome):
        (claim,) = await ledger.claim(rows(0, 1))
        await ledger.record(outcome(claim, PENDING))
        assert await ledger.record(outcome(claim)) is False

    async def test_a_row_put_aside_may_go_on_under_its_fence(self, ledger, rows, outcome):
        (claim,) = await ledger.claim(rows(0, 1))
        assert await ledger.record(outcome(claim, FAILED))
        assert await ledger.record(outcome(claim, PARKED))
        assert await ledger.record(outcome(claim))

    async def test_a_final_row_changes_no_more(self, ledger, rows, outcome):
        await ledger.output()
        (claim,) = await ledger.claim(rows(0, 1))
        assert await ledger.record(outcome(claim, DEAD, reason="deadline"))
        assert await ledger.record(outcome(claim)) is False
        assert [(one.number, one.state) for one in await ledger.final(0, 10)] == [(1, DEAD)]

    async def test_a_row_nobody_claimed_cannot_be_recorded(self, ledger, outcome):
        assert await ledger.record(outcome(Claim(3, 1))) is False

    async def test_two_ends_of_one_row_at_once_count_once(self, ledger, rows, outcome):
        await ledger.output()
        (claim,) = await ledger.claim(rows(0, 1))
        assert sorted(await asyncio.gather(*(ledger.record(outcome(claim)) for _ in range(5)))) == [False] * 4 + [True]
        assert len(await ledger.final(0, 10)) == 1


class TestPassingBy:
    async def test_open_and_unknown_rows_are_unfinished(self, ledger, rows, outcome):
        claims = await ledger.claim(rows(0, 6))
        for claim in claims[:4]:
            await ledger.record(outcome(claim, DEAD if claim.index == 1 else DONE))
        assert await ledger.unfinished(0, [row.digest for row in rows(0, 6)]) == [4, 5]
        assert await ledger.unfinished(2, [row.digest for row in rows(2, 6)]) == [4, 5, 6, 7]
        assert await ledger.unfinished(0, []) == []


class TestAbandoned:
    async def test_what_is_held_is_not_abandoned(self, ledger, rows, outcome):
        one, two, _ = await ledger.claim(rows(0, 3))
        await ledger.record(outcome(one, PARKED))
        await ledger.record(outcome(two, FAILED))
        assert await ledger.abandoned(10) == []

    async def test_what_was_given_back_is(self, ledger, rows, outcome):
        for claim in await ledger.claim(rows(0, 4)):
            await ledger.record(outcome(claim, DONE if claim.index == 1 else PENDING))
        assert await ledger.abandoned(10) == [0, 2, 3]
        assert await ledger.abandoned(2) == [0, 2]


class TestOutput:
    async def test_rows_are_numbered_in_the_order_in_which_they_became_final(self, ledger, rows, outcome):
        assert await ledger.output() == (0, 0)
        claims = await ledger.claim(rows(0, 4))
        for index in (2, 0, 3):
            await ledger.record(outcome(claims[index]))
        final = await ledger.final(0, 10)
        assert [(one.number, one.index, one.result) for one in final] == [
            (1, 2, b"line 2\n"),
            (2, 0, b"line 0\n"),
            (3, 3, b"line 3\n"),
        ]
        assert [one.number for one in await ledger.final(1, 1)] == [2]
        assert await ledger.final(3, 10) == []

    async def test_numbers_have_no_gap_however_many_end_at_once(self, ledger, rows, outcome):
        await ledger.output()
        claims = await ledger.claim(rows(0, 700))
        random.Random(5).shuffle(claims)
        await asyncio.gather(*(ledger.record(outcome(claim)) for claim in claims))
        final = await ledger.final(0, 1000)
        assert [one.number for one in final] == list(range(1, 701))
        assert sorted(one.index for one in final) == list(range(700))

    async def test_a_checkpoint_is_kept(self, ledger, rows, outcome):
        await ledger.output()
        for claim in await ledger.claim(rows(0, 3)):
            await ledger.record(outcome(claim))
        assert await ledger.checkpoint(2, 14) is True
        assert await ledger.output() == (2, 14)
        assert [one.number for one in await ledger.final(2, 10)] == [3]

    async def test_only_who_has_the_output_may_say_how_far_it_is(self, ledger):
        assert await ledger.checkpoint(0, 0) is False

    async def test_lines_are_bytes_of_any_kind(self, ledger, rows, outcome):
        await ledger.output()
        lines = [b"", b"\x00\xff\n", bytes(range(256)), "Grüße 🌊\n".encode()]
        for claim, line in zip(await ledger.claim(rows(0, 4)), lines, strict=True):
            await ledger.record(outcome(claim, result=line))
        assert [one.result for one in await ledger.final(0, 10)] == lines


class TestNotes:
    async def test_a_note_is_kept_until_the_next(self, ledger):
        assert await ledger.noted("pauses") == ""
        await ledger.note("pauses", "until noon")
        await ledger.note("pauses", "until one")
        await ledger.note("ramp", "Grüße")
        assert (await ledger.noted("pauses"), await ledger.noted("ramp")) == ("until one", "Grüße")


class TestCounts:
    async def test_a_new_book_is_empty(self, ledger):
        counts = await ledger.counts()
        assert (counts.seen, counts.open, dict(counts.states), counts.attempts) == (0, 0, {}, 0)

    async def test_everything_is_counted_where_it_is(self, ledger, rows, outcome):
        states = [DONE, DONE, DEAD, DEAD, PARKED, FAILED, PENDING, None]
        for claim, state in zip(await ledger.claim(rows(0, 8)), states, strict=True):
            if state is not None:
                reason = {2: "invalid: bad", 3: "invalid"}.get(claim.index, "")
                await ledger.record(outcome(claim, state, reason=reason, attempts=2, tokens=10, cost=0.5))
        counts = await ledger.counts()
        assert counts.states == {DONE: 2, DEAD: 2, PARKED: 1, FAILED: 1, PENDING: 1, LEASED: 1}
        assert (counts.seen, counts.open) == (8, 4)
        assert counts.reasons == {"invalid": 2}
        assert (counts.attempts, counts.tokens, counts.cost) == (14, 70, 3.5)

    async def test_what_a_row_used_up_is_added_up_over_its_changes(self, ledger, rows, outcome):
        (claim,) = await ledger.claim(rows(0, 1))
        await ledger.record(outcome(claim, FAILED, attempts=1, tokens=5, cost=0.25, waited={"pace": 1.0}))
        await ledger.record(outcome(claim, DONE, attempts=2, tokens=7, cost=0.5, waited={"pace": 0.5, "floor": 2.0}))
        counts = await ledger.counts()
        assert (counts.attempts, counts.tokens, counts.cost) == (2, 12, 0.75)
        assert counts.waited == {"pace": 1.5, "floor": 2.0}

    @pytest.mark.parametrize("text", ["half \ud800 a character", "a zero \x00 inside", "'; DROP TABLE rows; --", "线"])
    async def test_names_and_reasons_from_outside_do_no_harm(self, ledger, rows, outcome, text):
        row = type(rows(0, 1)[0])(0, text, b"0" * 16)
        (claim,) = await ledger.claim([row])
        assert await ledger.record(outcome(claim, FAILED, reason=text))
        assert await ledger.record(outcome(claim, DEAD, reason=text))
        assert sum((await ledger.counts()).reasons.values()) == 1


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -1e300])
async def test_numbers_that_are_none_harm_neither_their_row_nor_its_neighbours(ledger, rows, outcome, odd):
    claim, other = await ledger.claim(rows(0, 2))
    strange = outcome(claim, PARKED, ready_at=odd, cost=odd, waited={"pace": odd}, tokens=2**70)
    assert await asyncio.gather(ledger.record(strange), ledger.record(outcome(other))) == [True, True]
    (again,) = await ledger.claim(rows(0, 1))
    assert await ledger.record(outcome(again))
    assert (await ledger.counts()).states == {DONE: 2}


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(5))
async def test_whatever_happens_the_counts_are_those_of_a_plain_list(ledger, rows, outcome, seed):
    draw = random.Random(seed)
    await ledger.output()
    claims, states, ended = {}, {}, []
    for _ in range(150):
        index = draw.randrange(30)
        if draw.random() < 0.5:
            (got,) = await ledger.claim(rows(index, 1))
            taken = states.get(index) in (None, PENDING, PARKED, FAILED)
            assert isinstance(got, Claim) == taken, f"seed {seed}"
            if taken:
                claims[index] = got
                states[index] = LEASED
        elif index in claims:
            state = draw.choice([DONE, DEAD, PARKED, FAILED, PENDING])
            counts = states[index] not in (DONE, DEAD, PENDING)
            assert await ledger.record(outcome(claims[index], state, reason="x")) == counts, f"seed {seed}"
            if counts:
                states[index] = state
                ended += [index] if state.final else []
    found = await ledger.counts()
    assert found.states == {state: list(states.values()).count(state) for state in set(states.values())}
    assert [one.index for one in await ledger.final(0, 100)] == ended
