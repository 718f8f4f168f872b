"""Many members of one coordinator, in virtual time: the sum stays within the rate, shares are fair."""

import itertools
import random

import pytest

from headgate.distributed.grants import TERM
from headgate.distributed.protocol import Publication

pytestmark = pytest.mark.no_cover

BURST = 4.0


def seconds_for(rate):
    return 3.0 if rate > 1000 else max(4.0, min(40.0, 300.0 / rate))


CORNERS = ((2.0, 2), (20.0, 8), (300.0, 64), (10_000.0, 64))


@pytest.mark.parametrize(
    ("rate", "members"),
    [
        pytest.param(*one, marks=() if one in CORNERS else pytest.mark.chaos)
        for one in itertools.product((2.0, 20.0, 300.0, 2000.0, 10_000.0), (2, 8, 64))
    ],
)
def test_the_sum_is_the_rate_and_each_has_its_share(population, over, members, rate):
    place, seconds = population(rate), seconds_for(rate)
    names = [f"m{number}" for number in range(members)]
    for name in names:
        place.join(name)
    place.run(seconds)
    starts = place.starts()
    assert over(starts, rate) <= BURST
    assert len(starts) == pytest.approx(rate * seconds, rel=0.02, abs=BURST + 1)
    shares = [place.started(name, place.now - 0.75 * seconds, place.now) for name in names]
    assert min(shares) >= 0.8 * max(shares) - 1  # one more or less is fair where there are few


@pytest.mark.parametrize("rate", [50.0, 500.0, 5000.0])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 4))])
def test_while_members_come_leave_die_and_idle(population, over, rate, seed):
    place, dice = population(rate, seed=seed), random.Random(seed)
    for name in ("steady1", "steady2"):
        place.join(name)
    for step in range(32):
        place.run(0.25)
        others = [one for one in place.members.values() if one.alive and not one.name.startswith("steady")]
        choice = dice.random()
        if choice < 0.4 or len(others) < 2:
            place.join(f"m{step}", demand=dice.choice([1e9, rate / 10, rate]))
        elif choice < 0.6:
            place.die(dice.choice(others).name)
        elif choice < 0.8:
            place.leave(dice.choice(others).name)
        else:
            idler = dice.choice(others)
            idler.go_on(place.now)
            idler.demand = idler.backlog = 0.0
    starts = place.starts()
    assert over(starts, rate) <= BURST, f"seed {seed}"
    assert len(starts) >= 0.97 * rate * 8.0, f"seed {seed}"


@pytest.mark.parametrize("rate", [20.0, 200.0, 2000.0])
def test_what_some_do_not_need_goes_to_the_others_within_a_second(population, rate):
    place = population(rate)
    for name in ("a", "b", "c", "d"):
        place.join(name)
    place.run(3.0)
    for name in ("c", "d"):
        place.members[name].demand = place.members[name].backlog = 0.0
    place.run(4.0)
    for name in ("a", "b"):
        assert place.started(name, place.now - 3.0, place.now) == pytest.approx(3.0 * rate / 2, rel=0.02, abs=1)


@pytest.mark.parametrize("rate", [20.0, 200.0, 2000.0])
def test_small_demands_are_met_and_the_rest_is_shared(population, rate):
    place = population(rate)
    for number in range(4):
        place.join(f"big{number}")
        place.join(f"small{number}", demand=rate / 20)
    place.run(12.0)
    for number in range(4):
        assert place.started(f"small{number}", place.now - 10, place.now) == pytest.approx(rate / 2, rel=0.05, abs=1)
        assert place.started(f"big{number}", place.now - 10, place.now) == pytest.approx(2 * rate, rel=0.02, abs=1)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(1, 3))])
@pytest.mark.parametrize("rate", [20.0, 200.0, 2000.0])
def test_lost_messages_grant_nothing_twice(population, over, rate, seed):
    """One in a hundred is lost, there or back. What arrives late starts late: that is all it may cost."""
    place = population(rate, seed=seed, lose=0.01)
    names = [f"m{number}" for number in range(8)]
    for name in names:
        place.join(name)
    place.run(8.0)
    assert over(place.starts(), rate, over=1.02) <= BURST, f"seed {seed}"
    assert len(place.starts()) <= rate * 8.0 + BURST + 1
    shares = [place.started(name, place.now - 6.0, place.now) for name in names]
    assert min(shares) >= 0.8 * max(shares), f"seed {seed}"


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_of_the_store_that_jumps_changes_nothing(population, over, jump):
    place = population(500.0)
    for number in range(8):
        place.join(f"m{number}")
    place.run(2.0)
    era = place.coordinator.era
    place.clock = lambda now: now + jump
    place.run(2.0)
    place.clock = lambda now: now
    place.run(2.0)
    assert over(place.starts(), 500.0) <= BURST
    assert len(place.starts()) == pytest.approx(3000, rel=0.01)
    assert place.coordinator.era == era
    assert place.members["m0"].replies[-1].members == 8


