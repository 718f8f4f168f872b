"""How long a request may take: more where the way is long, and after one that failed; and what members are called."""

import pytest

from headgate.distributed.store import (
    FIRST_PATIENCE,
    LONGEST_MEMBER,
    PATIENCE,
    SHORTEST_TIMEOUT,
    AdaptiveTimeout,
    member_name,
)


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


class TestMemberNames:
    def test_no_two_members_have_the_same(self):
        assert len({member_name() for _ in range(100)}) == 100

    def test_they_end_in_what_a_person_can_look_for(self, monkeypatch):
        monkeypatch.setattr("os.getpid", lambda: 4321)
        monkeypatch.setattr("socket.gethostname", lambda: "höst\n1")
        assert member_name()[16:] == "-4321@hst1"

    def test_they_are_bounded(self, monkeypatch):
        monkeypatch.setattr("socket.gethostname", lambda: "h" * 300)
        assert len(member_name()) == LONGEST_MEMBER
