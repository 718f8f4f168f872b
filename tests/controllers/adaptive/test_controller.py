"""The adaptive controller against servers it knows nothing about, in virtual time: what must come out of it."""

from __future__ import annotations

import pytest

from headgate.controllers.adaptive import Adaptive, AdaptiveSettings
from headgate.core.decision import Outcome
from headgate.core.signal import SILENT, Limit, Signal
from headgate.lab.experiment import decision_text
from headgate.reason_text import controller_text

pytestmark = pytest.mark.no_cover


def test_it_finds_a_bucket_within_seconds_and_holds_it(lab):
    world = lab.World(lab.TokenBucket(50, 50))
    world.run(5)
    assert 40 < world.controller.rate < 60
    tally = world.run(125)
    assert tally.served >= 0.95 * 50 * 120
    assert tally.refused_share <= 0.01
    assert controller_text(world.controller.why()).startswith("holding the measured 50.")


def test_a_burst_refused_after_three_calls_costs_a_hold_of_a_second_and_no_more(lab):
    world = lab.World(lab.TokenBucket(20, 3), initial=2.0)
    world.run(10)
    assert world.run(60).served >= 0.95 * 20 * 50


def test_it_follows_a_quota_down_and_up(lab):
    bucket = lab.TokenBucket(80, 40)
    world = lab.World(bucket)
    world.run(60)
    bucket._fill(60)
    bucket.rate = 30
    down = world.run(120)
    assert down.served >= 0.93 * 30 * 60
    assert down.refused_share <= 0.02
    bucket._fill(120)
    bucket.rate = 90
    world.run(150)
    up = world.run(210)
    assert up.served >= 0.95 * 90 * 60
    assert up.refused_share <= 0.01


def test_a_quota_that_falls_to_a_tenth_is_followed_at_once(lab):
    bucket = lab.TokenBucket(100, 5)
    world = lab.World(bucket)
    world.run(60)
    bucket._fill(60)
    bucket.rate = 10
    tally = world.run(70)
    assert world.controller.rate < 20
    assert tally.refused <= 25


@pytest.mark.parametrize(
    ("server", "nominal"),
    [(lambda lab: lab.TokenBucket(50, 50), 50), (lambda lab: lab.FixedWindow(600, 60, phase=17.0), 10)],
    ids=["bucket", "window"],
)
def test_it_follows_headers_without_being_refused(lab, server, nominal):
    world = lab.World(server(lab), headers=True)
    tally = world.run(240)
    assert tally.served >= 0.98 * nominal * 240
    assert tally.refused_share <= 0.0005
    assert controller_text(world.controller.why()) == "following the server's headers"


def test_a_window_too_short_to_spread_over_is_paced_just_below_its_limit(lab):
    tally = lab.World(lab.FixedWindow(50, 1, phase=0.3), headers=True).run(120)
    assert tally.served >= 0.93 * 50 * 120
    assert tally.refused_share <= 0.01


def test_headers_that_lie_are_dropped_and_the_quota_is_measured_instead(lab):
    class Liar(lab.TokenBucket):
        def limits(self, now):
            return (Limit(limit=6000, remaining=5000, reset=30, window=60),)

    world = lab.World(Liar(20, 20), headers=True)
    world.run(20)
    tally = world.run(110)
    assert world.controller.models.header_model.muted_until > world.now
    assert tally.served >= 0.93 * 20 * 90
    assert tally.refused_share <= 0.03


def test_it_learns_a_long_window_and_does_not_run_dry_in_each(lab):
    world = lab.World(lab.FixedWindow(600, 60, phase=20.0))
    world.run(180)
    tally = world.run(480)
    assert tally.served >= 0.93 * 10 * 300
    assert tally.refused_share <= 0.01
    assert world.controller.models.search.curve.window > 20


