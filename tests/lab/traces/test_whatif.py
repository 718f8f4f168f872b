"""A recorded run, simulated again: close to what happened, and what would have happened otherwise."""

import math
from dataclasses import replace

import pytest

from headgate.lab.traces.analysis import KeySeen, Stretch, analyze_trace
from headgate.lab.traces.trace import Call, Heading, Learned, Trace
from headgate.lab.traces.whatif import (
    AS_RECORDED,
    Keys,
    RecordedServer,
    Times,
    WhatIf,
    as_it_was,
    quotas,
    read_whatif_keys,
    read_whatif_rate,
    replay_of,
    simulate,
)
from headgate.units import Rate

pytestmark = pytest.mark.no_cover


def recording(calls, *, workers=16, open_for=0.5):
    end = max(call.sent_at + call.latency for call in calls)
    samples = [Learned(float(at), 40.0) for at in range(int(end))]
    return Trace(Heading(calls=len(calls), workers=workers, open_for=open_for), list(calls), samples, end)


def steady(since, until, rate, status=200, latency=0.05):
    return [Call(since + (number + 0.5) / rate, latency, status) for number in range(round((until - since) * rate))]


REFUSED = [Call(at, 0.002, 429, retry_after=0.1) for at in (2.0, 8.0, 14.0, 20.0)]
SEEN = analyze_trace(recording([*steady(0, 2, 30), *steady(2, 20, 40), *REFUSED]))
"""780 items in 20 s under 40/s."""


def test_simulated_as_recorded_it_takes_about_as_long():
    outlook = simulate(SEEN)
    assert outlook.seconds == pytest.approx(as_it_was(SEEN).seconds, rel=0.12)
    assert (outlook.done, SEEN.items) == (780, 780)
    assert outlook.refused_share < 0.03


def test_twice_the_quota_takes_about_half_as_long():
    once, twice = simulate(SEEN), simulate(SEEN, WhatIf(rate=Times(2.0)))
    assert twice.seconds == pytest.approx(once.seconds / 2, rel=0.25)


def test_a_rate_takes_the_place_of_what_was_seen():
    assert simulate(SEEN, WhatIf(rate=Rate(10.0))).seconds == pytest.approx(78, rel=0.05)


def test_workers_that_are_too_few_are_what_it_waits_for():
    assert simulate(SEEN, WhatIf(workers=1)).seconds == pytest.approx(780 * 0.05, rel=0.1)


def test_an_oracle_under_the_same_quota_is_never_refused_and_not_slower():
    oracle = simulate(SEEN, strategy="oracle")
    assert (oracle.done, oracle.refused) == (780, 0)
    assert oracle.seconds <= simulate(SEEN).seconds


def test_the_same_seed_gives_the_same_answer():
    assert simulate(SEEN, seed=3) == simulate(SEEN, seed=3)


def test_an_outage_is_met_where_it_was_and_not_by_a_run_that_is_over_before():
    failing = [Call(12.0 + number / 10, 0.01, 503) for number in range(40)]
    seen = analyze_trace(recording([*steady(0, 12, 40), *failing, *steady(16, 24, 40), Call(2.0, 0.002, 429)]))
    assert simulate(seen).seconds > 20
    assert simulate(seen).failed > 0
    assert simulate(seen, WhatIf(rate=Times(4.0))).failed == 0


def test_what_refusals_said_is_said_again():
    result = simulate(SEEN, WhatIf(rate=Rate(10.0)), strategy="backoff")
    assert result.refused > 0
    headers = {
        answer.headers["retry-after"]
        for answer in (refusing_world().answer(0.0, 0) for _ in range(5))
        if answer.headers
    }
    assert headers == {"0.1"}


def refusing_world():
    server = RecordedServer(replay_of(SEEN, SEEN.keys, 4), SEEN, SEEN.keys, 0)
    while server.answer(0.0, 0).status == 200:
        pass
    return server


def test_the_recorded_world_knows_its_quota_and_when_the_next_call_fits():
    failing = [Call(12.0 + number / 10, 0.01, 503) for number in range(40)]
    seen = analyze_trace(recording([*steady(0, 12, 40), *failing, *steady(16, 24, 40), *REFUSED[:2]]))
    server = RecordedServer(replay_of(seen, seen.keys, 4), seen, seen.keys, 0)
    assert server.allowed_between(10.0, 11.0) == pytest.approx(40, rel=0.05)
    assert server.allowed_between(13.0, 14.0) == 0.0
    assert server.free_in(13.0, 0) == pytest.approx(3.0, abs=0.1)
    while server.answer(20.0, 0).status == 200:
        pass
    wait = server.free_in(20.0, 0)
    assert 0 < wait <= 1 / 38
    assert server.answer(20.0 + wait, 0).status == 200


def test_several_keys_share_a_rate_as_they_did():
    calls = [*steady(0, 10, 30), *(call._replace(key=2) for call in steady(0, 10, 10))]
    seen = analyze_trace(recording(calls))
    shares = [key.stretches[0].rate for key in quotas(seen, WhatIf(rate=Rate(100.0)))]
    assert sum(shares) == pytest.approx(100)
    assert shares[0] > shares[1]
    assert simulate(seen).done == 400


