"""Outages of a real server, with default settings: no client behind the gate loses a call."""

from __future__ import annotations

import pytest
from tests.integrations.outages import Server, lost_in

pytestmark = [pytest.mark.chaos, pytest.mark.alone, pytest.mark.timeout(600)]


@pytest.mark.parametrize("outage", [3.0, 30.0])
@pytest.mark.parametrize("clients", [("aiohttp", "httpx", "requests"), ("httpx2", "openai"), ("guarded", "urllib3")])
def test_no_client_loses_a_call(clients, outage):
    """A few at a time: each has up to 300 threads, and answers that are slow for lack of a processor slow the pace."""
    with Server() as server:
        assert lost_in(server, outage, 300, 20.0, after=5.0, clients=clients) == {client: [] for client in clients}
