"""What a member may spend: never more than the store has leased to it, and in the end all of it."""

import random

from headgate.fleet.leased_budget import FIRST_ROWS, IDLE_FOR, LeasedBudget
from headgate.fleet.protocol import NO_CAP, NOTHING, Amount, Caps, MemberReply

TOKENS = Caps(max_tokens=1000.0)


def budget_of(caps=TOKENS):
    woken = []
    budget = LeasedBudget(caps, lambda: woken.append(True))
    budget.woken = woken
    return budget


def leased(budget, tokens, pool=500.0, others=0.0):
    budget.on_reply(MemberReply(now=0.0, held=Amount(tokens, 0.0), pool=Amount(pool, NO_CAP), others=Amount(others)))


def test_without_caps_everything_is_allowed_and_nothing_is_asked_for():
    budget = budget_of(Caps())
    assert not budget.is_capped
    budget.charge(10.0, 0.5)
    wish = budget.collect(1.0)
    assert (wish.spent, wish.held, wish.need, wish.want) == (Amount(10.0, 0.5), NOTHING, NOTHING, NOTHING)


def test_nothing_is_allowed_before_the_first_lease_and_it_is_asked_for_at_once():
    budget = budget_of()
    assert not budget.allows(10.0, 0.0)
    assert budget.woken
    assert not budget.is_spent(10.0, 0.0), "the store has not said anything yet"
    wish = budget.collect(0.1)
    assert wish.need == Amount(10.0, 0.0)
    assert wish.want.tokens == FIRST_ROWS * 10.0


def test_reservations_count_until_they_are_charged():
    budget = budget_of()
    leased(budget, 25.0)
    for _ in range(2):
        assert budget.allows(10.0, 0.0)
        budget.reserve(10.0, 0.0)
    assert not budget.allows(10.0, 0.0)
    budget.free(10.0, 0.0)
    budget.charge(4.0, 0.0)
    assert budget.allows(10.0, 0.0)


def test_what_does_not_do_for_the_next_row_is_given_back():
    budget = budget_of()
    leased(budget, 25.0)
    budget.reserve(20.0, 0.0)
    assert not budget.allows(10.0, 0.0)
    wish = budget.collect(1.0)
    assert (wish.held.tokens, wish.need.tokens) == (20.0, 10.0)
    assert not budget.allows(5.0, 0.0), "it is offered to others from this moment on"


def test_an_idle_member_gives_everything_back():
    budget = budget_of()
    leased(budget, 100.0)
    assert budget.allows(10.0, 0.0)
    assert budget.collect(1.0).held.tokens == 100.0
    assert budget.collect(1.0 + IDLE_FOR + 0.1).held == NOTHING
    assert not budget.allows(10.0, 0.0)


def test_a_member_in_the_middle_of_a_long_row_is_not_idle():
    budget = budget_of()
    leased(budget, 100.0)
    budget.reserve(10.0, 0.0)
    budget.collect(1.0)
    assert budget.collect(1_000.0).held.tokens == 100.0


def test_it_is_spent_only_if_neither_the_pool_nor_others_can_give_enough():
    budget = budget_of()
    leased(budget, 5.0, pool=2.0, others=3.0)
    assert not budget.is_spent(10.0, 0.0)
    assert budget.is_spent(10.1, 0.0)


def test_a_cap_on_money_alone_does_not_look_at_tokens():
    budget = budget_of(Caps(max_cost=1.0))
    budget.on_reply(MemberReply(now=0.0, held=Amount(0.0, 0.5), pool=Amount(NO_CAP, 0.0)))
    assert budget.allows(1e9, 0.5)
    assert not budget.allows(0.0, 0.6)


def test_the_members_of_a_fleet_spend_the_whole_cap_and_never_more(fleet):
    """Rows of all sizes in random order, a member that is killed, one that leaves and one that joins late."""
    draw = random.Random(7)
    caps = Caps(max_tokens=10_000.0, max_cost=50.0)
    members, clock = [fleet(caps=caps) for _ in range(8)], fleet.ground.clock
    running, spent, killed_with = [], 0.0, 0.0
    for round_ in range(600):
        for member in list(members):
            tokens = draw.choice((1.0, 7.0, 40.0))
            if member.budget.allows(tokens, tokens / 1000):
                member.budget.reserve(tokens, tokens / 1000)
                running.append((member, tokens))
        for member, tokens in running[: len(running) // 2]:
            member.budget.free(tokens, tokens / 1000)
            member.budget.charge(tokens, tokens / 1000)
            spent += tokens
        del running[: len(running) // 2]
        for member in members:
            if draw.random() < 0.5:
                member.step()
        if round_ == 40:
            killed = members.pop()
            killed_with = killed.budget._held.tokens - killed.budget._spent.tokens
            running = [(member, tokens) for member, tokens in running if member is not killed]
        if round_ == 80:
            members.pop().step(leaves=True)
            members.append(fleet(caps=caps))
        clock.advance(0.1)
        assert spent <= 10_000.0 + 1e-6
    assert spent + killed_with >= 10_000.0 - 40.0, "in the end only a part of a row is left"
    assert all(member.budget.is_spent(40.0, 0.04) for member in members)
