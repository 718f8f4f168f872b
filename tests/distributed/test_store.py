"""How long a request may take: more where the way is long, and after one that failed."""

import pytest

from headgate.distributed.store import FIRST_PATIENCE, PATIENCE, SHORTEST_TIMEOUT, AdaptiveTimeout


def test_what_is_not_known_yet_gets_time_to_start():
    """However often it fails: a member that took it for lost would know of no other, and start the whole limit."""
    patience = AdaptiveTimeout()
    patience.failed()
    assert patience.seconds == FIRST_PATIENCE
    assert AdaptiveTimeout(0.1).seconds == 0.1, "what was chosen counts"


@pytest.mark.parametrize(("trip", "seconds"), [(0.001, SHORTEST_TIMEOUT), (0.01, 0.08), (0.2, 1.6), (0.5, PATIENCE)])
def test_it_goes_by_what_requests_take(trip, seconds):
    patience = AdaptiveTimeout()
    for _ in range(50):
        patience.answered(trip)
    assert patience.seconds == pytest.approx(seconds)


def test_failures_give_the_next_more_time_up_to_the_most():
    patience = AdaptiveTimeout(0.1)
    patience.answered(0.001)
    seen = []
    for _ in range(3):
        patience.failed()
        seen.append(patience.seconds)
    assert seen == pytest.approx([0.075, 0.1, 0.1])


def test_less_than_the_least_may_be_asked_for():
    patience = AdaptiveTimeout(0.02)
    patience.answered(0.001)
    assert patience.seconds == 0.02
