"""The page of a store's fleet, as `headgate web --store URL` serves it: its workers, and orders that reach all."""

import pytest

from headgate.cli.commands.web import shown_runs
from headgate.distributed.backends.redis import RedisStore
from headgate.engine.supervisor import StopReason
from headgate.fleet.member import FleetMember, MemberReport
from headgate.fleet.protocol import Caps
from headgate.fleet.redis_state import RedisRunState
from headgate.limiter.key_lines import KeyLine
from headgate.web import serve

pytestmark = pytest.mark.chaos

KEY = KeyLine(key="openai/gpt-4o-mini", rate=222.0, said=230.0, sent=900, done=890, refused=3, in_flight=7)
REPORT = MemberReport(done=450, failed=2, calls=455, rate_limited=3, in_flight=7, keys=(KEY,))


@pytest.fixture
def members(redis_server):
    """Two workers of one run; they report when a test lets them."""
    state = RedisRunState(RedisStore(redis_server.url))
    two = [FleetMember(state, "nightly", caps=Caps(), report=lambda: REPORT, job="j") for _ in range(2)]
    for member in two:
        member.step()
    return two


@pytest.fixture
def page(redis_server, members, new_page):
    served = serve(shown_runs(redis_server.url))
    try:
        yield new_page(served.url)
    finally:
        served.close()


def test_workers_are_shown_and_orders_reach_all_of_them(page, members, until, keep_picture):
    until(page, "document.querySelectorAll('#members-list li').length === 2")
    assert page.inner_text("#members-sum") == "2 workers on 1 machine"
    assert "450 done · 7 in flight · 2 failed" in page.inner_text("#members-list")
    assert "openai/gpt-4o-mini" in page.inner_text("#keys-body").replace("\n", "")
    keep_picture(page, "fleet")
    page.click("#pause")
    page.keyboard.press("Enter")
    until(page, "[...document.querySelectorAll('.toast p')].length > 0")
    for member in members:
        member.step()
    assert all(member.orders.paused for member in members)
    until(page, "document.querySelector('#state').textContent === 'paused'")
    page.click("#pause")
    until(page, "document.querySelector('#state').textContent !== 'paused'")
    page.click("#stop")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#state').textContent.startsWith('stop')")
    for member in members:
        member.step()
    assert [(member.orders.stop, member.orders.paused) for member in members] == [(StopReason.STOPPED, False)] * 2
