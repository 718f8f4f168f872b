import pytest

from headgate.lab.baselines import BASELINES


def workers(setup, name="pause-60"):
    return [controllers[0] for controllers, _ in BASELINES[name].make(setup)]


def test_one_429_pauses_everybody(setup):
    for name, pause in [("pause-60", 60.0), ("pause-5", 5.0)]:
        refused, other, _ = workers(setup(), name)
        refused.on_response(1.0, 429, 0.1, None)
        assert refused.on_send(1.0) == other.on_send(1.0) == pause


def test_ten_429s_of_one_burst_are_one_pause_and_a_later_one_doubles_it(setup):
    worker, *_ = workers(setup())
    for late in range(10):
        worker.on_response(1.0 + late / 10, 429, 0.5, None)
    assert worker.on_send(2.0) == 59.0
    worker.on_response(62.0, 429, 2.0, None)  # sent at 60, before the pause was over
    assert worker.cooldown.until == 61.0
    worker.on_response(62.0, 429, 0.5, None)
    assert worker.on_send(62.0) == 120.0


def test_the_pause_ends_at_ten_minutes_and_a_success_starts_it_over(setup):
    worker, *_ = workers(setup())
    pauses = []
    for _ in range(6):
        now = worker.cooldown.until + 1.0
        worker.on_response(now, 429, 0.1, None)
        pauses.append(worker.cooldown.until - now)
    assert pauses == [60, 120, 240, 480, 600, 600]
    worker.on_response(worker.cooldown.until, 200, 0.1, None)
    worker.on_response(10_000.0, 429, 0.1, None)
    assert worker.on_send(10_000.0) == 60.0


def test_retry_after_is_a_floor(setup):
    worker, *_ = workers(setup())
    worker.on_response(0.0, 429, 0.0, {"retry-after": "90"})
    assert worker.on_send(0.0) == 90.0


def test_fifty_items_after_a_pause_are_held_back_from_2_s_down(setup):
    crowd = workers(setup(workers=52), "pause-5")
    crowd[0].on_response(0.0, 429, 0.0, None)
    holds = [worker.on_send(5.0) for worker in crowd]
    assert holds[0] == 2.0
    assert holds[49] == pytest.approx(0.1, abs=0.04)
    assert holds == sorted(holds, reverse=True)
    assert holds[50:] == [0.0, 0.0]
    assert crowd[0].on_send(7.0) == 0.0, "an item is held back once"


def test_a_5xx_rests_one_worker_alone(setup):
    failed, other, _ = workers(setup(draw=0.0))
    failed.on_response(1.0, 503, 0.1, None)
    assert failed.on_send(1.0) == 0.5
    assert other.on_send(1.0) == 0.0
