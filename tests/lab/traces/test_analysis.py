"""A recording shows the quota between refusals, and says where it does not."""

import pytest

from headgate.lab.traces.analysis import analyze_trace
from headgate.lab.traces.trace import Call, Heading, Learned, Trace


def steady(since, until, rate, status=200, latency=0.05, waited=0.1):
    count = round((until - since) * rate)
    return [Call(since + (number + 0.5) / rate, latency, status, waited) for number in range(count)]


def refused(at, retry_after=None):
    return Call(at, 0.002, 429, retry_after=retry_after)


def recording(calls, *, ended_at=None, learned=(), workers=8):
    end = max(call.sent_at + call.latency for call in calls) if ended_at is None else ended_at
    samples = [Learned(at, rate) for at, rate in learned]
    return Trace(Heading(calls=len(calls), workers=workers), list(calls), samples, end, is_whole=True)


def quota(seen, at):
    return rate_at(seen.keys[0], at)


def rate_at(key, at):
    return [stretch.rate for stretch in key.stretches if stretch.since <= at][-1]


def known(seen):
    return [stretch.is_measured for stretch in seen.keys[0].stretches]


def test_between_two_refusals_it_is_what_was_accepted():
    seen = analyze_trace(recording([*steady(0, 2, 10), refused(2), *steady(2, 6, 40), refused(6), *steady(6, 10, 40)]))
    assert quota(seen, 3.0) == pytest.approx(40, rel=0.01)
    assert seen.is_measured


def test_until_the_first_refusal_it_is_that_of_the_next_stretch():
    seen = analyze_trace(recording([*steady(0, 2, 10), refused(2), *steady(2, 6, 40), refused(6)]))
    assert quota(seen, 0.0) == pytest.approx(40, rel=0.01)
    assert seen.keys[0].burst == 4.0


def test_what_was_accepted_above_the_quota_before_the_first_refusal_was_a_burst():
    at_once = [Call(0.0, 0.05, 200)] * 30
    seen = analyze_trace(recording([*at_once, refused(0.1), *steady(0.1, 4.1, 10), refused(4.1)]))
    assert quota(seen, 0.0) == pytest.approx(10, rel=0.01)
    assert seen.keys[0].burst == 30


def test_a_drop_shows_where_it_was_run_into():
    calls = [*steady(0, 1, 80), refused(1), *steady(1, 5, 80), refused(5), *steady(5, 9, 30), refused(9)]
    seen = analyze_trace(recording(calls))
    assert [round(stretch.rate) for stretch in seen.keys[0].stretches] == [80, 30]
    assert [stretch.since for stretch in seen.keys[0].stretches] == [0.0, 5.0]


def test_a_block_of_refusals_is_averaged_with_what_came_after():
    blocked = [refused(10 + number) for number in range(50)]
    seen = analyze_trace(recording([*steady(0, 10, 60), *blocked, *steady(60, 70, 60), refused(70)]))
    assert quota(seen, 30.0) == pytest.approx(600 / 60, rel=0.02)


def test_callers_that_climb_back_leave_some_of_it_unused():
    climbing = [*steady(2, 3, 20), *steady(3, 4, 40), *steady(4, 5, 90)]
    seen = analyze_trace(
        recording([*steady(0, 2, 30), refused(2), *climbing, refused(5), *steady(5, 9, 90), refused(9)])
    )
    assert known(seen) == [False, True]
    assert [round(stretch.rate) for stretch in seen.keys[0].stretches] == [50, 90]


def test_callers_that_do_not_wait_may_leave_some_of_it_unused():
    def seen(waited):
        calls = [*steady(0, 1, 20, waited=waited), refused(1), *steady(1, 6, 20, waited=waited), refused(6)]
        return analyze_trace(recording(calls))

    assert not seen(0.0).is_measured
    assert seen(0.1).is_measured


def test_what_was_measured_holds_on_but_not_backwards():
    climbing = [*steady(1, 3, 10), *steady(3, 4, 36)]
    tail = [*steady(4, 8, 20), refused(8), *steady(8, 12, 19)]
    seen = analyze_trace(recording([refused(1), *climbing, refused(4), *tail]))
    assert known(seen) == [False, True]
    assert [stretch.since for stretch in seen.keys[0].stretches] == [0.0, 4.0]


def test_several_refusals_at_a_drop_are_not_counted_into_the_new_quota():
    shower = [refused(at) for at in (5.0, 5.4, 5.6, 5.9)]
    calls = [*steady(0, 1, 80), refused(1), *steady(1, 5.4, 80), *shower, *steady(5.4, 9, 30), refused(9)]
    seen = analyze_trace(recording(calls))
    assert [round(stretch.rate) for stretch in seen.keys[0].stretches] == [80, 30]
    assert seen.keys[0].stretches[1].since == 5.4
    assert known(seen) == [True, True]


