"""A caller that pauses must find its quota where it left it."""

import pytest

from headgate.sim.experiment import run
from headgate.sim.measures import BIN
from headgate.sim.notation import Rate
from headgate.sim.scenario import Budget, Limit, Scenario, Stream


@pytest.mark.parametrize("burst", [10, 50])
@pytest.mark.parametrize("pause", [60.0, 300.0])
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
    result = run(scenario, "adaptive", 0)
    assert result.ok > 0.9 * 2.0 * 600.0
