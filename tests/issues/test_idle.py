"""A caller that pauses must find its quota where it left it."""

from statistics import median

import pytest

from headgate.lab.experiment import run
from headgate.lab.measures import BIN
from headgate.lab.scenario import Budget, Limit, Scenario, Stream
from headgate.units import Rate

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize(
    ("burst", "pause"),
    [
        (50, 60.0),
        (10, 300.0),
        pytest.param(10, 60.0, marks=pytest.mark.chaos),
        pytest.param(50, 300.0, marks=pytest.mark.chaos),
    ],
)
def test_after_a_pause_the_quota_is_still_known(burst: int, pause: float) -> None:
    busy, rest = 60.0, 60.0 + pause
    scenario = Scenario(
        name="pause",
        horizon=rest + 60.0,
        budgets=(Budget(limits=(Limit(algorithm="bucket", rate=Rate(50.0), burst=burst),)),),
        arrivals=(Stream(Rate(60.0), 0.0), Stream(Rate(0.01), busy), Stream(Rate(80.0), rest)),
    )
    result = run(scenario, "adaptive", 0)
    after = result.admitted_per_bin[int(rest / BIN) : int((rest + 50.0) / BIN)]
    assert sum(after) / 50.0 > 0.95 * 50.0
    assert result.refused_share < 0.01


def test_callers_limited_by_their_workers_are_not_taken_for_idle() -> None:
    """Workers that never wait for the pace, on a log that says how long to wait."""
    scenario = Scenario(
        name="workers",
        horizon=600.0,
        budgets=(Budget(limits=(Limit(algorithm="log", rate=Rate(20.0, 10.0)),)),),
        retry_after="exact",
        service_time=1.9,
        workers=13,
    )
    done = [run(scenario, "adaptive", seed).ok / (2.0 * 600.0) for seed in range(12)]
    assert median(done) > 0.91, done
    assert min(done) > 0.85, done