def test_a_run_that_was_never_refused_knows_it_only_from_below():
    seen = analyze_trace(recording(steady(0, 10, 20)))
    assert not seen.is_measured
    assert quota(seen, 5.0) == pytest.approx(20, rel=0.06)
    assert seen.retry_after == ()


def test_a_learned_rate_above_what_was_used_counts_where_nothing_was_refused():
    seen = analyze_trace(recording(steady(0, 10, 20), learned=[(1.0, 10.0), (9.0, 55.0)]))
    assert quota(seen, 5.0) == 55.0
    calls = [*steady(0, 1, 50), refused(1), *steady(1, 5, 50), refused(5), *steady(5, 10, 5)]
    assert quota(analyze_trace(recording(calls, learned=[(7.0, 49.0), (8.0, 49.0)])), 9.0) == pytest.approx(
        50, rel=0.05
    )


def test_without_learned_rates_a_caller_that_slows_down_does_not_lower_it():
    seen = analyze_trace(recording([*steady(0, 1, 50), refused(1), *steady(1, 5, 50), refused(5), *steady(5, 10, 5)]))
    assert quota(seen, 9.0) == pytest.approx(50, rel=0.05)


def test_failures_in_a_row_are_an_outage_until_midway_to_the_next_success():
    calls = [*steady(0, 4, 10), *steady(4, 5, 10, 503), Call(6.0, 10.0, 0), Call(8.0, 0.05, 200), *steady(8, 10, 10)]
    seen = analyze_trace(recording(calls))
    (outage,) = seen.outages
    assert outage.at == pytest.approx(4.05)
    assert outage.until == pytest.approx(7.0)
    assert seen.flaky == 0.0
    assert seen.failed == 11


def test_an_outage_is_not_counted_as_time_in_which_nothing_was_allowed():
    failing = [Call(5.0 + number / 10, 0.01, 503) for number in range(30)]
    calls = [*steady(0, 1, 20), refused(1), *steady(1, 5, 20), *failing, *steady(8.1, 12, 20), refused(12)]
    seen = analyze_trace(recording(calls))
    assert quota(seen, 3.0) == pytest.approx(20, rel=0.06)
    assert quota(seen, 10.0) == pytest.approx(20, rel=0.06)


def test_single_failures_are_a_share():
    calls = steady(0, 10, 10)
    calls[10] = calls[10]._replace(status=500)
    calls[40] = calls[40]._replace(status=500)
    seen = analyze_trace(recording(calls))
    assert seen.outages == ()
    assert seen.flaky == pytest.approx(0.02)


def test_every_key_has_a_quota_of_its_own():
    other = [call._replace(key=2) for call in (*steady(0, 1, 5), refused(1), *steady(1, 11, 5), refused(11))]
    seen = analyze_trace(recording([*steady(0, 1, 50), refused(1), *steady(1, 11, 50), refused(11), *other]))
    assert [round(rate_at(key, 5.0)) for key in seen.keys] == [50, 5]


def test_keys_go_by_the_label_of_their_credential():
    trace = recording([*steady(0, 4, 5), *(call._replace(key=2) for call in steady(0, 4, 9))])
    trace.labels = {1: "key-2", 2: "key-1"}
    seen = analyze_trace(trace)
    assert [(key.label, round(key.mean_rate)) for key in seen.keys] == [("key-1", 10), ("key-2", 6)]  # the best second


def test_the_mean_of_a_quota_is_weighed_by_time():
    calls = [*steady(0, 1, 80), refused(1), *steady(1, 5, 80), refused(5), *steady(5, 9, 30), refused(9)]
    (key,) = analyze_trace(recording(calls)).keys
    assert key.mean_rate == pytest.approx((5 * 80 + 4 * 30) / 9, rel=0.02)
    assert [round(key.rate_at(at)) for at in (0.0, 4.9, 5.0, 100.0)] == [80, 80, 30, 30]


def test_what_refusals_said_is_kept():
    calls = [*steady(0, 1, 5), refused(1, 2.0), *steady(3, 5, 5), refused(5)]
    assert analyze_trace(recording(calls)).retry_after == (2.0, None)


@pytest.mark.parametrize("status", [429, 503, 0])
def test_a_recording_in_which_nothing_was_served_says_nothing(status):
    with pytest.raises(ValueError, match="no served call"):
        analyze_trace(recording(steady(0, 5, 5, status)))


@pytest.mark.parametrize("end", [1.0, 1.002, 30.0])
def test_a_single_refusal_leaves_a_quota_that_is_above_nothing(end):
    seen = analyze_trace(recording([*steady(0, 1, 5), refused(1)], ended_at=end))
    assert all(stretch.rate > 0 for stretch in seen.keys[0].stretches)
    assert not seen.is_measured