def test_it_finds_a_cap_on_calls_in_flight(lab):
    world = lab.World(lab.AtOnce(16), service=0.4)
    world.run(60)
    tally = world.run(180)
    assert 14 <= world.controller.cap <= 17
    assert " in flight" in controller_text(world.controller.why())
    assert tally.served >= 0.96 * 16 / (0.4 + 0.04) * 120
    assert tally.refused_share <= 0.01


def test_it_holds_back_from_a_server_that_only_gets_slower(lab):
    world = lab.World(lab.Queue(8), workers=256, service=0.1)
    world.run(30)
    tally = world.run(90)
    assert world.controller.cap < 40, "8 servers and the wire hold about 12 calls"
    assert tally.served >= 0.9 * 80 * 60


def test_an_idle_caller_teaches_nothing(lab):
    world = lab.World(lab.TokenBucket(1000, 1000), workers=1, service=1.0)
    world.run(120)
    assert world.controller.rate <= 8.0, "one call a second needs no more than the initial pace"


def test_a_failing_server_is_no_reason_to_grow(lab):
    world = lab.World(lab.TokenBucket(50, 50))
    world.run(30)
    before = world.controller.rate
    world.down = True
    world.run(60)
    assert world.controller.rate <= 1.05 * before


def test_a_retry_after_is_held_to_once_and_not_doubled(lab):
    world = lab.World(lab.TokenBucket(5, 5), retry_after=7.0)
    while world.controller.hold_until <= world.now:
        world.run(world.now + 0.01)
    assert world.controller.hold_until == pytest.approx(world.now + 7.0, abs=0.02)


def test_the_burst_that_was_refused_as_one_is_one_cut(lab, steady):
    controller = steady
    quota = controller.models.search.curve.quota
    gate = lab.Gate(controller, 10_000)
    burst = [gate.send(100.0 + 0.001 * n) for n in range(40)]
    refused = [ticket for ticket in burst if ticket.seq % 3]
    for at, ticket in enumerate(refused):
        controller.on_answer(ticket, SILENT[Outcome.RATE_LIMITED], 0.05, 100.1 + 0.001 * at)
        if at == 0:
            after_first = controller.models.search.pace
    assert controller.models.search.cut_seq == burst[-1].seq
    assert controller.models.search.pace == pytest.approx(after_first, rel=0.02)
    assert controller.models.search.pace > 0.5 * quota


def test_answers_to_calls_sent_before_the_cut_change_nothing(lab, steady):
    controller = steady
    gate = lab.Gate(controller, 10_000)
    early, late = gate.send(100.0), gate.send(100.5)
    controller.on_answer(late, SILENT[Outcome.RATE_LIMITED], 0.05, 100.55)
    before = controller.models.search.pace, controller.hold_until
    controller.on_answer(early, SILENT[Outcome.RATE_LIMITED], 0.6, 100.56)
    assert (controller.models.search.pace, controller.hold_until) == (pytest.approx(before[0], rel=0.01), before[1])


@pytest.mark.parametrize("outcome", [o for o in Outcome if o not in (Outcome.OK, Outcome.RATE_LIMITED)])
def test_nothing_but_a_refusal_cuts(lab, steady, outcome):
    controller = steady
    gate, rate = lab.Gate(controller, 10_000), controller.rate
    for n in range(4):
        controller.on_answer(gate.send(100.0 + n), SILENT[outcome], 0.1, 100.1 + n)
    assert controller.rate >= 0.99 * rate
    assert controller.hold_until < 100.0


@pytest.mark.parametrize(
    "server",
    [lambda lab: lab.TokenBucket(50, 50), lambda lab: lab.FixedWindow(200, 10, phase=3.0), lambda lab: lab.AtOnce(16)],
    ids=["bucket", "window", "at once"],
)
@pytest.mark.parametrize("packed_at", [0.5, 4.0, 33.0])
def test_a_controller_put_away_and_taken_out_again_decides_the_same(lab, server, packed_at):
    one, other = lab.World(server(lab)), lab.World(server(lab))
    one.run(packed_at)
    other.run(packed_at)
    reborn = Adaptive(AdaptiveSettings(initial=4.0))
    reborn.load_state(other.controller.to_state())
    other.controller = reborn
    one.run(60, record=True)
    other.run(60, record=True)
    assert one.decisions == other.decisions
    assert one.controller.to_state() == other.controller.to_state()


