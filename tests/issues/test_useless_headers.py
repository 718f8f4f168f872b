"""Headers that turn out to be useless must leave a run no worse off than silence."""

from headgate.lab.experiment import run
from headgate.lab.scenario import Budget, Limit, Scenario
from headgate.lab.simulated_server import SimulatedServer
from headgate.units import Rate


def test_a_bucket_that_is_quicker_than_its_answers_is_searched_for():
    """It ended at a twentieth of the quota: what got through while the headers held calls back was taken for it."""
    bucket = Limit(algorithm="bucket", rate=Rate(4.53, 1.0), burst=22)
    scenario = Scenario(
        name="slow-answers",
        note="a small bucket with headers and answers of 3 s",
        horizon=180,
        budgets=(Budget(limits=(bucket,)),),
        service_time=2.84,
        service_variation=0.25,
        retry_after="exact",
        headers="ratelimit",
        round_trip=0.13,
        workers=29,
    )
    done = run(scenario, "adaptive", 0)
    assert done.ok > 0.9 * SimulatedServer(scenario, 0).allowed_between(0.0, scenario.horizon)
