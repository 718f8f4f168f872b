from headgate.lab.baselines.gradient2 import Gradient2


def fill(limiter):
    while not limiter.acquire(0.0):
        pass


def answer(limiter, times, latency, status=200):
    """Answers with the limit always used up."""
    for _ in range(times):
        fill(limiter)
        limiter.learn(0.0, status, latency)


def test_it_starts_with_20_in_flight():
    limiter = Gradient2()
    assert [limiter.acquire(0.0) for _ in range(21)] == [0.0] * 20 + [0.02]


def test_even_answers_raise_the_limit_to_200_and_no_further():
    limiter = Gradient2()
    answer(limiter, 1000, 0.1)
    assert limiter.limit == 200.0


def test_answers_slower_than_usual_lower_it():
    limiter = Gradient2()
    answer(limiter, 200, 0.1)
    before = limiter.limit
    answer(limiter, 20, 0.4)
    assert limiter.limit < before / 2


def test_a_limit_that_is_not_used_stays():
    limiter = Gradient2()
    for _ in range(100):
        assert limiter.acquire(0.0) == 0.0
        limiter.learn(0.0, 200, 0.1)
    assert limiter.limit == 20.0


def test_fast_refusals_look_like_room():
    limiter = Gradient2()
    answer(limiter, 100, 0.2)
    before = limiter.limit
    answer(limiter, 20, 0.04, status=429)
    assert limiter.limit > before


def test_usual_is_at_first_a_plain_mean():
    limiter = Gradient2()
    for latency in (0.1, 0.2, 0.3):
        limiter.learn(0.0, 200, latency)
    assert abs(limiter.usual - 0.2) < 1e-9
