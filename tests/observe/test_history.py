"""How keys have been going: sampled, thinned, bounded, and true to what was counted."""

import pytest

from headgate.observe.history import MOST_SAMPLES, MOST_SHOWN, MOST_TIMELINES, MOST_WANTED, WANTED_FOR, History
from headgate.observe.snapshot import KeyLine


def line(key="a", **more):
    return KeyLine(key=key, **{"rate": 10.0, **more})


def one(history, key="a", since=0.0):
    (found,) = history.timelines([key], since)
    return found


def test_counts_become_rates_over_the_time_that_passed():
    history = History()
    history.add(100.0, [line(done=5, refused=1, sent=6)])
    history.add(102.0, [line(done=25, refused=3, sent=30)])
    found = one(history)
    assert (found.at, found.done, found.refused) == ((100.0, 102.0), (0.0, 10.0), (0.0, 1.0))


def test_more_than_one_look_a_second_is_one():
    history = History()
    for tenth in range(30):
        history.add(100.0 + tenth / 10, [line(done=tenth)])
    assert one(history).at == (100.0, 101.0, 102.0)


def test_a_clock_that_was_set_back_stops_nothing():
    history = History()
    history.add(100.0, [line()])
    history.add(50.0, [line()])
    history.add(51.0, [line()])
    assert len(one(history, since=float("-inf")).at) == 3


def test_only_what_came_after_is_given():
    history = History()
    for second in range(10):
        history.add(100.0 + second, [line()])
    assert one(history, since=106.5).at == (107.0, 108.0, 109.0)
    assert one(history, since=109.0).at == ()


@pytest.mark.no_cover
def test_many_hours_are_no_longer_than_one_and_keep_their_sum():
    history = History()
    for second in range(21_600):
        history.add(float(second), [line(done=7 * second, waiting=second % 5)])
        if second % 5_000 == 0:
            assert len(history._histories["a"].samples) <= MOST_SAMPLES
    found = one(history, since=-1.0)
    assert len(found.at) <= MOST_SHOWN
    assert found.at[-1] == 21_599.0
    assert set(found.done[1:]) == {7.0}
    assert found.at == tuple(sorted(found.at))


def test_the_worst_of_a_time_is_what_is_left_of_it():
    history = History()
    for second in range(2_000):
        sick = second == 3
        history.add(float(second), [line(circuit="open" if sick else "closed", waiting=99 if sick else 0)])
    found = one(history, since=-1.0)
    assert "circuit" in found.state
    assert max(found.waiting) == 99


def test_states_are_told_apart():
    history = History()
    looks = [line(), line(returning=0.5), line(not_before=3.0), line(circuit="half_open", not_before=3.0)]
    for second, look in enumerate(looks):
        history.add(float(second), [look])
    assert one(history, since=-1.0).state == ("open", "ramp", "held", "circuit")


def test_the_keys_with_the_most_going_on_have_the_places():
    history = History()
    for second in range(20):
        quiet = [line(f"quiet-{n}", sent=second) for n in range(60)]
        busy = [line(f"busy-{n}", sent=100 * second, in_flight=5) for n in range(10)] if second > 5 else []
        history.add(float(second), quiet + busy)
    keys = history.keys()
    assert len(keys) == MOST_TIMELINES
    assert set(keys[:10]) == {f"busy-{n}" for n in range(10)}


def quiet_and_busy(history, seconds):
    for second in seconds:
        busy = [line(f"busy-{n}", sent=9 * second, in_flight=1) for n in range(2 * MOST_TIMELINES)]
        history.add(float(second), [*busy, line("quiet")])


def test_a_key_that_somebody_looks_at_has_a_place_for_as_long_and_a_little_longer():
    history = History()
    quiet_and_busy(history, range(5))
    assert history.timelines(["quiet"], 0.0) == []
    history.want(["quiet", "unknown"])
    quiet_and_busy(history, range(5, 5 + int(WANTED_FOR) - 1))
    assert len(one(history, "quiet").at) == WANTED_FOR - 1
    assert len(history.keys()) == MOST_TIMELINES
    for second in range(40, 42):
        history.add(float(second), [line("new", in_flight=1), *(line(f"busy-{n}", sent=900) for n in range(60))])
    assert history.timelines(["quiet"], 0.0) == []
    assert len(one(history, "new").at) == 2


def test_many_who_look_leave_places_for_the_busiest():
    history = History()
    quiet_and_busy(history, range(3))
    history.want([f"busy-{n}" for n in range(2 * MOST_TIMELINES)])
    history.want(["quiet"])
    before = history.keys()
    quiet_and_busy(history, range(3, 6))
    assert one(history, "quiet")
    assert len(set(before) & set(history.keys())) == MOST_TIMELINES - MOST_WANTED
    assert len(history.keys()) == MOST_TIMELINES


def test_a_key_that_counts_from_nothing_again_has_no_negative_rate():
    history = History()
    for second, done in enumerate((0, 50, 3, 5)):
        history.add(float(second), [line(done=done)])
    assert one(history, since=-1.0).done == (0.0, 50.0, 3.0, 2.0)


def test_an_unknown_key_has_no_line():
    assert History().timelines(["a"], 0.0) == []