def two_keys():
    """30/s, and 10/s that become 50/s; neither is refused."""
    stretches = ((Stretch(0.0, 10.0, 30.0, True),), (Stretch(0.0, 4.0, 10.0, True), Stretch(4.0, 10.0, 50.0, True)))
    keys = tuple(KeySeen(stretches=own, burst=burst) for own, burst in zip(stretches, (4.0, 8.0), strict=True))
    return replace(SEEN, keys=keys, seconds=10.0)


def test_a_key_that_was_not_there_has_the_mean_of_the_others_at_each_instant():
    *recorded, first, second = quotas(two_keys(), WhatIf(keys=Keys(2, is_more=True)))
    assert tuple(recorded) == two_keys().keys
    assert first == second
    assert [(stretch.since, stretch.rate) for stretch in first.stretches] == [(0.0, 20.0), (4.0, 40.0)]
    assert (first.burst, first.mean_rate) == (6.0, 32.0)


def test_keys_are_added_to_what_the_asked_rate_leaves():
    rates = [key.mean_rate for key in quotas(two_keys(), WhatIf(rate=Times(2.0), keys=Keys(3)))]
    assert rates == [60.0, 68.0, 64.0]
    shared = [key.mean_rate for key in quotas(two_keys(), WhatIf(rate=Rate(64.0), keys=Keys(3)))]
    assert shared == pytest.approx([30.0, 34.0, 32.0])


def test_fewer_keys_than_there_were_are_average_ones():
    (only,) = quotas(two_keys(), WhatIf(keys=Keys(1)))
    assert only.mean_rate == 32.0


def test_more_keys_get_done_what_one_did_in_less_time():
    once, twice = simulate(SEEN), simulate(SEEN, WhatIf(keys=Keys(1, is_more=True)))
    assert (once.keys, twice.keys, twice.done) == (1, 2, 780)
    assert twice.seconds < 0.75 * once.seconds


@pytest.mark.parametrize(("text", "keys"), [("+2", Keys(2, is_more=True)), (" 5 ", Keys(5)), ("1000", Keys(1000))])
def test_keys_are_asked_for_as_more_or_as_a_number(text, keys):
    assert read_whatif_keys(text) == keys


@pytest.mark.parametrize("text", ["0", "+0", "-1", "+", "++2", "x2", "1.5", "99999999999", "", "\u0663"])
def test_what_is_no_number_of_keys_is_met_with_what_is(text):
    with pytest.raises(ValueError, match=r"\+2 for two more"):
        read_whatif_keys(text)


def test_single_failures_happen_again():
    calls = steady(0, 20, 40)
    for number in range(5, len(calls), 20):
        calls[number] = calls[number]._replace(status=500)
    outlook = simulate(analyze_trace(recording(calls)))
    assert outlook.failed / outlook.sent == pytest.approx(0.05, abs=0.03)


def test_the_quota_over_time_is_known_to_the_book():
    result = simulate(SEEN).run
    assert sum(result.allowed_per_bin[:40]) == pytest.approx(40 * 20, rel=0.05)


def test_an_answer_tells_a_program_what_was_asked():
    asked = simulate(SEEN, WhatIf(rate=Times(2.0), workers=9), strategy="aimd").facts()
    assert [asked[name] for name in ("strategy", "rate", "rate_factor", "workers")] == ["aimd", None, 2.0, 9]
    assert asked["calls_per_second"] == asked["done"] / asked["seconds"]
    other = simulate(SEEN, WhatIf(rate=Rate(600.0, 60.0))).facts()
    assert [other[name] for name in ("rate", "rate_factor", "workers")] == [10.0, None, 16]
    really = as_it_was(SEEN).facts()
    assert [really[name] for name in ("strategy", "rate", "rate_factor", "workers")] == ["adaptive", None, 1.0, 16]


@pytest.mark.parametrize(
    ("text", "rate"),
    [("x2", Times(2.0)), (" X0.5 ", Times(0.5)), ("100/s", Rate(100.0)), ("600/min", Rate(600.0, 60.0))],
)
def test_a_rate_is_asked_for_as_a_factor_or_outright(text, rate):
    assert read_whatif_rate(text) == rate


@pytest.mark.parametrize("text", ["2", "xx", "x", "x0", "x-1", "xnan", "x1e9", "fast", "0/s", ""])
def test_what_is_no_rate_is_met_with_what_is(text):
    with pytest.raises(ValueError, match=r"x2|more than 0"):
        read_whatif_rate(text)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (AS_RECORDED, "as recorded"),
        (WhatIf(rate=Times(2.0), workers=50), "quota x2, 50 workers"),
        (WhatIf(rate=Rate(100.0)), "quota 100/s"),
        (WhatIf(workers=1), "1 worker"),
        (WhatIf(rate=Times(2.0), keys=Keys(2, is_more=True), workers=9), "quota x2, 2 more keys, 9 workers"),
        (WhatIf(keys=Keys(1)), "1 key"),
    ],
)
def test_what_is_asked_can_be_said(asked, words):
    assert str(asked) == words


def test_a_run_that_does_not_end_in_time_is_given_up():
    seen = analyze_trace(recording(steady(0, 1, 40)))
    slow = simulate(seen, WhatIf(rate=Rate(1.0)), strategy="pause-60")
    assert math.isinf(slow.seconds)
    assert slow.done < seen.items
