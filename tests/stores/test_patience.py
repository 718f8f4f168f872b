"""How long a visit may take: more where the way is long, and after one that failed."""

import pytest

from headgate.stores.patience import LEAST, TIMEOUT, Patience


def test_what_is_not_known_yet_gets_all_there_is():
    assert Patience().seconds == TIMEOUT


@pytest.mark.parametrize(("trip", "seconds"), [(0.001, LEAST), (0.01, 0.08), (0.2, TIMEOUT)])
def test_it_goes_by_what_visits_take(trip, seconds):
    patience = Patience()
    for _ in range(50):
        patience.answered(trip)
    assert patience.seconds == pytest.approx(seconds)


def test_failures_give_the_next_more_time_up_to_the_most():
    patience = Patience(0.1)
    patience.answered(0.001)
    seen = []
    for _ in range(3):
        patience.failed()
        seen.append(patience.seconds)
    assert seen == pytest.approx([0.075, 0.1, 0.1])


def test_less_than_the_least_may_be_asked_for():
    patience = Patience(0.02)
    patience.answered(0.001)
    assert patience.seconds == 0.02
