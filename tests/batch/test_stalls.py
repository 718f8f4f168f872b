"""When it is no use to go on."""

import pytest

from headgate.batch.config import BatchConfig
from headgate.batch.report import BatchReport
from headgate.batch.stalls import FEWEST_FAILURES, NEVER_ANSWERED, NoResponseMonitor
from headgate.engine.supervisor import Stop, StopReason
from headgate.lab.virtual_time import VirtualClock


@pytest.fixture
def clock():
    return VirtualClock()


def monitor_of(clock, standstill=900, failures=0):
    monitor = NoResponseMonitor(BatchConfig(standstill=standstill), 10.0, clock)
    for _ in range(failures):
        monitor.on_no_answer("host: cannot be reached")
    return monitor


def test_a_run_that_never_had_an_answer_is_stopped_soon(clock):
    monitor = monitor_of(clock, failures=FEWEST_FAILURES)
    clock.advance(NEVER_ANSWERED - 1)
    assert monitor.check(BatchReport(calls=5)) is None
    clock.advance(1)
    assert monitor.check(BatchReport(calls=5)) == Stop(StopReason.SILENT, "host: cannot be reached")


def test_one_that_had_an_answer_is_given_more_time(clock):
    monitor = monitor_of(clock)
    monitor.on_answer()
    monitor.on_no_answer("host: hung up")
    report = BatchReport(calls=20, done=1)
    clock.advance(10)
    assert monitor.check(report) is None
    clock.advance(899)
    assert monitor.check(report) is None
    clock.advance(1)
    stop = monitor.check(report)
    assert stop is not None
    assert (stop.reason, monitor.last_error) == (StopReason.SILENT, "host: hung up")
    assert monitor.check(report, is_paused=True) is None


def test_rows_lost_to_the_outage_are_no_progress(clock):
    monitor = monitor_of(clock)
    monitor.on_answer()
    report = BatchReport(calls=20, dead=4)
    report.reasons["transient"] = 4
    clock.advance(900)
    assert monitor.check(report) is not None


def test_without_a_bound_on_standing_still_it_waits(clock):
    monitor = monitor_of(clock, standstill=None, failures=10)
    clock.advance(1e6)
    assert monitor.is_silent
    assert monitor.check(BatchReport(calls=20)) is None
