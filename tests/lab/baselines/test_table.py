"""Every baseline keeps to the contract, whatever the server answers."""

import random

import pytest

from headgate.lab.baselines import BASELINES

pytestmark = pytest.mark.no_cover

SHARED = {
    "oracle",
    "informed",
    "fixed-half",
    "aimd-per-response",
    "aimd-429",
    "aimd-10s",
    "autothrottle",
    "cookbook",
    "header-pace",
}
"""Those whose workers have no memory of their own."""
LONGEST_WAIT = 600.0
MOST_ASKS = 10_000
ANSWERS = [(200, None), (429, None), (429, {"retry-after": "2"}), (503, None), (0, None)]


@pytest.mark.parametrize("name", BASELINES)
def test_a_process_gets_a_controller_for_each_key_and_all_its_workers(name, setup):
    clients = BASELINES[name].make(setup(keys=2, workers=5))
    assert all(len(controllers) == 2 for controllers, _ in clients)
    assert [workers for _, workers in clients] == ([5] if name in SHARED else [1] * 5)


def send(controller, now):
    """The instant at which the controller lets a call go, asked as often as it wants to be."""
    for _ in range(MOST_ASKS):
        wait = controller.on_send(now)
        assert 0.0 <= wait < LONGEST_WAIT + 1e-6, f"at {now}"
        if not wait:
            return now
        now += wait
    raise AssertionError(f"not one call let go until {now}")


@pytest.mark.parametrize("name", BASELINES)
def test_waits_are_finite_whatever_is_answered(name, setup):
    answers = random.Random("answers")
    [(controllers, _), *_] = BASELINES[name].make(setup(draw=None))
    now = 0.0
    for _ in range(300):
        status, headers = answers.choice(ANSWERS)
        now = send(controllers[0], now) + 0.1
        controllers[0].on_response(now, status, 0.1, headers)


@pytest.mark.parametrize("name", BASELINES)
def test_more_failures_in_a_row_than_a_float_has_doublings(name, setup):
    [(controllers, _), *_] = BASELINES[name].make(setup(draw=None))
    now = 0.0
    for _ in range(1100):
        now = send(controllers[0], now) + 0.1
        controllers[0].on_response(now, 429, 0.1, None)


def test_only_those_that_know_the_server_foresee():
    assert [name for name, baseline in BASELINES.items() if baseline.foresees] == ["oracle", "informed"]
