"""Strategies that are told the quota: the oracle, a fixed pace at half of it, the cookbook."""

import pytest

from headgate.lab.baselines import BASELINES


def oracles(setup):
    [(controllers, _)] = BASELINES["oracle"].make(setup)
    return controllers


def test_it_leaves_so_as_to_arrive_when_the_server_is_free(setup):
    [oracle] = oracles(setup())
    assert oracle.on_send(4.0) == 5.5
    assert oracle.on_send(9.5) == 0.0


def test_under_a_limit_on_concurrency_a_place_is_free_when_the_answer_is_back(setup):
    [oracle] = oracles(setup(at_once=2))
    assert [oracle.on_send(10.0) for _ in range(3)] == [0.0, 0.0, 0.005]
    oracle.on_response(11.0, 200, 1.0, None)
    assert oracle.on_send(11.0) == 0.0


def test_oracles_of_two_processes_share_the_places(setup):
    one_world = setup(at_once=1)
    [first], [second] = oracles(one_world), oracles(one_world)
    assert first.on_send(10.0) == 0.0
    assert second.on_send(10.0) > 0.0


def informed(setup):
    [(controllers, _)] = BASELINES["informed"].make(setup)
    return controllers[0], setup.server


def answer(client, now, status=200, headers=None):
    client.on_response(now, status, 1.0, headers)


def test_an_informed_client_learns_the_quota_by_what_is_refused_in_a_round_trip(setup):
    client, server = informed(setup())
    assert [client.on_send(0.0) for _ in range(41)] == [0.0] * 40 + [10.0 - server.trip]
    answer(client, 1.0, 429, {"retry-after": "30"})
    assert client.on_send(1.0) == 30.0


def test_it_doubles_no_faster_than_once_in_a_round_trip_until_it_is_refused(setup):
    client, _ = informed(setup())
    now, sent = 10.0, []
    while len(sent) < 16:
        wait = client.on_send(now)
        now, sent = now + wait, sent if wait else [*sent, now]
    assert sum(at < 11.0 for at in sent) == 3
    assert sum(11.0 <= at < 12.0 for at in sent) <= 8


def test_a_raised_quota_is_seen_at_a_look_and_a_look_is_one_in_a_hundred_calls(setup):
    client, server = informed(setup())
    answer(client, 10.0, headers={"ratelimit-limit": "40"})
    assert client.known == pytest.approx(40.0)
    client.look_at, server.rate = 0.0, 80.0
    now, sent = 10.0, 0
    while client.known < 79.0:
        wait = client.on_send(now)
        now, sent = now + wait, sent + (not wait)
    assert sent == 101
    assert now == pytest.approx(10.0 + 99 / 40.0, abs=0.1)


def test_where_headers_tell_there_are_no_looks(setup):
    client, server = informed(setup())
    answer(client, 10.0, headers={"ratelimit-limit": "40"})
    server.rate = 80.0
    answer(client, 12.0, headers={"ratelimit-limit": "80"})
    assert client.known == pytest.approx(80.0)
    assert client.look_at == float("inf")


def controllers(name, setup):
    [(controllers, _)] = BASELINES[name].make(setup)
    return controllers


def test_half_of_the_quota_is_shared_out_by_process_and_key(setup):
    pace, _ = controllers("fixed-half", setup(keys=2, processes=2))
    assert pace.on_send(0.0) == 0.0
    assert pace.on_send(0.0) == pytest.approx(1 / (40.0 / 2 / 2 / 2))


def test_a_fixed_pace_makes_up_for_two_slots_and_no_more(setup):
    [pace] = controllers("fixed-half", setup())
    assert pace.on_send(0.0) == 0.0
    assert [pace.on_send(9.0) for _ in range(4)] == [0.0, 0.0, 0.0, pytest.approx(0.05)]


def test_the_cookbook_spends_the_quota_evenly(setup):
    [cookbook] = controllers("cookbook", setup())
    assert cookbook.on_send(0.0) == 0.0
    assert cookbook.on_send(0.0) == pytest.approx(1 / 40)


def test_the_cookbook_rests_15_s_after_a_429_and_then_sends_what_it_saved(setup):
    [cookbook] = controllers("cookbook", setup())
    cookbook.on_response(1.0, 429, 0.1, None)
    assert cookbook.on_send(1.0) == 15.0
    assert sum(cookbook.on_send(16.0) == 0.0 for _ in range(1000)) == 1 + 16 * 40


def test_the_cookbook_never_looks_more_than_a_thousand_times_a_second(setup):
    [cookbook] = controllers("cookbook", setup())
    assert cookbook.on_send(0.0) == 0.0
    assert cookbook.on_send(1 / 40 - 1e-5) == 0.001
