"""One sick host never slows another: many hosts on loopback, some slow, failing, throttling or lying.

Healthy ones keep at least 98 % of the calls they have when they are alone, at a pace that leaves half of the CPU idle.
Real time and real sockets, since that is what could be short.
"""

import pytest
from bench.crawl_hosts import measure

KEPT = 0.98
BUSY = 0.5
"""Of a core; above it the machine would be measured and not the crawler."""


def compare(healthy, sick, **settings):
    alone = measure(healthy, 0, **settings)
    beside = measure(healthy, sick, **settings)
    assert beside.sick_calls > 0
    assert alone.forbidden_calls == beside.forbidden_calls == 0
    figures = (
        f"{alone.healthy_calls} calls alone, {beside.healthy_calls} beside; {alone.cpu:.2f}, {beside.cpu:.2f} cores"
    )
    if max(alone.cpu, beside.cpu) > BUSY:
        pytest.skip(f"this machine is too busy to tell: {figures}")
    assert beside.healthy_calls >= KEPT * alone.healthy_calls, figures
    return alone, beside


def test_forty_hosts_five_of_them_sick():
    compare(35, 5, rate=4.0, warm_up=1.5, periods=20)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_thousand_hosts_fifty_of_them_sick():
    alone, _ = compare(950, 50, rate=0.25, warm_up=12.0, periods=8)
    assert alone.healthy_calls == pytest.approx(950 * 8, rel=0.02)