def test_a_hold_stops_all_within_the_time_they_listen_and_no_burst_follows(population, over):
    place = population(1000.0)
    for number in range(8):
        place.join(f"m{number}")
    place.run(2.0)
    held_at = place.now
    place.send(place.members["m3"], rest=1.0)
    place.run(3.0)
    starts = place.starts()
    assert not [at for at in starts if held_at + 0.05 < at < held_at + 1.0]
    after = [at for at in starts if at >= held_at + 1.0]
    assert len([at for at in after if at < held_at + 1.1]) <= 100 + BURST
    assert over(after, 1000.0) <= BURST


def test_a_new_rate_holds_for_what_is_out_already(population, over):
    place = population(1000.0)
    for number in range(8):
        place.join(f"m{number}")
    place.run(2.0)
    leader = place.members[place.coordinator.leader]
    place.send(leader, publication=Publication(fence=place.coordinator.fence, rate=100.0))
    changed_at = place.now
    place.run(4.0)
    assert over(place.starts(changed_at + 0.05), 100.0) <= BURST


def test_a_member_that_dies_holds_nothing_after_its_term(population):
    """Its calls in flight count under a cap until then, and its lease is lost; no more."""
    place = population(1000.0)
    place.join("dies", latency=0.5)
    place.run(0.5)
    place.send(place.members["dies"], publication=Publication(fence=place.coordinator.fence, rate=1000.0, cap=10.0))
    place.run(0.5)
    place.join("lives", latency=0.1)
    place.run(0.2)
    place.die("dies")
    died_at = place.now
    place.run(4.0)
    lived = [at for at in place.members["lives"].starts if at > died_at + TERM + 0.1]
    assert len(lived) / (place.now - died_at - TERM - 0.1) >= 0.75 * 10 / 0.1


@pytest.mark.parametrize("cap", [1, 5, 20])
def test_a_cap_is_kept_by_all_together(population, cap):
    place = population(1000.0)
    names = [f"m{number}" for number in range(6)]
    for name in names:
        place.join(name, latency=0.05)
    place.run(0.2)
    leader = place.members[place.coordinator.leader]
    place.send(leader, publication=Publication(fence=place.coordinator.fence, rate=1000.0, cap=float(cap)))
    capped_at = place.now
    place.run(4.0)
    edges = sorted(
        edge
        for member in place.members.values()
        for at in member.starts
        if at > capped_at + 0.2
        for edge in ((at, 1), (at + 0.05 - 1e-9, -1))
    )
    flying = most = 0
    for _, step in edges:
        flying += step
        most = max(most, flying)
    assert most <= cap
    shares = [place.started(name, place.now - 3.0, place.now) for name in names]
    assert min(shares) >= 0.8 * max(shares) - 1
    assert sum(shares) >= 3.0 * cap / 0.05 * 0.5


@pytest.mark.parametrize("members", [3, pytest.param(24, marks=pytest.mark.chaos)])
@pytest.mark.parametrize(("rate", "amount", "burst"), [(20.0, 1000.0, 100.0), (2.0, 100.0, 100.0)])
def test_a_known_limit_is_kept_in_every_window(population, members, rate, amount, burst):
    """Also where a hold or the pace makes calls start long after they were granted."""
    place = population(rate, limits=(("tokens", amount, 10.0, burst),))
    place.send(place.join("first", demand=0.0), rest=5.0)
    place.run(0.01)
    for number in range(members):
        place.join(f"m{number}", cost={"tokens": 10.0})
    place.run(30.0)
    starts = place.starts()
    first = 0
    for place_in_line, at in enumerate(starts):
        while starts[first] <= at - 10.0:
            first += 1
        assert (place_in_line - first + 1) * 10.0 <= amount
    assert len(starts) * 10.0 >= 25.0 * amount / 10.0 * 0.6
