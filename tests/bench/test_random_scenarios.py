import math
from collections import Counter

import pytest
from bench.lab import random_scenarios
from bench.lab.random_scenarios import RANDOM_SCENARIOS, random_scenario, scenario_of, source_seed


@pytest.fixture(scope="module")
def scenarios():
    return [random_scenario(number, seed=0) for number in range(RANDOM_SCENARIOS)]


def test_a_number_and_a_seed_give_one_scenario():
    assert random_scenario(7, seed=2) == random_scenario(7, seed=2)
    assert random_scenario(7, seed=2) != random_scenario(8, seed=2)
    assert random_scenario(7, seed=2) != random_scenario(7, seed=3)


def test_a_scenario_is_found_by_its_name():
    assert scenario_of("unseen-0a1b2c3d-7") == random_scenario(7, seed="0a1b2c3d")


def test_the_seed_moves_with_the_controllers_sources(tmp_path, monkeypatch):
    before = source_seed()
    assert source_seed() == before
    (tmp_path / "__init__.py").write_text("LEAN = 0.3")
    monkeypatch.setattr(random_scenarios.adaptive, "__file__", str(tmp_path / "__init__.py"))
    changed = source_seed()
    assert changed != before
    (tmp_path / "__init__.py").write_text("LEAN = 0.4")
    assert source_seed() != changed


def test_every_name_is_its_own(scenarios):
    assert len({each.name for each in scenarios}) == RANDOM_SCENARIOS


def test_every_algorithm_and_every_way_to_speak_is_among_them(scenarios):
    algorithms = Counter(each.budgets[0].limits[0].algorithm for each in scenarios)
    assert set(algorithms) == {"bucket", "gcra", "window", "log", "strict-log", "concurrency"}
    assert min(algorithms.values()) >= 10
    assert {(each.retry_after, each.headers) for each in scenarios} == {
        ("none", "none"),
        ("exact", "none"),
        ("exact", "ratelimit"),
    }


def test_about_two_in_five_have_a_step(scenarios):
    assert 0.3 <= sum(bool(each.steps) for each in scenarios) / RANDOM_SCENARIOS <= 0.5


def test_they_are_of_all_sizes_within_their_bounds(scenarios):
    assert all(0.05 <= each.service_time <= 3 and 0.01 <= each.round_trip <= 0.15 for each in scenarios)
    paces = [each.nominal for each in scenarios]
    assert 0.45 <= min(paces) < 1
    assert 100 < max(paces) <= 201


def test_there_are_enough_calls_to_judge_and_not_too_many(scenarios):
    calls = [each.allowed_between(0.0, each.horizon) for each in scenarios]
    assert min(calls) >= 500
    assert max(calls) <= 16_000


def test_there_are_workers_enough_to_use_the_quota_up(scenarios):
    for each in scenarios:
        peak = each.nominal * max([1.0, *(step.factor for step in each.steps)])
        assert each.workers >= math.floor(1.5 * peak * (each.service_time + each.round_trip)) + 8, each.name


def test_a_server_that_counts_calls_counts_whole_ones_after_a_step_too(scenarios):
    for each in scenarios:
        limit = each.budgets[0].limits[0]
        if each.steps and not limit.refills:
            after = limit.count * each.steps[0].factor
            assert after == pytest.approx(round(after), abs=1e-9), each.name
            assert round(after) not in (0, limit.count), each.name
