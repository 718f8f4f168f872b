"""Wait lines: in which order, how many, and what a lane waits for between two rows."""

from tests.observe.monitored import KEY, limiter_on

from headgate.batch.lanes import LaneStanding
from headgate.lab.virtual_time import VirtualClock
from headgate.observe.snapshot import (
    MOST_WAITS,
    WaitLine,
)
from headgate.observe.sources import ORDINARY, LastCauses, RecentRate, cause_of, in_order


def test_what_is_shut_comes_before_what_is_paced():
    lines = [
        WaitLine(scope="a", sentence="a is paced", behind=9_000, code="pace"),
        WaitLine(scope="b", sentence="b rests", behind=12, seconds=41.0, code="credential"),
        WaitLine(scope="c", sentence="c is shut", behind=80, code="circuit"),
    ]
    assert [line.scope for line in in_order(lines)] == ["c", "b", "a"]


def test_what_does_not_fit_is_counted():
    lines = [WaitLine(scope=f"{n}", sentence=f"{n}: shut", behind=n) for n in range(100)]
    shown = in_order(lines)
    assert len(shown) == MOST_WAITS
    assert sum(line.behind for line in shown) == sum(range(100))
    assert shown[-1].sentence == "81 other causes"


def test_a_lane_between_two_rows_waits_for_what_it_waited_for_last():
    def lane(waits_for, reason):
        return LaneStanding(
            key=KEY, credential=None, rate=7.0, in_flight=1, waiting=9, opens_in=None, reason=reason,
            gate_key=KEY, waits_for=waits_for,
        )  # fmt: skip

    causes = LastCauses(lambda one: one.gate_key)
    told = []
    for waits_for, reason in [("", ""), ("workers", "all busy"), ("", ""), ("cooldown", "pausing"), ("", "")]:
        ((_, cause),) = causes.of([lane(waits_for, reason)])
        told.append((cause.waits_for, cause.text))
    usual = ("pace", "paced at 7 calls/s")
    assert told == [usual, ("workers", "all busy"), ("workers", "all busy"), ("cooldown", "pausing"), usual]


def test_a_pace_is_an_ordinary_wait_and_a_pause_is_none():
    limiter = limiter_on(VirtualClock(), 5.0)
    while limiter.try_acquire(KEY):
        pass
    assert cause_of(limiter.key_status(KEY).explanation).code in ORDINARY
    limiter.pause(KEY, 30.0)
    assert cause_of(limiter.key_status(KEY).explanation).code not in ORDINARY


def test_a_burst_at_the_start_soon_does_not_count_in_the_rate() -> None:
    """A server with a full bucket: 100 at once, then 5 a second. The time to go is estimated by this rate."""
    recent = RecentRate()
    rates = {second: recent.rate(second / 2, 100 * (second > 0) + 5 * second // 2) for second in range(81)}
    assert all(4.0 <= rates[second] <= 6.0 for second in range(4, 81)), rates


def test_the_rate_of_bursts_that_are_far_apart_is_their_average() -> None:
    """20 in every tenth second and none between them."""
    recent = RecentRate()
    rates = [recent.rate(float(second), 20 * (second // 10 + 1)) for second in range(61)]
    assert all(1.0 <= rate <= 4.0 for rate in rates[21:]), rates


def test_the_rate_is_0_while_paused_and_starts_over_after_it() -> None:
    recent = RecentRate()
    assert [recent.rate(second, 10 * second) for second in range(3)] == [0.0, 10.0, 10.0]
    assert recent.rate(3.0, 20, is_paused=True) == 0.0
    assert recent.rate(5.0, 22) == 1.0
