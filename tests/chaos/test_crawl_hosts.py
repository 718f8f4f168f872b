"""One sick host never slows another: many hosts on loopback, some slow, failing, throttling or lying.

Healthy ones keep at least 98 % of the calls they have when they are alone, at a pace that leaves half of the CPU idle.
Real time and real sockets, since that is what could be short.
"""

import pytest
from bench.crawl_hosts import measure

KEPT = 0.98
BUSY = 0.5
"""Of a core."""


def compare(healthy, sick, kept, tries=1, **settings):
    """Tried again, if that is said, where too little came of it: the machine may have stood still."""
    alone = measure(healthy, 0, **settings)
    for _ in range(tries):
        beside = measure(healthy, sick, **settings)
        if beside.sick_calls and beside.healthy_calls >= kept * alone.healthy_calls:
            break
    assert beside.sick_calls > 0
    assert alone.forbidden_calls == beside.forbidden_calls == 0
    figures = (
        f"{alone.healthy_calls} calls alone, {beside.healthy_calls} beside; {alone.cpu:.2f}, {beside.cpu:.2f} cores"
    )
    assert beside.healthy_calls >= kept * alone.healthy_calls, figures
    return alone, beside


@pytest.mark.chaos
@pytest.mark.alone
def test_forty_hosts_five_of_them_sick():
    """A sick host that held workers or permits would stop the others, not slow them, and would do so every time."""
    compare(35, 5, 0.8, tries=4, rate=4.0, warm_up=1.5, periods=8)


@pytest.mark.chaos
@pytest.mark.alone
@pytest.mark.timeout(600)
def test_a_thousand_hosts_fifty_of_them_sick():
    alone, beside = compare(950, 50, KEPT, rate=0.15, warm_up=20.0, periods=8)
    assert max(alone.cpu, beside.cpu) <= BUSY, "the machine would be measured and not the crawler"
    assert alone.healthy_calls == pytest.approx(950 * 8, rel=0.02)
