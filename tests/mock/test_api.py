import pytest

from headgate.mock.api import MockApi, MockPlan, Verdict
from headgate.units import Outage, Rate, Step


def served(api, start, seconds, per_second):
    """How many of an even stream of calls are let through."""
    rulings = [api.begin(start + n / per_second, 0.5) for n in range(int(seconds * per_second))]
    return sum(decision.verdict is Verdict.ADMITTED for decision in rulings)


def test_time_counts_from_the_first_call():
    api = MockApi(MockPlan(outages=(Outage(0.0, 5.0),)))
    assert api.begin(1000.0, 0.5).verdict is Verdict.DOWN
    assert api.begin(1005.0, 0.5).verdict is Verdict.ADMITTED


@pytest.mark.no_cover
def test_a_step_changes_the_quota_at_its_instant():
    api = MockApi(MockPlan(rate=Rate(100.0), burst=1, steps=(Step(0.5, 10.0), Step(2.0, 20.0))))
    assert served(api, 7.0, 10, 1000) == pytest.approx(1000, abs=2)
    assert served(api, 17.0, 10, 1000) == pytest.approx(500, abs=2)
    assert served(api, 27.0, 10, 1000) == pytest.approx(2000, abs=2)


def test_an_idle_bucket_refills_at_the_rate_of_each_stretch():
    api = MockApi(MockPlan(rate=Rate(10.0), burst=10, steps=(Step(0.1, 0.5),)))
    for _ in range(10):
        api.begin(0.0, 0.5)
    # half a second at 10/s would be 5 tokens, but the bucket holds one after the step; 0.1 s more adds a tenth
    assert api.truth(0.6)["remaining"] == pytest.approx(1.0)


def test_an_outage_fails_calls_without_using_the_quota():
    api = MockApi(MockPlan(rate=Rate(5.0), outages=(Outage(1.0, 1.0),)))
    api.begin(0.0, 0.5)
    assert all(api.begin(1.5, 0.5).verdict is Verdict.DOWN for _ in range(50))
    assert served(api, 2.0, 1, 100) >= 5


def test_every_key_has_a_quota_and_steps_of_its_own_and_all_share_the_outages():
    keys = (MockPlan(rate=Rate(10.0), burst=1), MockPlan(rate=Rate(4.0), burst=1, steps=(Step(0.5, 5.0),)))
    plan = MockPlan(keys=keys, outages=(Outage(8.0, 2.0),))
    assert [plan.rate_at(at) for at in (0.0, 5.0, 8.0, 10.0)] == [14.0, 12.0, 0.0, 12.0]
    assert plan.allowed_between(0.0, 10.0) == pytest.approx(5 * 14 + 3 * 12)
    assert plan.allowed_between(0.0, 10.0) == pytest.approx(
        sum(key.allowed_between(0.0, 10.0) for key in plan.accounts)
    )
    api = MockApi(plan)
    verdicts = [api.begin(0.0, 0.5, key).verdict for key in (0, 1, 0, 1)]
    assert verdicts == [Verdict.ADMITTED, Verdict.ADMITTED, Verdict.RATE_LIMITED, Verdict.RATE_LIMITED]
    assert api.begin(0.11, 0.5, 0).verdict is Verdict.ADMITTED
    assert api.begin(0.11, 0.5, 1).verdict is Verdict.RATE_LIMITED
    assert {api.begin(9.0, 0.5, key).verdict for key in (0, 1)} == {Verdict.DOWN}
    api.end(9.0, answered=True, item_id="a", key=0)
    api.end(9.0, answered=True, item_id="a", key=1)
    truth = api.truth(9.0)
    assert (truth["admitted"], truth["rate_limited"], truth["down_answers"], truth["ids_done_twice"]) == (3, 3, 2, 1)
    assert [key["admitted"] for key in truth["keys"]] == [2, 1]


def test_what_was_allowed_is_the_area_under_the_quota():
    plan = MockPlan(rate=Rate(100.0), steps=(Step(0.5, 10.0),), outages=(Outage(15.0, 2.0),))
    assert plan.allowed_between(0.0, 20.0) == pytest.approx(1000 + 250 + 150)
    assert plan.allowed_between(14.0, 16.0) == pytest.approx(50)
    assert MockPlan(algorithm="concurrency").allowed_between(0.0, 20.0) is None


def test_items_are_counted_by_their_id():
    api = MockApi(MockPlan())
    for item in ("a", "b", "b", ""):
        api.begin(0.0, 0.5)
        api.end(0.0, answered=True, item_id=item)
    api.begin(0.0, 0.5)
    api.end(0.0, answered=False, item_id="c")
    truth = api.truth(0.0)
    assert (truth["ids_done"], truth["ids_done_twice"], truth["answered"], truth["in_flight"]) == (2, 1, 4, 0)


def test_the_same_draw_gives_the_same_service_time():
    api = MockApi(MockPlan(latency=0.1))
    assert [api.begin(0.0, draw).service_time for draw in (0.0, 0.5, 1.0)] == pytest.approx([0.075, 0.1, 0.125])


def test_a_plan_out_of_range_is_refused():
    with pytest.raises(ValueError, match="latency"):
        MockPlan(latency=-1.0)
    with pytest.raises(ValueError, match="too many steps"):
        MockPlan(steps=(Step(0.5, 1.0),) * 1001)
