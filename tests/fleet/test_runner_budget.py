"""Batches of several members that spend from one leased budget."""

import asyncio

from headgate import AdaptiveRateLimiter, BatchRunner, RateLimitConfig
from headgate.engine.supervisor import StopReason
from headgate.fleet.member import FleetMember, MemberReport
from headgate.fleet.protocol import Caps
from headgate.fleet.state_store import MemoryRunState

from .counting_api import KNOWN_LIMITS


def limiter():
    """One that has no pace to learn."""
    return AdaptiveRateLimiter(RateLimitConfig(limits=KNOWN_LIMITS))


async def ask(row, ctx):
    await asyncio.sleep(0.001)
    return "done"


def test_several_runs_stop_together_at_the_cap_of_the_fleet():
    store = MemoryRunState()
    members = [FleetMember(store, "nightly", caps=Caps(max_tokens=1000), report=MemberReport) for _ in range(3)]
    for member in members:
        member.start()

    async def run_all():
        runners = [
            BatchRunner(ask, workers=10, cost={"tokens": 10}, budget=member.budget, limiter=limiter())
            for member in members
            for _ in range(2)  # blocks of one process
        ]
        return await asyncio.gather(*(runner.run(range(200)) for runner in runners))

    reports = asyncio.run(asyncio.wait_for(run_all(), 60.0))
    for member in members:
        member.close()
    assert sum(report.tokens for report in reports) == 1000
    assert {report.stop.reason for report in reports} == {StopReason.CAPS}
    view = store.view("nightly")
    assert view.charged.tokens == 1000.0
    assert view.members == ()


def test_without_caps_a_budget_changes_nothing():
    member = FleetMember(MemoryRunState(), "nightly", report=MemberReport)
    report = BatchRunner(ask, cost={"tokens": 10}, budget=member.budget, limiter=limiter()).run_sync(range(50))
    assert (report.done, report.stop) == (50, None)
    assert member.budget.collect(0.0).spent.tokens == 500.0