def test_the_same_seed_gives_the_same_run(lab):
    one, other = lab.World(lab.TokenBucket(30, 10)), lab.World(lab.TokenBucket(30, 10))
    one.run(60, record=True)
    other.run(60, record=True)
    assert one.decisions == other.decisions


# -- when one rule hands over to another ----------------------------------------------------------


def test_after_five_failures_in_a_row_what_was_sent_measures_nothing(lab, steady):
    gate = lab.Gate(steady, 10_000)
    for n in range(5):
        steady.on_wait(100.0 + n)
        assert steady.models.search.estimator.started
        steady.on_answer(gate.send(100.0 + n), SILENT[Outcome.OVERLOADED], 0.1, 100.1 + n)
    assert not steady.models.search.estimator.started


def test_a_failure_that_says_when_to_come_back_is_waited_for(lab, steady):
    ticket = lab.Gate(steady, 10_000).send(100.0)
    steady.on_answer(ticket, Signal(outcome=Outcome.OVERLOADED, retry_after=5.0), 0.1, 100.1)
    assert steady.hold_until == 105.1


def test_headers_that_turn_vague_are_left_for_the_pace_that_was_reached(lab):
    bucket = lab.TokenBucket(50, 50)
    world = lab.World(bucket, headers=True)
    world.run(20)
    assert controller_text(world.controller.why()) == "following the server's headers"
    bucket.limits = lambda now: (Limit(limit=50, remaining=10, reset=0),)
    told = []
    world.controller.listen(lambda now, event: told.append(decision_text(event)))
    world.run(21)
    assert told[0].startswith("the headers are no longer useful; continuing at ")
    assert 35 < float(told[0].removeprefix("the headers are no longer useful; continuing at ").removesuffix("/s")) < 60
    assert world.run(80).served >= 0.9 * 50 * 59


def test_at_a_cap_what_gets_done_is_what_was_learned(lab):
    world = lab.World(lab.AtOnce(16), service=0.4)
    world.run(60)
    assert world.controller.rate > 100
    assert world.controller.learned == pytest.approx(16 / 0.44, rel=0.15)


def test_a_cap_that_proves_wrong_hands_over_to_the_search_for_a_quota(lab):
    world = lab.World(lab.AtOnce(16), service=0.4)
    world.run(60)
    controller = world.controller
    controller.models.concurrency.misses = 4
    gate = lab.Gate(controller, 10_000)
    controller.on_answer(gate.send(100.0), SILENT[Outcome.RATE_LIMITED], 0.05, 100.1)
    assert not controller.models.concurrency.on
    assert controller.models.search.phase.value == "cruise"


def test_why_names_the_cap_that_slow_answers_made_necessary(lab):
    world = lab.World(lab.Queue(8), workers=256, service=0.1)
    world.run(60)
    assert (
        controller_text(world.controller.why())
        == f"at most {world.controller.cap:.0f} in flight since answers got slower"
    )


def test_why_says_that_the_headers_leave_nothing(lab):
    controller = Adaptive(AdaptiveSettings())
    gate = lab.Gate(controller, 1)
    used_up = Signal(
        outcome=Outcome.OK, limits=(Limit(dimension="requests", limit=20, remaining=0, reset=9e3, window=18e3),)
    )
    controller.on_answer(gate.send(0.0), used_up, 0.05, 0.1)
    assert controller_text(controller.why()) == "nothing is left by the server's headers"
    left = Signal(
        outcome=Outcome.OK, limits=(Limit(dimension="requests", limit=20, remaining=9, reset=9e3, window=18e3),)
    )
    controller.on_answer(gate.send(70.0), left, 0.05, 70.1)
    assert controller_text(controller.why()) == "searching for the limit"
