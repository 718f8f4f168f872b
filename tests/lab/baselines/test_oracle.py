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
